//go:build linux

package fakekernel

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/mmio"
)

const psnMask = 0xff_ffff

// nic is the room that the execution of one work request needs; there is one, because one
// runs at a time, under the lock.
type nic struct {
	local, remote []span
	wc            abi.IbUverbsWc
}

func (n *nic) init() {
	n.local, n.remote = make([]span, 0, maxSGE), make([]span, 0, maxSGE)
}

// Kinds of trying again.
const (
	notTrying = iota
	tryRNR    // the receiver is not ready
	tryAck    // no answer
	tryNever  // until the end of the queue pair
)

// postSend is the doorbell. The work requests are in the queue.
func (f *verbsFile) postSend(in, resp []byte) (int, error) {
	c := load[abi.IbUverbsPostSend](in)
	q, err := lookup[*qp](f, c.QpHandle)
	if err != nil {
		return 0, err
	}
	if int(c.WqeSize) < len(bytesOf(&abi.IbUverbsSendWr{})) || q.state < stateRTS {
		return 0, unix.EINVAL
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
// wait: sw/rxe/rxe_req.c.
func (k *Kernel) runQP(q *qp) {
	if q.gone {
		return
	}
	if q.state == stateError {
		q.flush()
		return
	}
	for q.state == stateRTS && !q.sq.empty(q.next) {
		if q.trying != notTrying && time.Now().Before(q.waitUntil) {
			return // a timer will come back
		}
		if !k.step(q) {
			return
		}
	}
}

// step carries one send request out; false if it has to be tried again later.
func (k *Kernel) step(q *qp) bool {
	slot := q.sq.slot(q.next)
	w := *view[abi.RxeSendWqe](slot) // the user may still write in the slot: look once
	v := k.execute(q, &w, slot[sendHead:])
	switch v.again {
	case tryNever:
		return false
	case tryRNR:
		return q.pause(tryRNR, q.attr.RnrRetry, v.rnr, statusRNRRetryExceeded, &w)
	case tryAck:
		return q.pause(tryAck, q.attr.RetryCnt, k.ackTimeout(q), statusRetryExceeded, &w)
	}
	q.stopTrying()
	if v.status != statusSuccess {
		v.finish(k)
		q.fail(&w, v.status)
		return true
	}
	q.next = mmio.Next(q.next, q.sq.mask)
	switch {
	case k.opts.AckDelay > 0:
		v.finish(k)
		k.after(k.opts.AckDelay, func() { q.complete() })
	case k.opts.AckFirst:
		q.complete()
		v.finish(k)
	default:
		v.finish(k)
		q.complete()
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
func (q *qp) pause(kind, tries uint8, d time.Duration, status uint32, w *abi.RxeSendWqe) bool {
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

// complete ends the oldest request that was carried out well.
func (q *qp) complete() {
	if q.gone || q.sq.own == q.next {
		return
	}
	w := view[abi.RxeSendWqe](q.sq.slot(q.sq.own))
	if q.sigAll || w.Wr.SendFlags&sendSignaled != 0 {
		wc := q.f.k.nic.fresh(w.Wr.WrId, statusSuccess, q)
		wc.Opcode = wcOpcode(w.Wr.Opcode)
		wc.ByteLen = w.Dma.Length
		if hasImm(w.Wr.Opcode) {
			wc.WcFlags = wcWithImm
		}
		q.send.post(wc, false)
	}
	q.sq.consume()
}

// fresh is a completion to fill in.
func (n *nic) fresh(id uint64, status uint32, q *qp) *abi.IbUverbsWc {
	n.wc = abi.IbUverbsWc{WrId: id, Status: status, QpNum: q.num}
	return &n.wc
}

// fail ends a request badly, and with it the queue pair.
func (q *qp) fail(w *abi.RxeSendWqe, status uint32) {
	for q.sq.own != q.next {
		q.complete()
	}
	wc := q.f.k.nic.fresh(w.Wr.WrId, status, q)
	q.send.post(wc, false)
	q.sq.consume()
	q.next = q.sq.own
	q.f.k.enter(q, stateError)
}

// flush completes all that is posted with an error. What is posted to the receive queue
// later stays there, until something wakes the queue pair.
func (q *qp) flush() {
	for q.sq.own != q.next {
		q.complete()
	}
	for !q.sq.empty(q.sq.own) {
		w := view[abi.RxeSendWqe](q.sq.slot(q.sq.own))
		q.send.post(q.f.k.nic.fresh(w.Wr.WrId, statusFlush, q), false)
		q.sq.consume()
	}
	q.next = q.sq.own
	q.stopTrying()
	for !q.rq.empty(q.rq.own) {
		w := view[abi.RxeRecvWqe](q.rq.slot(q.rq.own))
		q.recv.post(q.f.k.nic.fresh(w.WrId, statusFlush, q), true)
		q.rq.consume()
	}
}
