//go:build linux

package uapi

import (
	"context"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// blockingFile is a descriptor whose reader sleeps in read(2), with its thread: one system
// call a wake-up, as in C. It is not on the netpoller, which would be woken with the reader.
//
// A wait is cut short in two steps. First the descriptor is made non-blocking, which makes a
// read that has not begun fail. Then the thread gets a signal, which ends a read that sleeps:
// the kernel starts it again, and it fails like the other. The signal is the one with which
// the runtime preempts goroutines; it has a handler in every Go program, for which signals
// that it did not send are nothing new.
type blockingFile struct {
	fd     int
	thread atomic.Int32 // that reads or is about to, or 0
	closed atomic.Bool

	reading sync.Mutex
	watch   contextWatcher // under reading

	cutting sync.Mutex
	gone    bool // the descriptor, under cutting
}

var _ File = (*blockingFile)(nil)

// cutSignal is what the runtime calls sigPreempt.
const cutSignal = unix.SIGURG

// AdoptBlocking takes over a descriptor whose reader may block its thread.
func (host) AdoptBlocking(fd int32) (File, error) {
	if ignored(cutSignal) { // by signal.Ignore(): nothing could cut a wait short
		return host{}.Adopt(fd)
	}
	if err := unix.SetNonblock(int(fd), false); err != nil {
		unix.Close(int(fd))
		return nil, err
	}
	return &blockingFile{fd: int(fd)}, nil
}

// ignored asks the kernel, whose answer begins with the handler.
func ignored(s syscall.Signal) bool {
	const sigIgn, sizeofSigset = 1, 8
	var action [8]uintptr
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s), 0, uintptr(unsafe.Pointer(&action)), sizeofSigset, 0, 0)
	return errno == 0 && action[0] == sigIgn
}

// Read lets one goroutine at a time read: a second one waits, whatever its context.
func (b *blockingFile) Read(ctx context.Context, p []byte) (int, error) {
	b.reading.Lock()
	defer b.reading.Unlock()
	if b.watch.done != ctx.Done() {
		b.watch.follow(ctx, b.cut)
	}
	runtime.LockOSThread() // the signal must find the thread that reads
	defer runtime.UnlockOSThread()
	b.thread.Store(int32(unix.Gettid()))
	defer b.thread.Store(0)
	return b.read(ctx, p)
}

// read looks at the reasons to stop after it has made the descriptor blocking again: a cut
// either comes before, and its reason is seen, or makes the next read fail.
func (b *blockingFile) read(ctx context.Context, p []byte) (int, error) {
	for {
		if b.closed.Load() {
			return 0, net.ErrClosed
		}
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		n, err := unix.Read(b.fd, p)
		switch {
		case err == unix.EAGAIN:
			if err := unix.SetNonblock(b.fd, false); err != nil {
				return 0, err
			}
		case err != unix.EINTR:
			return max(n, 0), err
		}
	}
}

// cut makes the reader look around.
func (b *blockingFile) cut() {
	b.cutting.Lock()
	defer b.cutting.Unlock()
	if b.gone {
		return
	}
	_ = unix.SetNonblock(b.fd, true)
	if thread := b.thread.Load(); thread != 0 {
		_ = unix.Tgkill(unix.Getpid(), int(thread), cutSignal)
	}
}

// Write makes a single attempt: no descriptor of this kind takes commands.
func (b *blockingFile) Write(context.Context, []byte) (int, error) { return 0, unix.EINVAL }

func (b *blockingFile) Ioctl(uint32, unsafe.Pointer) error { return unix.ENOTTY }

func (b *blockingFile) Map(int64, int, int) ([]byte, error) { return nil, unix.ENODEV }

func (b *blockingFile) Unmap([]byte) error { return unix.EINVAL }

func (b *blockingFile) Close() error {
	if b.closed.Swap(true) {
		return nil
	}
	b.cut()
	b.reading.Lock() // the reader has left
	b.watch.release()
	b.reading.Unlock()
	b.cutting.Lock()
	defer b.cutting.Unlock()
	b.gone = true
	return unix.Close(b.fd)
}

// contextWatcher calls a function when a context ends. It stays so between waits: who waits
// again with the same context, as most loops do, pays once.
type contextWatcher struct {
	done <-chan struct{}
	stop func() bool
}

func (w *contextWatcher) follow(ctx context.Context, f func()) {
	w.release()
	if w.done = ctx.Done(); w.done != nil {
		w.stop = context.AfterFunc(ctx, f)
	}
}

func (w *contextWatcher) release() {
	if w.stop != nil {
		w.stop()
	}
	w.done, w.stop = nil, nil
}
