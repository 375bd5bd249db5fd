package mlx5

import (
	"math/bits"
	"unsafe"
)

// addr is a place in memory off the Go heap: a queue, a doorbell record or a device register.
// All accesses of this package to such memory are the few below. None is checked: positions
// are reduced to their ring by those who make them, and rings are measured when allocated.
type addr struct{ p unsafe.Pointer }

// addrOf is where mem begins; mem is not empty.
func addrOf(mem []byte) addr { return addr{unsafe.Pointer(&mem[0])} }

// number is the address as the kernel takes it.
func (a addr) number() uint64 { return uint64(uintptr(a.p)) }

func (a addr) add(n uintptr) addr { return addr{unsafe.Add(a.p, n)} }

// put64 writes big-endian bytes, as do put32 and put16. The place is aligned. It is one store
// each, which the order of single bytes in package encoding/binary does not always become.
func (a addr) put64(off uintptr, v uint64) { *(*uint64)(unsafe.Add(a.p, off)) = swapped64(v) }

func (a addr) put32(off uintptr, v uint32) { *(*uint32)(unsafe.Add(a.p, off)) = swapped(v) }

func (a addr) put16(off uintptr, v uint16) { *(*uint16)(unsafe.Add(a.p, off)) = swapped16(v) }

func (a addr) put8(off uintptr, v uint8) { *(*uint8)(unsafe.Add(a.p, off)) = v }

// get32 reads big-endian bytes, as does get16.
func (a addr) get32(off uintptr) uint32 { return swapped(*(*uint32)(unsafe.Add(a.p, off))) }

func (a addr) get16(off uintptr) uint16 { return swapped16(*(*uint16)(unsafe.Add(a.p, off))) }

func (a addr) get8(off uintptr) uint8 { return *(*uint8)(unsafe.Add(a.p, off)) }

// word32 is a word whose bytes are as they are: for the functions of package mmio.
func (a addr) word32(off uintptr) *uint32 { return (*uint32)(unsafe.Add(a.p, off)) }

func (a addr) word64(off uintptr) *uint64 { return (*uint64)(unsafe.Add(a.p, off)) }

func (a addr) block() *[blockSize]byte { return (*[blockSize]byte)(a.p) }

func (a addr) bytes(n int) []byte { return unsafe.Slice((*byte)(a.p), n) }

// swapped is the number whose memory holds v big-endian: what a word32 is to be set to, or
// what the number in one means.
func swapped(v uint32) uint32 {
	if bigEndian {
		return v
	}
	return bits.ReverseBytes32(v)
}

// swapped64 is swapped for a word64.
func swapped64(v uint64) uint64 {
	if bigEndian {
		return v
	}
	return bits.ReverseBytes64(v)
}

func swapped16(v uint16) uint16 {
	if bigEndian {
		return v
	}
	return bits.ReverseBytes16(v)
}

// left is how many bytes there are from a place to the ring's end.
func (s *sendQueue) left(from addr) int { return int(uintptr(s.end.p) - uintptr(from.p)) }

// bytesOf are the bytes of a structure of the kernel ABI.
func bytesOf[T any](p *T) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(p)), unsafe.Sizeof(*p)) }

const sendSlotSize = int(unsafe.Sizeof(sendSlot{}))

// slotsOf is memory off the heap as an array of n slots that hold no pointers; the memory is
// large enough.
func slotsOf[T any](a addr, n uint32) []T { return unsafe.Slice((*T)(a.p), n) }
