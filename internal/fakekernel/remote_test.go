//go:build linux

package fakekernel

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
)

// ownThread is a caller that is this process: numbers and memory are the same on both sides.
type ownThread struct{ t *testing.T }

func (o ownThread) Thread() int { return os.Getpid() }

func (o ownThread) Give(fd int) (int32, error) {
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	return int32(n), err
}

// full is a caller whose process has no number left.
type full struct{ ownThread }

func (full) Give(int) (int32, error) { return 0, unix.EMFILE }

// remoteEvents makes an event file of another process, and the number that it has there.
func remoteEvents(t *testing.T, completion bool) (*Remote, *eventFile) {
	t.Helper()
	k := mlx5Kernel(t, "", MLX5{NoExec: true})
	r, err := k.Serve("/dev/infiniband/uverbs0", os.Getpid())
	must(t, err)
	t.Cleanup(func() { r.Close() })
	e := newRemoteEvents(t, r, completion)
	return r, e
}

func newRemoteEvents(t *testing.T, r *Remote, completion bool) (e *eventFile) {
	t.Helper()
	must(t, r.as(ownThread{t}, func() (err error) {
		r.f.k.mu.Lock()
		defer r.f.k.mu.Unlock()
		e, err = r.f.newEventFile(completion)
		return err
	}))
	t.Cleanup(func() { unix.Close(int(e.fd)) })
	return e
}

// locked runs do as the kernel runs.
func (e *eventFile) locked(do func()) {
	e.k.mu.Lock()
	defer e.k.mu.Unlock()
	do()
}

func completionOf(owner any, counter *uint32, element uint64) event {
	return event{comp: true, owner: owner, counter: counter, async: abi.IbUverbsAsyncEventDesc{Element: element}}
}

// read takes one event, and returns its element.
func readElement(t *testing.T, e *eventFile, size int) uint64 {
	t.Helper()
	b := make([]byte, 4*size) // one event a read, however much room there is
	n, err := unix.Read(int(e.fd), b)
	if err != nil || n != size {
		t.Fatalf("read: %d bytes, %v; want %d", n, err, size)
	}
	return load[uint64](b)
}

// TestRemoteEvents: events come in order, also if there are more than fit, and count as
// reported when they were read.
func TestRemoteEvents(t *testing.T) {
	for _, completion := range []bool{true, false} {
		_, e := remoteEvents(t, completion)
		const n, some = 3 * pipeRoom, pipeRoom + 5
		var counter uint32
		owner := new(int)
		for i := range n {
			ev := completionOf(owner, &counter, uint64(i))
			ev.comp = completion
			e.locked(func() { e.push(ev) })
		}
		for i := range some {
			if got := readElement(t, e, e.pipe.size); got != uint64(i) {
				t.Fatalf("event %d is of %d", i, got)
			}
		}
		e.locked(e.feed)
		if counter != some || len(e.queue) != n-some {
			t.Errorf("%d events are kept, and %d reported, want %d and %d", len(e.queue), counter, n-some, some)
		}
		e.locked(func() { e.forget(owner) })
		if counter != some {
			t.Errorf("%d events were reported, want %d", counter, some)
		}
		must(t, unix.SetNonblock(int(e.fd), true))
		if n, err := unix.Read(int(e.fd), make([]byte, 64)); err != unix.EAGAIN {
			t.Errorf("after the end of the object: %d bytes, %v; want nothing", n, err)
		}
	}
}

// TestRemoteForget: only the events of the object that ends go.
func TestRemoteForget(t *testing.T) {
	_, e := remoteEvents(t, true)
	owners, counters := [2]*int{new(int), new(int)}, [2]uint32{}
	for i := range 10 {
		e.locked(func() { e.push(completionOf(owners[i%2], &counters[i%2], uint64(i))) })
	}
	readElement(t, e, 8) // 0
	readElement(t, e, 8) // 1
	e.locked(func() { e.forget(owners[0]) })
	for _, want := range []uint64{3, 5, 7, 9} {
		if got := readElement(t, e, 8); got != want {
			t.Errorf("event of %d, want %d", got, want)
		}
	}
	e.locked(func() { e.forget(owners[1]) })
	if counters != [2]uint32{1, 5} {
		t.Errorf("%v events were reported, want 1 and 5", counters)
	}
}

