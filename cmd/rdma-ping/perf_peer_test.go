//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/pureverbs/rdma/internal/fakekernel"
	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/uverbs"
)

// goodPlan is one that every server takes.
var goodPlan = perfPlanBody{Mode: 2, Op: 1, Transport: 1, Size: 64, QPs: 1, Depth: 4, Batch: 1}

func planWith(change func(*perfPlanBody)) []byte {
	p := goodPlan
	change(&p)
	return perfMessage(perfKindPlan, p)
}

// tcpServer is a server over TCP that soon loses patience.
func tcpServer(t *testing.T, k *fakekernel.Kernel, args ...string) (s *command, addr string) {
	s = perfServe(t, k, append(append([]string{"-a", "127.0.0.1", "-p", "0", "--idle-timeout", "500ms", "--max-time", "5s"}, byHand...), args...)...)
	_, rest, _ := strings.Cut(s.out.String(), "listening on ")
	addr, _, _ = strings.Cut(rest, " ")
	return s, addr
}

// TestPerfHostileClient: whatever a client says, the server says why it dropped it and
// serves the next.
func TestPerfHostileClient(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	s, addr := tcpServer(t, k)
	lane := perfLaneBody{QPN: 17, MTU: 3, Reads: 1, Length: 64}
	copy(lane.GID[:], net.ParseIP("10.9.0.1").To16())
	begin := perfBeginBody{Size: 64, Count: 10}
	with := func(change func(*perfLaneBody)) []byte {
		l := lane
		change(&l)
		return perfMessage(perfKindLane, l)
	}
	plan := perfMessage(perfKindPlan, goodPlan)
	write := planWith(func(p *perfPlanBody) { p.Op = 2; p.Flags = perfFlagBidirectional })
	goodLane := perfMessage(perfKindLane, lane)
	for name, tt := range map[string]struct {
		send []byte // after which the client only listens
		want string // of the server
	}{
		"nothing":        {nil, "silent for too long"},
		"short":          {plan[:20], "silent for too long"},
		"noise":          {bytes.Repeat([]byte{0xa5}, 64), "not a message of rdma-ping perf"},
		"http":           {[]byte("GET / HTTP/1.1\r\n\r\n"), "not a message of rdma-ping perf"},
		"perftest":       {[]byte("6.06\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"), "a program of perftest without -R"},
		"version":        {append([]byte("RPRF\x09"), plan[5:]...), "protocol version 9"},
		"no plan":        {perfMessage(perfKindBegin, begin), "out of turn"},
		"mode":           {planWith(func(p *perfPlanBody) { p.Mode = 9 }), "unknown mode 9"},
		"operation":      {planWith(func(p *perfPlanBody) { p.Op = 0 }), "unknown operation 0"},
		"transport":      {planWith(func(p *perfPlanBody) { p.Transport = 4 }), "unknown transport 4"},
		"size 0":         {planWith(func(p *perfPlanBody) { p.Size = 0 }), "messages of 0 bytes"},
		"absurd size":    {planWith(func(p *perfPlanBody) { p.Size = 1<<32 - 1 }), "messages of 4294967295 bytes"},
		"large":          {planWith(func(p *perfPlanBody) { p.Size = 9 << 20 }), "--max-size is 8388608"},
		"many":           {planWith(func(p *perfPlanBody) { p.QPs = 17 }), "--max-qps is 16"},
		"absurd many":    {planWith(func(p *perfPlanBody) { p.QPs = 65535 }), "65535 queue pairs"},
		"no queue pairs": {planWith(func(p *perfPlanBody) { p.QPs = 0 }), "0 queue pairs"},
		"memory":         {planWith(func(p *perfPlanBody) { p.Size, p.QPs = 8<<20, 16 }), "--max-memory is 67108864"},
		"deep":           {planWith(func(p *perfPlanBody) { p.Depth = 65535 }), "depth 65535"},
		"batch":          {planWith(func(p *perfPlanBody) { p.Batch = 5 }), "batch 5"},
		"cm":             {planWith(func(p *perfPlanBody) { p.Flags = perfFlagCM }), "another kind of connection"},
		"datagram":       {planWith(func(p *perfPlanBody) { p.Transport, p.Op = 3, 2 }), "datagrams (ud) have no write"},
		"stalls":         {plan, "dropped"},
		"two plans":      {append(bytes.Clone(plan), plan...), "out of turn"},
		"flood":          {bytes.Repeat(plan, 50), "dropped"},
		"index":          {append(bytes.Clone(plan), with(func(l *perfLaneBody) { l.Index = 1 })...), "queue pair 1 was described, want 0"},
		"qpn":            {append(bytes.Clone(plan), with(func(l *perfLaneBody) { l.QPN = 1 << 24 })...), "each has 24 bits"},
		"mtu":            {append(bytes.Clone(plan), with(func(l *perfLaneBody) { l.MTU = 0 })...), "MTU has code 0"},
		"family":         {append(bytes.Clone(plan), with(func(l *perfLaneBody) { l.GID[0] = 0xfe })...), "choose the same family"},
		"no memory":      {append(bytes.Clone(write), with(func(l *perfLaneBody) { l.Length = 63 })...), "agreed were 64"},
		"address":        {append(bytes.Clone(write), with(func(l *perfLaneBody) { l.Addr = 1<<64 - 1 })...), "where it cannot be"},
		"no rounds":      {append(bytes.Clone(plan), goodLane...), "silent for too long"},
		"round":          {round(plan, goodLane, perfBeginBody{Size: 65, Count: 1}), "agreed were 64"},
		"round size 0":   {round(plan, goodLane, perfBeginBody{Count: 1}), "messages of 0 bytes"},
		"endless":        {round(plan, goodLane, perfBeginBody{Size: 64}), "want a number of messages"},
		"both":           {round(plan, goodLane, perfBeginBody{Size: 64, Count: 1, Duration: 1}), "want a number of messages"},
		"count":          {round(plan, goodLane, perfBeginBody{Size: 64, Count: 1 << 63}), "out of range"},
		"duration":       {round(plan, goodLane, perfBeginBody{Size: 64, Duration: 1 << 63}), "out of range"},
		"too long":       {round(plan, goodLane, perfBeginBody{Size: 64, Duration: uint64(time.Minute)}), "--max-time is 5s"},
		"two rounds":     {append(round(plan, goodLane, begin), perfMessage(perfKindBegin, begin)...), "out of turn"},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(s.out.String())
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			conn.Write(tt.send)
			io.Copy(io.Discard, conn)
			eventually(t, func() string {
				if said := s.out.String()[before:]; !strings.Contains(said, tt.want) || strings.Count(said, "\n") != 1 {
					return fmt.Sprintf("the server says %q, want one line with %q", said, tt.want)
				}
				return ""
			})
		})
	}
	args := append([]string{"perf", "bw", "-c", "20"}, byHand...)
	if status, _, errs := ping(t, k, append(args, addr)...); status != statusOK {
		t.Errorf("the next client: status %d, stderr %q", status, errs)
	}
}

