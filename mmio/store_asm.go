//go:build (amd64 || arm64) && !race

package mmio

// Store32 writes v to *p with exactly one plain 32-bit store: no lock prefix, no
// read of the target, no barrier. p must be 4-byte aligned. Order against
// other memory is the caller's: see [ToDevice] and [OrderWrites].
//
//go:noescape
func Store32(p *uint32, v uint32)

// Store64 writes v to *p with exactly one plain 64-bit store, on amd64 and arm64
// and in practice on all 64-bit systems. p must be 8-byte aligned: a device
// may drop or split a doorbell that crosses an aligned word. Order against
// other memory is the caller's: see [ToDevice] and [OrderWrites].
//
//go:noescape
func Store64(p *uint64, v uint64)

// Copy64 copies one 64-byte block from src, which is ordinary memory, to dst,
// which usually is a write-combining page (BlueFlame, device memory), in stores
// of 8 bytes or more and in no promised order. dst should be 64-byte aligned so
// that the CPU can send the block as one transaction. It does not flush: call
// [FlushWC] when the device must see the block now. src and dst must not
// overlap.
//
//go:noescape
func Copy64(dst, src *[64]byte)