// TestRemoteEventsClosed: nobody tells the kernel that a process has closed its end.
func TestRemoteEventsClosed(t *testing.T) {
	r, e := remoteEvents(t, true)
	k := r.f.k
	must(t, unix.Close(int(e.fd)))
	e2 := newRemoteEvents(t, r, true)
	if c := k.Counts(); c.CompChannels != 1 {
		t.Errorf("%d channels, want the new one", c.CompChannels)
	}
	must(t, unix.Close(int(e2.fd)))
	e2.locked(func() { e2.push(completionOf(nil, nil, 1)) })
	if c := k.Counts(); c.CompChannels != 0 {
		t.Errorf("%d channels, want none", c.CompChannels)
	}
}

// TestRemoteEventsEnd: with the file its event files end, which a reader finds.
func TestRemoteEventsEnd(t *testing.T) {
	r, e := remoteEvents(t, false)
	must(t, r.Close())
	if n, err := unix.Read(int(e.fd), make([]byte, 16)); n != 0 || err != nil {
		t.Errorf("read: %d bytes, %v; want the end", n, err)
	}
	if c := r.f.k.Counts(); c != (Counts{}) {
		t.Errorf("left: %+v", c)
	}
}

// TestRemoteEventNumbers: a number means what the caller's process has under it.
func TestRemoteEventNumbers(t *testing.T) {
	r, e := remoteEvents(t, true)
	other := newRemoteEvents(t, r, false)
	twin, err := unix.Dup(int(e.fd))
	must(t, err)
	defer unix.Close(twin)
	find := func(fd int64) (found *eventFile) {
		must(t, r.as(ownThread{t}, func() error {
			e.locked(func() { found = r.f.eventAt(fd) })
			return nil
		}))
		return found
	}
	for fd, want := range map[int64]*eventFile{
		int64(e.fd): e, int64(twin): e, int64(other.fd): other, 0: nil, -1: nil, 9999: nil, 1 << 40: nil,
	} {
		if got := find(fd); got != want {
			t.Errorf("descriptor %d is %p, want %p", fd, got, want)
		}
	}
}

// TestRemoteNoNumber: what cannot be installed does not come to be.
func TestRemoteNoNumber(t *testing.T) {
	r, _ := remoteEvents(t, true)
	err := r.as(full{}, func() error {
		r.f.k.mu.Lock()
		defer r.f.k.mu.Unlock()
		_, err := r.f.newEventFile(true)
		return err
	})
	if !errors.Is(err, unix.EMFILE) {
		t.Errorf("%v, want EMFILE", err)
	}
	if c := r.f.k.Counts(); c.CompChannels != 1 {
		t.Errorf("%d channels, want 1", c.CompChannels)
	}
}

// TestRemoteErrors: all that comes out is a plain errno.
func TestRemoteErrors(t *testing.T) {
	r, _ := remoteEvents(t, true)
	c := ownThread{t}
	if _, err := r.f.k.Serve("/dev/infiniband/uverbs9", 1); err != unix.ENOENT {
		t.Errorf("no device: %v", err)
	}
	if _, err := r.Write(c, 1, 8); err != unix.EFAULT {
		t.Errorf("a write from nowhere: %v", err)
	}
	if _, err := r.Write(c, 1, maxWrite+1); err != unix.EINVAL {
		t.Errorf("a write that is too long: %v", err)
	}
	if err := r.Map(1<<40, 1, unix.PROT_READ); err != unix.EINVAL {
		t.Errorf("a mapping of nothing: %v", err)
	}
	must(t, r.Close())
	if err := r.Map(0, 4096, unix.PROT_READ); err != unix.EBADF {
		t.Errorf("a mapping after the end: %v", err)
	}
}