func round(plan, lane []byte, b perfBeginBody) []byte {
	return append(append(bytes.Clone(plan), lane...), perfMessage(perfKindBegin, b)...)
}

// TestPerfHostileServer: whatever a server says, the client ends with one line and status 2.
func TestPerfHostileServer(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	grant := perfMessage(perfKindGrant, perfGrantBody{Token: 1})
	lane := perfLaneBody{QPN: 17, MTU: 3, Reads: 1, Length: 64}
	copy(lane.GID[:], net.ParseIP("10.9.0.1").To16())
	short := lane
	short.Length = 63
	good := append(bytes.Clone(grant), perfMessage(perfKindLane, lane)...)
	for name, tt := range map[string]struct {
		send []byte
		want string
	}{
		"closes":      {nil, "closed the connection"},
		"short":       {grant[:30], "cut short"},
		"noise":       {bytes.Repeat([]byte{1}, 64), "not a message"},
		"version":     {append([]byte("RPRF\x02"), grant[5:]...), "use the same rdma-ping on both sides"},
		"turn":        {perfMessage(perfKindReady, struct{}{}), "out of turn"},
		"too large":   {perfMessage(perfKindRefuse, perfRefuseBody{Reason: perfTooLarge, Limit: 4096}), "at most 4 KiB; ask for less"},
		"unknown":     {perfMessage(perfKindRefuse, perfRefuseBody{Reason: 999}), "reason 999"},
		"grant only":  {grant, "closed the connection"},
		"no memory":   {append(bytes.Clone(grant), perfMessage(perfKindLane, short)...), "agreed were 64"},
		"no rounds":   {good, "closed the connection"},
		"refuses":     {append(bytes.Clone(good), perfMessage(perfKindRefuse, perfRefuseBody{Reason: perfTooLong, Limit: 5})...), "for at most 5 s"},
		"flood":       {bytes.Repeat(grant, 50), "rdma-ping: "},
		"no answers":  {append(bytes.Clone(good), perfMessage(perfKindReady, struct{}{})...), "rdma-ping: "},
		"result only": {append(bytes.Clone(good), perfMessage(perfKindResult, perfResultBody{})...), "out of turn"},
	} {
		t.Run(name, func(t *testing.T) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			go func() {
				conn, err := ln.Accept()
				if err != nil {
					return
				}
				io.ReadFull(conn, make([]byte, perfMsgLen))
				conn.Write(tt.send)
				conn.(*net.TCPConn).CloseWrite()
				io.Copy(io.Discard, conn)
				conn.Close()
			}()
			args := append([]string{"perf", "bw", "-o", "write", "-c", "20", "-s", "64", "-W", "300ms"}, byHand...)
			status, out, errs := ping(t, k, append(args, ln.Addr().String())...)
			if status != statusError || !strings.Contains(errs, tt.want) || strings.Count(errs, "\n") != 1 {
				t.Errorf("status %d, stderr %q, want 2 and one line with %q; stdout:\n%s", status, errs, tt.want, out)
			}
		})
	}
}

