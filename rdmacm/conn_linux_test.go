package rdmacm_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/fakekernel"
	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/uverbs"
)

func TestDialAccept(t *testing.T) {
	for _, address := range []string{"10.9.0.1:7174", "0.0.0.0:7174", "10.9.0.1:0"} {
		k := newKernel(t, fakekernel.Options{})
		l := mustListen(t, k, address, nil)
		if l.Addr().Port() == 0 {
			t.Errorf("%s: the listener has no port", address)
		}
		s, c := new(end), new(end)
		_ = s
		s, c = connectTo(t, k, l, netip.AddrPortFrom(netip.MustParseAddr("10.9.0.1"), l.Addr().Port()).String())
		if c.RemoteAddr() != s.LocalAddr() || s.RemoteAddr() != c.LocalAddr() || !s.RemoteAddr().IsValid() {
			t.Errorf("client %v to %v, server %v to %v: want the same turned round",
				c.LocalAddr(), c.RemoteAddr(), s.LocalAddr(), s.RemoteAddr())
		}
		if s.QP().State() != uverbs.StateRTS || c.QP().State() != uverbs.StateRTS {
			t.Errorf("got states %v and %v, want RTS", s.QP().State(), c.QP().State())
		}
		if s.Err() != nil || c.Err() != nil {
			t.Errorf("got errors %v and %v of a live connection", s.Err(), c.Err())
		}
		talk(t, s, c)
	}
}

// connectTo is connect to an address that is not the listener's.
func connectTo(t *testing.T, k *fakekernel.Kernel, l *rdmacm.Listener, address string) (s, c *end) {
	t.Helper()
	ctx := testContext(t)
	s, c = new(end), new(end)
	accepted := make(chan error)
	go func() {
		r, err := l.Next(ctx)
		if err == nil {
			s.Conn, err = r.Accept(ctx, &rdmacm.Options{Prepare: s.prepare})
		}
		accepted <- err
	}()
	var err error
	c.Conn, err = rdmacm.Dial(ctx, address, options(k, &rdmacm.Options{Prepare: c.prepare}))
	if err != nil {
		t.Fatal(err)
	}
	if err := <-accepted; err != nil {
		t.Fatal(err)
	}
	closeLater(t, "server's end", s.Close)
	closeLater(t, "client's end", c.Close)
	return s, c
}

func TestDialIPv6(t *testing.T) {
	for _, address := range []string{"[2001:db8:9::1]:7174", "[fe80::a:1%2]:7174"} {
		k := newKernel(t, fakekernel.Options{})
		l := mustListen(t, k, address, nil)
		s, c := connect(t, k, l, rdmacm.Options{}, rdmacm.Options{})
		if got := c.RemoteAddr(); got != l.Addr() {
			t.Errorf("got peer %v, want %v", got, l.Addr())
		}
		talk(t, s, c)
	}
}

func TestDialFromSource(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	l := mustListen(t, k, server, nil)
	source := netip.MustParseAddrPort("10.9.0.2:0")
	s, c := connect(t, k, l, rdmacm.Options{}, rdmacm.Options{Source: source})
	if c.LocalAddr().Addr() != source.Addr() {
		t.Errorf("got source %v, want %v", c.LocalAddr(), source)
	}
	talk(t, s, c)
}

