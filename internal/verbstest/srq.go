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

func (u *Suite) srqTests() []test {
	return []test{
		{"SRQShared", u.srqShared},
		{"SRQLimitEvent", u.srqLimitEvent},
		{"SRQResize", u.srqResize},
		{"SRQFull", u.srqFull},
		{"SRQSurvivesError", u.srqSurvivesError},
		{"SRQCloseOrder", u.srqCloseOrder},
	}
}

// newSRQ is a shared receive queue that lives as long as the test, and longer than the queue
// pairs that are made after it.
func (h *host) newSRQ(t testing.TB, wr, sge, limit uint32) *uverbs.SRQ {
	t.Helper()
	srq, err := h.pd.CreateSRQ(&uverbs.SRQInitAttr{MaxWR: wr, MaxSGE: sge, Limit: limit})
	testutil.Must(t, err)
	t.Cleanup(func() { closeAll(t, srq) })
	if c := srq.Cap(); c.MaxWR < wr || c.MaxSGE < sge {
		t.Errorf("granted %+v, asked for %d requests of %d pieces", c, wr, sge)
	}
	return srq
}

func (h *host) postShared(t testing.TB, srq *uverbs.SRQ, ids ...uint64) {
	t.Helper()
	for _, id := range ids {
		_, err := srq.PostRecv([]uverbs.RecvWR{{ID: id, SGL: []uverbs.SGE{h.mr.SGE(int(id)*64, 64)}}})
		testutil.Must(t, err)
	}
}

// say sends one byte.
func (s *side) say(t testing.TB, what byte) {
	t.Helper()
	s.send(t, uverbs.SendWR{
		ID: uint64(what), Opcode: uverbs.OpSend, Flags: uverbs.SendSignaled | uverbs.SendInline, Inline: [][]byte{{what}},
	})
	s.ok(t, uint64(what), uverbs.WCSend)
}

// srqShared: several connections take receives from one queue, each as it needs; the
// completion names the connection.
func (u *Suite) srqShared(t *testing.T) {
	hb := u.newHost(t, 4096)
	srq := hb.newSRQ(t, 32, 2, 0)
	const peers = 4
	var as, bs []*side
	ha := u.newHost(t, 4096)
	for range peers {
		a, b := u.link(t, ha, hb, shape{}, shape{SRQ: srq})
		if b.qp.SRQ() != srq {
			t.Error("the queue pair does not know its queue")
		}
		if _, err := b.qp.PostRecv([]uverbs.RecvWR{{}}); !errors.Is(err, uverbs.ErrInvalid) {
			t.Errorf("post to the queue pair: got %v, want ErrInvalid", err)
		}
		as, bs = append(as, a), append(bs, b)
	}
	var ids []uint64
	for i := range 4 * peers {
		ids = append(ids, uint64(i))
	}
	hb.postShared(t, srq, ids...)
	used := map[uint64]bool{}
	for i := range 4 * peers {
		from := (i * 7) % peers
		as[from].say(t, byte(i))
		wc := hb.next(t)
		testutil.Must(t, wc.Err())
		if wc.QPNum != bs[from].qp.Num() || used[wc.ID] || hb.mr.Bytes()[wc.ID*64] != byte(i) {
			t.Errorf("message %d of connection %d: %+v holds %d", i, from, wc, hb.mr.Bytes()[wc.ID*64])
		}
		used[wc.ID] = true
	}
	hb.quiet(t)
}

