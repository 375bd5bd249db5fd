package rxe

import (
	"unsafe"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
	"github.com/pureverbs/rdma/mmio"
)

const (
	sendHead = unsafe.Sizeof(abi.RxeSendWqe{}) // then the pieces, or the inline bytes
	recvHead = unsafe.Sizeof(abi.RxeRecvWqe{}) // then the pieces
	sgeSize  = unsafe.Sizeof(abi.RxeSge{})
)

// MinPostSize is the size of the struct.
var (
	_ [provider.MinPostSize - unsafe.Sizeof(abi.IbUverbsSendWr{})]byte
	_ [unsafe.Sizeof(abi.IbUverbsSendWr{}) - provider.MinPostSize]byte
)

// QPPlan is the driver's part of creating a queue pair.
type QPPlan struct {
	Datagram bool // the queue pair is of type UD
	resp     abi.RxeCreateQpResp
}

// Out is the memory for the driver's response.
func (p *QPPlan) Out() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&p.resp)), unsafe.Sizeof(p.resp))
}

// Attach maps the two queues that the kernel made; granted is what the kernel answered.
func (p *QPPlan) Attach(m provider.Mapper, granted provider.QPCap) (*QP, error) {
	room := max(uintptr(granted.MaxSendSGE)*sgeSize, uintptr(granted.MaxInline))
	sq, err := attach(m, &p.resp.SqMi, int(sendHead+room))
	if err != nil {
		return nil, err
	}
	sq.resume(sq.producer)
	qp := &QP{sq: sq, datagram: p.Datagram, inline: granted.MaxInline}
	if p.resp.RqMi.Size == 0 { // receives come from a shared receive queue
		return qp, nil
	}
	if qp.rq, err = attach(m, &p.resp.RqMi, int(recvHead+uintptr(granted.MaxRecvSGE)*sgeSize)); err != nil {
		sq.close()
		return nil, err
	}
	qp.rq.resume(qp.rq.producer)
	return qp, nil
}

// QP is the producer's side of a queue pair. The caller serialises each queue and has
// checked each work request against the queue pair's limits.
type QP struct {
	sq, rq   *ring
	datagram bool
	inline   uint32 // bytes
}

// Send encodes one work request; total is the length of its pieces. The kernel sees it
// after PublishSend.
func (q *QP) Send(wr *provider.SendWR, total uint32) error {
	r := q.sq
	if r.full() {
		return provider.ErrFull
	}
	p := r.slot(r.own)
	w := (*abi.RxeSendWqe)(p)
	*w = abi.RxeSendWqe{} // the kernel keeps its own state in here
	w.Wr.WrId = wr.ID
	w.Wr.Opcode = uint32(wr.Opcode)
	w.Wr.SendFlags = uint32(wr.Flags)
	q.putRemote(w, wr)
	if wr.Opcode == provider.OpFlush {
		total = wr.Length // which carries no data, but the driver reads the extent here
	}
	w.Dma.Length, w.Dma.Resid = total, total
	data := unsafe.Add(p, sendHead)
	if wr.Flags&provider.SendInline != 0 {
		copyInline(data, wr.Inline, total)
	} else {
		w.Dma.NumSge = putSGL(data, wr.SGL)
	}
	r.own = mmio.Next(r.own, r.mask)
	return nil
}