func TestRW29PrivateData(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	l := mustListen(t, k, server, nil)
	for _, size := range []struct{ connect, accept int }{{0, 0}, {1, 1}, {40, 100}, {56, 196}} {
		ask, answer := bytes.Repeat([]byte{'q'}, size.connect), bytes.Repeat([]byte{'a'}, size.accept)
		s, c := connect(t, k, l, rdmacm.Options{ConnParam: rdmacm.ConnParam{PrivateData: answer}},
			rdmacm.Options{ConnParam: rdmacm.ConnParam{PrivateData: ask}})
		padded(t, "request", s.PrivateData(), ask, 56)
		padded(t, "answer", c.PrivateData(), answer, 196)
	}
	dialled := make(chan error)
	go func() {
		_, err := rdmacm.Dial(testContext(t), server, options(k, nil))
		dialled <- err
	}()
	r, err := l.Next(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Reject([]byte("nope!")); err != nil {
		t.Error(err)
	}
	var rejected *rdmacm.RejectedError
	if err := <-dialled; !errors.As(err, &rejected) || rejected.Reason != rdmacm.RejectConsumer {
		t.Fatalf("got error %v, want a rejection by the program", err)
	}
	padded(t, "rejection", rejected.PrivateData, []byte("nope!"), 148)
}

func padded(t *testing.T, what string, got, want []byte, size int) {
	t.Helper()
	if len(got) != size || !bytes.HasPrefix(got, want) || len(bytes.Trim(got[len(want):], "\x00")) > 0 {
		t.Errorf("%s: got %q, want %q padded with zeros to %d bytes", what, got, want, size)
	}
}

func TestDialNobodyListens(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	_, err := rdmacm.Dial(testContext(t), server, options(k, nil))
	mustBe(t, "dial", err, syscall.ECONNREFUSED, "connect 10.9.0.1:7174: connection rejected: nobody listens on that port (reason 8)")
}

// RW-01, RW-20: an address that no device serves.
func TestRW20DialElsewhere(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	_, err := rdmacm.Listen(testContext(t), "192.0.2.77:1", options(k, nil))
	if err == nil {
		t.Error("listening on an address of nobody's worked")
	}
	_, err = rdmacm.Dial(testContext(t), "192.0.2.77:1", options(k, nil))
	if err == nil {
		t.Error("dialling an address of nobody's worked")
	}
}

func TestDialSilentPeer(t *testing.T) {
	silent := netip.MustParseAddr("10.9.0.99")
	k := newKernel(t, fakekernel.Options{Silent: []netip.Addr{silent}, CMTimeout: time.Hour})
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err := rdmacm.Dial(ctx, "10.9.0.99:7174", options(k, nil))
	mustBe(t, "dial", err, context.DeadlineExceeded, "connect 10.9.0.99:7174")

	k = newKernel(t, fakekernel.Options{Silent: []netip.Addr{silent}})
	_, err = rdmacm.Dial(testContext(t), "10.9.0.99:7174", options(k, nil))
	mustBe(t, "dial", err, syscall.ETIMEDOUT, "the peer does not answer")
}

func TestPeerDisconnects(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	l := mustListen(t, k, server, nil)
	s, c := connect(t, k, l, rdmacm.Options{}, rdmacm.Options{})
	waiting := make(chan error)
	go func() {
		_, err := s.hear(testContext(t))
		waiting <- err
	}()
	if err := c.Disconnect(); err != nil {
		t.Fatal(err)
	}
	mustBe(t, "server's end", ended(t, s), rdmacm.ErrDisconnected)
	mustBe(t, "client's end", ended(t, c), rdmacm.ErrDisconnected)
	var flushed *uverbs.WCError
	if err := <-waiting; !errors.As(err, &flushed) || flushed.Status != uverbs.WCFlushError {
		t.Errorf("the server's receive ended with %v, want that it was flushed", err)
	}
	if err := c.Disconnect(); err != nil {
		t.Errorf("disconnect after the end: %v", err)
	}
}

func TestPeerCloses(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	l := mustListen(t, k, server, nil)
	s, c := connect(t, k, l, rdmacm.Options{}, rdmacm.Options{})
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	mustBe(t, "client's end", ended(t, c), rdmacm.ErrDisconnected)
	mustBe(t, "server's end", ended(t, s), net.ErrClosed)
}

func TestRW27CloseWakesCompletionWaiters(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	l := mustListen(t, k, server, nil)
	_, c := connect(t, k, l, rdmacm.Options{}, rdmacm.Options{})
	const waiters = 50
	errs := make(chan error, waiters)
	var started sync.WaitGroup
	for range waiters {
		started.Add(1)
		go func() {
			started.Done()
			var wc [1]uverbs.WC
			for {
				// The receives are flushed first: those who get one go on waiting.
				if _, err := c.RecvCQ().Wait(context.Background(), wc[:]); err != nil {
					errs <- err
					return
				}
			}
		}()
	}
	started.Wait()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	for range waiters {
		mustBe(t, "wait", <-errs, net.ErrClosed)
	}
}

func TestAcceptedConnOutlivesListener(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	l := mustListen(t, k, server, nil)
	s, c := connect(t, k, l, rdmacm.Options{}, rdmacm.Options{})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	talk(t, s, c)
	_, err := rdmacm.Dial(testContext(t), server, options(k, nil))
	mustBe(t, "dial", err, syscall.ECONNREFUSED)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	mustBe(t, "server's end", ended(t, s), rdmacm.ErrDisconnected)
}

func TestRW41MinRNRTimer(t *testing.T) {
	for _, tt := range []struct{ set, want uint8 }{{0, 12}, {1, 1}, {31, 31}, {rdmacm.None, 0}} {
		k := newKernel(t, fakekernel.Options{})
		l := mustListen(t, k, server, nil)
		p := rdmacm.Options{ConnParam: rdmacm.ConnParam{MinRNRTimer: tt.set}}
		s, c := connect(t, k, l, p, p)
		for _, e := range []*end{s, c} {
			attr, err := e.QP().Query(uverbs.QPAttrMinRNRTimer)
			if err != nil || attr.MinRNRTimer != tt.want {
				t.Errorf("set %d: got timer %d and error %v, want %d", tt.set, attr.MinRNRTimer, err, tt.want)
			}
		}
	}
}

// The limits of RDMA READs fit: each side serves at least what the other may start.
func TestDepthsAgree(t *testing.T) {
	for _, tt := range []struct{ client, server rdmacm.ConnParam }{
		{},
		{client: rdmacm.ConnParam{ResponderResources: 3, InitiatorDepth: 5}},
		{server: rdmacm.ConnParam{ResponderResources: 2, InitiatorDepth: 1}},
		{client: rdmacm.ConnParam{ResponderResources: rdmacm.None, InitiatorDepth: rdmacm.None}},
	} {
		k := newKernel(t, fakekernel.Options{})
		l := mustListen(t, k, server, nil)
		s, c := connect(t, k, l, rdmacm.Options{ConnParam: tt.server}, rdmacm.Options{ConnParam: tt.client})
		sa, err := s.QP().Query(uverbs.QPAttrMaxQPRDAtomic | uverbs.QPAttrMaxDestRDAtomic)
		if err != nil {
			t.Fatal(err)
		}
		ca, err := c.QP().Query(uverbs.QPAttrMaxQPRDAtomic | uverbs.QPAttrMaxDestRDAtomic)
		if err != nil {
			t.Fatal(err)
		}
		if sa.MaxRDAtomic > ca.MaxDestRDAtomic || ca.MaxRDAtomic > sa.MaxDestRDAtomic {
			t.Errorf("%+v: server starts %d and serves %d, client starts %d and serves %d",
				tt, sa.MaxRDAtomic, sa.MaxDestRDAtomic, ca.MaxRDAtomic, ca.MaxDestRDAtomic)
		}
	}
	k := newKernel(t, fakekernel.Options{})
	mustListen(t, k, server, nil)
	_, err := rdmacm.Dial(testContext(t), server, options(k, &rdmacm.Options{ConnParam: rdmacm.ConnParam{InitiatorDepth: 254}}))
	mustBe(t, "dial", err, rdmacm.ErrInvalid, "InitiatorDepth is 254, the device does")
}

// RW-17: clients that give up at any moment cost the server nothing but their own request.
func TestRW17ClientsGiveUp(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	l := mustListen(t, k, server, nil)
	const clients = 60
	var wg sync.WaitGroup
	for i := range clients {
		wg.Add(1)
		go func() {
			defer wg.Done()
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i)*100*time.Microsecond)
			defer cancel()
			if c, err := rdmacm.Dial(ctx, server, options(k, nil)); err == nil {
				c.Close()
			}
		}()
	}
	wg.Wait() // all have gone before the first is answered
	good := make(chan error)
	go func() {
		c, err := rdmacm.Dial(testContext(t), server, options(k, &rdmacm.Options{ConnParam: rdmacm.ConnParam{PrivateData: []byte("good")}}))
		if err == nil {
			err = c.Close()
		}
		good <- err
	}()
	for {
		c, err := l.Accept(testContext(t))
		if err != nil {
			t.Fatalf("the listener failed: %v", err)
		}
		done := bytes.HasPrefix(c.PrivateData(), []byte("good"))
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if done {
			break
		}
	}
	if err := <-good; err != nil {
		t.Error(err)
	}
}

