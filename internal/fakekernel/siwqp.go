//go:build linux

package fakekernel

import (
	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
)

// Asynchronous events that siw raises and rxe does not: enum ib_event_type.
const (
	asyncQPFatal   = 1
	asyncQPRequest = 2
)

// siwQP is what siw keeps of a queue pair; the ring is the send queue. The states are those
// of ib_uverbs: INIT stands for siw's IDLE, SQD for CLOSING, SQE for TERMINATE.
type siwQP struct {
	siwRing
	q    *qp
	own  *siwRQ  // its receive queue; nil if it shares one
	conn *siwEnd // the connection, if there is one

	cur      siwWork // the send request that is being carried out
	busy     bool
	muted    bool // nothing is sent any more, for ever
	dying    bool // it is being destroyed: no events
	ird, ord uint8
	held     []siwDone // what AckDelay holds back
}

// siwDone is the completion of a send request.
type siwDone struct {
	wc        abi.IbUverbsWc
	solicited bool
}

// siw returns siw's part of a queue pair of siw, nil for another.
func (q *qp) siw() *siwQP {
	s, _ := q.sq.(*siwQP)
	return s
}

// The core finds nothing to do with the queue.
func (s *siwQP) next(*work) bool    { return false }
func (s *siwQP) advance()           {}
func (s *siwQP) pending(*work) bool { return false }
func (s *siwQP) complete()          {}

// end: sw/siw/siw_verbs.c, siw_destroy_qp.
func (s *siwQP) end(f *verbsFile) {
	s.dying = true
	_ = s.enter(stateError) // from IDLE, too, there is a way to it
	s.mapping.end(f)
}

// modify honours the state and nothing else: the access flags are without effect, too.
// siw_verbs_modify_qp.
func (siwDriver) modify(_ *verbsFile, q *qp, c *abi.IbUverbsModifyQp) error {
	switch {
	case c.AttrMask&maskPort != 0 && c.PortNum != 1, c.AttrMask&maskAV != 0 && c.Dest.PortNum != 1,
		c.AttrMask&maskState != 0 && c.QpState > stateError:
		return unix.EINVAL
	case c.AttrMask&maskState == 0:
		return nil
	}
	return q.siw().enter(c.QpState)
}

// enter moves the queue pair, and ends its connection where that is due: sw/siw/siw_qp.c,
// siw_qp_modify. For a transition that there is not, nothing happens, without an error.
func (s *siwQP) enter(to uint8) error {
	if to > stateRTS {
		s.muted = true
	}
	switch s.q.state {
	case stateInit:
		return s.leaveIdle(to)
	case stateRTS:
		s.leaveRTS(to)
	case stateSQD:
		s.leaveClosing(to)
	case stateSQE:
		s.leaveTerminate(to)
	}
	return nil
}

// leaveIdle: only the connection manager, who has a socket, leads to RTS.
func (s *siwQP) leaveIdle(to uint8) error {
	switch to {
	case stateRTS:
		return unix.EINVAL
	case stateError:
		s.flushRecvs()
		s.q.state = stateError
	}
	return nil
}

func (s *siwQP) leaveRTS(to uint8) {
	switch {
	case to == stateSQD && !s.busy:
		s.q.state = stateSQD
		s.flushRecvs()
	case to == stateSQD, to == stateError:
		s.q.state = stateError
		s.flushSends()
		s.flushRecvs()
	case to == stateSQE:
		s.q.state = stateSQE
	default:
		return
	}
	s.conn.drop()
}

func (s *siwQP) leaveClosing(to uint8) {
	switch to {
	case stateReset, stateInit:
		s.q.state = stateInit
	case stateError:
		s.q.state = stateError
		s.flushRecvs()
	}
}

func (s *siwQP) leaveTerminate(to uint8) {
	if to == stateError {
		s.flushRecvs()
		s.q.state = stateError
		if s.busy {
			s.flushSends()
		}
	}
}

// lost is the end of the connection by the peer, or by a fault in what came from it:
// siw_qp_llp_close. It is an error for a queue pair that was not connected yet, too.
func (s *siwQP) lost() {
	s.muted, s.conn = true, nil
	if s.q.gone {
		return
	}
	s.q.state = stateError
	s.flushSends()
	s.flushRecvs()
}

// connected is the way to RTS. READs need room at both ends, which siw rounds up.
func (s *siwQP) connected(e *siwEnd) {
	s.conn, s.q.state = e, stateRTS
	s.ird, s.ord = uint8(roundUp(uint32(e.ird))), uint8(roundUp(uint32(e.ord)))
}

// flushSends completes what is in the send queue, as far as it is there now. What is posted
// later stays for ever. siw_sq_flush.
func (s *siwQP) flushSends() {
	s.releaseHeld()
	if s.busy {
		s.busy = false
		s.completeSend(&s.cur, abi.SIW_WC_WR_FLUSH_ERR, 0)
	}
	drained := false
	for siwFlags(s.slot()) != 0 {
		var w siwWork
		w.load(s.slot())
		s.free()
		s.completeSend(&w, abi.SIW_WC_WR_FLUSH_ERR, 0)
		drained = true
	}
	if drained {
		s.raise(asyncSQDrained)
	}
}

// flushRecvs is the same for the receive queue. One that is shared is left alone.
func (s *siwQP) flushRecvs() {
	for r := s.own; r.slots() > 0 && siwFlags(r.slot()) != 0; {
		id := view[abi.SiwRqe](r.slot()).Id
		r.free()
		s.completeRecv(id, abi.SIW_WC_WR_FLUSH_ERR, 0)
	}
}

// completeSend ends a send request, now.
func (s *siwQP) completeSend(w *siwWork, status, n uint32) {
	s.q.send.post(s.fresh(w.id, w.op, status, n), w.solicited())
}

// completeRecv: siw forgets that the sender asked for a solicited event.
func (s *siwQP) completeRecv(id uint64, status, n uint32) {
	s.q.recv.post(s.fresh(id, abi.SIW_OP_RECEIVE, status, n), false)
}

// fresh is a completion in siw's numbers.
func (s *siwQP) fresh(id uint64, op uint8, status, n uint32) *abi.IbUverbsWc {
	wc := s.q.f.k.nic.fresh(id, status, s.q)
	wc.Opcode, wc.ByteLen = uint32(op), n
	return wc
}

// hold completes a send request after AckDelay, or before the queue is flushed.
func (s *siwQP) hold(w *siwWork, n uint32) {
	s.held = append(s.held, siwDone{*s.fresh(w.id, w.op, abi.SIW_WC_SUCCESS, n), w.solicited()})
	s.q.f.k.after(s.q.f.k.opts.AckDelay, func() {
		if !s.q.gone {
			s.release(1)
		}
	})
}

func (s *siwQP) releaseHeld() { s.release(len(s.held)) }

func (s *siwQP) release(n int) {
	for n = min(n, len(s.held)); n > 0; n-- {
		s.q.send.post(&s.held[0].wc, s.held[0].solicited)
		s.held = s.held[1:]
	}
}

func (s *siwQP) raise(typ uint32) {
	if !s.dying {
		s.q.raise(typ)
	}
}
