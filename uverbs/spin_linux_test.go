package uverbs

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/fakekernel"
)

// spinning makes a queue with a channel on a fake device, and a queue pair in error: what is
// posted to it completes at once.
func spinning(t *testing.T, spins int) (*CQ, *QP) {
	k := fakekernel.New(fakekernel.Options{
		Root: t.TempDir(), Kernel: "6.1", Devices: []fakekernel.Device{{Driver: abi.RDMA_DRIVER_RXE}},
	})
	t.Cleanup(func() { k.Close() })
	devs, err := Devices(WithSystem(k.System()))
	must(t, err)
	c, err := devs[0].Open()
	must(t, err)
	t.Cleanup(func() { c.Close() })
	ch, err := c.NewCompChannel()
	must(t, err)
	t.Cleanup(func() { ch.Close() })
	cq, err := c.CreateCQAttr(&CQInitAttr{CQE: 16, Channel: ch, Spins: spins})
	must(t, err)
	t.Cleanup(func() { cq.Close() })
	pd, err := c.AllocPD()
	must(t, err)
	t.Cleanup(func() { pd.Close() })
	qp, err := pd.CreateQP(&QPInitAttr{SendCQ: cq, Cap: QPCap{MaxSendWR: 4, MaxRecvWR: 4}})
	must(t, err)
	t.Cleanup(func() { qp.Close() })
	must(t, qp.Modify(&QPAttr{State: StateInit, PortNum: 1},
		QPAttrState|QPAttrPKeyIndex|QPAttrPort|QPAttrAccessFlags))
	must(t, qp.Modify(&QPAttr{State: StateError}, QPAttrState))
	return cq, qp
}

// TestWaitSpins: a completion that comes while a wait spins needs no event, and without
// spinning one does.
func TestWaitSpins(t *testing.T) {
	for name, tt := range map[string]struct {
		most  int
		armed bool
	}{"spins": {1 << 40, false}, "sleeps": {0, true}} {
		t.Run(name, func(t *testing.T) {
			cq, qp := spinning(t, 0)
			cq.spinner.most = tt.most
			waiting := make(chan error)
			var wcs [1]WC
			go func() {
				n, err := cq.Wait(t.Context(), wcs[:])
				if err == nil && n != 1 {
					err = errors.New("no completion")
				}
				waiting <- err
			}()
			for end := time.Now().Add(10 * time.Second); cq.waiters.Load() == 0 || tt.armed && cq.arms.Load() == 0; {
				if time.Now().After(end) {
					t.Fatal("nobody waits")
				}
				time.Sleep(time.Millisecond)
			}
			if armed := cq.arms.Load() != 0; armed != tt.armed {
				t.Errorf("the queue is armed: %v, want %v", armed, tt.armed)
			}
			_, err := qp.PostRecv([]RecvWR{{ID: 7}})
			must(t, err)
			must(t, <-waiting)
			if wcs[0].ID != 7 || wcs[0].Status != WCFlushError {
				t.Errorf("got %+v", wcs[0])
			}
		})
	}
}

// TestSpinGivesUp: a wait that finds nothing sleeps, after a spin or without, and its context
// ends it.
func TestSpinGivesUp(t *testing.T) {
	many := runtime.GOMAXPROCS(0) > 1 && runtime.NumCPU() > 1
	for _, spins := range []int{0, maxSpins, -1} {
		cq, _ := spinning(t, spins)
		if want := many && spins >= 0; (cq.spinner.most > 0) != want {
			t.Errorf("%d spins: in effect %d", spins, cq.spinner.most)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		var wcs [1]WC
		if _, err := cq.Wait(ctx, wcs[:]); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%d spins: %v", spins, err)
		}
		if took := cq.spinner.took.Load(); (took > 0) != (cq.spinner.most > 0) {
			t.Errorf("%d spins, in effect %d: the spin took %d ns", spins, cq.spinner.most, took)
		}
		if cq.arms.Load() == 0 {
			t.Errorf("%d spins: the wait has not armed the queue", spins)
		}
	}
}
