//go:build linux

package fakekernel

import "github.com/pureverbs/rdma/abi"

// work is a send request as its execution sees it, whatever queue it came from.
type work struct {
	id     uint64
	op     uint32 // enum ib_wr_opcode
	flags  uint32 // enum ib_send_flags
	length uint32 // bytes, of the pieces or inline
	data   []byte // inline, in the kernel's view of the queue
	pieces

	imm    abi.BE32
	invKey uint32 // of SEND with invalidate, LOCAL INVALIDATE

	addr, compareAdd, swap uint64 // of a one-sided operation
	rkey                   uint32
	flushType, flushLevel  uint8
	bind                   abi.RxeSendWrWrMw
	to                     abi.RxeSendWrWrUd // of a datagram
}

// recvWork is a receive request.
type recvWork struct {
	id     uint64
	length uint32 // bytes, as the user says: of the pieces
	pieces
}

// pieces is a scatter/gather list.
type pieces struct {
	num  int // more than the array holds if the list is broken
	list [maxPieces]abi.RxeSge
}

// maxPieces is as much as any driver takes.
const maxPieces = 64

// Kinds of operations, which overlap.

func (w *work) isSend() bool {
	return w.op == abi.IB_UVERBS_WR_SEND || w.op == abi.IB_UVERBS_WR_SEND_WITH_IMM || w.op == abi.IB_UVERBS_WR_SEND_WITH_INV
}

func (w *work) isWrite() bool {
	return w.op == abi.IB_UVERBS_WR_RDMA_WRITE || w.op == abi.IB_UVERBS_WR_RDMA_WRITE_WITH_IMM
}

// isAtomic: the operations that bring the old value.
func (w *work) isAtomic() bool {
	return w.op == abi.IB_UVERBS_WR_ATOMIC_CMP_AND_SWP || w.op == abi.IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD
}

// brings tells whether bytes come from the peer.
func (w *work) brings() bool { return w.op == abi.IB_UVERBS_WR_RDMA_READ || w.isAtomic() }

func (w *work) hasImm() bool {
	return w.op == abi.IB_UVERBS_WR_SEND_WITH_IMM || w.op == abi.IB_UVERBS_WR_RDMA_WRITE_WITH_IMM
}

// takesRecv tells whether the peer needs a receive request.
func (w *work) takesRecv() bool { return w.isSend() || w.op == abi.IB_UVERBS_WR_RDMA_WRITE_WITH_IMM }

// inline tells whether the bytes are in the queue. An ATOMIC WRITE has them there always,
// and an operation that sends none ignores the flag.
func (w *work) inline() bool {
	return w.op == abi.IB_UVERBS_WR_ATOMIC_WRITE || w.flags&sendInline != 0 && (w.isSend() || w.isWrite())
}

// sendQueue is the kernel's side of a send queue. A request is first carried out, then
// completed; between the two it is pending. None of the methods keeps w.
type sendQueue interface {
	next(w *work) bool    // the oldest request that is not carried out yet; false if there is none
	advance()             // it is carried out, and pending
	pending(w *work) bool // the oldest pending request
	complete()            // it is done with, and its slot the user's
	end(f *verbsFile)
}

// recvQueue is the kernel's side of a receive queue.
type recvQueue interface {
	peek(r *recvWork) bool // the oldest request
	consume()              // it is done with, and its slot the user's
	end(f *verbsFile)
}

// cqRing is the kernel's side of a completion queue.
type cqRing interface {
	post(wc *abi.IbUverbsWc) bool // false if the queue is full
	arm(solicitedOnly bool) error // the command REQ_NOTIFY_CQ
	fires(solicited bool) bool    // tells whether a completion raises an event, once for each arming
	end(f *verbsFile)
}

// collect appends the memory of the pieces, as much as limit.
func (p *pieces) collect(to []span, q *qp, limit, access uint32) ([]span, memErr) {
	for i := range min(p.num, maxPieces) {
		if limit == 0 {
			break
		}
		e := &p.list[i]
		n := min(e.Length, limit)
		if n == 0 {
			continue
		}
		s, err := q.f.dev.find(q.pd, e.Lkey, e.Addr, n, access)
		if err != memOK {
			return to, err
		}
		to = append(to, s)
		limit -= n
	}
	if limit > 0 {
		return to, memKey
	}
	return to, memOK
}

// room is how many bytes the pieces hold.
func (p *pieces) room() (n uint64) {
	for i := range min(p.num, maxPieces) {
		n += uint64(p.list[i].Length)
	}
	return n
}
