//go:build linux && (amd64 || arm64)

package sim

import (
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/internal/fakekernel"
)

// supervisor answers the system calls of all processes under the filter, one at a time.
type supervisor struct {
	k     *fakekernel.Kernel
	l     listener
	log   io.Writer
	files *fileTable
}

func newSupervisor(k *fakekernel.Kernel, l listener, log io.Writer) (*supervisor, error) {
	s := &supervisor{k: k, l: l, log: log}
	var err error
	s.files, err = newFileTable(func(d *deviceFile) { s.tell("closed everywhere: %s", d.path) })
	return s, refused("watch files with inotify", err)
}

func (s *supervisor) close() {
	unix.Close(int(s.l))
	s.files.close()
}

// serve works until no process is left under the filter.
func (s *supervisor) serve() {
	for s.wait() {
		n, err := s.l.receive()
		if err != nil {
			continue // it has died, or a signal came
		}
		s.files.settle() // what the thread closed before is closed
		c := &call{notification: n, s: s}
		c.reply(c.answer())
	}
	s.files.settle()
}

// tell writes a line of the log.
func (s *supervisor) tell(format string, args ...any) {
	if s.log != nil {
		fmt.Fprintf(s.log, "mlx5sim: "+format+"\n", args...)
	}
}

// wait waits for a system call; false if none can come any more. Files that are closed
// meanwhile are ended.
func (s *supervisor) wait() bool {
	for {
		poll := []unix.PollFd{{Fd: int32(s.l), Events: unix.POLLIN}, {Fd: int32(s.files.notify), Events: unix.POLLIN}}
		if _, err := unix.Poll(poll, -1); err != nil {
			continue // EINTR
		}
		switch {
		case poll[0].Revents&unix.POLLIN != 0:
			return true
		case poll[0].Revents != 0:
			return false
		}
		s.files.settle()
	}
}

// call is a system call that waits for its answer.
type call struct {
	notification
	s *supervisor
}

// verdict is what to answer: an errno, or a value, or that the real kernel is to do it.
type verdict struct {
	val     int64
	err     error
	through bool
}

var through = verdict{through: true}

func (c *call) reply(v verdict) {
	r := response{id: c.id, val: v.val}
	if v.through {
		r.flags = unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE
	}
	if v.err != nil {
		errno, ok := v.err.(unix.Errno) //nolint:errorlint // the model's errors are plain here
		if !ok {
			errno = unix.EIO
		}
		r.val, r.errno = 0, -int32(errno)
	}
	if err := c.s.l.send(r); err != nil {
		c.note("it has died: %v", err)
	}
}

// note tells of a call.
func (c *call) note(format string, args ...any) {
	c.s.tell("%d: "+format, append([]any{c.thread}, args...)...)
}

func (c *call) answer() verdict {
	switch int(c.nr) {
	case unix.SYS_OPENAT:
		return c.open(c.args[1], int(c.args[2]))
	case sysOpen:
		return c.open(c.args[0], int(c.args[1]))
	case unix.SYS_IOCTL:
		return c.ioctl()
	case unix.SYS_WRITE:
		return c.write()
	case unix.SYS_WRITEV:
		return c.writev()
	case unix.SYS_DUP, unix.SYS_FCNTL:
		return c.dup()
	case unix.SYS_MMAP:
		return c.mmap()
	case unix.SYS_FACCESSAT, unix.SYS_FACCESSAT2:
		return c.access(c.args[1])
	case sysAccess:
		return c.access(c.args[0])
	}
	return c.stat()
}

// Thread is for the model.
func (c *call) Thread() int { return int(c.thread) }

// Give is for the model.
func (c *call) Give(fd int) (int32, error) {
	n, err := c.s.l.add(addition{id: c.id, src: uint32(fd), numFlags: unix.O_CLOEXEC})
	return int32(n), err
}
