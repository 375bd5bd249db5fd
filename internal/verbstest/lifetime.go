//go:build linux

package verbstest

import (
	"context"
	"errors"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/uverbs"
)

func (u *Suite) lifetimeTests() []test {
	return []test{
		{"CloseOrder", u.closeOrder},
		{"UseAfterClose", u.useAfterClose},
		{"CloseFromMany", u.closeFromMany},
		{"CloseUnderTraffic", u.closeUnderTraffic},
		{"RW44StaleCompletions", u.rw44StaleCompletions},
		{"RW44NumbersRepeat", u.rw44NumbersRepeat},
		{"RW09NothingStaysOpen", u.rw09NothingStaysOpen},
		{"ContextsDoNotMix", u.contextsDoNotMix},
	}
}

// closeOrder: a parent refuses to close under live children, and all goes on working.
func (u *Suite) closeOrder(t *testing.T) {
	a, b := u.pair(t, 4096)
	for range 2 {
		for _, c := range []closer{b.ctx, b.pd, b.ch, b.cq} {
			var e *uverbs.Error
			if err := c.Close(); !errors.Is(err, uverbs.ErrBusy) || !errors.As(err, &e) || e.Hint == "" {
				t.Errorf("close %v: got %v, want ErrBusy and what is in the way", c, err)
			}
		}
	}
	drain(t, []*side{a}, []*side{b}, 5, 2, 1, 0)
	testutil.Must(t, b.qp.Close())
	testutil.Must(t, b.qp.Close())
	if err := b.pd.Close(); !errors.Is(err, uverbs.ErrBusy) { // the region
		t.Errorf("close the domain: got %v, want ErrBusy", err)
	}
	for _, c := range []closer{b.mr, b.cq, b.ch, b.pd, b.ctx} {
		testutil.Must(t, c.Close())
		testutil.Must(t, c.Close())
	}
}

// useAfterClose: everything answers net.ErrClosed.
func (u *Suite) useAfterClose(t *testing.T) {
	_, b := u.pair(t, 4096)
	srq, err := b.pd.CreateSRQ(&uverbs.SRQInitAttr{MaxWR: 4, MaxSGE: 1})
	testutil.Must(t, err)
	init := b.complete(t, shape{})
	closeAll(t, srq, b.qp, b.mr, b.cq, b.ch, b.pd, b.ctx)
	wcs := make([]uverbs.WC, 1)
	for what, err := range map[string]error{
		"post send":     second(b.qp.PostSend([]uverbs.SendWR{{}})),
		"post receive":  second(b.qp.PostRecv([]uverbs.RecvWR{{}})),
		"modify":        b.qp.Modify(&uverbs.QPAttr{State: uverbs.StateError}, uverbs.QPAttrState),
		"query":         second(b.qp.Query(1)),
		"poll":          second(b.cq.Poll(wcs)),
		"arm":           b.cq.Arm(false),
		"wait":          second(b.cq.Wait(context.Background(), wcs)),
		"resize":        b.cq.Resize(64),
		"SRQ post":      second(srq.PostRecv([]uverbs.RecvWR{{}})),
		"SRQ query":     second(srq.Query()),
		"register":      second(b.pd.AllocMR(64, 0)),
		"register heap": second(b.pd.RegMR(make([]byte, 64), 0)),
		"domain":        second(b.ctx.AllocPD()),
		"channel":       second(b.ctx.NewCompChannel()),
		"queue":         second(b.ctx.CreateCQ(4, nil)),
		"queue pair":    second(b.pd.CreateQP(init)),
		"SRQ":           second(b.pd.CreateSRQ(&uverbs.SRQInitAttr{MaxWR: 4, MaxSGE: 1})),
		"query device":  second(b.ctx.QueryDevice()),
		"query port":    second(b.ctx.QueryPort(1)),
		"query GID":     second(b.ctx.QueryGID(1, 0)),
		"event":         second(b.ctx.NextAsyncEvent(context.Background())),
		"attach":        b.qp.AttachMulticast(group, 0),
		"rereg":         b.mr.Reregister(uverbs.ReregAccess, nil, nil, 0),
		"window":        second(b.pd.AllocMW(uverbs.MWType1)),
		"XRC domain":    second(b.ctx.OpenXRCD(-1, true, false)),
	} {
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: got %v, want net.ErrClosed", what, err)
		}
	}
}

// closeFromMany: any number of goroutines close the same objects, in any order, again and
// again until all is closed.
func (u *Suite) closeFromMany(t *testing.T) {
	rounds := 20
	if u.Short {
		rounds = 3
	}
	for range rounds {
		_, b := u.pair(t, 4096)
		all := []closer{b.ctx, b.pd, b.ch, b.cq, b.qp, b.mr}
		var wg sync.WaitGroup
		for w := range 4 {
			wg.Go(func() {
				for done := false; !done; {
					done = true
					for i := range all {
						err := all[(i+w)%len(all)].Close()
						if err != nil && !errors.Is(err, uverbs.ErrBusy) {
							t.Error(err)
							return
						}
						done = done && err == nil
					}
				}
			})
		}
		wg.Wait()
	}
}

