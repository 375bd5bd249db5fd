package rdmacm_test

import (
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
	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/uverbs"
)

// Faults that programs on rdma_cm are known for, tried on this library.

// asks is a client without a queue pair that has asked for a connection.
func asks(t *testing.T, ch *rdmacm.EventChannel) *rdmacm.ID {
	t.Helper()
	id, err := ch.NewID(rdmacm.PortSpaceTCP)
	testutil.Must(t, err)
	closeLater(t, "id", id.Close)
	testutil.Must(t, id.ResolveAddr(netip.AddrPort{}, netip.MustParseAddrPort(server), time.Second))
	expect(t, ch, rdmacm.EventAddrResolved)
	testutil.Must(t, id.ResolveRoute(time.Second))
	expect(t, ch, rdmacm.EventRouteResolved)
	testutil.Must(t, id.Connect(rdmacm.ConnParam{QPNum: 1, ResponderResources: 1, InitiatorDepth: 1}))
	return id
}

// TestRW17AnswersToNobody: every client has gone before the first of them is answered, in each
// of the ways there are. Each answer is a benign one, and the listener goes on.
func TestRW17AnswersToNobody(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	l := mustListen(t, k, server, nil)
	ch := mustChannel(t, k)
	const clients = 60
	for range clients {
		testutil.Must(t, asks(t, ch).Close())
	}
	for i := range clients {
		r, err := l.Next(testContext(t))
		testutil.Must(t, err)
		switch i % 3 {
		case 0:
			_, err = r.Accept(testContext(t), nil)
			mustBe(t, "accept", err, rdmacm.ErrRequestGone)
		case 1:
			testutil.Must(t, r.Reject([]byte("no")))
		case 2:
			testutil.Must(t, r.Close())
		}
	}
	s, c := connect(t, k, l, rdmacm.Options{}, rdmacm.Options{})
	talk(t, s, c)
}

// TestNoDescriptorsLeft: out of descriptors, a request is turned down and the listener goes on
// when there are some again; a dial fails, and the next one works.
func TestNoDescriptorsLeft(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	l := mustListen(t, k, server, nil)
	ch := mustChannel(t, k)
	const node = "/dev/infiniband/rdma_cm"
	for what, call := range map[string]func(fakekernel.Call) bool{
		"device":             func(c fakekernel.Call) bool { return c.Kind == fakekernel.CallOpen && c.Path != node },
		"completion channel": fakekernel.Command(abi.IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL),
	} {
		id := asks(t, ch)
		mend := k.Fail(call, syscall.EMFILE)
		_, err := l.Accept(testContext(t))
		mend()
		mustBe(t, what, err, syscall.EMFILE)
		mustBe(t, "its client", expect(t, ch, rdmacm.EventRejected).Err, syscall.ECONNREFUSED)
		testutil.Must(t, id.Close())
		s, c := connect(t, k, l, rdmacm.Options{}, rdmacm.Options{})
		talk(t, s, c)
		testutil.Must(t, errors.Join(s.Close(), c.Close())) // the device with them
	}
	mend := k.Fail(func(c fakekernel.Call) bool { return c.Kind == fakekernel.CallOpen && c.Path == node }, syscall.EMFILE)
	_, err := rdmacm.Dial(testContext(t), server, options(k, nil))
	mend()
	mustBe(t, "dial", err, syscall.EMFILE, node)
}

// TestStaleConnection: the kernel of the server still knows a connection of that queue pair. The
// reason is told, and another attempt is free to work.
func TestStaleConnection(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	l := mustListen(t, k, server, nil)
	dialled := make(chan error)
	go func() {
		_, err := rdmacm.Dial(testContext(t), server, options(k, nil))
		dialled <- err
	}()
	r, err := l.Next(testContext(t))
	testutil.Must(t, err)
	asked := func(c fakekernel.CMID) bool { return c.Link == "req_sent" }
	if n := k.RaiseCM(asked, uint32(rdmacm.EventRejected), rdmacm.RejectStale, nil); n != 1 {
		t.Fatalf("%d clients, want 1", n)
	}
	err = <-dialled
	mustBe(t, "dial", err, syscall.ECONNREFUSED, "stale connection", "reason 10")
	var rejected *rdmacm.RejectedError
	if !errors.As(err, &rejected) || rejected.Reason != rdmacm.RejectStale {
		t.Errorf("got %+v, want reason RejectStale", rejected)
	}
	testutil.Must(t, r.Close())
	s, c := connect(t, k, l, rdmacm.Options{}, rdmacm.Options{})
	talk(t, s, c)
}

