//go:build linux

package fakekernel

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// A pipe brings events to another process, which has its reading end in place of an event
// file: reading, waiting and not waiting work there without our doing. Each event is a
// packet, so that one read takes one. What was read is known by how much is left in it.
type pipe struct {
	fd       int // the writing end
	dev, ino uint64
	size     int  // of an event
	sent     int  // of the events in the queue: those that were written to the pipe come first
	waits    bool // somebody will try again to write the rest
}

const (
	pipeRoom  = 64 // packets, if the system allows that many
	pipePause = 2 * time.Millisecond
)

// give makes the event file one of the caller's process.
func (e *eventFile) give(c Caller) error {
	e.ctx.dropAbandoned()
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_DIRECT); err != nil {
		return unix.EMFILE
	}
	defer unix.Close(ends[0])
	p := &pipe{fd: ends[1], size: len(e.raw(&event{comp: e.completion}))}
	// Smaller is possible, and there may be a bound for users; then it fills up earlier.
	_, _ = unix.FcntlInt(uintptr(p.fd), unix.F_SETPIPE_SZ, pipeRoom*int(pageSize))
	var st unix.Stat_t
	err := unix.SetNonblock(p.fd, true)
	if err == nil {
		err = unix.Fstat(p.fd, &st)
	}
	if err == nil {
		p.dev, p.ino = st.Dev, st.Ino
		e.fd, err = c.Give(ends[0])
	}
	if err != nil {
		unix.Close(p.fd)
		return errnoOf(err)
	}
	e.pipe = p
	e.k.files[e] = struct{}{}
	return nil
}

// remoteEvent is the event file behind a descriptor of the caller, nil if it is none.
func (f *verbsFile) remoteEvent(fd int32) *eventFile {
	var st unix.Stat_t
	if unix.Stat(fmt.Sprintf("/proc/%d/fd/%d", f.caller.Thread(), fd), &st) != nil {
		return nil
	}
	for o := range f.k.files {
		if e, ok := o.(*eventFile); ok && e.pipe != nil && e.pipe.ino == st.Ino && e.pipe.dev == st.Dev {
			return e
		}
	}
	return nil
}

// settle takes from the queue what was read.
func (e *eventFile) settle() {
	left, err := unix.IoctlGetInt(e.pipe.fd, unix.TIOCINQ)
	if err != nil {
		return
	}
	e.took(e.pipe.sent - left/e.pipe.size)
}

// took takes the first n events from the queue: the process has read them.
func (e *eventFile) took(n int) {
	for i := range e.queue[:n] {
		if c := e.queue[i].counter; c != nil {
			*c++
		}
	}
	e.queue = slices.Delete(e.queue, 0, n)
	e.pipe.sent -= n
}

// feed writes as much of the queue as there is room for, and tries again later if there is
// more.
func (e *eventFile) feed() {
	e.settle()
	for e.pipe.sent < len(e.queue) {
		_, err := unix.Write(e.pipe.fd, e.raw(&e.queue[e.pipe.sent]))
		switch {
		case err == unix.EAGAIN:
			e.feedLater()
			return
		case err != nil: // nobody can read it any more
			e.drop()
			return
		}
		e.pipe.sent++
	}
}

func (e *eventFile) feedLater() {
	if e.pipe.waits {
		return
	}
	e.pipe.waits = true
	e.k.after(pipePause, func() {
		e.pipe.waits = false
		if !e.closed {
			e.feed()
		}
	})
}

// unsend takes the events out of the pipe that nobody has read. For a moment the process finds
// nothing there.
func (e *eventFile) unsend() {
	r, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", e.pipe.fd), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(r)
	buf, kept := make([]byte, e.pipe.size), 0
	for {
		if n, err := unix.Read(r, buf); n != e.pipe.size || err != nil {
			break
		}
		// The process may read at the same time: what it took lies before this one.
		for kept < e.pipe.sent && !bytes.Equal(e.raw(&e.queue[kept]), buf) {
			e.takeAt(kept)
		}
		kept++
	}
	for e.pipe.sent > kept {
		e.takeAt(kept)
	}
	e.pipe.sent = 0
}

// takeAt takes one event from the queue: the process has read it.
func (e *eventFile) takeAt(i int) {
	if c := e.queue[i].counter; c != nil {
		*c++
	}
	e.queue = slices.Delete(e.queue, i, i+1)
	e.pipe.sent--
}

// drop ends the event file; the lock is held.
func (e *eventFile) drop() {
	if e.closed {
		return
	}
	if e.pipe != nil {
		e.settle()
		unix.Close(e.pipe.fd) // the reader finds the end
	} else {
		delete(e.k.fds, e.fd)
	}
	e.closed = true
	e.queue = nil
	close(e.gone)
	delete(e.k.files, e)
}

// dropAbandoned ends event files that the process has closed: nothing tells of that.
func (f *verbsFile) dropAbandoned() {
	for o := range f.k.files {
		if e, ok := o.(*eventFile); ok && e.ctx == f && e.pipe != nil && e.pipe.abandoned() {
			e.drop()
		}
	}
}

// abandoned tells whether nobody has the reading end.
func (p *pipe) abandoned() bool {
	fds := []unix.PollFd{{Fd: int32(p.fd)}}
	_, err := unix.Poll(fds, 0)
	return err == nil && fds[0].Revents&unix.POLLERR != 0
}

// raw is what a read of an event gives.
func (e *eventFile) raw(ev *event) []byte {
	b := bytesOf(&ev.async)
	if ev.comp {
		return b[:8]
	}
	return b
}