// TestPerfResultChecked: figures of the server that cannot be are no figures.
func TestPerfResultChecked(t *testing.T) {
	c := &perfClient{}
	c.plan = perfPlan{mode: perfBW, op: perfSend, transport: perfRC, bidirectional: true}
	crew := &perfCrew{round: &perfRound{size: 64}}
	for _, bad := range []perfResultBody{
		{Sent: 1, Measured: 2, Nanos: 1}, {Sent: 1 << 63, Measured: 1, Nanos: 1}, {Sent: 2, Measured: 1, Nanos: 1 << 63}, {Sent: 2, Measured: 1},
	} {
		if r, err := c.sum(crew, crew.round, bad); err == nil {
			t.Errorf("%+v counts as %+v", bad, r)
		}
	}
	if r, err := c.sum(crew, crew.round, perfResultBody{Sent: 20, Measured: 10, Nanos: 1e9}); err != nil || r.rate != 10 || r.messages != 10 {
		t.Errorf("got %+v, %v", r, err)
	}
	c.plan.transport, c.plan.bidirectional = perfUD, false
	crew.measures, crew.lanes = []*perfMeasure{{sent: 100, measured: 100}}, []*perfLane{{plan: &c.plan}}
	for came, lost := range map[uint64]uint64{97: 3, 100: 0, 1 << 60: 0} {
		if r, err := c.sum(crew, crew.round, perfResultBody{Received: came}); err != nil || r.lost != lost {
			t.Errorf("%d of 100 came: %+v, %v; want %d lost", came, r, err, lost)
		}
	}
}

// TestPerfHostileRequests: what private data say is not believed either.
func TestPerfHostileRequests(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	s := perfServe(t, k, "-p", "18515", "--idle-timeout", "1s")
	hello := perfHello(perfHelloBody{})
	ping := (&hello0).marshal()
	for name, tt := range map[string]struct {
		private []byte
		want    string
	}{
		"none":     {nil, "a program of perftest with -R?"},
		"short":    {hello[:10], "silent for too long"}, // padded, it is none
		"noise":    {[]byte("something else"), "not a message"},
		"version":  {append([]byte("RPRF\x07"), hello[5:]...), "protocol version 7"},
		"kind":     {perfMessage(perfKindPlan, goodPlan)[:56], "out of turn"},
		"ping":     {ping, "it pings"},
		"token":    {perfHello(perfHelloBody{Token: 12345}), "belongs to no client"},
		"no words": {hello, "silent for too long"},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(s.out.String())
			control := new(cmControl)
			conn, err := rdmacm.Dial(t.Context(), serverAddr+":18515", &rdmacm.Options{
				System: []rdmacm.Option{rdmacm.WithSystem(k.System())}, QP: perfControlCaps(), Prepare: control.prepare,
				ConnParam: rdmacm.ConnParam{PrivateData: tt.private},
			})
			if err == nil {
				<-conn.Done()
				err = conn.Close()
			} else if errors.As(err, new(*rdmacm.RejectedError)) {
				err = nil
			}
			if err != nil {
				t.Error(err)
			}
			eventually(t, func() string {
				if said := s.out.String()[before:]; !strings.Contains(said, tt.want) {
					return "no " + tt.want + " in " + said
				}
				return ""
			})
		})
	}
	if status, _, errs := pingPerf(t, k, "lat", "-c", "5"); status != statusOK {
		t.Errorf("the next client: status %d, stderr %q", status, errs)
	}
}

