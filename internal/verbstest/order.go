//go:build linux

package verbstest

import (
	"context"
	"testing"
	"time"

	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/uverbs"
)

func (u *Suite) orderTests() []test {
	return []test{
		{"RW16PingPong", u.rw16PingPong},
		{"Fence", u.fence},
		{"SolicitedOnly", u.solicitedOnly},
		{"ChannelEvents", u.channelEvents},
		{"RW41LateReceiver", u.rw41LateReceiver},
		{"RW41RNRTimer", u.rw41RNRTimer},
		{"SignalAll", u.signalAll},
	}
}

// rw16PingPong: the answer may be seen before the completion of the request's send, with one
// queue and with two; numbers tell which is which, and none is lost.
func (u *Suite) rw16PingPong(t *testing.T) {
	rounds := 1000
	if u.Short {
		rounds = 300
	}
	for _, two := range []bool{false, true} {
		ha, hb := u.newHost(t, 4096), u.newHost(t, 4096)
		var sa, sb shape
		if two {
			sa.RecvCQ, sb.RecvCQ = ha.extraCQ(t, uverbs.CQInitAttr{CQE: 64}), hb.extraCQ(t, uverbs.CQInitAttr{CQE: 64})
		}
		a, b := u.link(t, ha, hb, sa, sb)
		answered := 0
		for i := range rounds {
			a.play(t, b, i, &answered)
		}
		t.Logf("two queues %v: in %d of %d rounds the answer came first", two, answered, rounds)
	}
}

