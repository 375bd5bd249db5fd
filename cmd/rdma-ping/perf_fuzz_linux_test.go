package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/pureverbs/rdma/internal/fakekernel"
)

// FuzzPerfMessage: whatever comes, what is taken of it is within the limits, and would be
// said in the same way.
func FuzzPerfMessage(f *testing.F) {
	f.Add(perfMessage(perfKindPlan, goodPlan))
	f.Add(perfMessage(perfKindBegin, perfBeginBody{Size: 64, Count: 10}))
	f.Add(perfMessage(perfKindRefuse, perfRefuseBody{Reason: perfTooLarge, Limit: 1 << 31}))
	f.Add(perfHello(perfHelloBody{Token: 1}))
	f.Add([]byte("6.06\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"))
	f.Add(perftestDest{QPN: 5, PSN: 6, RKey: 7, Addr: 4096}.marshal())
	f.Fuzz(func(t *testing.T, b []byte) {
		if body, err := parsePerf[perfPlanBody](b, perfKindPlan); err == nil {
			if p, err := body.plan(); err == nil {
				again := p.body()
				if q, err := again.plan(); err != nil || q != p {
					t.Errorf("%+v is said as %+v, which is %+v, %v", p, again, q, err)
				}
				if p.size < 1 || p.size > perfMaxSize || p.sends() < p.depth || p.sends()+p.receives() > 1<<16 || p.memory() <= 0 || p.qps > perfMaxQPs {
					t.Errorf("%+v: %d sends, %d receives, %d bytes", p, p.sends(), p.receives(), p.memory())
				}
			}
		}
		if _, err := parsePerf[perfGrantBody](b, perfKindGrant); err != nil && (err.Error() == "" || strings.Contains(err.Error(), "\n")) {
			t.Errorf("error %q", err)
		}
		if body, err := parsePerf[perfLaneBody](b, perfKindLane); err == nil {
			l := &perfLane{plan: &perfPlan{mode: perfLat, op: perfWrite, size: 64}}
			if l.meet(body) == nil && (body.QPN > 0xffffff || body.Length < 64 || body.Addr+63 < body.Addr) {
				t.Errorf("%+v was believed", body)
			}
		}
		if d, err := parsePerftestDest(b); err == nil {
			if again, err := parsePerftestDest(d.marshal()); err != nil || again != d {
				t.Errorf("%+v, then %+v, %v", d, again, err)
			}
		}
		if checkPerftestVersion(b) == nil && !isPerftest(b) {
			t.Errorf("%q is a version of perftest", b)
		}
	})
}

// FuzzPerfServe has a client say anything over TCP. The server drops it or does what it
// says, and serves the next client as if nothing had been.
func FuzzPerfServe(f *testing.F) {
	plan := perfMessage(perfKindPlan, goodPlan)
	lane := perfLaneBody{QPN: 17, MTU: 3, Reads: 1, Length: 64}
	copy(lane.GID[:], net.ParseIP("10.9.0.1").To16())
	goodLane := perfMessage(perfKindLane, lane)
	f.Add(plan)
	f.Add(append(bytes.Clone(plan), goodLane...))
	f.Add(append(round(plan, goodLane, perfBeginBody{Size: 64, Count: 10}), perfMessage(perfKindEnd, perfEndBody{Sent: 1 << 63})...))
	f.Add(round(planWith(func(p *perfPlanBody) { p.Op, p.Flags = 2, perfFlagBidirectional }), goodLane, perfBeginBody{Size: 64, Count: 10, Warmup: 1 << 31}))
	f.Add(round(planWith(func(p *perfPlanBody) { p.Mode, p.Depth, p.Transport = 1, 1, 3 }), goodLane, perfBeginBody{Size: 64, Count: 10}))
	f.Add([]byte("6.06\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"))
	k := fakekernel.New(fakekernel.Options{})
	f.Cleanup(k.Close)
	f.Fuzz(func(t *testing.T, said []byte) {
		dog := time.AfterFunc(30*time.Second, func() { panic("the run does not end") })
		defer dog.Stop()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		opts := defaultPerfServeOptions()
		opts.tcp, opts.device, opts.gidIndex, opts.maxSize, opts.idle, opts.maxTime = true, "rxe0", 1, 1<<16, 20*time.Millisecond, time.Second
		var log output
		s := &perfService{opts: &opts, app: &app{system: k.System()}, log: &log, sessions: map[uint64]*perfSession{}}
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		go func() {
			conn, err := net.Dial("tcp", ln.Addr().String())
			if err != nil {
				return
			}
			conn.Write(said)
			conn.(*net.TCPConn).CloseWrite()
			io.Copy(io.Discard, conn)
			conn.Close()
		}()
		conn, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		s.handleTCP(ctx, conn)
		if got := log.String(); strings.Count(got, "\n") != 1 {
			t.Errorf("the server says %q, want one line", got)
		}
		if c := k.Counts(); c != (fakekernel.Counts{}) {
			t.Errorf("left behind: %+v", c)
		}
	})
}
