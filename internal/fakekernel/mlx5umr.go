//go:build linux

package fakekernel

import (
	"encoding/binary"

	"github.com/pureverbs/rdma/abi"
)

// Offsets in a request that changes a memory key, which binds and unbinds windows: a
// control segment of its own, the key's context, the memory.
const (
	umrFlags   = 16
	umrMask    = 24
	umrNewKey  = 68
	umrAccess  = 66
	umrStart   = 80
	umrLength  = 88
	umrMemory  = 128 // length, local key, address
	umrBind    = 192
	umrUnbind  = 128
	umrCheckQP = 0x08 // the queue pair that bound it may unbind it
	umrHasLen  = 1    // in the mask: the length changes
)

// Access of a window as the device has it.
const (
	umrLocalWrite  = 0x08
	umrRemoteRead  = 0x10
	umrRemoteWrite = 0x20
	umrAtomic      = 0x40
)

// loadUMR decodes a bind, or makes a LOCAL INVALIDATE of what unbinds a window of type 2.
func (w *work) loadUMR(q *qp, b []byte) bool {
	if len(b) < umrUnbind || q.typ == abi.IB_UVERBS_QPT_UD {
		return false
	}
	if b[umrFlags]&umrCheckQP != 0 {
		w.op = abi.IB_UVERBS_WR_LOCAL_INV
		return true
	}
	w.bind.MwRkey, w.bind.Rkey = w.invKey, binary.BigEndian.Uint32(b[umrNewKey:])&0xff
	if binary.BigEndian.Uint64(b[umrMask:])&umrHasLen == 0 {
		return true
	}
	if len(b) < umrBind {
		return false
	}
	start := binary.BigEndian.Uint64(b[umrStart:])
	w.bind.Length = binary.BigEndian.Uint64(b[umrLength:])
	w.bind.MrLkey = binary.BigEndian.Uint32(b[umrMemory+4:])
	w.bind.Addr = binary.BigEndian.Uint64(b[umrMemory+8:])
	w.bind.Access = windowAccess(b[umrAccess])
	if start == 0 && w.bind.Addr != 0 {
		w.bind.Access |= abi.IB_UVERBS_ACCESS_ZERO_BASED
	}
	return start == 0 || start == w.bind.Addr
}

func windowAccess(b byte) (access uint32) {
	for _, x := range []struct {
		bit  byte
		flag uint32
	}{
		{umrLocalWrite, abi.IB_UVERBS_ACCESS_LOCAL_WRITE}, {umrRemoteRead, abi.IB_UVERBS_ACCESS_REMOTE_READ},
		{umrRemoteWrite, abi.IB_UVERBS_ACCESS_REMOTE_WRITE}, {umrAtomic, abi.IB_UVERBS_ACCESS_REMOTE_ATOMIC},
	} {
		if b&x.bit != 0 {
			access |= x.flag
		}
	}
	return access
}

// invalidateMLX5 is a LOCAL INVALIDATE: the queue pair has bound the window.
func (k *Kernel) invalidateMLX5(q *qp, w *work) uint32 {
	if m := q.f.dev.mws[w.invKey>>8]; m == nil || m.q != q || !k.invalidate(q, w.invKey) {
		return statusBind
	}
	return statusSuccess
}