// A client that never confirms holds Accept up for AcceptTimeout, no longer.
func TestAcceptTimeout(t *testing.T) {
	k := newKernel(t, fakekernel.Options{CMTimeout: time.Hour})
	l := mustListen(t, k, server, &rdmacm.Options{AcceptTimeout: 10 * time.Millisecond})
	ch, id := rawClient(t, k)
	accepted := make(chan error)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, err := l.Accept(ctx)
		accepted <- err
	}()
	// Nobody receives the client's events, so nobody confirms. A second request shows that
	// Accept has turned to the next.
	if err := id.Connect(rdmacm.ConnParam{}); err != nil {
		t.Fatal(err)
	}
	c, err := rdmacm.Dial(testContext(t), server, options(k, nil))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := <-accepted; err != nil {
		t.Errorf("accept of the good client: %v", err)
	}
	cancel()
	_ = ch
}

// rawClient is an id with a queue pair and a route to the server.
func rawClient(t *testing.T, k *fakekernel.Kernel) (*rdmacm.EventChannel, *rdmacm.ID) {
	t.Helper()
	ch, err := rdmacm.NewEventChannel(on(k))
	if err != nil {
		t.Fatal(err)
	}
	closeLater(t, "event channel", ch.Close)
	id := resolved(t, ch)
	mustQP(t, id)
	return ch, id
}

