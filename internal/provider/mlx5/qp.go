package mlx5

import (
	"sync/atomic"

	"github.com/pureverbs/rdma/internal/provider"
	"github.com/pureverbs/rdma/mmio"
)

// QP is the producer's side of a queue pair. The caller serialises each queue and has
// checked each work request against the queue pair's limits.
type QP struct {
	queueMem
	sq sendQueue
	rq recvQueue

	num      uint32
	key      uint32 // under which completions find it
	ops      uint32 // set of operations
	plain    uint32 // set of those that SendPlain does
	signal   uint8  // flag of each send request
	datagram bool
	reg      *register
	srq      *SRQ

	sendCQ, recvCQ atomic.Pointer[CQ] // nil once they have forgotten it
}

// Num is the queue pair's number on the device.
func (q *QP) Num() uint32 { return q.num }

// HasRecv tells whether the queue pair has a receive queue of its own.
func (q *QP) HasRecv() bool { return q.rq.limit > 0 }

// Recv encodes one receive request; total is the length of its pieces. The device sees it
// after PublishRecv.
func (q *QP) Recv(wr *provider.RecvWR, _ uint32) error { return q.rq.put(wr) }

// PublishRecv shows the encoded receive requests to the device. There is no doorbell.
func (q *QP) PublishRecv() {
	mmio.StoreRecord(q.rec.word32(recvCount), swapped(q.rq.head&0xffff))
}

// Reset begins anew, as the device does when the queue pair goes to state RESET: no request
// is open. Before it the completion queues must have been purged of the queue pair.
func (q *QP) Reset() {
	q.sq.reset()
	q.rq.reset()
	mmio.StoreRecord(q.rec.word32(recvCount), 0)
	mmio.StoreRecord(q.rec.word32(sendCount), 0)
}

// Close frees the memory and gives the register back. The kernel's queue pair is destroyed
// before, and then the completion queues have forgotten it: its number goes to another.
func (q *QP) Close() error {
	q.ctx.qps.drop(q.key)
	q.ctx.giveRegister(q.reg)
	return q.free()
}
