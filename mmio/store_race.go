//go:build race

package mmio

import (
	"sync/atomic"
	"unsafe"
)

// Store32 writes v to *p with exactly one 32-bit store. This is the -race build:
// an atomic store, so that the detector sees it; see the package comment.
func Store32(p *uint32, v uint32) { atomic.StoreUint32(p, v) }

// Store64 writes v to *p with exactly one 64-bit store. This is the -race build:
// an atomic store, so that the detector sees it; see the package comment.
func Store64(p *uint64, v uint64) { atomic.StoreUint64(p, v) }

// Copy64 copies one 64-byte block from src to dst in stores of 8 bytes. This is
// the -race build: atomic stores, so that the detector sees them; see the
// package comment. dst must be 8-byte aligned.
func Copy64(dst, src *[64]byte) {
	to := (*[8]uint64)(unsafe.Pointer(dst))
	for i := range to {
		var word uint64
		copy((*[8]byte)(unsafe.Pointer(&word))[:], src[8*i:])
		atomic.StoreUint64(&to[i], word)
	}
}
