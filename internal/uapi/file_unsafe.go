package uapi

import (
	"context"
	"errors"
	"unsafe"
)

// A File is an open character device (uverbs, rdma_cm) or an event descriptor that
// the kernel handed out. It is safe for concurrent use.
//
// Errors are the kernel's [syscall.Errno] unchanged, [net.ErrClosed] after Close, or
// the context's error.
type File interface {
	// Ioctl issues one ioctl. arg and all it points at stay put during the call:
	// that is the caller's promise. It is retried after EINTR.
	Ioctl(req uint32, arg unsafe.Pointer) error

	// Read reads one event into p. It waits, at no cost of an OS thread, until
	// there is one, ctx ends or the file is closed.
	Read(ctx context.Context, p []byte) (int, error)

	// Write issues one write command. With a nil ctx it is a single attempt. With
	// a context, EAGAIN means "nothing yet" and Write waits until the file is
	// readable, because rdma_cm announces an event (which is fetched by a write)
	// as POLLIN.
	Write(ctx context.Context, p []byte) (int, error)

	// Map maps length bytes at offset off, shared. The caller unmaps them.
	Map(off int64, length, prot int) ([]byte, error)

	// Unmap undoes Map; mem is exactly what Map returned.
	Unmap(mem []byte) error

	// Close wakes every waiter with net.ErrClosed. Further calls do nothing.
	Close() error
}

// An Opener makes Files. [Host] is the running kernel.
type Opener interface {
	// Open opens a device node for reading and writing.
	Open(path string) (File, error)
	// Adopt takes over a descriptor that came with a response of the kernel (a
	// completion or event channel).
	Adopt(fd int32) (File, error)
	// AdoptBlocking does the same, for a reader that may block its thread: Read does,
	// which is one system call and no more. All else about Read stays.
	AdoptBlocking(fd int32) (File, error)
	// Stat returns the device number of a node. The error wraps fs.ErrNotExist or
	// fs.ErrPermission where that is the cause.
	Stat(path string) (rdev uint64, err error)
}

// Protection bits for Map, equal to PROT_READ and PROT_WRITE on every Linux.
const (
	ProtRead  = 1
	ProtWrite = 2
)

// ErrNotLinux is returned by everything that would need a Linux kernel.
var ErrNotLinux = errors.New("RDMA needs Linux")
