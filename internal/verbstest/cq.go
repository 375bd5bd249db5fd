//go:build linux

package verbstest

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"

	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/uverbs"
)

func (u *Suite) cqTests() []test {
	return []test{
		{"CQResize", u.cqResize},
		{"CQResizeUnderTraffic", u.cqResizeUnderTraffic},
		{"CQModeration", u.cqModeration},
		{"CQAttributes", u.cqAttributes},
		{"CQOrder", u.cqOrder},
	}
}

// cqResize: completions that are there stay, in order, and the queue goes on.
func (u *Suite) cqResize(t *testing.T) {
	u.needs(t, cqResize)
	ha, hb := u.newHost(t, 4096), u.newHost(t, 4096)
	cq := hb.extraCQ(t, uverbs.CQInitAttr{CQE: 16, Channel: hb.ch})
	a, b := u.link(t, ha, hb, shape{}, shape{RecvCQ: cq})
	id := uint64(0)
	burst := func(n int) {
		for range n {
			b.recv(t, id, 0, 64)
			a.say(t, byte(id))
			id++
		}
	}
	seen := uint64(0)
	take := func(n int) {
		for range n {
			expect(t, next(t, cq), seen, uverbs.WCRecv)
			seen++
		}
	}
	burst(10)
	take(4) // so that the ring does not begin at its beginning
	for _, size := range []int{100, 20, 300} {
		testutil.Must(t, cq.Resize(size))
		if cq.Cap() < size {
			t.Errorf("the size is %d, asked for %d", cq.Cap(), size)
		}
		burst(3)
		take(2)
	}
	if err := cq.Resize(2); !errors.Is(err, uverbs.ErrInvalid) && err == nil {
		t.Error("the queue shrank below what it holds")
	}
	take(int(id - seen))
	for _, size := range []int{0, -1} {
		if err := cq.Resize(size); !errors.Is(err, uverbs.ErrInvalid) {
			t.Errorf("resize to %d: got %v, want ErrInvalid", size, err)
		}
	}
	if n, err := cq.Poll(make([]uverbs.WC, 4)); n != 0 || err != nil {
		t.Errorf("%d completions too many, %v", n, err)
	}
	// It still wakes those who wait.
	b.recv(t, id, 0, 64)
	woken := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_, err := cq.Wait(ctx, make([]uverbs.WC, 1))
		woken <- err
	}()
	a.say(t, 1)
	testutil.Must(t, <-woken)
}

// cqResizeUnderTraffic: others poll, wait and post meanwhile, and every completion comes
// once.
func (u *Suite) cqResizeUnderTraffic(t *testing.T) {
	u.needs(t, cqResize)
	a, b := u.pair(t, 4096)
	const messages = 400
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			if err := b.cq.Resize(500 + i%3*200); err != nil {
				t.Errorf("resize: %v", err)
				return
			}
		}
	})
	wg.Go(func() {
		defer close(stop)
		for i := range messages {
			wc := b.next(t)
			if wc.Err() != nil || wc.ID != uint64(i) {
				t.Errorf("completion %d: %+v", i, wc)
				return
			}
		}
	})
	for i := range messages {
		b.recvWhenRoom(t, uint64(i), 64) // the room of a receive may come back only when it is polled
		a.say(t, byte(i))
	}
	wg.Wait()
}

// cqModeration: none of the devices here can.
func (u *Suite) cqModeration(t *testing.T) {
	a, b := u.pair(t, 4096)
	notSupported(t, "moderation", a.cq.Modify(16, 100))
	works(t, a, b)
}

// cqAttributes: what cannot be is refused.
func (u *Suite) cqAttributes(t *testing.T) {
	h, other := u.newHost(t, 4096), u.newHost(t, 4096)
	if h.ctx.CompVectors() < 1 {
		t.Errorf("%d completion vectors", h.ctx.CompVectors())
	}
	for what, attr := range map[string]uverbs.CQInitAttr{
		"no room":                     {},
		"less than nothing":           {CQE: -4},
		"a vector too many":           {CQE: 4, Vector: h.ctx.CompVectors()},
		"a vector before the first":   {CQE: 4, Vector: -1},
		"a channel of another device": {CQE: 4, Channel: other.ch},
	} {
		if _, err := h.ctx.CreateCQAttr(&attr); !errors.Is(err, uverbs.ErrInvalid) {
			t.Errorf("%s: got %v, want ErrInvalid", what, err)
		}
	}
	cq := h.extraCQ(t, uverbs.CQInitAttr{CQE: 4, Vector: h.ctx.CompVectors() - 1})
	if cq.Cap() < 4 {
		t.Errorf("the size is %d, asked for 4", cq.Cap())
	}
	if _, err := cq.Wait(context.Background(), make([]uverbs.WC, 1)); !errors.Is(err, uverbs.ErrInvalid) {
		t.Errorf("wait without a channel: got %v, want ErrInvalid", err)
	}
	closeAll(t, cq, cq)
	if _, err := cq.Poll(make([]uverbs.WC, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("poll after close: got %v, want net.ErrClosed", err)
	}
	if err := cq.Arm(false); !errors.Is(err, net.ErrClosed) {
		t.Errorf("arm after close: got %v, want net.ErrClosed", err)
	}
	if _, err := h.pd.CreateQP(h.complete(t, shape{SendCQ: other.cq})); !errors.Is(err, uverbs.ErrInvalid) {
		t.Errorf("a queue of another context: got %v, want ErrInvalid", err)
	}
	if _, err := h.pd.CreateQP(&uverbs.QPInitAttr{Cap: u.limits(t)}); !errors.Is(err, uverbs.ErrInvalid) {
		t.Errorf("no queue: got %v, want ErrInvalid", err)
	}
}

// cqOrder: completions of one queue come in the order of posting.
func (u *Suite) cqOrder(t *testing.T) {
	a, b := u.pair(t, 4096)
	const n = 20
	var sends []uverbs.SendWR
	var recvs []uverbs.RecvWR
	for i := range uint64(n) {
		sends = append(sends, uverbs.SendWR{ID: i, Opcode: uverbs.OpSend, Flags: uverbs.SendSignaled, SGL: []uverbs.SGE{a.mr.SGE(0, int(i))}})
		recvs = append(recvs, uverbs.RecvWR{ID: i, SGL: []uverbs.SGE{b.mr.SGE(0, 64)}})
	}
	_, err := b.qp.PostRecv(recvs)
	testutil.Must(t, err)
	if got, err := a.qp.PostSend(sends); got != n || err != nil {
		t.Fatalf("posted %d, %v", got, err)
	}
	for i := range uint64(n) {
		a.ok(t, i, uverbs.WCSend)
		if wc := b.ok(t, i, uverbs.WCRecv); uint64(wc.ByteLen) != i {
			t.Errorf("receive %d has %d bytes", i, wc.ByteLen)
		}
	}
}
