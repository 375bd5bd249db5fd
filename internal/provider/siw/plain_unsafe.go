package siw

import (
	"unsafe"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
	"github.com/pureverbs/rdma/mmio"
)

// What most work requests are, one piece of data, has functions of its own here that check and
// encode it in one go: calls and jumps cost more than all else. They hand each request to the
// kernel at once. Whatever they do not take is for the caller to look at closely, and for Send and
// Recv.

// plainOps are the operations that are plain, and their names in siw.
const plainOps = 1<<provider.OpSend | 1<<provider.OpRDMAWrite | 1<<provider.OpRDMARead

var plainOp = [8]uint8{
	provider.OpSend: abi.SIW_OP_SEND, provider.OpRDMAWrite: abi.SIW_OP_WRITE, provider.OpRDMARead: abi.SIW_OP_READ,
}

// isPlain tells whether the data is one piece that holds something, and is a message.
func isPlain(sgl []provider.SGE) bool { return len(sgl) == 1 && sgl[0].Length-1 < maxMessage }

// SendPlain posts requests, up to the first that is not plain or finds no room, and returns how
// many; the doorbell follows. The caller need not have checked them. ops is what the queue pair,
// which takes a piece, can do.
func (q *QP) SendPlain(wrs []provider.SendWR, ops uint32) (n int) {
	p := q.sq
	own, slots, mask := p.own, p.slots, p.mask
	if own != p.given {
		return 0
	}
	for ops &= plainOps; n < len(wrs); n++ {
		wr := &wrs[n]
		if !wr.Opcode.In(ops) || wr.Flags&^provider.SendSignaled != 0 || !isPlain(wr.SGL) || wr.Inline != nil {
			break
		}
		e := (*abi.SiwSqe)(unsafe.Add(slots, uintptr(own&mask)*unsafe.Sizeof(abi.SiwSqe{})))
		head := (*uint32)(unsafe.Add(unsafe.Pointer(e), offHead))
		if headFlags(bigEndian, mmio.LoadAcquire32(head)) != 0 {
			break // it is not free
		}
		e.Id = wr.ID
		e.Rkey, *e.Raddr() = 0, 0
		if wr.Opcode != provider.OpSend {
			e.Rkey, *e.Raddr() = wr.RKey, wr.RemoteAddr
		}
		putPiece(&e.Sge()[0], &wr.SGL[0])
		flags := q.signal | valid
		if wr.Flags != 0 {
			flags |= abi.SIW_WQE_SIGNALLED
		}
		mmio.Publish32(head, packHead(bigEndian, flags, 1, plainOp[wr.Opcode&7]))
		own++
	}
	p.own, p.given = own, own
	return n
}

// RecvPlain does the same for receive requests; the queue takes a piece.
func (q *QP) RecvPlain(wrs []provider.RecvWR) int {
	if q.rq == nil {
		return 0
	}
	return q.rq.recvPlain(wrs)
}

// RecvPlain is that of a queue pair.
func (s *SRQ) RecvPlain(wrs []provider.RecvWR) int { return s.rq.recvPlain(wrs) }

func (p *producer) recvPlain(wrs []provider.RecvWR) (n int) {
	own, slots, mask := p.own, p.slots, p.mask
	if own != p.given {
		return 0
	}
	for ; n < len(wrs) && isPlain(wrs[n].SGL); n++ {
		e := (*abi.SiwRqe)(unsafe.Add(slots, uintptr(own&mask)*unsafe.Sizeof(abi.SiwRqe{})))
		head := (*uint32)(unsafe.Add(unsafe.Pointer(e), offHead))
		if headFlags(bigEndian, mmio.LoadAcquire32(head)) != 0 {
			break // it is not free
		}
		e.Id, e.Unused = wrs[n].ID, 0
		putPiece(&e.Sge[0], &wrs[n].SGL[0])
		mmio.Publish32(head, packHead(bigEndian, valid, 1, abi.SIW_OP_RECEIVE))
		own++
	}
	p.own, p.given = own, own
	return n
}

func putPiece(e *abi.SiwSge, piece *provider.SGE) {
	e.Laddr, e.Length, e.Lkey = piece.Addr, piece.Length, piece.LKey
}
