package mlx5

import (
	"github.com/pureverbs/rdma/mmio"
)

// Forget parts from a queue pair that is destroyed: its completions are removed, so that a
// new one of the same number cannot be credited with them, and receives from a shared queue
// are taken back there. The device must be done with the queue pair. From here on what
// claims to be its completion is corrupt. nil is no queue pair.
func (q *CQ) Forget(qp *QP) {
	if qp == nil {
		return
	}
	q.Purge(qp)
	if q.sender.qp == qp {
		q.sender.forget()
	}
	qp.sendCQ.CompareAndSwap(q, nil)
	qp.recvCQ.CompareAndSwap(q, nil)
}

// Purge removes the completions of a queue pair that went to state RESET. Entries of others
// move up to where the youngest ones of it were, and the room is given back at the old end.
func (q *CQ) Purge(qp *QP) {
	q.settle()
	end := q.next
	for end-q.next <= q.ring.mask && q.ring.written(end, tailOf(q.ring.entry(end))) {
		end++
	}
	mmio.OrderReads()
	gone := uint32(0)
	for i := end; i != q.next; {
		i--
		e := q.ring.entry(i)
		switch {
		case qp.owns(e):
			gone++
			qp.giveBack(e)
		case gone > 0:
			moveCQE(q.ring.entry(i+gone), e)
		}
	}
	if gone > 0 {
		q.seek(q.next + gone)
		q.Release()
	}
}

// moveCQE copies an entry, all but the owner bit, which belongs to the place.
func moveCQE(to, from addr) {
	owner := to.get8(offOwner) & 1
	copy(to.bytes(cqeSize), from.bytes(cqeSize))
	to.put8(offOwner, from.get8(offOwner)&^1|owner)
}

// owns tells whether an entry is of the queue pair.
func (q *QP) owns(e addr) bool {
	if q.ctx.byUIdx {
		return e.get32(offIndex)&lowQPN == q.key
	}
	return e.get32(offQP)&lowQPN == q.num
}

// giveBack returns the receive of a removed entry to the shared queue.
func (q *QP) giveBack(e addr) {
	if q.srq == nil {
		return
	}
	switch uint32(e.get8(offOwner) >> 4) {
	case cqeRecvWrite, cqeRecv, cqeRecvImm, cqeRecvInv, cqeRecvFailed:
		q.srq.finish(e.get16(offCounter))
	}
}
