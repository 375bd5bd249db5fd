// Package mmio holds the few memory operations that a user-space driver needs
// and the Go language does not offer: a store that reaches a device register as
// exactly one plain store, a 64-byte copy into a write-combining page, barriers
// between memory and device with a written contract, and acquire/release access
// to ring indices that are shared with the kernel or a device.
//
// # Why assembly
//
// sync/atomic is not a substitute for a register store. On amd64 its stores are
// XCHG, a locked read-modify-write: on a doorbell page that reads the register
// as well, which costs a round trip to the device and is not what it expects.
// An ordinary Go assignment is no substitute either, since nothing forbids the
// compiler to split, merge or move it. Assembly is neither inlined nor
// analysed, so a call to it is also a barrier for the compiler.
//
//	             Store32/Store64       ToDevice   FromDevice  FlushWC
//	amd64        MOV                   (compiler) LFENCE      SFENCE
//	arm64        MOV                   DMB OSHST  DMB OSHLD   DSB ST
//	riscv64, ppc64, s390x, loong64     full fence for each of the barriers
//	others       build, 64-bit stores are not promised to be single
//
// # A posting sequence
//
// A driver that rings a doorbell does it in this order:
//
//	write the work request into the queue        // ordinary memory
//	mmio.OrderWrites()                           // request before record
//	mmio.Store32(record, producer)               // doorbell record
//	mmio.ToDevice()                              // memory before register
//	mmio.Store64(register, first 8 bytes)        // the doorbell itself
//	mmio.FlushWC()                               // only if the page is write-combining
//
// For the usual ends of such a sequence there is one function each, which costs less than
// the parts: [Doorbell], [DoorbellCopy], which copies the request itself into the register,
// and [StoreRecord], where the record alone does.
//
// Where one goroutine only lets another know how far it is, [Publish32] is the store.
//
// A ring shared with the kernel (rxe) needs no barrier by name: it fills the
// slot and calls [StoreRelease32] on the producer index; the reader calls
// [LoadAcquire32] and then reads the slot.
//
// # The race detector
//
// Assembly is invisible to the race detector: it neither sees the access nor
// learns that one side's writes come before the other side's reads. In builds
// with -race the stores of this package are therefore made with sync/atomic, so
// that a test that plays the device on Go memory is judged correctly. Nothing
// makes the detector see a mapping, though: memory that does not belong to the
// Go heap or to a global variable is not watched, with or without assembly. The
// barriers carry no happens-before edge in any build.
package mmio
