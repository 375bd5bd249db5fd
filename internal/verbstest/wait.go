//go:build linux

package verbstest

import (
	"context"
	"errors"
	"fmt"
	"runtime/pprof"
	"sync"
	"testing"
	"time"

	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/uverbs"
)

func (u *Suite) waitTests() []test {
	return []test{
		{"RW25NoWakeupLost", u.rw25NoWakeupLost},
		{"RW25ManyQueuePairs", u.rw25ManyQueuePairs},
		{"RW25EachTakesOne", u.rw25EachTakesOne},
		{"RW27CloseWakesWaiters", u.rw27CloseWakesWaiters},
		{"RW27WaitersCostNoThread", u.rw27WaitersCostNoThread},
		{"WaitDeadline", u.waitDeadline},
		{"FlushWakes", u.flushWakes},
		{"Blocking", u.blockingWaits},
	}
}

// blockingWaits: all of it with channels whose reader sleeps with its thread.
func (u *Suite) blockingWaits(t *testing.T) {
	blocking := *u
	blocking.blocking = true
	for _, tt := range blocking.waitTests() {
		if tt.name != "Blocking" && (tt.name != "RW25ManyQueuePairs" || !u.Short) {
			t.Run(tt.name, tt.run)
		}
	}
}

// channel makes a completion channel of the kind that the suite is run with.
func (u *Suite) channel(c *uverbs.Context) (*uverbs.CompChannel, error) {
	if u.blocking {
		return c.NewBlockingCompChannel()
	}
	return c.NewCompChannel()
}

// waitFor looks until something is so.
func waitFor(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not come", what)
		}
	}
}

// rw25NoWakeupLost: one event stands for any number of completions, whatever the size
// of the consumer's slice and the number of consumers.
func (u *Suite) rw25NoWakeupLost(t *testing.T) {
	for _, tt := range []struct{ batch, consumers int }{{1, 1}, {3, 1}, {16, 1}, {64, 1}, {1, 4}, {3, 4}} {
		t.Run(fmt.Sprintf("batch %d, %d consumers", tt.batch, tt.consumers), func(t *testing.T) {
			testutil.NoLeaks(t)
			a, b := u.pair(t, 4096)
			for range 4 {
				drain(t, []*side{a}, []*side{b}, 31, tt.batch, tt.consumers, 0)
			}
		})
	}
}

// rw25ManyQueuePairs: 16 queue pairs share one completion queue with room for exactly what
// they can have in flight, and consumers are slow.
func (u *Suite) rw25ManyQueuePairs(t *testing.T) {
	const pairs, depth = 16, 63
	limits := u.limits(t)
	limits.MaxSendWR, limits.MaxRecvWR, limits.MaxSendSGE, limits.MaxRecvSGE = depth, depth, 1, 1
	ha, hb := u.newHost(t, 4096), u.newHost(t, 4096)
	all := hb.extraCQ(t, uverbs.CQInitAttr{CQE: pairs * depth, Channel: hb.ch})
	var as, bs []*side
	for range pairs {
		a, b := u.link(t, ha, hb, shape{Cap: limits}, shape{Cap: limits, RecvCQ: all})
		as, bs = append(as, a), append(bs, b)
	}
	for _, tt := range []struct {
		batch, consumers int
		pause            time.Duration
	}{{1, 1, 0}, {3, 1, 0}, {16, 1, 5 * time.Millisecond}, {64, 4, 5 * time.Millisecond}, {4096, 1, 5 * time.Millisecond}, {1, 4, 0}} {
		drain(t, as, bs, depth, tt.batch, tt.consumers, tt.pause)
		if u.Short {
			break
		}
	}
}

