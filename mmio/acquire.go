package mmio

import "sync/atomic"

// Ring indices live in ordinary memory that the kernel or another goroutine
// maps too, so sync/atomic is the right tool for them, and it is inlined. The
// locked store of amd64 was measured against a plain MOV behind an assembly
// call: it is the cheaper of the two (2 ns against 5 ns after filling a request
// of 256 bytes), it orders more, and the race detector sees it.

// LoadAcquire32 reads a 32-bit word that another party (kernel, goroutine)
// writes: no later read or write of this goroutine takes place before it. It
// is the reader's half of a shared ring: load the producer index, then read
// the slots it covers. p must be 4-byte aligned.
//
// It is a plain MOV on amd64 and LDARW on arm64, and orders CPU against CPU.
// Where a device wrote the memory by DMA, [FromDevice] is needed as well.
func LoadAcquire32(p *uint32) uint32 { return atomic.LoadUint32(p) }

// StoreRelease32 writes a 32-bit word that another party (kernel, goroutine)
// reads: every earlier read and write of this goroutine takes place before it.
// It is the writer's half of a shared ring: fill the slots, then store the
// producer index. p must be 4-byte aligned. It must not be used on device
// memory: that is [Store32].
//
// It is XCHG on amd64 and STLRW on arm64, and sequentially consistent: a later
// [LoadAcquire32] is not done before it. So it also serves where one party
// stores a flag and then looks at the other's ring (arming siw's completion
// queue).
func StoreRelease32(p *uint32, v uint32) { atomic.StoreUint32(p, v) }

// Publish32 is [StoreRelease32] less the promise about what comes after: a later load may be
// done before it. That is enough where the one who stores does not look at the other's words
// next to see whether it must be woken.
//
// amd64: MOV. Elsewhere, and with -race, it is StoreRelease32.
func Publish32(p *uint32, v uint32) { publish32(p, v) }
