//go:build linux

package fakekernel

import (
	"time"

	"github.com/pureverbs/rdma/abi"
)

// respond is the responder: sw/rxe/rxe_resp.c, whose statuses it keeps. The requester's
// memory is in k.nic.local.
func (k *Kernel) respond(p *qp, w *abi.RxeSendWqe) verdict {
	switch w.Wr.Opcode {
	case abi.IB_UVERBS_WR_SEND, abi.IB_UVERBS_WR_SEND_WITH_IMM:
		return k.respondSend(p, w)
	}
	need := uint32(abi.IB_UVERBS_ACCESS_REMOTE_WRITE)
	if w.Wr.Opcode == abi.IB_UVERBS_WR_RDMA_READ {
		need = abi.IB_UVERBS_ACCESS_REMOTE_READ
	}
	if p.attr.QpAccessFlags&need == 0 || w.Wr.Opcode == abi.IB_UVERBS_WR_RDMA_READ && p.attr.MaxDestRdAtomic == 0 {
		return verdict{status: statusRemoteInvalid, peer: p, broken: true}
	}
	withImm := w.Wr.Opcode == abi.IB_UVERBS_WR_RDMA_WRITE_WITH_IMM
	if withImm && p.rq.empty(p.rq.own) {
		return p.notReady()
	}
	if v := k.transfer(p, w, need); v.status != statusSuccess {
		return v
	}
	if !withImm {
		return verdict{}
	}
	v := p.received(w)
	v.wc.Opcode = wcRecvWithImm
	return v
}

// transfer does the copy of a write or read.
func (k *Kernel) transfer(p *qp, w *abi.RxeSendWqe, need uint32) verdict {
	n := w.Dma.Length
	if n == 0 {
		return verdict{} // key and address do not count
	}
	r := w.Wr.WrRdma()
	s, ok := p.f.dev.remote(p.pd, r.Rkey, r.RemoteAddr, n, need)
	if !ok {
		return verdict{status: statusRemoteAccess, peer: p, broken: true}
	}
	k.nic.remote = append(k.nic.remote[:0], s)
	dst, src := k.nic.remote, k.nic.local
	if w.Wr.Opcode == abi.IB_UVERBS_WR_RDMA_READ {
		dst, src = src, dst
	}
	if move(dst, src, int(n)) != nil {
		return verdict{status: statusRemoteAccess, peer: p, broken: true}
	}
	return verdict{}
}

func (k *Kernel) respondSend(p *qp, w *abi.RxeSendWqe) verdict {
	if p.rq.empty(p.rq.own) {
		return p.notReady()
	}
	slot := p.rq.slot(p.rq.own)
	r := *view[abi.RxeRecvWqe](slot)
	v := p.received(w)
	if room(&r, slot) < uint64(w.Dma.Length) {
		return v.refuse(statusRemoteInvalid, statusRemoteInvalid)
	}
	var ok bool
	k.nic.remote, ok = list(k.nic.remote[:0], p, r.Dma.NumSge, w.Dma.Length, slot[recvHead:], abi.IB_UVERBS_ACCESS_LOCAL_WRITE)
	if !ok || move(k.nic.remote, k.nic.local, int(w.Dma.Length)) != nil {
		return v.refuse(statusRemoteOp, statusLocalQPOp)
	}
	return v
}

// room is how many bytes a receive request takes.
func room(r *abi.RxeRecvWqe, slot []byte) (n uint64) {
	for i := range min(int(r.Dma.NumSge), (len(slot)-recvHead)/sgeSize) {
		n += uint64(view[abi.RxeSge](slot[recvHead+i*sgeSize:]).Length)
	}
	return n
}

// received is a good end of the oldest receive request.
func (p *qp) received(w *abi.RxeSendWqe) verdict {
	r := view[abi.RxeRecvWqe](p.rq.slot(p.rq.own))
	wc := abi.IbUverbsWc{
		WrId: r.WrId, Opcode: wcRecv, ByteLen: w.Dma.Length, QpNum: p.num, WcFlags: wcGRH, PortNum: p.attr.PortNum,
	}
	if hasImm(w.Wr.Opcode) {
		wc.WcFlags |= wcWithImm
		*wc.ExImmData() = *w.Wr.ExImmData()
	}
	return verdict{peer: p, recv: true, wc: wc, sol: w.Wr.SendFlags&sendSolicited != 0}
}

// refuse turns a good end bad for both sides. Only id, status and number are meant to be
// looked at then, so nothing else is there.
func (v verdict) refuse(sender, receiver uint32) verdict {
	v.status, v.broken, v.sol = sender, true, true
	v.wc = abi.IbUverbsWc{WrId: v.wc.WrId, Status: receiver, QpNum: v.wc.QpNum}
	return v
}

// notReady asks the requester to come back after the time that the responder set.
func (p *qp) notReady() verdict {
	return verdict{again: tryRNR, rnr: rnrDelay(p.attr.MinRnrTimer)}
}

// rnrDelay is the time of an RNR code: IBTA volume 1, table 45.
func rnrDelay(code uint8) time.Duration {
	hundredths := [32]int{
		65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096,
		6144, 8192, 12288, 16384, 24576, 32768, 49152,
	}
	return time.Duration(hundredths[code&31]) * 10 * time.Microsecond
}
