//go:build linux

package main

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/pureverbs/rdma/internal/fakekernel"
	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/uverbs"
)

// rw41Timer is what every queue pair of the tool has to have: 0.64 ms. Code 0 is 655.36 ms.
const rw41Timer = 640 * time.Microsecond

func rw41Query(t *testing.T, what string, qp *uverbs.QP) {
	t.Helper()
	attr, err := qp.Query(uverbs.QPAttrMinRNRTimer | uverbs.QPAttrRNRRetry)
	if err != nil || attr.MinRNRTimer == 0 || uverbs.RNRTimer(attr.MinRNRTimer) != rw41Timer || attr.RNRRetry != 7 {
		t.Errorf("%s: timer %v (code %d), tried again %d times, %v; want %v and 7, for ever",
			what, uverbs.RNRTimer(attr.MinRNRTimer), attr.MinRNRTimer, attr.RNRRetry, err, rw41Timer)
	}
}

// TestRW41LateServer: ping's server lets its receives run out, and posts each of the next a
// few milliseconds late. Nothing is lost, with a patience that is less than code 0's delay.
func TestRW41LateServer(t *testing.T) {
	const late = 5 * time.Millisecond
	k := newKernel(t, fakekernel.Options{})
	oneSession(t, k, func(ctx context.Context, ln *rdmacm.Listener) error {
		s, err := accepted(ctx, ln)
		if err != nil {
			return err
		}
		rw41Query(t, "ping's server", s.link.conn.QP())
		ctx, cancel := follow(ctx, s.link.conn)
		defer cancel()
		var kept []int // slots whose receive is owed
		for {
			wcs, _, err := s.link.recv.wait(ctx)
			if err != nil {
				return s.link.close()
			}
			for i := range wcs {
				if wcs[i].Status != 0 {
					return s.link.close()
				}
				slot := int(wcs[i].ID)
				if err := s.link.postSend(slot, int(wcs[i].ByteLen)); err != nil {
					return err
				}
				if _, _, err := s.link.send.wait(ctx); err != nil {
					return s.link.close()
				}
				if kept = append(kept, slot); len(kept) == s.slotCount() { // none is posted
					time.Sleep(late)
					for _, slot := range kept {
						s.link.postRecv(slot)
					}
					kept = nil
				}
			}
		}
	})
	status, out, errs := ping(t, k, "-c", "30", "-i", "0", "-W", "600ms", serverAddr)
	if status != statusOK || errs != "" || !strings.Contains(out, "30 sent, 30 received, 0 lost") {
		t.Errorf("status %d, stderr %q, stdout:\n%s", status, errs, out)
	}
}

// TestRW41Ping: the queue pairs of ping's client and server, in both protocols.
func TestRW41Ping(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	serve(t, k)
	for _, rping := range []bool{false, true} {
		o := defaultPingOptions()
		o.rping = rping
		p, err := dialled(t.Context(), k, &o)
		must(t, err)
		rw41Query(t, "ping's client", p.link.conn.QP())
		must(t, p.link.close())
	}
}

// TestRW41Perf: both ends of perf's queue pairs, connected by rdma_cm and by hand, and of its
// control connection.
func TestRW41Perf(t *testing.T) {
	for _, tcp := range []bool{false, true} {
		k := newKernel(t, fakekernel.Options{})
		so, co := defaultPerfServeOptions(), defaultPerfOptions(perfLat)
		so.tcp, co.tcp, so.port = tcp, tcp, 18515
		host := serverAddr
		if tcp {
			host, so.port = "127.0.0.1", 0
			so.device, co.device, so.gidIndex, co.gidIndex = "rxe0", "rxe0", 1, 1
		}
		co.plan.qps = 2
		must(t, co.complete(pflag.NewFlagSet("", 0)))
		var out output
		a := &app{stdout: &out, stderr: &out, system: k.System()}
		s := &perfService{opts: &so, app: a, log: &out, places: make(chan struct{}, 1), sessions: map[uint64]*perfSession{}}
		ctx, cancel := context.WithCancel(t.Context())
		done, where := make(chan error, 1), []netip.AddrPort{netip.AddrPortFrom(netip.MustParseAddr(host), so.port)}
		go func() {
			if tcp {
				done <- s.serveTCP(ctx, where)
				return
			}
			done <- s.serveCM(ctx, where)
		}()
		out.await(t, "listening on")
		_, rest, _ := strings.Cut(out.String(), "listening on ")
		addr, _, _ := strings.Cut(rest, " ")
		c := &perfClient{app: a, opts: &co, addr: netip.MustParseAddrPort(addr)}
		c.plan, c.timeout = co.plan, co.timeout
		dev, err := c.meet(ctx)
		must(t, err)
		must(t, c.agree(ctx, dev))
		rw41Sides(t, s, c)
		must(t, errors.Join(c.close(), c.peer.close()))
		if tcp {
			must(t, dev.Close())
		}
		cancel()
		must(t, <-done)
	}
}

// rw41Sides looks at all queue pairs.
func rw41Sides(t *testing.T, s *perfService, c *perfClient) {
	t.Helper()
	control := func(what string, p *perfPeer) {
		if cm, ok := p.control.(*cmControl); ok {
			rw41Query(t, what+"'s control connection", cm.conn.QP())
		}
	}
	lanes := 0
	control("client", c.peer)
	for _, l := range c.lanes {
		rw41Query(t, "perf's client", l.qp)
		lanes++
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ss := range s.sessions {
		control("server", ss.peer)
		for _, l := range ss.lanes {
			rw41Query(t, "perf's server", l.qp)
			lanes++
		}
	}
	if lanes != 4 {
		t.Errorf("%d queue pairs were looked at, want 4", lanes)
	}
}

// TestRW41Codes: the table of codes, both ways; rounding is up.
func TestRW41Codes(t *testing.T) {
	steps := []int{ // of 10 us
		65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192,
		256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
	}
	for code, n := range steps {
		d := time.Duration(n) * 10 * time.Microsecond
		if got := uverbs.RNRTimer(uint8(code)); got != d {
			t.Errorf("code %d is %v, want %v", code, got, d)
		}
		if got := uverbs.RNRTimerCode(d); got != uint8(code) {
			t.Errorf("%v has code %d, want %d", d, got, code)
		}
		if got := uverbs.RNRTimer(uverbs.RNRTimerCode(d - 1)); got != d {
			t.Errorf("a nanosecond less than %v is rounded to %v", d, got)
		}
	}
}
