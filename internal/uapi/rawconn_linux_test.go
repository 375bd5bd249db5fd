package uapi

import (
	"context"
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The descriptor can be polled beside a reader, whose deadline and Close go on working.
func TestSyscallConn(t *testing.T) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(p[1])
	f, err := Host().Adopt(int32(p[0]))
	if err != nil {
		t.Fatal(err)
	}
	rc, err := f.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	poll := func() (n, flags int) {
		t.Helper()
		err := rc.Control(func(fd uintptr) {
			fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			n, _ = unix.Poll(fds, 0)
			flags, _ = unix.FcntlInt(fd, unix.F_GETFL, 0)
		})
		if err != nil {
			t.Fatal(err)
		}
		return n, flags
	}
	if n, flags := poll(); n != 0 || flags&unix.O_NONBLOCK == 0 {
		t.Errorf("%d events, flags %#x, want none and non-blocking", n, flags)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
	defer cancel()
	if _, err := f.Read(ctx, make([]byte, 1)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want that the deadline has passed", err)
	}
	if _, err := unix.Write(p[1], []byte{1}); err != nil {
		t.Fatal(err)
	}
	if n, _ := poll(); n != 1 {
		t.Error("the descriptor does not become readable")
	}
	if n, err := f.Read(context.Background(), make([]byte, 1)); n != 1 || err != nil {
		t.Errorf("read %d bytes, %v", n, err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := f.(syscall.Conn).SyscallConn(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Close: got %v, want net.ErrClosed", err)
	}
	if err := rc.Control(func(uintptr) {}); err == nil {
		t.Error("the descriptor of a closed file can be had")
	}
}
