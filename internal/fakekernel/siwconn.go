//go:build linux

package fakekernel

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
)

// States of an end: enum siw_cep_state.
const (
	endAwaiting  = iota // active: the reply is not there yet
	endRequested        // passive: the request waits for the user's answer
	endRDMA             // connected
	endClosed
)

// siwEnd is one end of a TCP connection: struct siw_cep.
type siwEnd struct {
	k        *Kernel
	other    *siwEnd
	id       *cmID  // that hears of it; nil if none does
	qp       *siwQP // nil at the passive end before it accepts
	state    uint8
	passive  bool
	heard    bool     // passive: the other has sent something
	ird, ord uint8    // READs in flight, from the other and to it
	wire     []func() // under way to the other
}

// connectTCP makes the two ends. The passive end has room for the READs that the active
// one has in mind, and the other way round.
func (k *Kernel) connectTCP(id *cmID, q *siwQP, p *abi.RdmaUcmConnParam) *siwEnd {
	a := &siwEnd{k: k, id: id, qp: q, ird: p.ResponderResources, ord: p.InitiatorDepth}
	a.other = &siwEnd{k: k, other: a, state: endRequested, passive: true, ird: a.ord, ord: a.ird}
	k.after(k.replyTimeout(), func() {
		if a.state == endAwaiting {
			a.close(unix.ETIMEDOUT, nil, true)
		}
	})
	return a
}

// replyTimeout is the time in which the passive side has to accept or reject. It is 10 s
// with siw, where that of RoCE is about a minute; but a slow test must be able to answer.
func (k *Kernel) replyTimeout() time.Duration { return 20 * k.opts.CMTimeout }

// tell has do done at the other end, after what was told before. While the cable is out,
// TCP tries again.
func (e *siwEnd) tell(do func()) {
	if e.wire = append(e.wire, do); len(e.wire) == 1 {
		e.transmit()
	}
}

func (e *siwEnd) transmit() {
	for len(e.wire) > 0 {
		if e.k.cut {
			e.k.after(e.k.opts.MaxRetry, e.transmit)
			return
		}
		do := e.wire[0]
		e.wire = e.wire[1:]
		do()
	}
}

// close ends the connection at this end, and tells the other. The errno is for one who is
// waiting for a reply. With lost, the queue pair goes to error; else it falls silent.
func (e *siwEnd) close(errno unix.Errno, data []byte, lost bool) {
	if e == nil || e.state == endClosed {
		return
	}
	was, id, q := e.state, e.id, e.qp
	e.state, e.id = endClosed, nil
	if q != nil {
		q.muted = true
	}
	switch {
	case id == nil:
	case was == endAwaiting:
		id.iwReplied(errno, e, data)
	case was == endRDMA:
		id.iwClosed()
	}
	if q != nil && lost {
		q.lost()
	}
	e.tell(e.other.peerClosed)
}

// drop ends the connection on behalf of this side: siw_qp_cm_drop.
func (e *siwEnd) drop() { e.close(unix.EINVAL, nil, false) }

// fail ends it because of what came in: SIW_CM_WORK_CLOSE_LLP.
func (e *siwEnd) fail() { e.close(unix.EINVAL, nil, true) }

// peerClosed is the end of the stream: SIW_CM_WORK_PEER_CLOSE.
func (e *siwEnd) peerClosed() { e.close(unix.ECONNRESET, nil, true) }

// peer is the queue pair at the other end, nil if it cannot hear now.
func (e *siwEnd) peer() *siwQP {
	if e == nil || e.k.cut || e.other.state != endRDMA {
		return nil
	}
	return e.other.qp
}

// speak goes before what a queue pair sends; false if it is too early for that.
func (e *siwEnd) speak() bool {
	if !e.passive {
		e.other.heard = true
		return true
	}
	return e.heard || e.k.opts.LaxMPA
}

// early is what comes of data right behind the reply: the active end takes it for a part
// of the reply, as long as it has not read that. siw_recv_mpa_rr.
func (e *siwEnd) early() {
	if e.id != nil && e.id.takeBack(EventEstablished) {
		e.state = endAwaiting
	}
	e.fail()
}

// accepted is the reply: siw_proc_mpareply. What the other end reads, this one answers.
func (e *siwEnd) accepted(data []byte) {
	if e.state != endAwaiting {
		return
	}
	e.ird, e.ord = e.other.ord, e.other.ird
	if e.qp.q.gone || e.qp.q.state > stateRTR {
		e.close(unix.EINVAL, data, true)
		return
	}
	e.state = endRDMA
	e.qp.connected(e)
	e.id.iwReplied(0, e, data)
}

// accept brings the passive end to RTS: siw_accept. It reads no more than the other is
// ready to answer, and answers all that the other may read.
func (e *siwEnd) accept(id *cmID, q *siwQP, p *abi.RdmaUcmConnParam) error {
	switch {
	case e.state != endRequested: // the other has gone
		return unix.ECONNRESET
	case q.q.state > stateRTR, p.InitiatorDepth > siwMaxReads, p.ResponderResources > siwMaxReads:
		e.drop()
		return unix.EINVAL
	}
	e.ord, e.ird = min(e.ord, p.InitiatorDepth), max(e.ird, p.ResponderResources)
	e.id, e.qp, e.state = id, q, endRDMA
	q.connected(e)
	return nil
}

// maxMPAData: the length of private data goes through a byte, together with the four that
// siw puts before it. What is longer arrives as a broken message.
const maxMPAData = 255 - 4

// reply sends the answer to the request.
func (e *siwEnd) reply(data []byte) {
	if len(data) > maxMPAData {
		e.tell(e.other.fail)
		return
	}
	e.tell(func() { e.other.accepted(data) })
}

// reject answers the request with a refusal: siw_reject.
func (e *siwEnd) reject(data []byte) error {
	if e.state != endRequested {
		return unix.ECONNRESET
	}
	if len(data) > maxMPAData {
		e.tell(e.other.fail)
	} else {
		e.tell(func() { e.other.close(unix.ECONNRESET, data, true) })
	}
	e.drop()
	return nil
}