var hello0 = hello{kind: kindRequest, size: 56, window: 4}

func pingPerf(t *testing.T, k *fakekernel.Kernel, args ...string) (int, string, string) {
	t.Helper()
	return ping(t, k, append(append([]string{"perf"}, args...), serverAddr)...)
}

// TestPerfEnds: Ctrl-C on either side, in the middle.
func TestPerfEnds(t *testing.T) {
	for _, run := range []string{"lat", "lat -o write", "lat -o read", "bw", "bw -o write", "bw -b", "bw -t ud -s 1k", "lat -t uc -o write"} {
		k := newKernel(t, fakekernel.Options{})
		args := append(append([]string{"perf"}, strings.Fields(run)...), "-d", "1m", "-s", "1k")
		s := start(t, k, "perf", "serve")
		s.out.await(t, "listening")
		c := start(t, k, append(args, serverAddr)...)
		c.out.await(t, "bytes")
		time.Sleep(20 * time.Millisecond)
		if status := c.stop(); status != statusError || c.errOut.String() != "rdma-ping: interrupted\n" {
			t.Errorf("%s: client stopped: status %d, stderr %q", run, status, c.errOut.String())
		}
		s.out.await(t, "the peer closed the connection")
		c = start(t, k, append(args, serverAddr)...)
		c.out.await(t, "bytes")
		time.Sleep(20 * time.Millisecond)
		if status := s.stop(); status != statusOK {
			t.Errorf("%s: server stopped: status %d, stderr %q", run, status, s.errOut.String())
		}
		if status := c.wait(); status != statusError || strings.Count(c.errOut.String(), "\n") != 1 ||
			!strings.Contains(c.errOut.String(), "the peer closed the connection") {
			t.Errorf("%s: client without a server: status %d, stderr %q", run, status, c.errOut.String())
		}
	}
}

// TestPerfRefused: each limit of the server arrives as a reason, with what to do.
func TestPerfRefused(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	perfServe(t, k, "--max-size", "4k", "--max-qps", "2", "--max-memory", "16k", "--max-time", "2s")
	for args, want := range map[string]string{
		"bw -s 5000":         "at most 4 KiB; ask for less with -s",
		"bw -s 4k --qps 3":   "at most 2 queue pairs",
		"bw -s 4k -d 3s":     "for at most 2 s",
		"bw -s 2..4k -d 90s": "for at most 2 s",
	} {
		status, _, errs := pingPerf(t, k, strings.Fields(args)...)
		if status != statusError || !strings.Contains(errs, want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: status %d, stderr %q, want %q", args, status, errs, want)
		}
	}
	one := newKernel(t, fakekernel.Options{})
	s := perfServe(t, one, "--max-clients", "1")
	c := start(t, one, "perf", "lat", "-d", "1s", serverAddr)
	c.out.await(t, "bytes")
	if status, _, errs := pingPerf(t, one, "lat"); status != statusError || !strings.Contains(errs, "as many clients as it may") {
		t.Errorf("busy: status %d, stderr %q", status, errs)
	}
	if status := c.wait(); status != statusOK {
		t.Errorf("first client: status %d, stderr %q", status, c.errOut.String())
	}
	s.out.await(t, "1 clients are being served")

	small := newKernel(t, fakekernel.Options{Memlock: 1 << 20})
	perfServe(t, small)
	if status, _, errs := pingPerf(t, small, "bw", "-s", "300k"); status != statusError || !strings.Contains(errs, "memory") {
		t.Errorf("memory: status %d, stderr %q", status, errs)
	}
	echo := newKernel(t, fakekernel.Options{})
	serve(t, echo, "-p", "18515")
	if status, _, errs := pingPerf(t, echo, "lat"); status != statusError || !strings.Contains(errs, "perf needs 'rdma-ping perf serve'") {
		t.Errorf("serve: status %d, stderr %q", status, errs)
	}
	none := newKernel(t, fakekernel.Options{})
	if status, _, errs := pingPerf(t, none, "lat"); status != statusError || !strings.Contains(errs, "nobody listens") {
		t.Errorf("nobody: status %d, stderr %q", status, errs)
	}
	if status, _, errs := ping(t, none, "perf", "lat", "--tcp", "127.0.0.1:1"); status != statusError || !strings.Contains(errs, "perf serve --tcp") {
		t.Errorf("nobody over TCP: status %d, stderr %q", status, errs)
	}
}

