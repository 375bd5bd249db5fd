//go:build linux

package fakekernel

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// pollFD stands for an event channel in poll and epoll: a real descriptor that is readable
// as long as there are events. It is there from the first time that somebody asks for it.
type pollFD struct {
	fd     int // 0: not there
	lit    bool
	closed bool
}

func (p *pollFD) open() error {
	if p.closed {
		return net.ErrClosed
	}
	if p.fd != 0 {
		return nil
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err == nil {
		p.fd = fd
	}
	return err
}

// light makes the descriptor readable, or not.
func (p *pollFD) light(on bool) {
	if p.fd == 0 || p.lit == on {
		return
	}
	p.lit = on
	count := [8]byte{1}
	if on {
		_, _ = unix.Write(p.fd, count[:])
		return
	}
	_, _ = unix.Read(p.fd, count[:])
}

func (p *pollFD) close() {
	p.closed = true
	if p.fd != 0 {
		_ = unix.Close(p.fd)
		p.fd = 0
	}
}

// changed tells all who wait whether there are events; the lock is held.
func (f *cmFile) changed() {
	f.poll.light(len(f.queue) > 0)
	if len(f.queue) == 0 {
		return
	}
	select {
	case f.ready <- struct{}{}:
	default:
	}
}

// SyscallConn is the descriptor of the event channel. MIGRATE_ID knows the file by it.
func (f *cmFile) SyscallConn() (syscall.RawConn, error) {
	f.k.mu.Lock()
	defer f.k.mu.Unlock()
	if err := f.poll.open(); err != nil {
		return nil, err
	}
	f.changed()
	return rawCM{f}, nil
}

// cmFileAt finds a file by its number, or that of its descriptor for polling.
func (k *Kernel) cmFileAt(fd int32) (*cmFile, error) {
	for f := range k.files {
		if c, ok := f.(*cmFile); ok && (c.fd == fd || c.poll.fd == int(fd) && fd != 0) {
			return c, nil
		}
	}
	if k.fds[fd] != nil {
		return nil, unix.EINVAL
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
		return nil, unix.EINVAL
	}
	return nil, unix.ENOENT
}

// rawCM is a syscall.RawConn. Read does not wait: there is nothing to be read but events.
type rawCM struct{ f *cmFile }

func (r rawCM) Control(do func(fd uintptr)) error {
	r.f.k.mu.Lock()
	fd, closed := r.f.poll.fd, r.f.closed
	r.f.k.mu.Unlock()
	if closed {
		return net.ErrClosed
	}
	do(uintptr(fd))
	return nil
}

func (r rawCM) Read(do func(fd uintptr) bool) error {
	return r.Control(func(fd uintptr) { do(fd) })
}

func (r rawCM) Write(do func(fd uintptr) bool) error {
	return r.Control(func(fd uintptr) { do(fd) })
}