// resolved is an id with a route to the server.
func resolved(t *testing.T, ch *rdmacm.EventChannel) *rdmacm.ID {
	t.Helper()
	id, err := ch.NewID(rdmacm.PortSpaceTCP)
	if err != nil {
		t.Fatal(err)
	}
	closeLater(t, "id", id.Close)
	if err := id.ResolveAddr(netip.AddrPort{}, netip.MustParseAddrPort(server), time.Second); err != nil {
		t.Fatal(err)
	}
	expect(t, ch, rdmacm.EventAddrResolved)
	if err := id.ResolveRoute(time.Second); err != nil {
		t.Fatal(err)
	}
	expect(t, ch, rdmacm.EventRouteResolved)
	return id
}

// mustQP gives an id a queue pair with all that it needs.
func mustQP(t *testing.T, id *rdmacm.ID) *uverbs.QP {
	t.Helper()
	ctx, err := id.Context()
	if err != nil {
		t.Fatal(err)
	}
	pd, err := ctx.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	cq, err := ctx.CreateCQ(4, nil)
	if err != nil {
		t.Fatal(err)
	}
	qp, err := id.CreateQP(pd, &uverbs.QPInitAttr{SendCQ: cq, Cap: uverbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // before the id, whose device it is on
		if err := errors.Join(qp.Close(), cq.Close(), pd.Close()); err != nil {
			t.Error(err)
		}
	})
	return qp
}

