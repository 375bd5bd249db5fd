package rdmacm_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
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
		port := l.Addr().Port()
		s, c := connectTo(t, k, l, netip.AddrPortFrom(netip.MustParseAddr("10.9.0.1"), port).String(), rdmacm.Options{})
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
	k := newKernel(t, fakekernel.Options{Silent: []netip.Addr{silent}})
	_, err := rdmacm.Dial(testContext(t), "10.9.0.99:7174", options(k, nil))
	mustBe(t, "dial", err, syscall.ETIMEDOUT, "the peer does not answer")
}

// The kernel's patience with a silent peer is cut by the context.
func TestDialDeadline(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	k := newKernel(t, fakekernel.Options{
		Silent: []netip.Addr{netip.MustParseAddr("10.9.0.99")}, CMTimeout: time.Hour,
		Log: func(c fakekernel.Call) {
			if c.Kind == fakekernel.CallCM && c.Cmd == abi.RDMA_USER_CM_CMD_CONNECT {
				cancel(context.DeadlineExceeded)
			}
		},
	})
	_, err := rdmacm.Dial(ctx, "10.9.0.99:7174", options(k, nil))
	mustBe(t, "dial", err, context.DeadlineExceeded, "connect 10.9.0.99:7174")
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

func TestDeviceRemoved(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	l := mustListen(t, k, "0.0.0.0:7174", nil)
	s, c := connectTo(t, k, l, server, rdmacm.Options{Source: netip.MustParseAddrPort("10.9.0.2:0")})
	k.Unplug("rxe0")
	mustBe(t, "server's end", ended(t, s), rdmacm.ErrDeviceRemoved)
	mustBe(t, "client's end", ended(t, c), rdmacm.ErrDisconnected)
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

// "Unreachable", "disconnected" and "timewait exit" on a connection that is up: it ends once,
// others stay.
func TestRW46UnreachableWhileConnected(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	l := mustListen(t, k, server, nil)
	s, c := connect(t, k, l, rdmacm.Options{}, rdmacm.Options{})
	s2, c2 := connect(t, k, l, rdmacm.Options{}, rdmacm.Options{})
	inject := func(typ rdmacm.EventType, status int32) {
		for _, id := range k.CM().IDs() {
			if id.Src == c.LocalAddr() && id.Dst == c.RemoteAddr() {
				k.CM().Inject(id.ID, uint32(typ), status, nil)
			}
		}
	}
	inject(rdmacm.EventUnreachable, -int32(syscall.ETIMEDOUT))
	inject(rdmacm.EventUnreachable, -int32(syscall.ETIMEDOUT))
	inject(rdmacm.EventDisconnected, 0)
	inject(rdmacm.EventTimewaitExit, 0)
	err := ended(t, c)
	mustBe(t, "client's end", err, syscall.ETIMEDOUT, "the path to the peer broke")
	if errors.Is(err, rdmacm.ErrDisconnected) {
		t.Errorf("%v looks like an orderly end", err)
	}
	mustBe(t, "server's end", ended(t, s), rdmacm.ErrDisconnected)
	talk(t, s2, c2)
	if err := errors.Join(c.Close(), s.Close()); err != nil {
		t.Error(err)
	}
	mustBe(t, "the reason after close", c.Err(), err)
}

// RW-16: completions of sends and receives have no order among each other. The fake kernel
// delays those of sends, or brings them first.
func TestRW16CompletionOrder(t *testing.T) {
	for _, opts := range []fakekernel.Options{
		{AckFirst: true}, {AckDelay: 2 * time.Millisecond}, {Deferred: true}, {Deferred: true, AckDelay: time.Millisecond},
	} {
		k := newKernel(t, opts)
		l := mustListen(t, k, server, nil)
		s, c := connect(t, k, l, rdmacm.Options{}, rdmacm.Options{})
		ctx := testContext(t)
		echoed := make(chan error, 1)
		const rounds = 10 // each end has that many receives posted, and more
		go func() {
			for range rounds {
				text, err := s.hear(ctx)
				if err == nil {
					err = s.say(ctx, text)
				}
				if err != nil {
					echoed <- err
					return
				}
			}
			echoed <- nil
		}()
		for i := range rounds {
			want := fmt.Sprint("ping ", i)
			if err := c.say(ctx, want); err != nil {
				t.Fatal(err)
			}
			if got, err := c.hear(ctx); err != nil || got != want {
				t.Fatalf("%+v: got %q and error %v, want %q", opts, got, err, want)
			}
		}
		if err := <-echoed; err != nil {
			t.Error(err)
		}
	}
}
