package mmio

// The functions below are whole sequences of stores and barriers, as the package comment has
// them. In one assembly function the two that ring cost less than their parts, and a doorbell
// is rung for nearly every request that is posted.

// StoreRecord writes v to *p, a word in ordinary memory that a device reads by itself: a
// doorbell record. Every earlier read and write of ordinary memory by this goroutine takes
// place before it, as the device sees them. So it hands over what was written (requests) and
// gives back what was read (completions). p must be 4-byte aligned.
//
// amd64: MOV. arm64: DMB OSHLD, DMB OSHST, STLRW. Elsewhere: a full fence and a store.
func StoreRecord(p *uint32, v uint32) {
	handOver()
	publish32(p, v)
}

// Doorbell writes v to the doorbell record *record, after everything that this goroutine
// wrote to ordinary memory, then bell to the device register, with exactly one store, and
// sends that out of the CPU. The register may be write-combining. record must be 4-byte,
// register 8-byte aligned.
//
// amd64: MOV, SFENCE, MOV, SFENCE. arm64: DMB OSHST, store, DMB OSHST, store, DSB ST.
// Elsewhere: [OrderWrites], [Store32], [ToDevice], [Store64], [FlushWC].
func Doorbell(record *uint32, v uint32, register *uint64, bell uint64) {
	doorbell(record, v, register, bell)
}

// DoorbellCopy is [Doorbell] with n blocks of 64 bytes, at least one, from src, which is
// ordinary memory, to dst, which is a write-combining register. All of dst should be 64-byte
// aligned; the two must not overlap. The stores are of 8 bytes or more, in no promised order.
func DoorbellCopy(record *uint32, v uint32, dst, src *[64]byte, n int) {
	doorbellCopy(record, v, dst, src, n)
}
