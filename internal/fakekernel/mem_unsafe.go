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

// alignedBytes makes room that a struct may begin in.
func alignedBytes(n int) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(make([]uint64, (n+7)/8+1)))), n)
}

// load copies a T out of bytes that need not be aligned; missing bytes are zero.
func load[T any](b []byte) (v T) {
	copy(bytesOf(&v), b)
	return v
}

// userMem is the memory of a process with open files: 0 is this process, anything else the
// process of that number, which a front end serves.
type userMem int

func (m userMem) pid() int {
	if m == 0 {
		return pid
	}
	return int(m)
}

// in reads user memory; a bad address is EFAULT.
func (m userMem) in(dst []byte, addr uint64) error {
	if len(dst) == 0 {
		return nil
	}
	local := [1]unix.Iovec{{Base: &dst[0], Len: uint64(len(dst))}}
	remote := [1]unix.RemoteIovec{{Base: uintptr(addr), Len: len(dst)}}
	n, err := unix.ProcessVMReadv(m.pid(), local[:], remote[:], 0)
	runtime.KeepAlive(dst)
	if err != nil || n != len(dst) {
		return unix.EFAULT
	}
	return nil
}

// out writes user memory; a bad address is EFAULT.
func (m userMem) out(addr uint64, src []byte) error {
	if len(src) == 0 {
		return nil
	}
	local := [1]unix.Iovec{{Base: &src[0], Len: uint64(len(src))}}
	remote := [1]unix.RemoteIovec{{Base: uintptr(addr), Len: len(src)}}
	n, err := unix.ProcessVMWritev(m.pid(), local[:], remote[:], 0)
	runtime.KeepAlive(src)
	if err != nil || n != len(src) {
		return unix.EFAULT
	}
	return nil
}

// copyIn and copyOut are for files that only this process can have.
func copyIn(dst []byte, addr uint64) error  { return userMem(0).in(dst, addr) }
func copyOut(addr uint64, src []byte) error { return userMem(0).out(addr, src) }

// A span is a piece of memory: the user's, or with mem 0 the kernel's as well.
type span struct {
	unix.RemoteIovec
	mem userMem
}

// spanOf is memory of the kernel, off the Go heap or part of what is on it for good.
func spanOf(b []byte) span {
	return span{RemoteIovec: unix.RemoteIovec{Base: addrOf(b), Len: len(b)}}
}

// mover copies between spans. It has the room that this takes, on the heap as it must be.
type mover struct {
	dst, src vector
	bounce   []byte
}

// vector is a list of spans of one process as the system takes it. One process_vm call
// takes up to 1024.
type vector []unix.RemoteIovec

// load lists the spans, and tells whether all are of this process.
func (v *vector) load(spans []span) (own bool) {
	*v, own = (*v)[:0], true
	for i := range spans {
		*v = append(*v, spans[i].RemoteIovec)
		own = own && spans[i].mem == 0
	}
	return own
}

// move copies n bytes, which is how much both lists are for. A bad address on either side
// is EFAULT.
func (m *mover) move(dst, src []span, n int) error {
	if n == 0 {
		return nil
	}
	to, from := m.dst.load(dst), m.src.load(src)
	if !to || !from {
		return m.across(dst, src, n)
	}
	// dst takes the place of the local vector: its addresses are not Go pointers.
	got, _, errno := unix.Syscall6(unix.SYS_PROCESS_VM_READV, uintptr(pid),
		uintptr(unsafe.Pointer(unsafe.SliceData(m.dst))), uintptr(len(dst)),
		uintptr(unsafe.Pointer(unsafe.SliceData(m.src))), uintptr(len(src)), 0)
	if errno != 0 || int(got) != n {
		return unix.EFAULT
	}
	return nil
}

// across copies between processes, which no call does in one step.
func (m *mover) across(dst, src []span, n int) error {
	if cap(m.bounce) < n {
		m.bounce = make([]byte, n)
	}
	at := m.bounce[:n]
	for i := range src {
		piece := at[:min(src[i].Len, len(at))]
		if err := src[i].mem.in(piece, uint64(src[i].Base)); err != nil {
			return err
		}
		at = at[len(piece):]
	}
	if len(at) > 0 {
		return unix.EFAULT
	}
	at = m.bounce[:n]
	for i := range dst {
		piece := at[:min(dst[i].Len, len(at))]
		if err := dst[i].mem.out(uint64(dst[i].Base), piece); err != nil {
			return err
		}
		at = at[len(piece):]
	}
	if len(at) > 0 {
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
