//go:build linux

package fakekernel

import (
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

var (
	pid      = os.Getpid()
	pageSize = uint64(os.Getpagesize())
)

// bytesOf returns the memory of *p, which holds no Go pointers.
func bytesOf[T any](p *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(p)), unsafe.Sizeof(*p))
}

// view returns b as a T. b is long enough and aligned.
func view[T any](b []byte) *T {
	_ = b[unsafe.Sizeof(*new(T))-1]
	return (*T)(unsafe.Pointer(unsafe.SliceData(b)))
}

// load copies a T out of bytes that need not be aligned; missing bytes are zero.
func load[T any](b []byte) (v T) {
	copy(bytesOf(&v), b)
	return v
}

// copyIn reads user memory; a bad address is EFAULT.
func copyIn(dst []byte, addr uint64) error {
	if len(dst) == 0 {
		return nil
	}
	local := [1]unix.Iovec{{Base: &dst[0], Len: uint64(len(dst))}}
	remote := [1]unix.RemoteIovec{{Base: uintptr(addr), Len: len(dst)}}
	n, err := unix.ProcessVMReadv(pid, local[:], remote[:], 0)
	runtime.KeepAlive(dst)
	if err != nil || n != len(dst) {
		return unix.EFAULT
	}
	return nil
}

// copyOut writes user memory; a bad address is EFAULT.
func copyOut(addr uint64, src []byte) error {
	if len(src) == 0 {
		return nil
	}
	local := [1]unix.Iovec{{Base: &src[0], Len: uint64(len(src))}}
	remote := [1]unix.RemoteIovec{{Base: uintptr(addr), Len: len(src)}}
	n, err := unix.ProcessVMWritev(pid, local[:], remote[:], 0)
	runtime.KeepAlive(src)
	if err != nil || n != len(src) {
		return unix.EFAULT
	}
	return nil
}

// A span is a piece of user memory.
type span = unix.RemoteIovec

// move copies between user memory. Both lists live on the heap and are at most as long as
// the kernel's limit for a vector. A bad address on either side is EFAULT.
func move(dst, src []span, n int) error {
	if n == 0 {
		return nil
	}
	// dst takes the place of the local vector: its addresses are not Go pointers.
	got, _, errno := unix.Syscall6(unix.SYS_PROCESS_VM_READV, uintptr(pid),
		uintptr(unsafe.Pointer(unsafe.SliceData(dst))), uintptr(len(dst)),
		uintptr(unsafe.Pointer(unsafe.SliceData(src))), uintptr(len(src)), 0)
	if errno != 0 || int(got) != n {
		return unix.EFAULT
	}
	return nil
}

// addrOf returns the address of memory that stays where it is as long as the address is used.
func addrOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// zeroPages replaces mapped memory by pages of zeros, in place.
func zeroPages(mem []byte) {
	unix.MmapPtr(-1, 0, unsafe.Pointer(unsafe.SliceData(mem)), uintptr(len(mem)),
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED)
}