func expect(t *testing.T, ch *rdmacm.EventChannel, want rdmacm.EventType) *rdmacm.Event {
	t.Helper()
	ev, err := ch.NextEvent(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	if ev.Type != want {
		t.Fatalf("got event %v (%v), want %v", ev.Type, ev.Err, want)
	}
	return ev
}

func TestCloseWithMemoryLeft(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	l := mustListen(t, k, server, nil)
	s, c := connect(t, k, l, rdmacm.Options{}, rdmacm.Options{})
	mr, err := c.PD().AllocMR(4096, 0)
	if err != nil {
		t.Fatal(err)
	}
	mustBe(t, "close", c.Close(), rdmacm.ErrBusy, "close connection")
	mustBe(t, "server's end", ended(t, s), rdmacm.ErrDisconnected)
	if err := mr.Close(); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
}

// Two connections with a protection domain and a completion queue of the program's.
func TestSharedObjects(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	devs, err := uverbs.Devices(uverbs.WithSystem(k.System()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, err := devs[0].Open()
	if err != nil {
		t.Fatal(err)
	}
	closeLater(t, "context", ctx.Close)
	pd, err := ctx.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	closeLater(t, "protection domain", pd.Close)
	ch, err := ctx.NewCompChannel()
	if err != nil {
		t.Fatal(err)
	}
	closeLater(t, "completion channel", ch.Close)
	cq, err := ctx.CreateCQ(64, ch)
	if err != nil {
		t.Fatal(err)
	}
	closeLater(t, "completion queue", cq.Close)
	l := mustListen(t, k, server, nil)
	o := rdmacm.Options{PD: pd, SendCQ: cq, RecvCQ: cq, SignalAll: true}
	for range 2 {
		s, c := connect(t, k, l, o, rdmacm.Options{})
		if s.PD() != pd || s.SendCQ() != cq || s.RecvCQ() != cq {
			t.Error("the connection has objects of its own")
		}
		if err := c.say(testContext(t), "hello"); err != nil {
			t.Fatal(err)
		}
		if got, err := s.hear(testContext(t)); got != "hello" || err != nil {
			t.Errorf("got %q and error %v, want hello", got, err)
		}
	}
	// The wrong device.
	ctx1, err := devs[1].Open()
	if err != nil {
		t.Fatal(err)
	}
	closeLater(t, "context", ctx1.Close)
	pd1, err := ctx1.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	closeLater(t, "protection domain", pd1.Close)
	go l.Accept(testContext(t)) //nolint:errcheck // rejects or hangs up with the test
	_, err = rdmacm.Dial(testContext(t), server, options(k, &rdmacm.Options{PD: pd1, Source: netip.MustParseAddrPort("10.9.0.1:0")}))
	mustBe(t, "dial", err, rdmacm.ErrInvalid, "the protection domain is on rxe1")
}

// RW-09: a device is open while a connection uses it, and not longer.
func TestRW09DeviceIsClosed(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	l := mustListen(t, k, server, nil)
	if n := k.Counts().Contexts; n != 0 {
		t.Errorf("%d devices are open for a listener, want none", n)
	}
	s, c := connect(t, k, l, rdmacm.Options{}, rdmacm.Options{})
	s2, c2 := connect(t, k, l, rdmacm.Options{}, rdmacm.Options{})
	if n := k.Counts().Contexts; n != 3 {
		t.Errorf("%d devices are open, want 3: one for the listener's connections, one for each dialled", n)
	}
	for _, e := range []*end{s, c, s2, c2} {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
	if n := k.Counts().Contexts; n != 0 {
		t.Errorf("%d devices are open after the last connection, want none", n)
	}
}

func TestPrepareFails(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	l := mustListen(t, k, server, nil)
	broken := errors.New("no memory for you")
	prepare := func(c *rdmacm.Conn) error {
		if _, err := c.AllocMR(4096, 0); err != nil {
			return err
		}
		return broken
	}
	_, err := rdmacm.Dial(testContext(t), server, options(k, &rdmacm.Options{Prepare: prepare}))
	mustBe(t, "dial", err, broken)
	dialled := make(chan error)
	go func() {
		_, err := rdmacm.Dial(testContext(t), server, options(k, nil))
		dialled <- err
	}()
	r, err := l.Next(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.Accept(testContext(t), &rdmacm.Options{Prepare: prepare})
	mustBe(t, "accept", err, broken)
	mustBe(t, "the other end", <-dialled, syscall.ECONNREFUSED)
}

// making matches the calls that make or change something. Those that destroy are left out:
// if they fail something is left, and Close says so.
func making(c fakekernel.Call) bool {
	switch c.Kind {
	case fakekernel.CallCM:
		return c.Cmd != abi.RDMA_USER_CM_CMD_DESTROY_ID && c.Cmd != abi.RDMA_USER_CM_CMD_GET_EVENT
	case fakekernel.CallOpen, fakekernel.CallAdopt, fakekernel.CallMap, fakekernel.CallWrite:
		return true
	case fakekernel.CallIoctl:
		switch [2]uint16{c.Object, c.Method} {
		case [2]uint16{abi.UVERBS_OBJECT_PD, abi.UVERBS_METHOD_PD_DESTROY}, [2]uint16{abi.UVERBS_OBJECT_MR, abi.UVERBS_METHOD_MR_DESTROY},
			[2]uint16{abi.UVERBS_OBJECT_CQ, abi.UVERBS_METHOD_CQ_DESTROY}, [2]uint16{abi.UVERBS_OBJECT_QP, abi.UVERBS_METHOD_QP_DESTROY}:
			return false
		}
		return true
	}
	return false
}

// Every call into the kernel fails once. The attempt fails or succeeds, and leaves nothing
// behind; newKernel checks that.
func TestEveryCallFailsOnce(t *testing.T) {
	for n := int32(1); n < 500; n++ {
		reached := false
		t.Run(fmt.Sprint("call ", n), func(t *testing.T) { reached = attempt(t, n) })
		if !reached {
			return
		}
	}
	t.Error("the calls do not end")
}

// attempt dials and accepts while call n fails, and tells whether there was one.
func attempt(t *testing.T, n int32) bool {
	k := newKernel(t, fakekernel.Options{})
	l := mustListen(t, k, server, &rdmacm.Options{Prepare: new(end).prepare})
	ctx, cancel := context.WithCancel(testContext(t))
	accepted := make(chan struct{})
	go func() {
		defer close(accepted)
		for ctx.Err() == nil {
			if c, err := l.Accept(ctx); err == nil {
				c.Close() //nolint:errcheck // what is left shows
			}
		}
	}()
	var reached atomic.Bool
	nth := fakekernel.Nth(n, making)
	stop := k.Fail(func(c fakekernel.Call) bool {
		hit := nth(c)
		if hit {
			reached.Store(true)
		}
		return hit
	}, syscall.ENOMEM)
	c, err := rdmacm.Dial(ctx, server, options(k, &rdmacm.Options{Prepare: new(end).prepare}))
	if err == nil {
		err = c.Close()
	}
	if err != nil && ctx.Err() != nil {
		t.Errorf("the attempt hung: %v", err)
	}
	stop()
	cancel()
	<-accepted
	return reached.Load()
}

func TestDeviceRemoved(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	l := mustListen(t, k, "0.0.0.0:7174", nil)
	s, c := connectTo(t, k, l, server)
	k.Unplug("rxe0")
	mustBe(t, "server's end", ended(t, s), rdmacm.ErrDeviceRemoved)
	if err := errors.Join(s.Close(), c.Close()); err != nil {
		t.Errorf("close after the device was removed: %v", err)
	}
}

// 200 connections one after the other leave nothing, and the ids' slots are used again.
func TestManyConnections(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	l := mustListen(t, k, server, nil)
	for i := range 200 {
		s, c := connect(t, k, l, rdmacm.Options{}, rdmacm.Options{})
		want := fmt.Sprint("message ", i)
		if err := c.say(testContext(t), want); err != nil {
			t.Fatal(err)
		}
		if got, err := s.hear(testContext(t)); got != want || err != nil {
			t.Fatalf("got %q and error %v, want %q", got, err, want)
		}
		if err := errors.Join(s.Close(), c.Close()); err != nil {
			t.Fatal(err)
		}
	}
}
