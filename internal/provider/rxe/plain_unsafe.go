package rxe

import (
	"unsafe"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
	"github.com/pureverbs/rdma/mmio"
)

// What most work requests are, one piece of data for a connection, has functions of its own here
// that check and encode it in one go: calls and jumps cost more than all else. Whatever they do
// not take is for the caller to look at closely, and for Send and Recv.

const (
	remoteOps = 1<<provider.OpRDMAWrite | 1<<provider.OpRDMARead
	plainOps  = remoteOps | 1<<provider.OpRDMAWriteImm | 1<<provider.OpSend | 1<<provider.OpSendImm |
		1<<provider.OpCompareSwap | 1<<provider.OpFetchAdd

	plainFlags = provider.SendFence | provider.SendSignaled | provider.SendSolicited

	maxMessage = 1 << 31 // of any transport
)

// isPlain tells whether the data is one piece that holds something, and is a message.
func isPlain(sgl []provider.SGE) bool { return len(sgl) == 1 && sgl[0].Length-1 < maxMessage }

// SendPlain encodes requests, up to the first that is not plain or finds no room, and returns
// how many. The caller need not have checked them. ops is what the queue pair, which has a
// connection and takes a piece, can do.
func (q *QP) SendPlain(wrs []provider.SendWR, ops uint32) int {
	r, n := q.sq, 0
	own, free := r.own, r.free()
	for ops &= plainOps; n < len(wrs) && n < free; n++ {
		wr := &wrs[n]
		if !wr.Opcode.In(ops) || wr.Flags&^plainFlags != 0 || !isPlain(wr.SGL) || wr.Inline != nil {
			break
		}
		piece, p := &wr.SGL[0], r.slot(own)
		if wr.Opcode.IsAtomic() && piece.Length != 8 {
			break
		}
		w := (*abi.RxeSendWqe)(p)
		*w = abi.RxeSendWqe{}
		w.Wr.WrId = wr.ID
		w.Wr.Opcode = uint32(wr.Opcode)
		w.Wr.SendFlags = uint32(wr.Flags)
		switch {
		case wr.Opcode.In(remoteOps):
			remote := w.Wr.WrRdma()
			remote.RemoteAddr, remote.Rkey = wr.RemoteAddr, wr.RKey
			w.Iova = wr.RemoteAddr
		case wr.Opcode != provider.OpSend:
			q.putRemote(w, wr)
		}
		putPiece(&w.Dma, unsafe.Add(p, sendHead), piece)
		own = mmio.Next(own, r.mask)
	}
	r.own = own
	return n
}

// RecvPlain does the same for receive requests, and shows them to the kernel; the queue takes a
// piece.
func (q *QP) RecvPlain(wrs []provider.RecvWR) int {
	if q.rq == nil {
		return 0
	}
	return q.rq.recvPlain(wrs)
}

// RecvPlain is that of a queue pair.
func (s *SRQ) RecvPlain(wrs []provider.RecvWR) int { return s.rq.recvPlain(wrs) }

func (r *ring) recvPlain(wrs []provider.RecvWR) (n int) {
	own, free := r.own, r.free()
	if own != r.shown {
		return 0
	}
	for ; n < len(wrs) && n < free && isPlain(wrs[n].SGL); n++ {
		p := r.slot(own)
		w := (*abi.RxeRecvWqe)(p)
		*w = abi.RxeRecvWqe{WrId: wrs[n].ID}
		putPiece(&w.Dma, unsafe.Add(p, recvHead), &wrs[n].SGL[0])
		own = mmio.Next(own, r.mask)
	}
	r.own = own
	r.publish()
	return n
}

func putPiece(dma *abi.RxeDmaInfo, at unsafe.Pointer, piece *provider.SGE) {
	dma.Length, dma.Resid, dma.NumSge = piece.Length, piece.Length, 1
	e := (*abi.RxeSge)(at)
	e.Addr, e.Length, e.Lkey = piece.Addr, piece.Length, piece.LKey
}
