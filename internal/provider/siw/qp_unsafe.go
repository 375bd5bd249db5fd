package siw

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
)

// QPPlan is the driver's part of creating a queue pair.
type QPPlan struct {
	SigAll bool // every send request is signaled: the kernel leaves that to this side
	resp   abi.SiwUrespCreateQp
}

// Out is the memory for the driver's response.
func (p *QPPlan) Out() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&p.resp)), unsafe.Sizeof(p.resp))
}

// Attach maps the two queues that the kernel made; granted is what the kernel answered. With
// a shared receive queue no receive requests must have been asked for: the kernel's answer
// does not tell a receive queue with key 0 from one that it did not make.
func (p *QPPlan) Attach(m provider.Mapper, granted provider.QPCap) (*QP, error) {
	if err := checkSGE(max(granted.MaxSendSGE, granted.MaxRecvSGE)); err != nil {
		return nil, err
	}
	if granted.MaxInline > abi.SIW_MAX_INLINE {
		return nil, fmt.Errorf("%w: %d bytes of inline data", provider.ErrCorrupt, granted.MaxInline)
	}
	sq, err := attachProducer(m, p.resp.SqKey, p.resp.NumSqe, unsafe.Sizeof(abi.SiwSqe{}))
	if err != nil {
		return nil, err
	}
	qp := &QP{sq: sq, inline: granted.MaxInline}
	if p.SigAll {
		qp.signal = abi.SIW_WQE_SIGNALLED
	}
	if p.resp.NumRqe == 0 {
		return qp, nil
	}
	if qp.rq, err = attachProducer(m, p.resp.RqKey, p.resp.NumRqe, unsafe.Sizeof(abi.SiwRqe{})); err != nil {
		sq.close()
		return nil, err
	}
	return qp, nil
}

// checkSGE: a slot has room for so many pieces, whatever was granted.
func checkSGE(n uint32) error {
	if n > abi.SIW_MAX_SGE {
		return fmt.Errorf("%w: %d pieces a work request", provider.ErrCorrupt, n)
	}
	return nil
}

// QP is the producer's side of a queue pair. The caller serialises each queue and has
// checked each work request against the queue pair's limits.
type QP struct {
	sq, rq *producer
	signal uint16 // flag of each send request
	inline uint32 // bytes
}

// Send encodes one work request; total is the length of its pieces. The kernel sees it
// after PublishSend.
func (q *QP) Send(wr *provider.SendWR, total uint32) error {
	p := q.sq
	if p.full() {
		return provider.ErrFull
	}
	if total > maxMessage {
		return errMessage
	}
	flags := q.signal
	if wr.Flags&provider.SendSignaled != 0 {
		flags |= abi.SIW_WQE_SIGNALLED
	}
	e := (*abi.SiwSqe)(p.slot(p.own))
	op, more, err := putRemote(e, wr)
	if err != nil {
		return err
	}
	e.Id = wr.ID
	sge := e.Sge()
	if wr.Flags&provider.SendInline == 0 || total == 0 {
		p.put(flags|more, putSGL(sge, wr.SGL), op)
		return nil
	}
	if InlineOps>>wr.Opcode&1 == 0 {
		return errInline
	}
	sge[0] = abi.SiwSge{Length: total}
	copyInline(q.room(e)[:total], wr.Inline)
	p.put(flags|more|abi.SIW_WQE_INLINE, 1, op)
	return nil
}

// putRemote writes what an operation says about the peer, or about keys. It returns siw's
// opcode and the flags that go with it.
//
// A READ cannot be fenced, the kernel stops at one that is. It need not be: the peer answers
// READs in order, and what is sent in a READ comes from the request alone.
func putRemote(e *abi.SiwSqe, wr *provider.SendWR) (op uint8, flags uint16, err error) {
	if wr.Flags&provider.SendFence != 0 {
		flags = abi.SIW_WQE_READ_FENCE
	}
	key, addr := uint32(0), uint64(0)
	switch wr.Opcode {
	case provider.OpSend:
		op = abi.SIW_OP_SEND
	case provider.OpSendInvalidate:
		op, key = abi.SIW_OP_SEND_REMOTE_INV, wr.InvKey
	case provider.OpRDMAWrite:
		op, key, addr = abi.SIW_OP_WRITE, wr.RKey, wr.RemoteAddr
	case provider.OpRDMARead:
		op, key, addr, flags = abi.SIW_OP_READ, wr.RKey, wr.RemoteAddr, 0
	case provider.OpLocalInvalidate:
		op, key = abi.SIW_OP_INVAL_STAG, wr.InvKey
	default:
		return 0, 0, errOpcode
	}
	if wr.Flags&provider.SendSolicited != 0 && wr.Opcode.HasData() {
		flags |= abi.SIW_WQE_SOLICITED
	}
	e.Rkey, *e.Raddr() = key, addr
	return op, flags, nil
}

// room is where a request keeps its inline data: in place of all pieces but the first.
func (q *QP) room(e *abi.SiwSqe) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&e.Sge()[1])), q.inline)
}

// copyInline joins the pieces. Without pieces the bytes are there already, see InlineRoom.
func copyInline(to []byte, pieces [][]byte) {
	for _, piece := range pieces {
		to = to[copy(to, piece):]
	}
}

// InlineRoom is where the next send request keeps its inline data, nil if the queue is full.
func (q *QP) InlineRoom() []byte {
	if q.sq.full() {
		return nil
	}
	return q.room((*abi.SiwSqe)(q.sq.slot(q.sq.own)))
}

// PublishSend hands the encoded send requests to the kernel; the doorbell follows.
func (q *QP) PublishSend() { q.sq.publish() }

// DropSend forgets what was encoded since the last PublishSend.
func (q *QP) DropSend() { q.sq.drop() }

// TakeSends takes back the send requests that the kernel has not taken, oldest first, and
// drops what is not published. The kernel must be at rest with the queue: the queue pair is
// in error, is not connected yet, or was refused its doorbell. Else it may complete a request
// that is reported here too.
func (q *QP) TakeSends(each func(id uint64)) { q.sq.take(each) }

// HasRecv tells whether the queue pair has a receive queue of its own.
func (q *QP) HasRecv() bool { return q.rq != nil }

// Recv encodes one receive request; total is the length of its pieces.
func (q *QP) Recv(wr *provider.RecvWR, total uint32) error { return putRecv(q.rq, wr) }

func putRecv(p *producer, wr *provider.RecvWR) error {
	if p.full() {
		return provider.ErrFull
	}
	e := (*abi.SiwRqe)(p.slot(p.own))
	e.Id, e.Unused = wr.ID, 0
	p.put(0, putSGL(&e.Sge, wr.SGL), abi.SIW_OP_RECEIVE)
	return nil
}

// PublishRecv hands the encoded receive requests to the kernel. There is no doorbell.
func (q *QP) PublishRecv() { q.rq.publish() }

// TakeRecvs is TakeSends for receive requests; there are none without a receive queue.
func (q *QP) TakeRecvs(each func(id uint64)) {
	if q.rq != nil {
		q.rq.take(each)
	}
}

// Close unmaps the queues.
func (q *QP) Close() error {
	err := q.sq.close()
	if q.rq != nil {
		err = errors.Join(err, q.rq.close())
	}
	return err
}
