//go:build linux

package verbstest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/uverbs"
)

// rw25NoWakeupLost: one event stands for any number of completions, whatever the size
// of the consumer's slice and the number of consumers.
func (u *Suite) rw25NoWakeupLost(t *testing.T) {
	for _, tt := range []struct{ batch, consumers int }{{1, 1}, {3, 1}, {16, 1}, {64, 1}, {1, 4}, {3, 4}} {
		t.Run(fmt.Sprintf("batch %d, %d consumers", tt.batch, tt.consumers), func(t *testing.T) {
			testutil.NoLeaks(t)
			a, b := u.newPair(t, 4096)
			const burst = 31
			for range 4 {
				drain(t, a, b, burst, tt.batch, tt.consumers)
			}
		})
	}
}

// drain lets a send burst messages and then stay silent, and consumes all of them at b.
func drain(t *testing.T, a, b *side, burst, batch, consumers int) {
	t.Helper()
	recvs := make([]uverbs.RecvWR, burst)
	sends := make([]uverbs.SendWR, burst)
	for i := range burst {
		recvs[i] = uverbs.RecvWR{ID: uint64(i), SGL: []uverbs.SGE{b.mr.SGE(0, 64)}}
		sends[i] = uverbs.SendWR{ID: uint64(i), Opcode: uverbs.OpSend, SGL: []uverbs.SGE{a.mr.SGE(0, 64)}}
	}
	sends[burst-1].Flags = uverbs.SendSignaled
	_, err := b.qp.PostRecv(recvs)
	testutil.Must(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		seen int
	)
	for range consumers {
		wg.Go(func() {
			wcs := make([]uverbs.WC, batch)
			for {
				n, err := b.cq.Wait(ctx, wcs)
				mu.Lock()
				seen += n
				done := seen >= burst
				mu.Unlock()
				if done {
					cancel() // the others wait for nothing now
				}
				if err != nil || done {
					return
				}
			}
		})
	}
	_, err = a.qp.PostSend(sends)
	testutil.Must(t, err)
	wg.Wait()
	if seen != burst {
		t.Fatalf("%d of %d completions arrived", seen, burst)
	}
	a.ok(t, uint64(burst-1), uverbs.WCSend)
}

// rw25EachTakesOne: waiters that take one completion each and never come back. The few
// events that a burst causes must wake them all.
func (u *Suite) rw25EachTakesOne(t *testing.T) {
	testutil.NoLeaks(t)
	a, b := u.newPair(t, 4096)
	const waiters = 16
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	recvs, sends := make([]uverbs.RecvWR, waiters), make([]uverbs.SendWR, waiters)
	for i := range waiters {
		sends[i].Opcode = uverbs.OpSend
	}
	sends[waiters-1].Flags = uverbs.SendSignaled
	for range 5 {
		_, err := b.qp.PostRecv(recvs)
		testutil.Must(t, err)
		errs := make(chan error, waiters)
		for range waiters {
			go func() {
				_, err := b.cq.Wait(ctx, make([]uverbs.WC, 1))
				errs <- err
			}()
		}
		time.Sleep(20 * time.Millisecond) // let them park; the outcome does not depend on it
		_, err = a.qp.PostSend(sends)
		testutil.Must(t, err)
		for i := range waiters {
			if err := <-errs; err != nil {
				t.Fatalf("waiter %d: %v", i, err)
			}
		}
		a.ok(t, 0, uverbs.WCSend)
	}
}

// rw27CloseWakesWaiters: whoever waits for a queue is woken by its Close, at once.
func (u *Suite) rw27CloseWakesWaiters(t *testing.T) {
	testutil.NoLeaks(t)
	c, err := u.Device(t).Open()
	testutil.Must(t, err)
	ch, err := c.NewCompChannel()
	testutil.Must(t, err)
	errs := make(chan error)
	const waiters = 50
	var cqs []*uverbs.CQ
	for range 2 {
		cq, err := c.CreateCQ(16, ch)
		testutil.Must(t, err)
		cqs = append(cqs, cq)
		for range waiters {
			go func() {
				_, err := cq.Wait(context.Background(), make([]uverbs.WC, 1))
				errs <- err
			}()
		}
	}
	for range waiters {
		go func() {
			_, err := c.NextAsyncEvent(context.Background())
			errs <- err
		}()
	}
	time.Sleep(50 * time.Millisecond) // let them park; the outcome does not depend on it
	for _, cq := range cqs {
		testutil.Must(t, cq.Close())
		testutil.ExpectClosed(t, errs, waiters)
	}
	testutil.Must(t, ch.Close())
	testutil.Must(t, c.Close())
	testutil.ExpectClosed(t, errs, waiters)
}