// closeUnderTraffic: queue pair and queue are closed while others post, poll and wait. All
// of them end with net.ErrClosed.
func (u *Suite) closeUnderTraffic(t *testing.T) {
	rounds := 10
	if u.Short {
		rounds = 3
	}
	for range rounds {
		a, b := u.pair(t, 4096)
		errs := make(chan error)
		loop := func(f func() error) {
			go func() {
				for {
					err := f()
					if err != nil && !errors.Is(err, uverbs.ErrQueueFull) {
						errs <- err
						return
					}
				}
			}()
		}
		wr := a.remote(uverbs.SendWR{Opcode: uverbs.OpRDMAWrite, Flags: uverbs.SendSignaled, SGL: []uverbs.SGE{a.mr.SGE(0, 8)}}, b)
		loop(func() error { return second(a.qp.PostSend([]uverbs.SendWR{wr})) })
		loop(func() error {
			bd := a.qp.StartSend()
			bd.Write(1, uverbs.SendSignaled, wr.RemoteAddr, wr.RKey).SGE(wr.SGL[0])
			return second(bd.Complete())
		})
		loop(func() error { return second(a.qp.PostRecv([]uverbs.RecvWR{{}})) })
		loop(func() error { return second(a.cq.Poll(make([]uverbs.WC, 4))) })
		loop(func() error {
			cur := a.cq.Start()
			for cur.Next() {
				_ = cur.WC()
			}
			return cur.End()
		})
		loop(func() error { return second(a.cq.Wait(context.Background(), make([]uverbs.WC, 4))) })
		moment()
		testutil.Must(t, a.qp.Close())
		testutil.ExpectClosed(t, errs, 3)
		testutil.Must(t, a.cq.Close())
		testutil.ExpectClosed(t, errs, 3)
	}
}

// rw44StaleCompletions: what a dead queue pair left in a shared queue is never seen, and
// what others left is.
func (u *Suite) rw44StaleCompletions(t *testing.T) {
	ha, hb := u.newHost(t, 4096), u.newHost(t, 4096)
	a1, b1 := u.link(t, ha, hb, shape{}, shape{})
	a2, b2 := u.link(t, ha, hb, shape{}, shape{})
	for i := range 10 {
		for _, p := range []struct{ a, b *side }{{a1, b1}, {a2, b2}} {
			p.b.recv(t, uint64(p.b.qp.Num())<<8|uint64(i), 0, 64)
			p.a.say(t, byte(i))
		}
	}
	if !u.byHand(t) {
		settleStream(t, a1, b1)
		settleStream(t, a2, b2)
	}
	testutil.Must(t, b1.qp.Close())
	for i := range 10 {
		wc := hb.next(t)
		if wc.Err() != nil || wc.QPNum != b2.qp.Num() || wc.ID != uint64(b2.qp.Num())<<8|uint64(i) {
			t.Fatalf("completion %+v, want receive %d of queue pair %d", wc, i, b2.qp.Num())
		}
	}
	hb.quiet(t)
	works(t, a2, b2)
}

// rw44NumbersRepeat: queue pairs come and go on one queue, with completions that nobody
// took, while others poll. None is ever credited to a queue pair that did not earn it.
func (u *Suite) rw44NumbersRepeat(t *testing.T) {
	rounds := 200
	if u.Short {
		rounds = 100
	}
	u.NumbersRepeat(t, rounds)
}

// NumbersRepeat does so for a number of rounds.
func (u *Suite) NumbersRepeat(t *testing.T, rounds int) {
	t.Helper()
	h := u.newHost(t, 4096)
	var dead atomic.Uint64 // the last generation whose queue pair is closed
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			wcs := make([]uverbs.WC, 3)
			for {
				select {
				case <-stop:
					return
				default:
				}
				runtime.Gosched()
				gone := dead.Load() // before the poll: a close may come in between
				n, err := h.cq.Poll(wcs)
				if err != nil {
					t.Error(err)
					return
				}
				for _, wc := range wcs[:n] {
					if wc.ID <= gone {
						t.Errorf("completion %+v of generation %d, all up to %d are no more", wc, wc.ID, gone)
					}
				}
			}
		})
	}
	for i := range uint64(rounds) {
		h.comeAndGo(t, i+1)
		dead.Store(i + 1)
	}
	close(stop)
	wg.Wait()
}

// comeAndGo makes a queue pair, gives it five completions and closes it.
func (h *host) comeAndGo(t *testing.T, generation uint64) {
	t.Helper()
	qp, err := h.pd.CreateQP(h.complete(t, shape{}))
	testutil.Must(t, err)
	s := &side{h, qp}
	s.init(t)
	for range 5 {
		s.recv(t, generation, 0, 64)
	}
	testutil.Must(t, qp.Modify(&uverbs.QPAttr{State: uverbs.StateError}, uverbs.QPAttrState))
	testutil.Must(t, qp.Close())
}

// rw09NothingStaysOpen: listing opens nothing, and after the last close no descriptor is left.
func (u *Suite) rw09NothingStaysOpen(t *testing.T) {
	before := testutil.Files()
	for range 10 {
		u.Device(t)
	}
	if n := testutil.Files(); n > before {
		t.Errorf("listing left %d descriptors open", n-before)
	}
	c, err := u.Device(t).Open()
	testutil.Must(t, err)
	ch, err := c.NewCompChannel()
	testutil.Must(t, err)
	closeAll(t, ch, c)
	if n := testutil.Files(); n > before {
		t.Errorf("after the last close %d descriptors are open", n-before)
	}
}

// contextsDoNotMix: objects of one context are refused by another.
func (u *Suite) contextsDoNotMix(t *testing.T) {
	h, other := u.newHost(t, 4096), u.newHost(t, 4096)
	for what, init := range map[string]shape{
		"send queue": {SendCQ: other.cq, RecvCQ: h.cq}, "receive queue": {SendCQ: h.cq, RecvCQ: other.cq},
	} {
		if _, err := h.pd.CreateQP(h.complete(t, init)); !errors.Is(err, uverbs.ErrInvalid) {
			t.Errorf("%s of another context: got %v, want ErrInvalid", what, err)
		}
	}
	if h.ctx.Device().Name() != other.ctx.Device().Name() || h.pd.Context() != h.ctx {
		t.Error("a domain does not know its context, or a context its device")
	}
	testutil.Must(t, second(h.ctx.QueryDevice()))
}
