//go:build linux

package verbstest

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/uverbs"
)

func (u *Suite) pollTests() []test {
	return []test{
		{"Cursor", u.cursor},
		{"CursorStopsEarly", u.cursorStopsEarly},
		{"CursorOfErrors", u.cursorOfErrors},
		{"PollInPieces", u.pollInPieces},
		{"CQOverrun", u.cqOverrun},
	}
}

// burst sends n messages of lengths 0, 1, ... and returns when all are at b.
func burst(t testing.TB, a, b *side, n int) {
	t.Helper()
	for i := range n {
		b.recv(t, uint64(i), 0, 64)
		a.send(t, uverbs.SendWR{ID: uint64(i), Opcode: uverbs.OpSend, Flags: uverbs.SendSignaled, SGL: []uverbs.SGE{a.mr.SGE(0, i)}})
	}
	for i := range n {
		a.ok(t, uint64(i), uverbs.WCSend)
	}
	if a.typ() != uverbs.QPTypeRC {
		t.Fatal("only a reliable send that is complete has arrived")
	}
	if !a.u.byHand(t) { // on iWARP it has left only
		settleStream(t, a, b)
	}
}

// settleStream waits until all that a sent has been placed: an RDMA READ that follows is
// answered behind it.
func settleStream(t testing.TB, a, b *side) {
	t.Helper()
	a.send(t, a.remote(uverbs.SendWR{ID: hello, Opcode: uverbs.OpRDMARead, Flags: uverbs.SendSignaled, SGL: []uverbs.SGE{a.mr.SGE(0, 1)}}, b))
	a.ok(t, hello, uverbs.WCRDMARead)
}

// cursor: the lazy way sees the same as Poll does.
func (u *Suite) cursor(t *testing.T) {
	a, b := u.pair(t, 4096)
	for round := range 3 {
		burst(t, a, b, 10)
		cur := b.cq.Start()
		n := 0
		for cur.Next() {
			if cur.ID() != uint64(n) || cur.Status() != uverbs.WCSuccess {
				t.Errorf("round %d: completion %d has id %d, %v", round, n, cur.ID(), cur.Status())
			}
			if n%2 == 0 { // the rest is decoded only if asked for
				if wc := cur.WC(); wc.ID != uint64(n) || int(wc.ByteLen) != n || wc.Opcode != uverbs.WCRecv || wc.QPNum != b.qp.Num() {
					t.Errorf("round %d: completion %d is %+v", round, n, wc)
				}
			}
			n++
		}
		if err := cur.End(); n != 10 || err != nil {
			t.Fatalf("round %d: %d completions, %v", round, n, err)
		}
		b.quiet(t)
	}
	cur := b.cq.Start()
	if cur.Next() {
		t.Errorf("an empty queue has completion %d", cur.ID())
	}
	testutil.Must(t, cur.End())
	if n := leastAllocs(func() {
		cur := b.cq.Start()
		cur.Next()
		cur.End()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// cursorStopsEarly: what was not looked at is there for the next.
func (u *Suite) cursorStopsEarly(t *testing.T) {
	a, b := u.pair(t, 4096)
	burst(t, a, b, 10)
	seen := 0
	for seen < 9 {
		cur := b.cq.Start()
		for range 3 {
			if !cur.Next() || cur.ID() != uint64(seen) {
				t.Fatalf("completion %d has id %d", seen, cur.ID())
			}
			seen++
		}
		testutil.Must(t, cur.End())
	}
	testutil.Must(t, b.cq.Start().End())
	expect(t, next(t, b.cq), 9, uverbs.WCRecv)
	b.quiet(t)
}

// cursorOfErrors: failures, also those that the library completes itself, and a closed
// queue.
func (u *Suite) cursorOfErrors(t *testing.T) {
	a, b := u.pair(t, 4096)
	for i := range 4 {
		b.recv(t, uint64(i), 0, 64)
	}
	testutil.Must(t, b.qp.Modify(&uverbs.QPAttr{State: uverbs.StateError}, uverbs.QPAttrState))
	for i := 4; i < 8; i++ {
		b.recv(t, uint64(i), 0, 64)
	}
	seen := 0
	waitFor(t, "eight flushes", func() bool {
		cur := b.cq.Start()
		for cur.Next() {
			if cur.ID() != uint64(seen) || cur.Status() != uverbs.WCFlushError || cur.WC().QPNum != b.qp.Num() {
				t.Errorf("completion %d is %+v", seen, cur.WC())
			}
			seen++
		}
		testutil.Must(t, cur.End())
		return seen >= 8
	})
	testutil.Must(t, errors.Join(b.qp.Close(), b.cq.Close()))
	cur := b.cq.Start()
	if cur.Next() {
		t.Error("a closed queue has completions")
	}
	if err := cur.End(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed queue: got %v, want net.ErrClosed", err)
	}
	_ = a
}

// pollInPieces: slices of any length take all there is, once.
func (u *Suite) pollInPieces(t *testing.T) {
	a, b := u.pair(t, 4096)
	for _, size := range []int{1, 3, 64} {
		burst(t, a, b, 20)
		wcs := make([]uverbs.WC, size)
		seen := 0
		for seen < 20 {
			n, err := b.cq.Poll(wcs)
			if err != nil || n == 0 {
				t.Fatalf("after %d completions: %d, %v", seen, n, err)
			}
			for i := range n {
				if wcs[i].ID != uint64(seen) {
					t.Errorf("completion %d has id %d", seen, wcs[i].ID)
				}
				seen++
			}
		}
		b.quiet(t)
	}
	if n, err := b.cq.Poll(nil); n != 0 || err != nil {
		t.Errorf("poll into nothing: %d, %v", n, err)
	}
}

// cqOverrun: completions that find no room are lost, of which an event tells; those that
// found one are not, and nothing worse happens.
func (u *Suite) cqOverrun(t *testing.T) {
	ha, hb := u.newHost(t, 4096), u.newHost(t, 4096)
	small := hb.extraCQ(t, uverbs.CQInitAttr{CQE: 4, Channel: hb.ch})
	a, b := u.link(t, ha, hb, shape{}, shape{RecvCQ: small})
	n := small.Cap() + 8
	for i := range n {
		b.recv(t, uint64(i), 0, 64)
		a.send(t, uverbs.SendWR{ID: uint64(i), Opcode: uverbs.OpSend, Flags: uverbs.SendSignaled})
	}
	for i := range small.Cap() { // whether the sender hears of the rest is the device's affair
		a.ok(t, uint64(i), uverbs.WCSend)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		ev, err := hb.ctx.NextAsyncEvent(ctx)
		testutil.Must(t, err)
		if ev.Type == uverbs.EventCQError {
			if ev.CQ != small {
				t.Errorf("the event is of %v", ev.CQ)
			}
			break
		}
	}
	wcs := make([]uverbs.WC, n)
	got, err := small.Poll(wcs)
	if err != nil || got == 0 || got > small.Cap()+1 { // mlx5 has one entry more than it says
		t.Errorf("polled %d of a queue of %d, %v", got, small.Cap(), err)
	}
	for i := range got {
		if wcs[i].Status == uverbs.WCSuccess && wcs[i].ID != uint64(i) {
			t.Errorf("completion %d has id %d", i, wcs[i].ID)
		}
	}
}