// putRemote writes what an operation says about the peer, or about keys. Datagrams carry no
// operation that names remote memory, so both share the space.
func (q *QP) putRemote(w *abi.RxeSendWqe, wr *provider.SendWR) {
	switch wr.Opcode {
	case provider.OpRDMAWrite, provider.OpRDMAWriteImm, provider.OpRDMARead, provider.OpAtomicWrite:
		remote := w.Wr.WrRdma()
		remote.RemoteAddr, remote.Rkey = wr.RemoteAddr, wr.RKey
		w.Iova = wr.RemoteAddr
	case provider.OpCompareSwap, provider.OpFetchAdd:
		atomic := w.Wr.WrAtomic()
		atomic.RemoteAddr, atomic.Rkey = wr.RemoteAddr, wr.RKey
		atomic.CompareAdd, atomic.Swap = wr.CompareAdd, wr.Swap
		w.Iova = wr.RemoteAddr
	case provider.OpFlush:
		flush := w.Wr.WrFlush()
		flush.RemoteAddr, flush.Rkey, flush.Length = wr.RemoteAddr, wr.RKey, wr.Length
		flush.Type, flush.Level = uint8(wr.Flush), uint8(wr.Range)
		w.Iova = wr.RemoteAddr
	case provider.OpBindMW:
		bind := w.Wr.WrMw()
		bind.Addr, bind.Length, bind.Access = wr.Bind.Addr, wr.Bind.Length, wr.Bind.Access
		bind.MrLkey, bind.MwRkey, bind.Rkey = wr.Bind.LKey, wr.Bind.MWKey, wr.Bind.NewKey
	case provider.OpSendInvalidate, provider.OpLocalInvalidate:
		*w.Wr.ExInvalidateRkey() = wr.InvKey
	}
	if wr.Opcode.HasImm() {
		w.Wr.ExImmData().Set(wr.Imm)
	}
	if q.datagram {
		putDest(w.Wr.WrUd(), &wr.Dest)
	}
}

// copyInline joins the pieces. Without pieces the bytes are there already, see InlineRoom.
func copyInline(dst unsafe.Pointer, pieces [][]byte, total uint32) {
	to := unsafe.Slice((*byte)(dst), total)
	for _, piece := range pieces {
		to = to[copy(to, piece):]
	}
}

// putSGL writes the pieces that hold something: some kernels check the key of an empty
// one, which need not be valid.
func putSGL(dst unsafe.Pointer, sgl []provider.SGE) (n uint32) {
	for i := range sgl {
		if sgl[i].Length == 0 {
			continue
		}
		e := (*abi.RxeSge)(unsafe.Add(dst, uintptr(n)*sgeSize))
		e.Addr, e.Length, e.Lkey = sgl[i].Addr, sgl[i].Length, sgl[i].LKey
		n++
	}
	return n
}

// InlineRoom is where the next send request keeps its inline data, nil if the queue is full.
func (q *QP) InlineRoom() []byte {
	if q.sq.full() {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Add(q.sq.slot(q.sq.own), sendHead)), q.inline)
}

// PublishSend shows the encoded send requests to the kernel; the doorbell follows.
func (q *QP) PublishSend() { q.sq.publish() }

// DropSend forgets what was encoded since the last PublishSend.
func (q *QP) DropSend() { q.sq.drop() }

// TakeSends does so, and reports the requests.
func (q *QP) TakeSends(taken func(id uint64)) {
	for i := q.sq.shown; i != q.sq.own; i = mmio.Next(i, q.sq.mask) {
		taken((*abi.RxeSendWqe)(q.sq.slot(i)).Wr.WrId)
	}
	q.sq.drop()
}

// HasRecv tells whether the queue pair has a receive queue of its own.
func (q *QP) HasRecv() bool { return q.rq != nil }

// Drained tells whether the kernel is through with all that was posted, and so has reported
// what it reports of it.
func (q *QP) Drained() bool { return q.sq.drained() && (q.rq == nil || q.rq.drained()) }

// Recv encodes one receive request; total is the length of its pieces.
func (q *QP) Recv(wr *provider.RecvWR, total uint32) error { return putRecv(q.rq, wr, total) }

func putRecv(r *ring, wr *provider.RecvWR, total uint32) error {
	if r.full() {
		return provider.ErrFull
	}
	p := r.slot(r.own)
	w := (*abi.RxeRecvWqe)(p)
	*w = abi.RxeRecvWqe{}
	w.WrId = wr.ID
	w.Dma.Length, w.Dma.Resid = total, total
	w.Dma.NumSge = putSGL(unsafe.Add(p, recvHead), wr.SGL)
	r.own = mmio.Next(r.own, r.mask)
	return nil
}

// PublishRecv shows the encoded receive requests to the kernel. There is no doorbell.
func (q *QP) PublishRecv() { q.rq.publish() }

// Close unmaps the queues.
func (q *QP) Close() error {
	err := q.sq.close()
	if q.rq != nil {
		if e := q.rq.close(); err == nil {
			err = e
		}
	}
	return err
}
