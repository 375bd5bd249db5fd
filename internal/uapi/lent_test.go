//go:build linux

package uapi

import (
	"bytes"
	"context"
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
)

// echoed is a kernel that answers a command of rdma_cm with the complement of its bytes, as far
// as it writes.
func echoed(wrote int) *stub {
	return &stub{write: func(p []byte) (int, error) {
		runtime.Gosched() // to the others
		addr := binary.NativeEndian.Uint64(p[8:])
		answer := at(addr, wrote)
		for i := range answer {
			answer[i] = ^p[16+i]
		}
		return len(p), nil
	}}
}

// TestCallsDoNotMix: memory is lent from one call to the next, and what one had the other does
// not see, at the same time or later.
func TestCallsDoNotMix(t *testing.T) {
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 500 {
				size := 1 + rand.IntN(1000) // more than is lent, too
				in, out := make([]byte, 8+size), bytes.Repeat([]byte{7}, size)
				for i := range in {
					in[i] = byte(rand.Uint32())
				}
				wrote := rand.IntN(size + 1)
				if err := Call(nil, echoed(wrote), 1, in, 0, out); err != nil {
					t.Error(err)
				}
				for i, b := range out {
					want := byte(7) // where the kernel writes less, what the caller had
					if i < wrote {
						want = ^in[8+i]
					}
					if b != want {
						t.Errorf("byte %d of %d, of which %d written: got %#x, want %#x", i, size, wrote, b, want)
						return
					}
				}
			}
		})
	}
	all.Wait()
}

// TestCommandsDoNotMix: the same for requests, with payloads of all sizes.
func TestCommandsDoNotMix(t *testing.T) {
	kernel := &stub{ioctl: func(_ *abi.IbUverbsIoctlHdr, attrs []abi.IbUverbsAttr) error {
		runtime.Gosched()
		var core []byte
		for i := range attrs {
			switch attrs[i].AttrId {
			case abi.UVERBS_ATTR_CORE_IN:
				core = at(*attrs[i].Data(), int(attrs[i].Len))
			case abi.UVERBS_ATTR_CORE_OUT:
				answer := at(*attrs[i].Data(), int(attrs[i].Len))
				for j := range len(answer) / 2 {
					answer[j] = ^core[j]
				}
			}
		}
		return nil
	}}
	free := &WriteCmd{ID: 1}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 500 {
				size := 9 + rand.IntN(1000)
				in, out := make([]byte, size), bytes.Repeat([]byte{7}, size)
				for i := range in {
					in[i] = byte(rand.Uint32())
				}
				if err := Invoke(kernel, 1, free, in, out, nil, nil); err != nil {
					t.Error(err)
				}
				for i, b := range out {
					want := byte(7)
					if i < size/2 {
						want = ^in[i]
					}
					if b != want {
						t.Errorf("byte %d of %d: got %#x, want %#x", i, size, b, want)
						return
					}
				}
			}
		})
	}
	all.Wait()
}

// TestCommandOnce: a request is gone with Do.
func TestCommandOnce(t *testing.T) {
	c := NewCommand(PDDestroy, 0).Destroy(abi.UVERBS_ATTR_DESTROY_PD_HANDLE, 1)
	f := &stub{ioctl: func(*abi.IbUverbsIoctlHdr, []abi.IbUverbsAttr) error { return syscall.EBUSY }}
	if err := c.Do(f); err != syscall.EBUSY {
		t.Errorf("got %v, want EBUSY", err)
	}
	if err := c.Do(f); err != errIssued {
		t.Errorf("the second time: got %v, want %v", err, errIssued)
	}
}

// TestEventsAllocateNothing: neither does a read that finds something, nor a command.
func TestEventsAllocateNothing(t *testing.T) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	r, err := Host().Adopt(int32(fds[0]))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	w, err := Host().Adopt(int32(fds[1]))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	event := make([]byte, 8)
	once := func() {
		if _, err := w.Write(nil, event); err != nil {
			t.Error(err)
		}
		if n, err := r.Read(ctx, event); n != len(event) || err != nil {
			t.Errorf("read %d bytes, %v", n, err)
		}
	}
	if n := testing.AllocsPerRun(1000, once); n >= 1 { // a collection may take the lent memory away
		t.Errorf("%v allocations", n)
	}
}
