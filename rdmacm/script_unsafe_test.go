package rdmacm

import (
	"syscall"
	"unsafe"
)

// memory is what a u64 of a request points at; the requester has pinned it.
func memory(addr uint64, n int) []byte {
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), n)
}

// as reads a request's struct.
func as[T any](body []byte) T {
	var v T
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&v)), unsafe.Sizeof(v)), body)
	return v
}

// Ioctl is what rdma_cm does not have.
func (s *script) Ioctl(uint32, unsafe.Pointer) error { return syscall.ENOTTY }
