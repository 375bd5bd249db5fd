//go:build linux

package fakekernel

import (
	"context"
	"iter"
	"net"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
)

// event waits in an event file to be read.
type event struct {
	comp    bool
	async   abi.IbUverbsAsyncEventDesc // comp: only the element counts
	counter *uint32                    // of the object, incremented when the event is read
	owner   any                        // the object, whose end drops the event
}

// eventFile is a completion channel or a file of asynchronous events.
type eventFile struct {
	k          *Kernel
	ctx        *verbsFile
	completion bool
	fd         int32

	pipe   *pipe // in place of Read: of another process
	queue  []event
	closed bool
	ended  bool          // its context is gone: once it is empty, reads fail
	ready  chan struct{} // holds a token while there may be an event
	gone   chan struct{} // closed by Close
}

func (f *verbsFile) newEventFile(completion bool) (*eventFile, error) {
	e := &eventFile{
		k: f.k, ctx: f, completion: completion,
		ready: make(chan struct{}, 1), gone: make(chan struct{}),
	}
	if f.caller != nil {
		return e, e.give(f.caller)
	}
	e.fd = f.k.install(e)
	return e, nil
}

// eventAt is the event file behind a descriptor, nil if it is none.
func (f *verbsFile) eventAt(fd int64) *eventFile {
	if int64(int32(fd)) != fd {
		return nil
	}
	if f.caller != nil {
		return f.remoteEvent(int32(fd))
	}
	e, _ := f.k.fds[int32(fd)].(*eventFile)
	return e
}

// push adds an event; the lock is held.
func (e *eventFile) push(ev event) {
	if e.closed {
		return
	}
	e.queue = append(e.queue, ev)
	if e.pipe != nil {
		e.feed()
		return
	}
	e.signal()
}

func (e *eventFile) signal() {
	select {
	case e.ready <- struct{}{}:
	default:
	}
}

// events are the event files of a context, of completions or of asynchronous events.
func (f *verbsFile) events(completion bool) iter.Seq[*eventFile] {
	return func(yield func(*eventFile) bool) {
		for o := range f.k.files {
			if e, ok := o.(*eventFile); ok && e.ctx == f && e.completion == completion && !yield(e) {
				return
			}
		}
	}
}

// endEvents ends the event files of a context. Where the device was taken away those of
// asynchronous events live on: DEVICE_FATAL is the last that is read of them.
func (f *verbsFile) endEvents() {
	for e := range f.events(true) {
		e.ended = true
		e.signal()
	}
	for e := range f.events(false) {
		e.ended = !f.dev.zapped
		e.signal()
	}
	for e := range f.k.files {
		if e, ok := e.(*eventFile); ok && e.ctx == f && e.ended && e.pipe != nil {
			e.drop()
		}
	}
}

// forget drops the events of an object that ends.
func (e *eventFile) forget(owner any) {
	if e == nil || e.closed {
		return
	}
	owned := func(ev event) bool { return ev.owner == owner }
	if e.pipe == nil {
		e.queue = slices.DeleteFunc(e.queue, owned)
		return
	}
	e.settle()
	if slices.ContainsFunc(e.queue, owned) {
		e.unsend()
		e.queue = slices.DeleteFunc(e.queue, owned)
		e.feed()
	}
}

func (e *eventFile) Read(ctx context.Context, p []byte) (int, error) {
	if err := e.k.check(Call{Kind: CallRead}); err != nil {
		return 0, err
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	for {
		n, err := e.tryRead(p)
		if err != unix.EAGAIN {
			return n, err
		}
		select {
		case <-e.ready:
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-e.gone:
			return 0, net.ErrClosed
		}
	}
}

func (e *eventFile) tryRead(p []byte) (int, error) {
	e.k.mu.Lock()
	defer e.k.mu.Unlock()
	switch {
	case e.closed:
		return 0, net.ErrClosed
	case len(e.queue) == 0 && e.ended:
		e.signal()
		return 0, unix.EIO
	case len(e.queue) == 0:
		return 0, unix.EAGAIN
	}
	ev := &e.queue[0]
	raw := e.raw(ev)
	if len(p) < len(raw) {
		e.signal()
		return 0, unix.EINVAL
	}
	n := copy(p, raw)
	if ev.counter != nil {
		*ev.counter++
	}
	e.queue = slices.Delete(e.queue, 0, 1)
	if len(e.queue) > 0 || e.ended {
		e.signal() // for another reader
	}
	return n, nil
}

func (e *eventFile) Close() error {
	e.k.mu.Lock()
	defer e.k.mu.Unlock()
	e.drop()
	return nil
}

func (e *eventFile) Write(context.Context, []byte) (int, error) { return 0, unix.EINVAL }
func (e *eventFile) Ioctl(uint32, unsafe.Pointer) error         { return unix.ENOTTY }
func (e *eventFile) Map(int64, int, int) ([]byte, error)        { return nil, unix.ENODEV }
func (e *eventFile) Unmap([]byte) error                         { return unix.EINVAL }
