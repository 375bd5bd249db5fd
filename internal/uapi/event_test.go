//go:build linux

package uapi

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// eventPipe is an event descriptor whose other end is in the test's hand.
func eventPipe(t *testing.T) (f File, send func()) {
	t.Helper()
	return adoptedPipe(t, Host().Adopt)
}

func adoptedPipe(t *testing.T, adopt func(fd int32) (File, error)) (f File, send func()) {
	t.Helper()
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	f, err := adopt(int32(p[0]))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close(); unix.Close(p[1]) })
	return f, func() {
		if _, err := unix.Write(p[1], make([]byte, 8)); err != nil {
			t.Error(err)
		}
	}
}

func TestEventRead(t *testing.T) {
	f, send := eventPipe(t)
	send()
	if n, err := f.Read(context.Background(), make([]byte, 8)); n != 8 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
}

// TestEventContexts: each waiter obeys its own context, and one that gave up leaves the
// descriptor as good as before.
func TestEventContexts(t *testing.T) {
	f, send := eventPipe(t)
	short, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	long := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_, err := f.Read(ctx, make([]byte, 8))
		long <- err
	}()
	for range 3 {
		if _, err := f.Read(short, make([]byte, 8)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the deadline", err)
		}
	}
	send()
	if err := <-long; err != nil {
		t.Errorf("the patient waiter got %v", err)
	}
}

// TestEventBackground: a wait without end is not cut short by the context of an earlier one,
// whether that has ended before or ends meanwhile.
func TestEventBackground(t *testing.T) {
	f, send := eventPipe(t)
	read := func(ctx context.Context) error {
		_, err := f.Read(ctx, make([]byte, 8))
		return err
	}
	for _, early := range []bool{true, false} {
		ctx, cancel := context.WithCancel(context.Background())
		send()
		if err := read(ctx); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		if early {
			cancel()
			time.Sleep(5 * time.Millisecond) // let it cut; the outcome does not depend on it
		}
		go func() { done <- read(context.Background()) }()
		time.Sleep(5 * time.Millisecond) // let it park; nor on this
		cancel()
		time.Sleep(5 * time.Millisecond)
		send()
		if err := <-done; err != nil {
			t.Errorf("context ended early %v: got %v", early, err)
		}
	}
}

func TestEventCloseWakes(t *testing.T) {
	f, _ := eventPipe(t)
	errs := make(chan error)
	const waiters = 20
	for range waiters {
		go func() {
			_, err := f.Read(context.Background(), make([]byte, 8))
			errs <- err
		}()
	}
	time.Sleep(10 * time.Millisecond) // let some park; the outcome does not depend on it
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	for range waiters {
		if err := <-errs; !errors.Is(err, net.ErrClosed) {
			t.Errorf("got %v, want net.ErrClosed", err)
		}
	}
	if err := f.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
}

// TestWriteWaitsForReadable: what GET_EVENT does on rdma_cm, here on a socket whose buffer
// is full: EAGAIN, and then it is readability that counts.
func TestWriteWaitsForReadable(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[1])
	for err = nil; err == nil; {
		_, err = unix.Write(pair[0], make([]byte, 8))
	}
	f, err := Host().Adopt(int32(pair[0]))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(nil, make([]byte, 8)); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("a single attempt: got %v, want EAGAIN", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if _, err := f.Write(ctx, make([]byte, 8)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the deadline", err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := f.Write(context.Background(), make([]byte, 8))
		done <- err
	}()
	time.Sleep(5 * time.Millisecond) // let it park; the outcome does not depend on it
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v, want net.ErrClosed", err)
	}
}

func TestDeviceFileClosed(t *testing.T) {
	f, err := Host().Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(nil, []byte("x")); err != nil {
		t.Error(err)
	}
	if err := f.Ioctl(1, nil); !errors.Is(err, unix.ENOTTY) {
		t.Errorf("ioctl: got %v, want ENOTTY", err)
	}
	f.Close()
	f.Close()
	if _, err := f.Write(nil, []byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("write after close: got %v", err)
	}
	if err := f.Ioctl(1, nil); !errors.Is(err, net.ErrClosed) {
		t.Errorf("ioctl after close: got %v", err)
	}
	if _, err := f.Map(0, 4096, ProtRead); !errors.Is(err, net.ErrClosed) {
		t.Errorf("map after close: got %v", err)
	}
}
