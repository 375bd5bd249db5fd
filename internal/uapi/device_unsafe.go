//go:build linux

package uapi

import (
	"context"
	"net"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// deviceFile is a node without poll: uverbs. Calls hold the lock shared, so that Close
// cannot free the descriptor's number under a call that is about to use it; no call
// waits for an event, so Close gets through.
type deviceFile struct {
	mu     sync.RWMutex
	fd     int
	closed bool
}

var _ File = (*deviceFile)(nil)

func (f *deviceFile) Ioctl(req uint32, arg unsafe.Pointer) error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.closed {
		return net.ErrClosed
	}
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(f.fd), uintptr(req), uintptr(arg))
		switch errno {
		case 0:
			return nil
		case unix.EINTR:
		default:
			return errno
		}
	}
}

// Write is the doorbell of rxe and siw: no allocation, one system call.
//
// The scheduler is not told of it (RawSyscall). The kernel sends the packets within this
// call, which often takes longer than the 20 us after which the scheduler gives the processor
// of a goroutine in a system call to another thread; having it back costs more than the call.
// It waits for nothing, and takes no longer than what the device may send at once. (The function
// is that of package syscall because the one of unix gets there by way of assembly.)
func (f *deviceFile) Write(_ context.Context, p []byte) (int, error) {
	f.mu.RLock()
	if f.closed {
		f.mu.RUnlock()
		return 0, net.ErrClosed
	}
	n, _, errno := syscall.RawSyscall(unix.SYS_WRITE, uintptr(f.fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
	f.mu.RUnlock()
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

func (f *deviceFile) Read(context.Context, []byte) (int, error) { return 0, unix.EINVAL }

func (f *deviceFile) Map(off int64, length, prot int) ([]byte, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.closed {
		return nil, net.ErrClosed
	}
	mem, err := unix.MmapPtr(f.fd, off, nil, uintptr(length), prot, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(mem), length), nil
}

func (f *deviceFile) Unmap(mem []byte) error {
	return unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(mem)), uintptr(len(mem)))
}

func (f *deviceFile) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil
	}
	f.closed = true
	return unix.Close(f.fd)
}