// srqLimitEvent: once fewer receives are left than the limit says an event comes, and no
// second one until the limit is set anew.
func (u *Suite) srqLimitEvent(t *testing.T) {
	hb := u.newHost(t, 4096)
	srq := hb.newSRQ(t, 16, 1, 0)
	a, _ := u.link(t, u.newHost(t, 4096), hb, shape{}, shape{SRQ: srq})
	for round := range 2 {
		hb.postShared(t, srq, 1, 2, 3, 4, 5, 6)
		testutil.Must(t, srq.Modify(&uverbs.SRQAttr{Limit: 4}, uverbs.SRQAttrLimit))
		if got, err := srq.Query(); err != nil || got.Limit != 4 || got.MaxSGE < 1 {
			t.Errorf("query: %+v, %v; want limit 4", got, err)
		}
		for i := range 6 {
			a.say(t, byte(i))
			wc := hb.next(t)
			testutil.Must(t, wc.Err())
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		ev, err := hb.ctx.NextAsyncEvent(ctx)
		cancel()
		testutil.Must(t, err)
		if ev.Type != uverbs.EventSRQLimitReached || ev.SRQ != srq {
			t.Errorf("round %d: event %+v, want the limit of the queue", round, ev)
		}
		ctx, cancel = context.WithCancel(context.Background())
		cancel()
		if ev, err := hb.ctx.NextAsyncEvent(ctx); err == nil {
			t.Errorf("round %d: a second event %+v", round, ev)
		}
	}
	limit := srq.Cap().MaxWR * 100
	if err := srq.Modify(&uverbs.SRQAttr{Limit: limit}, uverbs.SRQAttrLimit); err == nil {
		t.Errorf("a limit of %d was taken", limit)
	}
}

// srqResize: what is posted stays, and more fits.
func (u *Suite) srqResize(t *testing.T) {
	u.needs(t, sharedResize)
	hb := u.newHost(t, 8192)
	srq := hb.newSRQ(t, 4, 1, 0)
	a, _ := u.link(t, u.newHost(t, 4096), hb, shape{}, shape{SRQ: srq})
	hb.postShared(t, srq, 1, 2, 3)
	a.say(t, 1) // so that the ring does not begin at its beginning
	hb.ok(t, 1, uverbs.WCRecv)
	testutil.Must(t, srq.Modify(&uverbs.SRQAttr{MaxWR: 60}, uverbs.SRQAttrMaxWR))
	if got, err := srq.Query(); err != nil || got.MaxWR < 60 || srq.Cap().MaxWR < 60 {
		t.Errorf("query: %+v, %v, Cap %+v; want 60 requests", got, err, srq.Cap())
	}
	for id := uint64(4); id < 62; id++ {
		hb.postShared(t, srq, id)
	}
	for i := 2; i < 62; i++ {
		a.say(t, byte(i))
		hb.ok(t, uint64(i), uverbs.WCRecv)
		if got := hb.mr.Bytes()[i*64]; got != byte(i) {
			t.Errorf("message %d holds %d", i, got)
		}
	}
	hb.postShared(t, srq, 1, 2, 3, 4, 5)
	if err := srq.Modify(&uverbs.SRQAttr{MaxWR: 2}, uverbs.SRQAttrMaxWR); err == nil {
		t.Error("the queue shrank below what is posted")
	}
	a.say(t, 1)
	hb.ok(t, 1, uverbs.WCRecv)
}

// srqFull: a full queue is back-pressure, and a close wakes nobody up by surprise.
func (u *Suite) srqFull(t *testing.T) {
	h := u.newHost(t, 4096)
	srq := h.newSRQ(t, 8, 1, 0)
	many := make([]uverbs.RecvWR, 4*srq.Cap().MaxWR)
	n, err := srq.PostRecv(many)
	if !errors.Is(err, uverbs.ErrQueueFull) || n < int(srq.Cap().MaxWR) || n == len(many) {
		t.Errorf("posted %d of %d into %d, %v; want ErrQueueFull", n, len(many), srq.Cap().MaxWR, err)
	}
	if n, err := srq.PostRecv(many[:1]); n != 0 || !errors.Is(err, uverbs.ErrQueueFull) {
		t.Errorf("posted %d into a full queue, %v", n, err)
	}
	over := h.mr.SGE(4096, 1)
	if n, err := srq.PostRecv([]uverbs.RecvWR{{SGL: []uverbs.SGE{over}}}); n != 0 || !errors.Is(err, uverbs.ErrInvalid) {
		t.Errorf("a piece outside its region: posted %d, %v", n, err)
	}
	if n, err := srq.PostRecv([]uverbs.RecvWR{{SGL: make([]uverbs.SGE, srq.Cap().MaxSGE+1)}}); n != 0 || !errors.Is(err, uverbs.ErrInvalid) {
		t.Errorf("too many pieces: posted %d, %v", n, err)
	}
}

// srqSurvivesError: receives stay when a connection fails, for the others.
func (u *Suite) srqSurvivesError(t *testing.T) {
	hb := u.newHost(t, 4096)
	srq := hb.newSRQ(t, 8, 1, 0)
	ha := u.newHost(t, 4096)
	_, b1 := u.link(t, ha, hb, shape{}, shape{SRQ: srq})
	a2, b2 := u.link(t, ha, hb, shape{}, shape{SRQ: srq})
	hb.postShared(t, srq, 1, 2)
	testutil.Must(t, b1.qp.Modify(&uverbs.QPAttr{State: uverbs.StateError}, uverbs.QPAttrState))
	a2.say(t, 5)
	if wc := hb.ok(t, 1, uverbs.WCRecv); wc.QPNum != b2.qp.Num() {
		t.Errorf("completion of queue pair %d, want %d", wc.QPNum, b2.qp.Num())
	}
	hb.quiet(t)
}

// srqCloseOrder: a queue under queue pairs stays, and one that is closed takes nothing.
func (u *Suite) srqCloseOrder(t *testing.T) {
	h := u.newHost(t, 4096)
	srq := h.newSRQ(t, 8, 1, 0)
	s := h.make(t, shape{SRQ: srq})
	if err := srq.Close(); !errors.Is(err, uverbs.ErrBusy) {
		t.Errorf("close under a queue pair: got %v, want ErrBusy", err)
	}
	if err := h.pd.Close(); !errors.Is(err, uverbs.ErrBusy) {
		t.Errorf("close the domain: got %v, want ErrBusy", err)
	}
	h.postShared(t, srq, 1)
	closeAll(t, s.qp, srq, srq)
	if _, err := srq.PostRecv([]uverbs.RecvWR{{}}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("post after close: got %v, want net.ErrClosed", err)
	}
	if err := srq.Modify(&uverbs.SRQAttr{Limit: 1}, uverbs.SRQAttrLimit); !errors.Is(err, net.ErrClosed) {
		t.Errorf("modify after close: got %v, want net.ErrClosed", err)
	}
	if _, err := h.pd.CreateSRQ(&uverbs.SRQInitAttr{MaxSGE: 1}); !errors.Is(err, uverbs.ErrInvalid) {
		t.Errorf("a queue for nothing: got %v, want ErrInvalid", err)
	}
	other := u.newHost(t, 4096)
	alien := other.newSRQ(t, 4, 1, 0)
	if _, err := h.pd.CreateQP(h.complete(t, shape{SRQ: alien})); !errors.Is(err, uverbs.ErrInvalid) {
		t.Errorf("a queue of another context: got %v, want ErrInvalid", err)
	}
}
