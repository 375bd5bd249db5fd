//go:build linux

package fakekernel

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
)

const psnMask = 0xff_ffff

// nic is the room that the execution of one work request needs; there is one, because one
// runs at a time, under the lock.
type nic struct {
	mover
	local, remote []span
	src           []span // of a datagram: its header and its data
	work, old     work   // the request that is carried out, one that completes
	recv          recvWork
	wc            abi.IbUverbsWc
	word          uint64 // what an atomic operation brings
	grh           [grhSize]byte
}

func (n *nic) init() {
	n.local, n.remote, n.src = make([]span, 0, maxPieces), make([]span, 0, maxPieces), make([]span, 0, maxPieces+1)
}

// Kinds of trying again.
const (
	notTrying = iota
	tryRNR    // the receiver is not ready
	tryAck    // no answer
	tryFence  // when requests before it have completed
	tryNever  // until the end of the queue pair
)

// postSend is the doorbell. The work requests are in the queue.
func (f *verbsFile) postSend(in, resp []byte) (int, error) {
	c := load[abi.IbUverbsPostSend](in)
	q, err := lookup[*qp](f, c.QpHandle)
	if err != nil {
		return 0, err
	}
	tooShort := int(c.WqeSize) < len(bytesOf(&abi.IbUverbsSendWr{}))
	if tooShort && (f.k.version >= v601 || !f.dev.iwarp()) { // siw of 5.10 looks at the state first
		return 0, unix.EINVAL
	}
	if err := f.dev.drv.mayPost(q); err != nil {
		return 0, err
	}
	if f.k.opts.Deferred {
		f.k.after(0, q.run)
	} else {
		f.k.runQP(q)
	}
	clear(resp[:4])
	return 4, nil
}

// runQP carries out the send requests of a queue pair, until there is none or one has to
// wait.
func (k *Kernel) runQP(q *qp) {
	if q.gone {
		return
	}
	switch q.state {
	case stateError:
		q.flush()
		return
	case stateSQE:
		q.flushSends()
		return
	}
	for w := &k.nic.work; q.sending() && q.sq.next(w); {
		if q.trying != notTrying && time.Now().Before(q.waitUntil) {
			return // a timer will come back
		}
		if !k.step(q, w) {
			return
		}
	}
	q.checkDrained()
}

// sending tells whether requests are carried out. What had begun when the queue pair was
// told to drain goes on.
func (q *qp) sending() bool {
	return q.state == stateRTS || q.state == stateSQD && q.trying != notTrying
}

// step carries one send request out; false if it has to be tried again later.
func (k *Kernel) step(q *qp, w *work) bool {
	v := q.f.dev.drv.execute(k, q, w)
	if q.state == stateError {
		return true // a datagram to itself broke it: the request has ended with the others
	}
	switch v.again {
	case tryNever, tryFence:
		return false
	case tryRNR:
		return q.pause(tryRNR, q.attr.RnrRetry, v.rnr, statusRNRRetryExceeded, w)
	case tryAck:
		return q.pause(tryAck, q.attr.RetryCnt, k.ackTimeout(q), statusRetryExceeded, w)
	}
	q.stopTrying()
	if v.status != statusSuccess {
		if v.peer == q {
			v.broken = false // it is its own peer, and goes to error once: with the request, not before
		}
		v.finish(k)
		q.fail(w, v.status)
		return true
	}
	q.sq.advance()
	if w.brings() {
		q.reading++
	}
	switch {
	case k.opts.AckDelay > 0:
		v.finish(k)
		k.after(k.opts.AckDelay, q.ack)
	case k.opts.AckFirst:
		q.completeOne()
		v.finish(k)
	default:
		v.finish(k)
		q.completeOne()
	}
	return true
}

// ackTimeout is the queue pair's own, 4.096 µs * 2^timeout, within the bounds that tests
// can bear. A timeout of 0 is none.
func (k *Kernel) ackTimeout(q *qp) time.Duration {
	return min(4096*time.Nanosecond<<q.attr.Timeout, k.opts.MaxRetry)
}

// pause puts the requester off, or fails the request if the tries are used up. 7 tries
// are without end for RNR; so is a timeout of 0.
func (q *qp) pause(kind, tries uint8, d time.Duration, status uint32, w *work) bool {
	if q.trying != kind {
		q.trying, q.tries = kind, tries
	} else if q.tries > 0 {
		q.tries--
	}
	endless := kind == tryRNR && tries == 7 || kind == tryAck && q.attr.Timeout == 0
	if q.tries == 0 && !endless {
		q.stopTrying()
		q.fail(w, status)
		return true
	}
	q.waitUntil = time.Now().Add(d)
	q.f.k.after(d, q.run)
	return false
}

func (q *qp) stopTrying() { q.trying = notTrying }

// acknowledged ends the oldest request that was carried out well, and lets go on what
// waited for it.
func (q *qp) acknowledged() {
	if !q.gone && q.completeOne() {
		q.f.k.runQP(q)
	}
}

// completeOne tells whether there was one.
func (q *qp) completeOne() bool {
	w := &q.f.k.nic.old
	if q.gone || !q.sq.pending(w) {
		return false
	}
	if q.sigAll || w.flags&sendSignaled != 0 {
		wc := q.f.k.nic.fresh(w.id, statusSuccess, q)
		wc.Opcode = wcOpcode(w.op)
		wc.ByteLen = w.length
		if w.hasImm() {
			wc.WcFlags = wcWithImm
		}
		q.send.post(wc, false)
	}
	if w.brings() {
		q.reading--
	}
	q.sq.complete()
	return true
}

// fresh is a completion to fill in.
func (n *nic) fresh(id uint64, status uint32, q *qp) *abi.IbUverbsWc {
	n.wc = abi.IbUverbsWc{WrId: id, Status: status, QpNum: q.num}
	return &n.wc
}

// fail ends a request badly, and with it the queue pair.
func (q *qp) fail(w *work, status uint32) {
	for q.completeOne() {
	}
	q.sq.advance()
	q.endSend(w, status)
	q.f.k.enter(q, q.failed())
}

// failed is the state after a send request that failed. On hardware a queue pair of a
// service without acknowledgements goes on receiving.
func (q *qp) failed() uint8 {
	if q.mlx5() != nil && q.typ != abi.IB_UVERBS_QPT_RC {
		return stateSQE
	}
	return stateError
}

// flush completes all that is posted with an error. What is posted to the receive queue
// later stays there, until something wakes the queue pair. A shared receive queue is not
// touched.
func (q *qp) flush() {
	q.flushSends()
	n := &q.f.k.nic
	for q.srq == nil && q.rq.peek(&n.recv) {
		q.recv.post(n.fresh(n.recv.id, statusFlush, q), true)
		q.rq.consume()
	}
}

// flushSends does that for send requests.
func (q *qp) flushSends() {
	n := &q.f.k.nic
	for q.completeOne() {
	}
	for q.sq.next(&n.old) {
		q.sq.advance()
		q.endSend(&n.old, statusFlush)
	}
	q.stopTrying()
}

// endSend ends the oldest send request with an error.
func (q *qp) endSend(w *work, status uint32) {
	q.send.post(q.f.k.nic.fresh(w.id, status, q), false)
	q.sq.complete()
}

// checkDrained tells the user when the send queue has come to rest after going to SQD,
// whether he asked for it or not.
func (q *qp) checkDrained() {
	if q.draining && q.trying == notTrying && !q.sq.pending(&q.f.k.nic.old) {
		q.draining = false
		q.raise(asyncSQDrained)
	}
}