// waitDeadline: a context cuts the wait short, and the queue is as good as before.
func (u *Suite) waitDeadline(t *testing.T) {
	testutil.NoLeaks(t)
	a, b := u.newPair(t, 4096)
	for range 3 {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		if _, err := b.cq.Wait(ctx, make([]uverbs.WC, 1)); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v, want a deadline", err)
		}
		cancel()
		drain(t, a, b, 3, 1, 1)
	}
}

// closeOrder: a parent refuses to close under live children, and all goes on working.
func (u *Suite) closeOrder(t *testing.T) {
	testutil.NoLeaks(t)
	a, b := u.newPair(t, 4096)
	for _, c := range []interface{ Close() error }{b.ctx, b.pd, b.ch, b.cq} {
		if err := c.Close(); !errors.Is(err, uverbs.ErrBusy) {
			t.Errorf("close %v: got %v, want ErrBusy", c, err)
		}
	}
	drain(t, a, b, 5, 2, 1)
	testutil.Must(t, b.qp.Close())
	testutil.Must(t, b.qp.Close())
	if _, err := b.qp.PostSend([]uverbs.SendWR{{}}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("post on a closed queue pair: got %v, want net.ErrClosed", err)
	}
}

// rw44StaleCompletions: what a dead queue pair left in a shared queue is never seen.
func (u *Suite) rw44StaleCompletions(t *testing.T) {
	testutil.NoLeaks(t)
	a, b := u.newPair(t, 4096)
	_, err := b.qp.PostRecv([]uverbs.RecvWR{{ID: 1}, {ID: 2}, {ID: 3}})
	testutil.Must(t, err)
	_, err = a.qp.PostSend([]uverbs.SendWR{
		{ID: 1, Opcode: uverbs.OpSend}, {ID: 2, Opcode: uverbs.OpSend}, {ID: 3, Opcode: uverbs.OpSend, Flags: uverbs.SendSignaled},
	})
	testutil.Must(t, err)
	a.ok(t, 3, uverbs.WCSend)
	testutil.Must(t, b.qp.Close())
	if n, err := b.cq.Poll(make([]uverbs.WC, 8)); n != 0 || err != nil {
		t.Errorf("poll after close: %d completions, %v; want none", n, err)
	}
}

// errorCompletions: a wrong key fails at the requester, and what follows is flushed.
func (u *Suite) errorCompletions(t *testing.T) {
	testutil.NoLeaks(t)
	a, b := u.newPair(t, 4096)
	_, err := a.qp.PostSend([]uverbs.SendWR{
		{ID: 1, Opcode: uverbs.OpRDMAWrite, SGL: []uverbs.SGE{a.mr.SGE(0, 8)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey() + 1},
		{ID: 2, Opcode: uverbs.OpSend},
	})
	testutil.Must(t, err)
	if wc := a.next(t); wc.ID != 1 || wc.Status != uverbs.WCRemoteAccessError {
		t.Errorf("got %+v, want a remote access error", wc)
	}
	if wc := a.next(t); wc.ID != 2 || wc.Status != uverbs.WCFlushError {
		t.Errorf("got %+v, want a flush error", wc)
	}
	attr, err := a.qp.Query(uverbs.QPAttrState)
	testutil.Must(t, err)
	if attr.State != uverbs.StateError {
		t.Errorf("state is %v, want ERR", attr.State)
	}
}

// rw41RNRTimer: the code set is the code the kernel holds.
func (u *Suite) rw41RNRTimer(t *testing.T) {
	testutil.NoLeaks(t)
	a, _ := u.newPair(t, 4096)
	attr, err := a.qp.Query(uverbs.QPAttrMinRNRTimer)
	testutil.Must(t, err)
	if attr.MinRNRTimer != uverbs.DefaultMinRNRTimer {
		t.Errorf("timer code is %d, want %d", attr.MinRNRTimer, uverbs.DefaultMinRNRTimer)
	}
}