// TestMessageBeforeEvent: what a client sends as soon as it is connected is there before the
// server has received the event that says so.
func TestMessageBeforeEvent(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	ch := mustChannel(t, k)
	ln, err := ch.NewID(rdmacm.PortSpaceTCP)
	testutil.Must(t, err)
	closeLater(t, "listener", ln.Close)
	testutil.Must(t, errors.Join(ln.Bind(netip.MustParseAddrPort(server)), ln.Listen(1)))
	client, said := new(end), make(chan error)
	go func() {
		var err error
		client.Conn, err = rdmacm.Dial(testContext(t), server, options(k, &rdmacm.Options{Prepare: client.prepare}))
		if err == nil {
			err = client.say(testContext(t), "early")
		}
		said <- err
	}()
	l := &loop{t: t, ch: ch, parties: map[*rdmacm.ID]*party{}}
	p := l.add(expect(t, ch, rdmacm.EventConnectRequest).ID)
	testutil.Must(t, p.id.Accept(rdmacm.ConnParam{}))
	receive(t, p)
	testutil.Must(t, <-said)
	expect(t, ch, rdmacm.EventEstablished)
	testutil.Must(t, client.Close())
	expect(t, ch, rdmacm.EventDisconnected)
	l.close(p)
}

// TestDisconnectByBoth: both ends disconnect at once, each of them twice, and somebody on each
// side closes as soon as the end is told (RW-39).
func TestDisconnectByBoth(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	l := mustListen(t, k, server, nil)
	for range 20 {
		s, c := connect(t, k, l, rdmacm.Options{}, rdmacm.Options{})
		var wg sync.WaitGroup
		for _, e := range []*end{s, c} {
			for range 2 {
				wg.Go(func() {
					if err := e.Disconnect(); err != nil && !errors.Is(err, net.ErrClosed) {
						t.Errorf("disconnect: %v", err)
					}
				})
			}
			wg.Go(func() {
				mustBe(t, "the end", ended(t, e), rdmacm.ErrDisconnected)
				if err := e.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
}

// TestListenerClosedWhileAccepting: Accept waits for a client that does not confirm, and Close
// of the listener ends that.
func TestListenerClosedWhileAccepting(t *testing.T) {
	k := newKernel(t, fakekernel.Options{CMTimeout: time.Hour})
	l := mustListen(t, k, server, &rdmacm.Options{AcceptTimeout: time.Hour})
	ch := mustChannel(t, k)
	asks(t, ch)
	accepted := make(chan error)
	go func() {
		_, err := l.Accept(testContext(t))
		accepted <- err
	}()
	expect(t, ch, rdmacm.EventConnectResponse)
	testutil.Must(t, l.Close())
	mustBe(t, "accept", <-accepted, net.ErrClosed)
	expect(t, ch, rdmacm.EventRejected)
}

// TestDialWithoutTime: a context that has ended ends a dial, wherever it is by then.
func TestDialWithoutTime(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	mustListen(t, k, server, nil)
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("no time")
	cancel(why)
	for range 50 {
		_, err := rdmacm.Dial(ctx, server, options(k, nil))
		mustBe(t, "dial", err, why)
	}
}

// TestPortsInUse: free ports differ, one that is taken is told so, and two ids that share one
// do not listen on it.
func TestPortsInUse(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	a, b := mustListen(t, k, "10.9.0.1:0", nil), mustListen(t, k, "10.9.0.1:0", nil)
	if a.Addr() == b.Addr() {
		t.Errorf("two listeners are on %v", a.Addr())
	}
	_, err := rdmacm.Listen(testContext(t), a.Addr().String(), options(k, nil))
	mustBe(t, "the same address", err, syscall.EADDRINUSE, "another id listens")
	all := netip.AddrPortFrom(netip.IPv4Unspecified(), a.Addr().Port())
	_, err = rdmacm.Listen(testContext(t), all.String(), options(k, nil))
	mustBe(t, "all addresses", err, syscall.EADDRNOTAVAIL, "another id listens")
	ch := mustChannel(t, k)
	var ids []*rdmacm.ID
	for range 2 {
		id, err := ch.NewID(rdmacm.PortSpaceTCP)
		testutil.Must(t, err)
		closeLater(t, "id", id.Close)
		testutil.Must(t, errors.Join(id.SetReuseAddr(true), id.Bind(netip.MustParseAddrPort(server))))
		ids = append(ids, id)
	}
	mustBe(t, "one of two", ids[0].Listen(1), syscall.EADDRINUSE)
	testutil.Must(t, ids[1].Close())
	testutil.Must(t, ids[0].Listen(1))
}

// TestRW29TooMuchPrivateData is refused with the limit, and the id is as good as before.
func TestRW29TooMuchPrivateData(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	l := mustListen(t, k, server, nil)
	ch, id := rawClient(t, k)
	mustBe(t, "connect", id.Connect(rdmacm.ConnParam{PrivateData: make([]byte, 57)}), rdmacm.ErrInvalid, "57 bytes", "56 here")
	testutil.Must(t, id.Connect(rdmacm.ConnParam{PrivateData: make([]byte, 56)}))
	r, err := l.Next(testContext(t))
	testutil.Must(t, err)
	mustBe(t, "reject", r.Reject(make([]byte, 149)), rdmacm.ErrInvalid, "149 bytes", "148 here")
	expect(t, ch, rdmacm.EventRejected) // the request is used up all the same
}

// TestOneAnswer: a request that several goroutines answer at once has one answer.
func TestOneAnswer(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	l := mustListen(t, k, server, nil)
	for range 20 {
		dialled := make(chan error)
		go func() {
			c, err := rdmacm.Dial(testContext(t), server, options(k, nil))
			if err == nil {
				err = c.Close()
			}
			dialled <- err
		}()
		r, err := l.Next(testContext(t))
		testutil.Must(t, err)
		var wg sync.WaitGroup
		var answers atomic.Int32
		wg.Go(func() {
			c, err := r.Accept(testContext(t), nil)
			if !errors.Is(err, net.ErrClosed) {
				answers.Add(1)
			}
			if err == nil {
				c.Close() // what is left shows
			}
		})
		wg.Go(func() {
			if err := r.Reject(nil); !errors.Is(err, net.ErrClosed) {
				answers.Add(1)
			}
		})
		wg.Wait()
		if n := answers.Load(); n != 1 {
			t.Errorf("%d answers, want 1", n)
		}
		if err := <-dialled; err != nil && !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, rdmacm.ErrDisconnected) {
			t.Errorf("dial: %v", err)
		}
	}
}

// TestEventFlood: news of every harmless kind for all ids, many times over. Nothing is held up,
// ended or lost by it.
func TestEventFlood(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	l := mustListen(t, k, server, nil)
	s, c := connect(t, k, l, rdmacm.Options{}, rdmacm.Options{})
	all := func(fakekernel.CMID) bool { return true }
	for range 100 {
		for _, typ := range []rdmacm.EventType{
			rdmacm.EventAddrChange, rdmacm.EventTimewaitExit, rdmacm.EventAddrResolved, rdmacm.EventRouteResolved,
			rdmacm.EventConnectResponse, rdmacm.EventEstablished, rdmacm.EventUser,
		} {
			k.RaiseCM(all, uint32(typ), 0, nil)
		}
	}
	talk(t, s, c)
	s2, c2 := connect(t, k, l, rdmacm.Options{}, rdmacm.Options{})
	talk(t, s2, c2)
	if s.Err() != nil || c.Err() != nil {
		t.Errorf("got errors %v and %v of a live connection", s.Err(), c.Err())
	}
}

// TestUnplugAtAnyCall: the server's device is taken away at each call that a connection makes,
// on either side. Nobody hangs, and nothing is left; newKernel checks that.
func TestUnplugAtAnyCall(t *testing.T) {
	for n := int32(1); n < 500; n++ {
		reached := false
		t.Run(fmt.Sprint("call ", n), func(t *testing.T) { reached = unplugAt(t, n) })
		if !reached {
			return
		}
	}
	t.Error("the calls do not end")
}

func unplugAt(t *testing.T, n int32) bool {
	var k *fakekernel.Kernel
	var calls atomic.Int32
	var on atomic.Bool
	k = newKernel(t, fakekernel.Options{Log: func(fakekernel.Call) {
		if on.Load() && calls.Add(1) == n {
			k.Unplug("rxe0")
		}
	}})
	l := mustListen(t, k, "0.0.0.0:7174", &rdmacm.Options{Prepare: new(end).prepare})
	ctx, cancel := context.WithCancel(testContext(t))
	var serving sync.WaitGroup
	serving.Go(func() {
		for ctx.Err() == nil {
			c, err := l.Accept(ctx)
			if err != nil {
				continue
			}
			if err := c.Close(); err != nil {
				t.Errorf("server: %v", err)
			}
		}
	})
	on.Store(true)
	o := &rdmacm.Options{Prepare: new(end).prepare, Timeout: 50 * time.Millisecond}
	c, err := rdmacm.Dial(ctx, server, options(k, o))
	if err == nil {
		if err := c.Close(); err != nil {
			t.Errorf("client: %v", err)
		}
	}
	if ctx.Err() != nil {
		t.Errorf("the attempt hung: %v", err)
	}
	on.Store(false)
	cancel()
	serving.Wait()
	return calls.Load() >= n
}

// TestDisassociated: a driver takes the device of a connection away while it is in use.
func TestDisassociated(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	l := mustListen(t, k, "0.0.0.0:7174", nil)
	s, c := connectTo(t, k, l, server, rdmacm.Options{Source: netip.MustParseAddrPort("10.9.0.2:0")})
	if !k.Disassociate("rxe0") {
		t.Fatal("the device is not there")
	}
	for _, e := range []*end{s, c} {
		if err := ended(t, e); !errors.Is(err, rdmacm.ErrDeviceRemoved) && !errors.Is(err, rdmacm.ErrDisconnected) {
			t.Errorf("got end %v, want that the device was removed, or the peer gone", err)
		}
		testutil.Must(t, e.Close())
	}
}

// TestCredentialsChange: the kernel serves nothing of what was opened before. All that waits
// ends, with the reason, and can be closed.
func TestCredentialsChange(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	l := mustListen(t, k, server, nil)
	s, c := connect(t, k, l, rdmacm.Options{}, rdmacm.Options{})
	mend := k.Fail(fakekernel.Kind(fakekernel.CallCM), syscall.EACCES)
	// So that the next event is asked for.
	k.RaiseCM(func(fakekernel.CMID) bool { return true }, uint32(rdmacm.EventAddrChange), 0, nil)
	_, err := l.Accept(testContext(t))
	mustBe(t, "accept", err, syscall.EACCES, "credentials")
	mustBe(t, "server's end", ended(t, s), syscall.EACCES, "credentials")
	mustBe(t, "client's end", ended(t, c), syscall.EACCES, "credentials")
	_, err = rdmacm.Dial(testContext(t), server, options(k, nil))
	mustBe(t, "dial", err, syscall.EACCES, "credentials")
	mend()
}

// TestWildcardBothFamilies: one listener on all addresses is reached by each of them, and tells
// by which.
func TestWildcardBothFamilies(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	l := mustListen(t, k, ":7174", nil)
	for _, address := range []string{"10.9.0.1:7174", "[::ffff:10.9.0.1]:7174", "[2001:db8:9::1]:7174", "[fe80::a:1%2]:7174"} {
		s, c := connectTo(t, k, l, address, rdmacm.Options{})
		want := netip.MustParseAddrPort(address).Addr().Unmap().WithZone("")
		for _, got := range []netip.AddrPort{s.LocalAddr(), c.RemoteAddr()} {
			if got.Addr().WithZone("") != want || got.Port() != 7174 {
				t.Errorf("%s: the server's address is %v", address, got)
			}
		}
		talk(t, s, c)
	}
}

// TestRW22OddDevices: devices whose names are odd, and two of which have one GUID, are told
// apart.
func TestRW22OddDevices(t *testing.T) {
	devices := []fakekernel.Device{{Name: "rxe", GUID: 7}, {Name: "µ-0 %s", GUID: 7}, {Name: "uverbs0"}}
	k := newKernel(t, fakekernel.Options{Devices: devices})
	for i, d := range devices {
		l := mustListen(t, k, fmt.Sprintf("10.9.0.%d:0", i+1), nil)
		s, c := connect(t, k, l, rdmacm.Options{}, rdmacm.Options{})
		if got := s.QP().PD().Context().Device().Name(); got != d.Name {
			t.Errorf("a connection to 10.9.0.%d is on %q, want %q", i+1, got, d.Name)
		}
		talk(t, s, c)
	}
}

// TestQueueTooSmall: completions that a shared queue has no room for are lost, as they are in C;
// the device tells, and the connections can be closed.
func TestQueueTooSmall(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	devs, err := uverbs.Devices(uverbs.WithSystem(k.System()))
	testutil.Must(t, err)
	dev, err := devs[0].Open()
	testutil.Must(t, err)
	closeLater(t, "device", dev.Close)
	pd, err := dev.AllocPD()
	testutil.Must(t, err)
	closeLater(t, "protection domain", pd.Close)
	cq, err := dev.CreateCQ(1, nil)
	testutil.Must(t, err)
	closeLater(t, "completion queue", cq.Close)
	l := mustListen(t, k, server, nil)
	_, c := connect(t, k, l, rdmacm.Options{PD: pd, RecvCQ: cq}, rdmacm.Options{})
	for range cq.Cap() + 1 {
		testutil.Must(t, c.say(testContext(t), "x"))
	}
	ev, err := dev.NextAsyncEvent(testContext(t))
	if err != nil || ev.Type != uverbs.EventCQError || ev.CQ != cq {
		t.Errorf("got %+v and error %v, want that the queue overran", ev, err)
	}
}
