//go:build !amd64 && !arm64 && !race

package mmio

import "encoding/binary"

// The stores of the architectures without assembly are ordinary assignments in
// functions that are not inlined: the compiler makes a single store of an
// aligned word and cannot merge or move it over the call. sync/atomic would be
// worse: on riscv64 and loong64 its stores are read-modify-write operations,
// which device memory need not support.

// Store32 writes v to *p with one plain 32-bit store. p must be 4-byte aligned.
// Order against other memory is the caller's: see [ToDevice] and [OrderWrites].
//
//go:noinline
func Store32(p *uint32, v uint32) { *p = v }

// Store64 writes v to *p with one plain 64-bit store on 64-bit systems. p must be
// 8-byte aligned. Order against other memory is the caller's: see [ToDevice]
// and [OrderWrites].
//
//go:noinline
func Store64(p *uint64, v uint64) { *p = v }

// Copy64 copies one 64-byte block from src to dst in stores of 8 bytes and in no
// promised order. It does not flush: see [FlushWC]. src and dst must not
// overlap.
//
//go:noinline
func Copy64(dst, src *[64]byte) {
	for i := 0; i < 64; i += 8 {
		binary.NativeEndian.PutUint64(dst[i:], binary.NativeEndian.Uint64(src[i:]))
	}
}
