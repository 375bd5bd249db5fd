package uverbs_test

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/pureverbs/rdma/internal/fakekernel"
	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/internal/verbstest"
	"github.com/pureverbs/rdma/uverbs"
)

// TestDeviceRemoved: the device goes while it is in use, as hardware does: the mapped queues
// turn into zeros, every command fails, and what was made can be closed all the same.
func TestDeviceRemoved(t *testing.T) {
	for name, devices := range map[string][]fakekernel.Device{"rxe0": rxe, "siw0": siw, "mlx5_0": mlx5} {
		t.Run(name, func(t *testing.T) {
			testutil.NoLeaks(t)
			k, s := suiteOn(t, fakekernel.Options{Devices: devices})
			p := s.NewEndpoint(t)
			waits := make(chan error, 2)
			go func() {
				_, err := p.CQ.Wait(context.Background(), make([]uverbs.WC, 1))
				waits <- err
			}()
			go func() {
				_, err := p.Idle.NextEvent(context.Background())
				waits <- err
			}()
			time.Sleep(20 * time.Millisecond) // let them park; the outcome does not depend on it
			if !k.Disassociate(name) {
				t.Fatal("there is no such device")
			}
			ev, err := p.Context.NextAsyncEvent(context.Background())
			if err != nil || ev.Type != uverbs.EventDeviceFatal {
				t.Errorf("the event is %v, %v; want that the device is gone", ev.Type, err)
			}
			for range 2 {
				if err := <-waits; !errors.Is(err, syscall.EIO) {
					t.Errorf("a waiter got %v, want EIO", err)
				}
			}
			useWhatIsGone(t, p)
			p.Close(t)
			n := k.Counts()
			n.CMFiles, n.CMIDs = 0, 0 // what the connection was made with is still there
			if n != (fakekernel.Counts{}) {
				t.Errorf("objects are left in the kernel: %+v", n)
			}
			if devs, err := uverbs.Devices(uverbs.WithSystem(k.System())); len(devs) != 0 || err != nil {
				t.Errorf("%d devices are listed, %v", len(devs), err)
			}
		})
	}
}

// useWhatIsGone: nothing panics, nothing succeeds that is no more, and commands say why.
func useWhatIsGone(t *testing.T, p *verbstest.Endpoint) {
	t.Helper()
	for what, err := range map[string]error{
		"query":    second(p.QP.Query(1)),
		"modify":   p.QP.Modify(&uverbs.QPAttr{State: uverbs.StateError}, uverbs.QPAttrState),
		"register": second(p.PD.AllocMR(4096, 0)),
		"domain":   second(p.Context.AllocPD()),
		"port":     second(p.Context.QueryPort(1)),
		"channel":  second(p.Context.NewCompChannel()),
		"queue":    second(p.Context.CreateCQ(4, nil)),
	} {
		var e *uverbs.Error
		if !errors.Is(err, syscall.EIO) || !errors.As(err, &e) || e.Hint == "" {
			t.Errorf("%s: got %v, want EIO, and why", what, err)
		}
	}
	for range 3 {
		_, err := p.QP.PostSend([]uverbs.SendWR{{ID: 1, Opcode: uverbs.OpSend, Flags: uverbs.SendSignaled}})
		if err != nil && !errors.Is(err, syscall.EIO) && !errors.Is(err, uverbs.ErrQueueFull) {
			t.Errorf("post: %v", err)
		}
		wcs := make([]uverbs.WC, 8)
		n, err := p.CQ.Poll(wcs)
		if err != nil && !errors.Is(err, uverbs.ErrCorrupt) {
			t.Errorf("poll: %v", err)
		}
		for _, wc := range wcs[:n] {
			if wc.Status == uverbs.WCSuccess {
				t.Errorf("completion %+v out of a queue that is gone", wc)
			}
		}
	}
}

func second[T any](_ T, err error) error { return err }

// TestDeviceUnplugged: a device that goes without its driver letting go: the list does not
// show it, and nobody hangs.
func TestDeviceUnplugged(t *testing.T) {
	testutil.NoLeaks(t)
	k, s := suiteOn(t, fakekernel.Options{Devices: rxe})
	p := s.NewEndpoint(t)
	if !k.Unplug("rxe0") {
		t.Fatal("there is no such device")
	}
	ev, err := p.Context.NextAsyncEvent(context.Background())
	if err != nil || ev.Type != uverbs.EventDeviceFatal {
		t.Errorf("the event is %v, %v; want that the device is gone", ev.Type, err)
	}
	if _, err := p.Context.NextAsyncEvent(context.Background()); !errors.Is(err, syscall.EIO) {
		t.Errorf("the event after the last: got %v, want EIO", err)
	}
	if _, err := p.CQ.Wait(context.Background(), make([]uverbs.WC, 1)); !errors.Is(err, syscall.EIO) {
		t.Errorf("wait: got %v, want EIO", err)
	}
	p.Close(t)
	if n := k.Counts(); n != (fakekernel.Counts{}) {
		t.Errorf("objects are left in the kernel: %+v", n)
	}
}
