//go:build linux

package uapi

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// eventFile is a descriptor on the runtime's netpoller: rdma_cm, completion channels,
// asynchronous events. A waiting goroutine costs no OS thread.
type eventFile struct {
	f  *os.File
	rc syscall.RawConn

	// One goroutine at a time waits, because the descriptor has one deadline, and the
	// deadline is how a context cuts a wait short.
	turn    chan struct{}
	watched <-chan struct{} // of the context that cuts waits short, under the turn
	release func()          // ends that
	closed  chan struct{}
	once    sync.Once
}

var _ File = (*eventFile)(nil)

// newEventFile takes over a non-blocking descriptor.
func newEventFile(fd int, name string) (File, error) {
	f := os.NewFile(uintptr(fd), name)
	rc, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return nil, err
	}
	return &eventFile{f: f, rc: rc, turn: make(chan struct{}, 1), closed: make(chan struct{})}, nil
}

func (e *eventFile) Read(ctx context.Context, p []byte) (n int, err error) {
	err = e.wait(ctx, func() error {
		n, err = e.f.Read(p)
		return err
	})
	return n, err
}

func (e *eventFile) Write(ctx context.Context, p []byte) (n int, err error) {
	once := func(fd uintptr) {
		n, err = ignoringEINTR(func() (int, error) { return unix.Write(int(fd), p) })
	}
	if ctx == nil {
		if cerr := e.rc.Control(once); cerr != nil {
			return 0, e.plain(cerr)
		}
		return n, err
	}
	werr := e.wait(ctx, func() error {
		return e.rc.Read(func(fd uintptr) bool { once(fd); return err != unix.EAGAIN })
	})
	if werr != nil {
		return 0, werr
	}
	return n, err
}

// wait runs block, which parks on the netpoller, until it returns or ctx ends.
func (e *eventFile) wait(ctx context.Context, block func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case e.turn <- struct{}{}:
		defer func() { <-e.turn }()
	case <-ctx.Done():
		return ctx.Err()
	case <-e.closed:
		return net.ErrClosed
	}
	if ctx.Done() == nil {
		e.unwatch() // an earlier context must not cut this wait short
		return e.plain(block())
	}
	e.watch(ctx)
	err := block()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		e.unwatch()
		return ctx.Err()
	}
	return e.plain(err)
}

// watch makes the end of ctx cut waits short. It stays so between waits: who waits again
// with the same context, as most loops do, pays once. The caller has the turn.
func (e *eventFile) watch(ctx context.Context) {
	if e.watched == ctx.Done() {
		return
	}
	e.unwatch()
	cut := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		e.f.SetReadDeadline(time.Unix(1, 0))
		close(cut)
	})
	e.watched = ctx.Done()
	e.release = func() {
		if !stop() {
			// The deadline is set or about to be: take it away before the next wait.
			<-cut
			e.f.SetReadDeadline(time.Time{})
		}
	}
}

// unwatch undoes watch. The caller has the turn.
func (e *eventFile) unwatch() {
	if e.release != nil {
		e.release()
		e.watched, e.release = nil, nil
	}
}

// plain strips what os wraps around an errno, and gives closed files their usual error:
// what os and its RawConn say of them differs, and neither is net.ErrClosed. The runtime
// gives a descriptor up, as not pollable, that epoll reports nothing but an error for, which
// uverbs does when the device is gone: a read would say EIO.
func (e *eventFile) plain(err error) error {
	if err == nil {
		return nil
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	select {
	case <-e.closed:
		return net.ErrClosed
	default:
		return syscall.EIO
	}
}

func (e *eventFile) Ioctl(uint32, unsafe.Pointer) error { return unix.ENOTTY }

func (e *eventFile) Map(int64, int, int) ([]byte, error) { return nil, unix.ENODEV }

func (e *eventFile) Unmap([]byte) error { return unix.EINVAL }

func (e *eventFile) Close() error {
	var err error
	e.once.Do(func() {
		close(e.closed)
		err = e.f.Close() // wakes the one that waits
		e.turn <- struct{}{}
		e.unwatch()
		<-e.turn
	})
	return err
}