// TestPerfDatagramMTU: a sweep ends where a datagram does.
func TestPerfDatagramMTU(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	perfServe(t, k)
	status, out, errs := pingPerf(t, k, "lat", "-t", "ud", "-c", "5", "-s", "512..8k", "--csv")
	if status != statusOK || strings.Count(out, "\n") != 3 || !strings.Contains(errs, "3 sizes left out") {
		t.Errorf("status %d, stderr %q, stdout:\n%s", status, errs, out)
	}
	if status, _, errs = pingPerf(t, k, "lat", "-t", "ud", "-s", "8k"); status != statusError || !strings.Contains(errs, "at most 1024 bytes") {
		t.Errorf("too large: status %d, stderr %q", status, errs)
	}
}

// TestPerfCorrupt: --verify notices what is wrong.
func TestPerfCorrupt(t *testing.T) {
	l := &perfLane{want: []byte{1, 2, 3}, plan: &perfPlan{mode: perfBW, op: perfAtomic, verify: true}}
	b := []byte{1, 2, 3}
	if l.verify(b); l.corrupt || b[0] != 0 {
		t.Errorf("good data: corrupt %v, left %v", l.corrupt, b)
	}
	if l.verify(b); !l.corrupt {
		t.Error("what was cleared counts as good")
	}
}

// TestPerfGrants: memory is open to a peer only where the peer works on it.
func TestPerfGrants(t *testing.T) {
	for _, mode := range []perfMode{perfLat, perfBW} {
		for op := perfSend; op <= perfAtomic; op++ {
			for _, both := range []bool{false, true} {
				plan := &perfPlan{mode: mode, op: op, bidirectional: both}
				server := (&perfLane{plan: plan, serving: true}).grants()
				client := (&perfLane{plan: plan}).grants()
				if want := op != perfSend; server != want {
					t.Errorf("%v of %v, both ways %v: the server's memory is open: %v", mode, op, both, server)
				}
				if want := op != perfSend && (both || mode == perfLat && op == perfWrite); client != want {
					t.Errorf("%v of %v, both ways %v: the client's memory is open: %v", mode, op, both, client)
				}
			}
		}
	}
}

// TestPerfClosedMemory: what is not open cannot be written to, whatever the peer knows.
func TestPerfClosedMemory(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	devs, err := uverbs.Devices(uverbs.WithSystem(k.System()))
	if err != nil {
		t.Fatal(err)
	}
	dev, err := devs[0].Open()
	if err != nil {
		t.Fatal(err)
	}
	plan := &perfPlan{mode: perfBW, op: perfWrite, transport: perfRC, size: 64, qps: 1, depth: 1, batch: 1}
	way, err := findPerfWay(dev, netip.MustParseAddr(serverAddr), -1)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*perfLane
	for i := range ends {
		ends[i] = &perfLane{plan: plan, serving: i == 1}
		if err := errors.Join(ends[i].make(dev, &waiting{}), ends[i].init(way)); err != nil {
			t.Fatal(err)
		}
	}
	for i, l := range ends {
		if err := errors.Join(l.meet(ends[1-i].me), l.connect(way)); err != nil {
			t.Fatal(err)
		}
	}
	thief, owner := ends[1], ends[0] // the server has no business in the client's memory
	// As it is with rdma_cm: the queue pair would let it through, the memory does not.
	open := &uverbs.QPAttr{AccessFlags: uverbs.AccessRemoteWrite}
	if err := owner.qp.Modify(open, uverbs.QPAttrAccessFlags); err != nil {
		t.Fatal(err)
	}
	wr := uverbs.SendWR{
		Opcode: uverbs.OpRDMAWrite, Flags: uverbs.SendSignaled, SGL: []uverbs.SGE{thief.out.SGE(0, 8)},
		RemoteAddr: owner.in.Addr(), RKey: owner.in.RKey(),
	}
	if _, err := thief.qp.PostSend([]uverbs.SendWR{wr}); err != nil {
		t.Fatal(err)
	}
	if wcs, _, err := thief.wait.wait(t.Context()); err != nil || wcs[0].Status != uverbs.WCRemoteAccessError {
		t.Errorf("a write ended with %v, %v", wcs, err)
	}
	for _, l := range ends {
		if err := l.close(); err != nil {
			t.Error(err)
		}
	}
	if err := dev.Close(); err != nil {
		t.Error(err)
	}
}