// drain lets each connection send burst messages and then stay silent, and consumes all of
// them where they arrive.
func drain(t *testing.T, as, bs []*side, burst, batch, consumers int, pause time.Duration) {
	t.Helper()
	recvs := make([]uverbs.RecvWR, burst)
	sends := make([]uverbs.SendWR, burst)
	for i := range burst {
		recvs[i] = uverbs.RecvWR{ID: uint64(i), SGL: []uverbs.SGE{bs[0].mr.SGE(0, 64)}}
		sends[i] = uverbs.SendWR{ID: uint64(i), Opcode: uverbs.OpSend, SGL: []uverbs.SGE{as[0].mr.SGE(0, 64)}}
	}
	sends[burst-1].Flags = uverbs.SendSignaled
	for _, b := range bs {
		_, err := b.qp.PostRecv(recvs)
		testutil.Must(t, err)
	}
	cq := bs[0].qp.RecvCQ()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		seen int
		want = burst * len(bs)
	)
	for range consumers {
		wg.Go(func() {
			wcs := make([]uverbs.WC, batch)
			for {
				n, err := cq.Wait(ctx, wcs)
				mu.Lock()
				seen += n
				done := seen >= want
				mu.Unlock()
				if done {
					cancel() // the others wait for nothing now
				}
				if err != nil || done {
					return
				}
				time.Sleep(pause)
			}
		})
	}
	for _, a := range as {
		n, err := a.qp.PostSend(sends)
		if n != burst || err != nil {
			t.Errorf("posted %d, %v", n, err)
		}
	}
	wg.Wait()
	if seen != want {
		t.Fatalf("%d of %d completions arrived", seen, want)
	}
	for range as {
		a := as[0].next(t)
		if a.Err() != nil || a.ID != uint64(burst-1) {
			t.Fatalf("send completion %+v", a)
		}
	}
}

// rw25EachTakesOne: waiters that take one completion each and never come back. The few
// events that a burst causes must wake them all.
func (u *Suite) rw25EachTakesOne(t *testing.T) {
	a, b := u.pair(t, 4096)
	const waiters = 16
	ctx, cancel := context.WithTimeout(context.Background(), patience)
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
		moment()
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
	rounds := 20
	if u.Short {
		rounds = 2
	}
	for range rounds {
		u.closeUnderWaiters(t, 50, moment)
	}
}

// rw27WaitersCostNoThread: those who wait are parked.
func (u *Suite) rw27WaitersCostNoThread(t *testing.T) {
	threads := pprof.Lookup("threadcreate")
	before := threads.Count()
	u.closeUnderWaiters(t, 100, func() {
		time.Sleep(100 * time.Millisecond) // all park; a thread each would show
		if n := threads.Count() - before; n > 30 {
			t.Errorf("%d threads for 300 waiters", n)
		}
	})
}

func (u *Suite) closeUnderWaiters(t *testing.T, waiters int, parked func()) {
	t.Helper()
	c, err := u.Device(t).Open()
	testutil.Must(t, err)
	ch, err := u.channel(c)
	testutil.Must(t, err)
	errs := make(chan error)
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
	parked()
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
	a, b := u.pair(t, 4096)
	for range 3 {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		if _, err := b.cq.Wait(ctx, make([]uverbs.WC, 1)); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v, want a deadline", err)
		}
		cancel()
		if _, err := b.cq.Wait(ctx, make([]uverbs.WC, 1)); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
			t.Fatalf("with a context that is over: got %v", err)
		}
		drain(t, []*side{a}, []*side{b}, 3, 1, 1, 0)
	}
	if _, err := b.cq.Wait(context.Background(), nil); !errors.Is(err, uverbs.ErrInvalid) {
		t.Errorf("no room: got %v, want ErrInvalid", err)
	}
}

// flushWakes: who waits hears of the end of the queue pair, whoever makes the flush
// completions.
func (u *Suite) flushWakes(t *testing.T) {
	_, b := u.pair(t, 4096)
	b.recv(t, 1, 0, 64)
	errs := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		for want := uint64(1); want <= 2; want++ {
			var wcs [1]uverbs.WC
			_, err := b.cq.Wait(ctx, wcs[:])
			if err == nil && (wcs[0].ID != want || wcs[0].Status != uverbs.WCFlushError) {
				err = fmt.Errorf("completion %+v, want a flush of %d", wcs[0], want)
			}
			errs <- err
		}
	}()
	moment()
	testutil.Must(t, b.qp.Modify(&uverbs.QPAttr{State: uverbs.StateError}, uverbs.QPAttrState))
	testutil.Must(t, <-errs)
	moment()
	b.recv(t, 2, 0, 64)
	testutil.Must(t, <-errs)
}
