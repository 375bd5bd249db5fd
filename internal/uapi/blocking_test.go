//go:build linux

package uapi

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func blockingPipe(t *testing.T) (f File, send func()) {
	t.Helper()
	return adoptedPipe(t, Host().AdoptBlocking)
}

func TestBlockingRead(t *testing.T) {
	f, send := blockingPipe(t)
	if _, ok := f.(*blockingFile); !ok {
		t.Fatalf("got a %T", f)
	}
	for range 3 {
		done := make(chan error)
		go func() {
			n, err := f.Read(context.Background(), make([]byte, 8))
			if err == nil && n != 8 {
				err = errors.New("short read")
			}
			done <- err
		}()
		time.Sleep(time.Millisecond) // let it sleep; the outcome does not depend on it
		send()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// TestBlockingCut: the end of a context ends the read that sleeps, at whatever moment it
// comes, and the next read is as good as ever.
func TestBlockingCut(t *testing.T) {
	f, send := blockingPipe(t)
	for i := range 1000 {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error)
		go func() {
			_, err := f.Read(ctx, make([]byte, 8))
			done <- err
		}()
		time.Sleep(time.Duration(i%100) * time.Microsecond)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v, want the context's end", err)
		}
		if i%10 == 0 {
			send()
			if _, err := f.Read(context.Background(), make([]byte, 8)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestBlockingOldContext: the context of an earlier read does not end a later one.
func TestBlockingOldContext(t *testing.T) {
	f, send := blockingPipe(t)
	for range 100 {
		ctx, cancel := context.WithCancel(context.Background())
		send()
		if _, err := f.Read(ctx, make([]byte, 8)); err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() {
			_, err := f.Read(context.Background(), make([]byte, 8))
			done <- err
		}()
		cancel()
		time.Sleep(100 * time.Microsecond)
		send()
		if err := <-done; err != nil {
			t.Fatalf("got %v", err)
		}
	}
}

func TestBlockingClose(t *testing.T) {
	for i := range 200 {
		f, _ := blockingPipe(t)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if _, err := f.Read(context.Background(), make([]byte, 8)); !errors.Is(err, net.ErrClosed) {
					t.Errorf("got %v, want net.ErrClosed", err)
				}
			})
		}
		time.Sleep(time.Duration(i) * time.Microsecond)
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if err := f.Close(); err != nil {
			t.Errorf("again: %v", err)
		}
		wg.Wait()
	}
}

// TestBlockingSignalIgnored: where nothing could cut a read short, none is made that would
// have to be. In a process of its own: what is ignored stays so.
func TestBlockingSignalIgnored(t *testing.T) {
	const asked = "PUREVERBS_TEST_IGNORE"
	if os.Getenv(asked) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestBlockingSignalIgnored$", "-test.timeout=10s")
		cmd.Env = append(os.Environ(), asked+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	signal.Ignore(unix.SIGURG)
	f, _ := blockingPipe(t)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if _, err := f.Read(ctx, make([]byte, 8)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the deadline", err)
	}
}

// TestBlockingForeignCalls: what the descriptor cannot do says so.
func TestBlockingForeignCalls(t *testing.T) {
	f, _ := blockingPipe(t)
	if _, err := f.Write(context.Background(), nil); !errors.Is(err, unix.EINVAL) {
		t.Errorf("write: %v", err)
	}
	if err := f.Ioctl(0, nil); !errors.Is(err, unix.ENOTTY) {
		t.Errorf("ioctl: %v", err)
	}
	if _, err := f.Map(0, 1, ProtRead); !errors.Is(err, unix.ENODEV) {
		t.Errorf("map: %v", err)
	}
}
