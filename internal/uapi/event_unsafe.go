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
	call    eventCall
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
	e := &eventFile{f: f, rc: rc, turn: make(chan struct{}, 1), closed: make(chan struct{})}
	e.call.try = e.call.once
	return e, nil
}

func (e *eventFile) Read(ctx context.Context, p []byte) (int, error) {
	return e.wait(ctx, unix.SYS_READ, p)
}

func (e *eventFile) Write(ctx context.Context, p []byte) (int, error) {
	if ctx != nil {
		return e.wait(ctx, unix.SYS_WRITE, p)
	}
	c := writeCalls.Get().(*writeCall)
	defer func() {
		c.p = nil
		writeCalls.Put(c)
	}()
	c.p = p
	if err := e.rc.Control(c.control); err != nil {
		return 0, e.plain(err)
	}
	return c.n, c.err
}

// writeCall is a single write, of which the scheduler is told: it may take long. Many may be
// under way, so it is lent out, and allocates nothing either.
type writeCall struct {
	control func(fd uintptr) // do
	p       []byte
	n       int
	err     error
}

var writeCalls = sync.Pool{New: func() any {
	c := new(writeCall)
	c.control = c.do
	return c
}}

func (c *writeCall) do(fd uintptr) {
	c.n, c.err = ignoringEINTR(func() (int, error) { return unix.Write(int(fd), c.p) })
}

// wait makes a system call, and parks on the netpoller while there is nothing for it.
func (e *eventFile) wait(ctx context.Context, trap uintptr, p []byte) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	select {
	case e.turn <- struct{}{}:
		defer func() { <-e.turn }()
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-e.closed:
		return 0, net.ErrClosed
	}
	if ctx.Done() == nil {
		e.unwatch() // an earlier context must not cut this wait short
	} else {
		e.watch(ctx)
	}
	n, err := e.call.do(e.rc, trap, p)
	if ctx.Done() != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		e.unwatch()
		return 0, ctx.Err()
	}
	return n, e.plain(err)
}

// eventCall is the system call of the one who waits. It is kept, so that waiting allocates
// nothing.
//
// The scheduler is not told of it (RawSyscall): the descriptor does not block. It would take
// the call for a sign that the program has become busy and wake its monitor, a thread of its
// own, which looks around every 20 us for a while: that is more work than all the rest of a
// wake-up.
type eventCall struct {
	try  func(fd uintptr) bool // once
	trap uintptr
	p    []byte
	n    int
	err  error
}

func (c *eventCall) do(rc syscall.RawConn, trap uintptr, p []byte) (int, error) {
	c.trap, c.p = trap, p
	defer func() { c.p = nil }()
	if err := rc.Read(c.try); err != nil {
		return 0, err
	}
	return c.n, c.err
}

// once reports whether the wait is over.
func (c *eventCall) once(fd uintptr) bool {
	c.n, c.err = ignoringEINTR(func() (int, error) {
		n, _, errno := syscall.RawSyscall(c.trap, fd, uintptr(unsafe.Pointer(unsafe.SliceData(c.p))), uintptr(len(c.p)))
		if errno != 0 {
			return 0, errno
		}
		return int(n), nil
	})
	return c.err != syscall.EAGAIN
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
