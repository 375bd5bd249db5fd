package uverbs

import (
	"slices"
	"time"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
	"github.com/pureverbs/rdma/internal/uapi"
)

// A queue pair in error completes everything with a flush error, by the book. The software
// devices do so for what was posted before the error; what comes later they leave lying
// (receives on rxe and siw, and sends on siw), and a program that counts completions would
// wait for ever. So the library makes those completions itself: what is posted to a queue
// pair that is known to be in error never reaches the kernel, and on siw what the kernel
// left lying is taken back. mlx5 goes by the book.

// flushes tells whether the device completes by itself whatever is posted in error.
func (k *kernel) flushes() bool { return k.driver == abi.RDMA_DRIVER_MLX5 }

// suspect adds the connection that a failed completion tells of, if there is something to
// do. The completion's queue is locked: as long as it is, the number cannot go from a dead
// queue pair to a new one, which drops what the dead one left there first.
func (c *Context) suspect(list []*QP, qpNum uint32) []*QP {
	if c.k.flushes() {
		return list
	}
	c.numMu.Lock()
	defer c.numMu.Unlock()
	if q := c.byNum[qpNum]; q != nil && q.typ == QPTypeRC && q.State() != StateError {
		return append(list, q)
	}
	return list
}

// suspects are the connections of completions, just polled, that are no success.
func (c *Context) suspects(wcs []WC) (list []*QP) {
	for i := range wcs {
		if wcs[i].Status != WCSuccess {
			list = c.suspect(list, wcs[i].QPNum)
		}
	}
	return list
}

// buryAll looks after suspects. No queue is locked.
func buryAll(suspects []*QP) {
	for _, q := range suspects {
		if q.State() != StateError {
			q.bury()
		}
	}
}

// bury moves a connection that has failed to StateError, where it is or is about to be by
// itself.
func (q *QP) bury() {
	if q.begin("flush queue pair") != nil {
		return // it is closed by now, and its completions with it
	}
	defer q.end()
	q.modMu.Lock()
	defer q.modMu.Unlock()
	in := q.modifyRequest(&QPAttr{State: StateError}, QPAttrState)
	if err := q.ctx.k.invoke(uapi.ModifyQP, uapi.Bytes(&in), nil); err != nil && !isEIO(err) {
		return
	}
	q.enterError()
}

// flushPatience bounds the wait for the kernel's flush: rxe of 5.10 keeps a request that its
// peer refused for ever.
const flushPatience = 50 * time.Millisecond

// enterError notes that the kernel has moved the queue pair to StateError, and completes
// what it left lying. From here on posts are completed by the library, after the kernel's
// flush of what came before: rxe may still be at it (on a work queue, from 6.4 on).
func (q *QP) enterError() {
	if q.ctx.k.flushes() {
		q.state.Store(uint32(StateError))
		return
	}
	q.sqMu.Lock()
	q.rqMu.Lock()
	defer q.sqMu.Unlock()
	defer q.rqMu.Unlock()
	q.state.Store(uint32(StateError))
	if q.rings.siw == nil {
		for end := time.Now().Add(flushPatience); !q.rings.rxe.Drained() && time.Now().Before(end); {
			time.Sleep(100 * time.Microsecond)
		}
		return
	}
	q.rings.siw.TakeSends(func(id uint64) { q.send.give(q.flushed(id, provider.WCSend)) })
	if q.rings.siw.HasRecv() {
		q.rings.siw.TakeRecvs(func(id uint64) { q.recv.give(q.flushed(id, provider.WCRecv)) })
	}
}

func (q *QP) flushed(id uint64, op provider.WCOpcode) provider.WC {
	return provider.WC{ID: id, Status: WCFlushError, Opcode: op, QPNum: q.num}
}

// give adds a completion that the library made. It comes after those in the ring.
func (q *CQ) give(wc provider.WC) {
	q.mu.Lock()
	q.own = append(q.own, wc)
	q.mu.Unlock()
	q.wake()
	if q.ch != nil && q.waiters.Load() > 0 {
		q.ch.interrupt()
	}
}

// takeOwn takes the oldest; there is one.
func (q *CQ) takeOwn() provider.WC {
	wc := q.own[0]
	if q.own = q.own[1:]; len(q.own) == 0 {
		q.own = nil
	}
	return wc
}

func (q *CQ) forgetOwn(qpNum uint32) {
	q.own = slices.DeleteFunc(q.own, func(wc provider.WC) bool { return wc.QPNum == qpNum })
}