// TestPerfHalf: twice the half round trips are no longer than the run.
func TestPerfHalf(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	s := perfServe(t, k)
	for _, op := range []string{"send", "write"} {
		begin := time.Now()
		status, out, errs := pingPerf(t, k, "lat", "-o", op, "-c", "5000", "--json")
		took := time.Since(begin)
		var v struct {
			US struct{ Avg float64 }
		}
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if err := json.Unmarshal([]byte(lines[len(lines)-1]), &v); err != nil || status != statusOK {
			t.Fatalf("status %d, stderr %q, %v; server:\n%s", status, errs, err, s.out.String())
		}
		if sum := time.Duration(2 * 5000 * v.US.Avg * 1e3); sum > took || sum == 0 {
			t.Errorf("%s: 5000 round trips of twice %v us are %v, the run took %v", op, v.US.Avg, sum, took)
		}
	}
}

func TestPerftestDest(t *testing.T) {
	d := perftestDest{QPN: 0xffffff, PSN: 1, RKey: 7, Addr: 4096}
	if got, err := parsePerftestDest(d.marshal()); err != nil || got != d {
		t.Errorf("%+v, %v", got, err)
	}
	d.QPN++
	if _, err := parsePerftestDest(d.marshal()); err == nil {
		t.Error("a queue pair number of 25 bits was taken")
	}
	if _, err := parsePerftestDest(d.marshal()[:55]); err == nil {
		t.Error("55 bytes were taken")
	}
	for s, ok := range map[string]bool{
		"6.06\x00\x00": true, "5.70\x00": true, "26.01\x00": true, "5.69\x00": false,
		"": false, "\x00": false, "NaN\x00": false, "6.06x\x00": false, "GET / HTTP/1.1": false,
	} {
		if err := checkPerftestVersion([]byte(s)); (err == nil) != ok {
			t.Errorf("version %q: %v", s, err)
		}
	}
}

// chatter is a control connection whose peer never stops.
type chatter struct{ perfControl }

func (chatter) receive(context.Context) ([]byte, error) {
	return perfMessage(perfKindReady, struct{}{}), nil
}
func (chatter) close() error { return nil }

// TestPerfChatter: what nobody waits for is not kept without end.
func TestPerfChatter(t *testing.T) {
	p := newPerfPeer(t.Context(), chatter{})
	<-p.done
	if err := context.Cause(p.ctx); err == nil || !strings.Contains(err.Error(), "without waiting") || len(p.in) > perfSlots {
		t.Errorf("ended with %v, %d messages are kept", err, len(p.in))
	}
	if _, err := p.next(time.Second); err != nil {
		t.Errorf("what was said before does not count: %v", err)
	}
	if err := p.close(); err != nil {
		t.Error(err)
	}
}

// TestPerfTokens: a token is good for as many queue pairs as a client may have, and until it
// leaves.
func TestPerfTokens(t *testing.T) {
	ss := &perfSession{token: perfToken(), requests: make(chan *rdmacm.Request, 1)}
	s := &perfService{sessions: map[uint64]*perfSession{ss.token: ss}}
	if s.deliver(ss.token+2, nil) {
		t.Error("another token is as good")
	}
	if !s.deliver(ss.token, nil) || s.deliver(ss.token, nil) {
		t.Error("want one request delivered, and no other")
	}
	<-ss.requests
	s.leave(ss)
	if s.deliver(ss.token, nil) {
		t.Error("the token outlives its client")
	}
	if a, b := perfToken(), perfToken(); a == b || a == 0 {
		t.Errorf("tokens %d and %d", a, b)
	}
}
