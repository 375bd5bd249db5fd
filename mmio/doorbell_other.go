//go:build (!amd64 && !arm64) || race

package mmio

import "unsafe"

// The parts one after the other: with -race they are the stores that the detector sees.

func doorbell(record *uint32, v uint32, register *uint64, bell uint64) {
	orderWrites()
	Store32(record, v)
	flushWC()
	Store64(register, bell)
	flushWC()
}

func doorbellCopy(record *uint32, v uint32, dst, src *[64]byte, n int) {
	orderWrites()
	Store32(record, v)
	flushWC()
	for i := range n {
		off := uintptr(i) * 64
		Copy64((*[64]byte)(unsafe.Add(unsafe.Pointer(dst), off)), (*[64]byte)(unsafe.Add(unsafe.Pointer(src), off)))
	}
	flushWC()
}
