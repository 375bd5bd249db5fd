package rdmacm_test

import (
	"net/netip"
	"testing"

	"github.com/pureverbs/rdma/internal/fakekernel"
	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/uverbs"
)

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
	go l.Accept(testContext(t)) // rejects or hangs up with the test
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
