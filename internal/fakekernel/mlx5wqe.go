//go:build linux

package fakekernel

import (
	"encoding/binary"

	"github.com/pureverbs/rdma/abi"
)

// Offsets in the control segment of a send request, and in what may follow.
const (
	wqeIndex     = 1 // of the block, 16 bits
	wqeOpcode    = 3
	wqeNumber    = 4 // of the queue pair, 24 bits
	wqeLength    = 7
	wqeFlags     = 11
	wqeImm       = 12
	wqeAddr      = 16 // remote address, key
	wqeKey       = 24
	wqeAtomic    = 32
	wqeCompare   = 40
	wqeAfterAddr = 32

	wqeFence      = 0x80
	wqeCompletion = 0x08
	wqeSolicited  = 0x02

	inlineBit    = 1 << 31
	terminateKey = 0x100 // in a piece of no length: there are no more
)

// Opcodes of send requests.
const (
	mlx5Nop      = 0x00
	mlx5SendInv  = 0x01
	mlx5Write    = 0x08
	mlx5WriteImm = 0x09
	mlx5Send     = 0x0a
	mlx5SendImm  = 0x0b
	mlx5Read     = 0x10
	mlx5Swap     = 0x11
	mlx5Add      = 0x12
	mlx5UMR      = 0x25
)

// Operations of work that only this driver has: nothing, and what cannot be carried out.
const (
	opNop    = 0xfe
	opBroken = 0xff
)

// verbOf is the verb of an opcode.
func verbOf(opcode byte) uint32 {
	switch opcode {
	case mlx5Nop:
		return opNop
	case mlx5SendInv:
		return abi.IB_UVERBS_WR_SEND_WITH_INV
	case mlx5Write:
		return abi.IB_UVERBS_WR_RDMA_WRITE
	case mlx5WriteImm:
		return abi.IB_UVERBS_WR_RDMA_WRITE_WITH_IMM
	case mlx5Send:
		return abi.IB_UVERBS_WR_SEND
	case mlx5SendImm:
		return abi.IB_UVERBS_WR_SEND_WITH_IMM
	case mlx5Read:
		return abi.IB_UVERBS_WR_RDMA_READ
	case mlx5Swap:
		return abi.IB_UVERBS_WR_ATOMIC_CMP_AND_SWP
	case mlx5Add:
		return abi.IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD
	case mlx5UMR:
		return abi.IB_UVERBS_WR_BIND_MW
	}
	return opBroken
}

// loadWQE decodes the request at an index; false if it is broken. It sets at least the id,
// and the flags.
func (w *work) loadWQE(q *qp, index uint16, b []byte) bool {
	w.id, w.op = uint64(index)|uint64(b[wqeOpcode])<<opcodeOfID, verbOf(b[wqeOpcode])
	w.loadFlags(b[wqeFlags])
	head := binary.BigEndian.Uint32(b[wqeNumber:])
	if head>>8 != q.num || binary.BigEndian.Uint16(b[wqeIndex:]) != index || b[wqeNumber+3]&^0x3f != 0 {
		return false
	}
	copy(bytesOf(&w.imm), b[wqeImm:])
	w.invKey = binary.BigEndian.Uint32(b[wqeImm:])
	switch w.op {
	case opBroken:
		return false
	case opNop:
		return true
	case abi.IB_UVERBS_WR_BIND_MW:
		return w.loadUMR(q, b)
	}
	data := b[segment:]
	var ok bool
	if q.typ == abi.IB_UVERBS_QPT_UD {
		if len(data) < avSize || !w.isSend() {
			return false
		}
		ok, data = w.loadAddress(q, data), data[avSize:]
	} else {
		data, ok = w.loadRemote(b)
	}
	return ok && w.loadData(data)
}

func (w *work) loadFlags(f byte) {
	if f&wqeFence != 0 {
		w.flags |= sendFence
	}
	if f&wqeCompletion != 0 {
		w.flags |= sendSignaled
	}
	if f&wqeSolicited != 0 {
		w.flags |= sendSolicited
	}
}

// loadRemote decodes what one-sided operations have in front of the data, which it returns.
func (w *work) loadRemote(b []byte) (data []byte, ok bool) {
	if w.isSend() {
		return b[segment:], true
	}
	if len(b) < wqeAfterAddr {
		return nil, false
	}
	w.addr, w.rkey = binary.BigEndian.Uint64(b[wqeAddr:]), binary.BigEndian.Uint32(b[wqeKey:])
	if !w.isAtomic() {
		return b[wqeAfterAddr:], true
	}
	if len(b) < wqeAtomic+segment {
		return nil, false
	}
	w.compareAdd = binary.BigEndian.Uint64(b[wqeAtomic:])
	if w.op == abi.IB_UVERBS_WR_ATOMIC_CMP_AND_SWP {
		w.swap, w.compareAdd = w.compareAdd, binary.BigEndian.Uint64(b[wqeCompare:])
	}
	return b[wqeAtomic+segment:], true
}

// loadData decodes the data segments: pieces, or bytes.
func (w *work) loadData(b []byte) bool {
	if len(b) >= 4 && binary.BigEndian.Uint32(b)&inlineBit != 0 {
		w.length = binary.BigEndian.Uint32(b) &^ inlineBit
		if w.flags |= sendInline; w.brings() || int(w.length) > len(b)-4 {
			return false
		}
		w.data = b[4:]
		return true
	}
	w.length = uint32(min(w.pieces.loadMLX5(b), 1<<32-1))
	return true
}

// loadMLX5 decodes a list, which ends with the memory or before, and returns its length. A
// piece of no length is one of 2 GiB.
func (p *pieces) loadMLX5(b []byte) (total uint64) {
	for p.num = 0; len(b) >= segment && p.num < maxPieces; b = b[segment:] {
		e := abi.RxeSge{
			Length: binary.BigEndian.Uint32(b), Lkey: binary.BigEndian.Uint32(b[4:]), Addr: binary.BigEndian.Uint64(b[8:]),
		}
		if e.Length == 0 {
			if e.Lkey == terminateKey {
				return total
			}
			e.Length = 1 << 31
		}
		p.list[p.num] = e
		p.num++
		total += uint64(e.Length)
	}
	return total
}