// play is one round of ping-pong. The request's number is in the receive of the answer and
// in the completion of the send.
func (s *side) play(t testing.TB, peer *side, i int, answeredFirst *int) {
	t.Helper()
	s.recv(t, uint64(i), 0, 64)
	peer.recv(t, uint64(i), 0, 64)
	sent, answered := false, false
	bounce := func(from *side) {
		from.send(t, uverbs.SendWR{
			ID: uint64(i) | 1<<40, Opcode: uverbs.OpSend, Flags: uverbs.SendSignaled | uverbs.SendInline,
			Inline: [][]byte{{byte(i), byte(i >> 8)}},
		})
	}
	bounce(s)
	expect(t, next(t, peer.qp.RecvCQ()), uint64(i), uverbs.WCRecv)
	bounce(peer)
	expect(t, next(t, peer.qp.SendCQ()), uint64(i)|1<<40, uverbs.WCSend)
	deadline := time.Now().Add(patience)
	for !sent || !answered {
		var wcs [1]uverbs.WC
		for _, cq := range []*uverbs.CQ{s.qp.RecvCQ(), s.qp.SendCQ()} {
			n, err := cq.Poll(wcs[:])
			testutil.Must(t, err)
			if n == 0 {
				continue
			}
			testutil.Must(t, wcs[0].Err())
			switch {
			case wcs[0].ID == uint64(i)|1<<40 && !sent:
				sent = true
			case wcs[0].ID == uint64(i) && !answered:
				answered = true
				if !sent {
					*answeredFirst++
				}
			default:
				t.Fatalf("round %d: stray completion %+v", i, wcs[0])
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("round %d: sent %v, answered %v", i, sent, answered)
		}
	}
	if got := s.mr.Bytes(); got[0] != byte(i) || got[1] != byte(i>>8) {
		t.Fatalf("round %d: the answer is %v", i, got[:2])
	}
}

// fence: a send behind a read carries what was read.
func (u *Suite) fence(t *testing.T) {
	a, b := u.pair(t, 8192)
	for i := range 20 {
		testutil.Fill(b.mr.Bytes()[:4096], uint64(i))
		clear(a.mr.Bytes())
		b.recv(t, 1, 4096, 4096)
		n, err := a.qp.PostSend([]uverbs.SendWR{
			a.remote(uverbs.SendWR{ID: 2, Opcode: uverbs.OpRDMARead, Flags: uverbs.SendSignaled, SGL: []uverbs.SGE{a.mr.SGE(0, 4096)}}, b),
			{ID: 3, Opcode: uverbs.OpSend, Flags: uverbs.SendSignaled | uverbs.SendFence, SGL: []uverbs.SGE{a.mr.SGE(0, 4096)}},
		})
		if n != 2 {
			t.Fatalf("posted %d, %v", n, err)
		}
		a.ok(t, 2, uverbs.WCRDMARead)
		a.ok(t, 3, uverbs.WCSend)
		b.ok(t, 1, uverbs.WCRecv)
		if string(b.mr.Bytes()[:4096]) != string(b.mr.Bytes()[4096:]) {
			t.Fatalf("round %d: the send overtook the read", i)
		}
	}
}

// event waits for an event of the host's channel, nil if none comes in time.
func (h *host) event(t testing.TB, d time.Duration) *uverbs.CQ {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	cq, err := h.ch.NextEvent(ctx)
	if ctx.Err() != nil {
		return nil
	}
	testutil.Must(t, err)
	return cq
}

// solicitedOnly: an armed queue keeps still for an ordinary message, and speaks up for a
// solicited one.
func (u *Suite) solicitedOnly(t *testing.T) {
	a, b := u.pair(t, 4096)
	for round := range 3 {
		b.recv(t, 1, 0, 64)
		b.recv(t, 2, 0, 64)
		testutil.Must(t, b.cq.Arm(true))
		b.quiet(t)
		a.say(t, 1)
		expect(t, next(t, b.cq), 1, uverbs.WCRecv)
		if !u.has(t, solicited) { // it speaks up for both
			testutil.Must(t, b.cq.Arm(true))
		} else if b.event(t, 30*time.Millisecond) != nil {
			t.Errorf("round %d: an event of an ordinary message", round)
		}
		a.send(t, uverbs.SendWR{ID: 3, Opcode: uverbs.OpSend, Flags: uverbs.SendSignaled | uverbs.SendSolicited})
		a.ok(t, 3, uverbs.WCSend)
		if b.event(t, patience) != b.cq {
			t.Fatalf("round %d: no event of a solicited message", round)
		}
		expect(t, next(t, b.cq), 2, uverbs.WCRecv)
	}
}

// channelEvents: several queues on one channel, and the event names the queue; one arming
// is one event.
func (u *Suite) channelEvents(t *testing.T) {
	ha, hb := u.newHost(t, 4096), u.newHost(t, 4096)
	var as, bs []*side
	var cqs []*uverbs.CQ
	for range 3 {
		cq := hb.extraCQ(t, uverbs.CQInitAttr{CQE: 16, Channel: hb.ch})
		a, b := u.link(t, ha, hb, shape{}, shape{RecvCQ: cq})
		as, bs, cqs = append(as, a), append(bs, b), append(cqs, cq)
	}
	for i := range 6 {
		k := i % 3
		bs[k].recv(t, 1, 0, 64)
		bs[k].recv(t, 2, 0, 64)
		testutil.Must(t, cqs[k].Arm(false))
		as[k].say(t, 1)
		as[k].say(t, 2)
		if got := hb.event(t, patience); got != cqs[k] {
			t.Fatalf("round %d: the event is of another queue", i)
		}
		expect(t, next(t, cqs[k]), 1, uverbs.WCRecv)
		expect(t, next(t, cqs[k]), 2, uverbs.WCRecv)
		if hb.event(t, 10*time.Millisecond) != nil {
			t.Errorf("round %d: a second event", i)
		}
	}
}

// rw41LateReceiver: a receive that is posted a little late costs about as much, and not the
// 655 ms of the longest timer.
func (u *Suite) rw41LateReceiver(t *testing.T) {
	u.needs(t, byHand)
	a, b := u.pair(t, 4096)
	worst := time.Duration(0)
	for range 10 {
		start := time.Now()
		posted := make(chan error, 1)
		go func() { // rxe of 5.10 does not come back from the post before
			time.Sleep(5 * time.Millisecond)
			_, err := b.qp.PostRecv([]uverbs.RecvWR{{ID: 2}})
			posted <- err
		}()
		a.send(t, uverbs.SendWR{ID: 1, Opcode: uverbs.OpSend, Flags: uverbs.SendSignaled})
		testutil.Must(t, <-posted)
		a.ok(t, 1, uverbs.WCSend)
		b.ok(t, 2, uverbs.WCRecv)
		worst = max(worst, time.Since(start))
	}
	if worst > 300*time.Millisecond {
		t.Errorf("the slowest send took %v, want a few milliseconds", worst)
	}
}

// rw41RNRTimer: the code set is the code the kernel holds.
func (u *Suite) rw41RNRTimer(t *testing.T) {
	a, _ := u.pair(t, 4096)
	attr, err := a.qp.Query(uverbs.QPAttrMinRNRTimer)
	testutil.Must(t, err)
	if u.byHand(t) && attr.MinRNRTimer != uverbs.DefaultMinRNRTimer {
		t.Errorf("timer code is %d, want %d", attr.MinRNRTimer, uverbs.DefaultMinRNRTimer)
	}
}

// signalAll: a queue pair made so reports each send.
func (u *Suite) signalAll(t *testing.T) {
	a, b := u.link(t, u.newHost(t, 4096), u.newHost(t, 4096), shape{SignalAll: true}, shape{})
	for i := range 5 {
		b.recv(t, uint64(i), 0, 64)
		a.send(t, uverbs.SendWR{ID: uint64(i), Opcode: uverbs.OpSend, SGL: []uverbs.SGE{a.mr.SGE(0, 10)}})
		a.ok(t, uint64(i), uverbs.WCSend)
		b.ok(t, uint64(i), uverbs.WCRecv)
	}
}
