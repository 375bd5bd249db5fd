package rdmacm_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/fakekernel"
	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/uverbs"
)

// tell sends a datagram and waits until it is sent.
func (e *end) tell(ctx context.Context, to uverbs.Dest, text string) error {
	n := copy(e.send.Bytes(), text)
	wr := []uverbs.SendWR{{
		Opcode: uverbs.OpSend, Flags: uverbs.SendSignaled, SGL: []uverbs.SGE{e.send.SGE(0, n)}, Dest: to,
	}}
	if _, err := e.QP().PostSend(wr); err != nil {
		return err
	}
	var wc [1]uverbs.WC
	if _, err := e.SendCQ().Wait(ctx, wc[:]); err != nil {
		return err
	}
	return wc[0].Err()
}

// told waits for a datagram, and gives the way back to its sender.
func (e *end) told(ctx context.Context) (string, uverbs.AHAttr, uint32, error) {
	var wc [1]uverbs.WC
	if _, err := e.RecvCQ().Wait(ctx, wc[:]); err != nil {
		return "", uverbs.AHAttr{}, 0, err
	}
	if err := wc[0].Err(); err != nil {
		return "", uverbs.AHAttr{}, 0, err
	}
	b := e.recv.Bytes()[int(wc[0].ID)*slotSize:][:wc[0].ByteLen]
	back, err := e.PD().Context().AHAttrFromWC(&wc[0], b, 1)
	return string(b[uverbs.GRHSize:]), back, wc[0].SrcQP, err
}

func mustListenDatagram(t *testing.T, k *fakekernel.Kernel, address string, o rdmacm.Options) (*rdmacm.DatagramListener, *end) {
	t.Helper()
	e := new(end)
	o.Prepare = e.prepare
	l, err := rdmacm.ListenDatagram(testContext(t), address, options(k, &o))
	if err != nil {
		t.Fatal(err)
	}
	e.Conn = l.Conn
	closeLater(t, "datagram listener", l.Close)
	return l, e
}

func mustResolveDatagram(t *testing.T, k *fakekernel.Kernel, address string, o rdmacm.Options) (*rdmacm.Datagram, *end) {
	t.Helper()
	e := new(end)
	o.Prepare = e.prepare
	d, err := rdmacm.ResolveDatagram(testContext(t), address, options(k, &o))
	if err != nil {
		t.Fatal(err)
	}
	e.Conn = d.Conn
	closeLater(t, "datagram end", d.Close)
	return d, e
}

// Two clients ask one queue pair, and get answers over the way that their questions came.
func TestDatagrams(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	ctx := testContext(t)
	l, server := mustListenDatagram(t, k, "10.9.0.1:0", rdmacm.Options{ConnParam: rdmacm.ConnParam{PrivateData: []byte("service 1")}})
	if a := l.Addr(); a.Addr() != netip.MustParseAddr("10.9.0.1") || a.Port() == 0 {
		t.Errorf("got address %v, want one with a port", a)
	}
	for _, question := range []string{"one", "two"} {
		d, client := mustResolveDatagram(t, k, l.Addr().String(), rdmacm.Options{ConnParam: rdmacm.ConnParam{PrivateData: []byte("hi")}})
		peer := d.Peer()
		if peer.QPNum != l.QP().Num() || peer.QKey != rdmacm.DefaultQKey || !peer.AH.IsGlobal {
			t.Errorf("got peer %+v, want queue pair %d", peer, l.QP().Num())
		}
		if got := string(d.PrivateData()); len(got) != 136 || !strings.HasPrefix(got, "service 1\x00") {
			t.Errorf("got private data %q, want service 1, padded to 136 bytes", got)
		}
		if s := d.QP().State(); s != uverbs.StateRTS {
			t.Errorf("the queue pair is in %v, want RTS", s)
		}
		if err := client.tell(ctx, d.Dest(), question); err != nil {
			t.Fatal(err)
		}
		got, back, qpn, err := server.told(ctx)
		if err != nil || got != question || qpn != d.QP().Num() {
			t.Fatalf("got %q of queue pair %d and error %v, want %q of %d", got, qpn, err, question, d.QP().Num())
		}
		ah, err := server.PD().CreateAH(&back)
		if err != nil {
			t.Fatal(err)
		}
		if err := server.tell(ctx, ah.Dest(qpn, rdmacm.DefaultQKey), "answer "+question); err != nil {
			t.Fatal(err)
		}
		if got, _, _, err := client.told(ctx); err != nil || got != "answer "+question {
			t.Fatalf("got %q and error %v, want answer %s", got, err, question)
		}
		if err := ah.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestListenDatagramAddresses(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	l, _ := mustListenDatagram(t, k, server, rdmacm.Options{})
	_, err := rdmacm.ListenDatagram(testContext(t), server, options(k, nil))
	mustBe(t, "second listener", err, syscall.EADDRINUSE, "another id listens on that port")
	_, err = rdmacm.ListenDatagram(testContext(t), "0.0.0.0:7174", options(k, nil))
	mustBe(t, "all addresses", err, rdmacm.ErrInvalid, "the address of an interface")
	_, err = rdmacm.ListenDatagram(testContext(t), ":7174", options(k, nil))
	mustBe(t, "no address", err, rdmacm.ErrInvalid)
	// The ports of TCP are others.
	mustListen(t, k, server, nil)
	if l.Err() != nil {
		t.Errorf("the listener has ended: %v", l.Err())
	}
}

func TestDatagramFails(t *testing.T) {
	k := newKernel(t, fakekernel.Options{Silent: []netip.Addr{netip.MustParseAddr("10.9.0.77")}})
	ctx := testContext(t)
	_, err := rdmacm.ResolveDatagram(ctx, server, options(k, nil))
	mustBe(t, "nobody listens", err, syscall.ECONNREFUSED, "connect 10.9.0.1:7174: connection rejected: nobody listens on that port")
	var r *rdmacm.RejectedError
	if !errors.As(err, &r) || !r.Datagram || r.Reason != rdmacm.RejectDatagramNoService {
		t.Errorf("got %+v, want that nobody listens", r)
	}
	_, err = rdmacm.ResolveDatagram(ctx, "10.9.0.77:7174", options(k, nil))
	mustBe(t, "silent host", err, syscall.ETIMEDOUT, "the peer does not answer")
	broken := errors.New("prepare")
	_, err = rdmacm.ResolveDatagram(ctx, server, options(k, &rdmacm.Options{Prepare: func(*rdmacm.Conn) error { return broken }}))
	mustBe(t, "prepare", err, broken)
	_, err = rdmacm.ListenDatagram(ctx, server, options(k, &rdmacm.Options{Prepare: func(*rdmacm.Conn) error { return broken }}))
	mustBe(t, "prepare", err, broken)
}

// The kernel's patience with a silent peer is cut by the context.
func TestDatagramDeadline(t *testing.T) {
	ctx, cancel := context.WithCancelCause(testContext(t))
	cause := errors.New("no time")
	k := newKernel(t, fakekernel.Options{
		Silent: []netip.Addr{netip.MustParseAddr("10.9.0.77")}, CMTimeout: time.Hour,
		Log: func(c fakekernel.Call) {
			if c.Kind == fakekernel.CallCM && c.Cmd == abi.RDMA_USER_CM_CMD_CONNECT {
				cancel(cause)
			}
		},
	})
	_, err := rdmacm.ResolveDatagram(ctx, "10.9.0.77:7174", options(k, nil))
	mustBe(t, "cancelled", err, cause)
}

// Close wakes who waits, ends the service, and leaves nothing.
func TestDatagramClose(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	l, server1 := mustListenDatagram(t, k, server, rdmacm.Options{})
	d, _ := mustResolveDatagram(t, k, server, rdmacm.Options{})
	waiting := make(chan error)
	go func() {
		for {
			if _, _, _, err := server1.told(context.Background()); errors.Is(err, net.ErrClosed) {
				waiting <- err
				return
			}
		}
	}()
	for range 2 {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	mustBe(t, "waiting", <-waiting, net.ErrClosed)
	mustBe(t, "listener", l.Err(), net.ErrClosed)
	_, err := rdmacm.ResolveDatagram(testContext(t), server, options(k, nil))
	mustBe(t, "nobody listens any more", err, syscall.ECONNREFUSED)
	if d.Err() != nil {
		t.Errorf("the peer is told: %v", d.Err())
	}
}

func TestDatagramDeviceRemoved(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	l, _ := mustListenDatagram(t, k, server, rdmacm.Options{})
	if !k.Unplug(l.PD().Context().Device().Name()) {
		t.Fatal("no such device")
	}
	select {
	case <-l.Done():
		mustBe(t, "listener", l.Err(), rdmacm.ErrDeviceRemoved)
	case <-testContext(t).Done():
		t.Fatal("the listener lives on")
	}
}

// A queue pair of the wrong type, before and after.
func TestDatagramQueuePair(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	ch, err := rdmacm.NewEventChannel(on(k))
	if err != nil {
		t.Fatal(err)
	}
	closeLater(t, "event channel", ch.Close)
	for ps, wrong := range map[rdmacm.PortSpace]uverbs.QPType{
		rdmacm.PortSpaceUDP: uverbs.QPTypeRC, rdmacm.PortSpaceTCP: uverbs.QPTypeUD,
	} {
		id, err := ch.NewID(ps)
		if err != nil {
			t.Fatal(err)
		}
		closeLater(t, "id", id.Close)
		if err := id.Bind(netip.MustParseAddrPort("10.9.0.1:0")); err != nil {
			t.Fatal(err)
		}
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
		attr := uverbs.QPInitAttr{Type: wrong, SendCQ: cq, Cap: uverbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}
		_, err = id.CreateQP(pd, &attr)
		mustBe(t, "queue pair", err, rdmacm.ErrInvalid, wrong.String(), ps.String())
		attr.Type = 0
		qp, err := id.CreateQP(pd, &attr)
		if err != nil {
			t.Fatal(err)
		}
		want := uverbs.StateInit
		if ps == rdmacm.PortSpaceUDP {
			want = uverbs.StateRTS
			a, err := qp.Query(uverbs.QPAttrQKey)
			if err != nil || a.QKey != rdmacm.DefaultQKey {
				t.Errorf("got Q_Key %#x and error %v, want %#x", a.QKey, err, rdmacm.DefaultQKey)
			}
		}
		if qp.State() != want {
			t.Errorf("%v: the queue pair is in %v, want %v", ps, qp.State(), want)
		}
		closeLater(t, "objects", func() error { return errors.Join(qp.Close(), cq.Close(), pd.Close()) })
	}
}

func TestDatagramsOnIWARP(t *testing.T) {
	k := newKernel(t, fakekernel.Options{Devices: []fakekernel.Device{{Driver: abi.RDMA_DRIVER_SIW}, {Driver: abi.RDMA_DRIVER_SIW}}})
	_, err := rdmacm.ListenDatagram(testContext(t), server, options(k, nil))
	mustBe(t, "listen", err, rdmacm.ErrNotSupported)
	_, err = rdmacm.ResolveDatagram(testContext(t), server, options(k, nil))
	mustBe(t, "resolve", err, rdmacm.ErrNotSupported)
	_, err = rdmacm.JoinMulticast(testContext(t), "239.9.0.1", options(k, &rdmacm.Options{Source: netip.MustParseAddrPort("10.9.0.1:0")}))
	mustBe(t, "join", err, rdmacm.ErrNotSupported)
}

func mustJoin(t *testing.T, k *fakekernel.Kernel, source string, o rdmacm.Options) (*rdmacm.Group, *end) {
	t.Helper()
	e := new(end)
	o.Prepare = e.prepare
	if source != "" {
		o.Source = netip.MustParseAddrPort(source)
	}
	g, err := rdmacm.JoinMulticast(testContext(t), "239.9.0.1", options(k, &o))
	if err != nil {
		t.Fatal(err)
	}
	e.Conn = g.Conn
	closeLater(t, "group", g.Close)
	return g, e
}

// Three in a group: who joins to send only receives nothing.
func TestGroup(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	ctx := testContext(t)
	sends, sender := mustJoin(t, k, "10.9.0.1:0", rdmacm.Options{SendOnly: true})
	a, first := mustJoin(t, k, "10.9.0.2:0", rdmacm.Options{})
	_, second := mustJoin(t, k, "10.9.0.2:0", rdmacm.Options{})
	m := sends.Membership()
	if want := uverbs.MulticastGID(sends.Addr()); m.AH.DGID != want || m.QPNum != rdmacm.MulticastQPNum || m.QKey != rdmacm.DefaultQKey {
		t.Errorf("got membership %+v, want group %v", m, want)
	}
	if err := sender.tell(ctx, sends.Dest(), "to all"); err != nil {
		t.Fatal(err)
	}
	for _, e := range []*end{first, second} {
		if got, _, qpn, err := e.told(ctx); err != nil || got != "to all" || qpn != sends.QP().Num() {
			t.Errorf("got %q of queue pair %d and error %v, want to all of %d", got, qpn, err, sends.QP().Num())
		}
	}
	if err := first.tell(ctx, a.Dest(), "from the group"); err != nil {
		t.Fatal(err)
	}
	if got, _, _, err := second.told(ctx); err != nil || got != "from the group" {
		t.Errorf("got %q and error %v, want from the group", got, err)
	}
	var wc [1]uverbs.WC
	if n, err := sends.RecvCQ().Poll(wc[:]); n != 0 || err != nil {
		t.Errorf("who sends only received %d messages (%v), want none", n, err)
	}
}

// Without an address of its own a group is on the interface that the route to it leads to.
func TestGroupByRoute(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	ctx := testContext(t)
	byRoute, sender := mustJoin(t, k, "", rdmacm.Options{})
	_, unspecified := mustJoin(t, k, "0.0.0.0:0", rdmacm.Options{})
	bound, first := mustJoin(t, k, "10.9.0.1:0", rdmacm.Options{})
	if got, want := byRoute.LocalAddr().Addr(), bound.LocalAddr().Addr(); got != want {
		t.Errorf("the group is on the interface of %v, want that of %v", got, want)
	}
	if got, want := byRoute.Membership(), bound.Membership(); got != want {
		t.Errorf("got membership %+v, want %+v", got, want)
	}
	if err := sender.tell(ctx, byRoute.Dest(), "by route"); err != nil {
		t.Fatal(err)
	}
	for _, e := range []*end{first, unspecified} {
		if got, _, _, err := e.told(ctx); err != nil || got != "by route" {
			t.Errorf("got %q and error %v, want by route", got, err)
		}
	}
	_, err := rdmacm.JoinMulticast(ctx, "ff0e::7", options(k, nil))
	mustBe(t, "IPv6 on RoCE v2", err, rdmacm.ErrNotSupported, "join multicast group [ff0e::7]:0: ", "IPv6")
	none := newKernel(t, fakekernel.Options{Devices: []fakekernel.Device{}})
	_, err = rdmacm.JoinMulticast(ctx, "239.9.0.1", options(none, nil))
	mustBe(t, "no route", err, syscall.ENETUNREACH, "resolve address 239.9.0.1:0")
}

func TestGroupFails(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	ctx := testContext(t)
	at := func() *rdmacm.Options {
		return options(k, &rdmacm.Options{Source: netip.MustParseAddrPort("10.9.0.1:0")})
	}
	for _, group := range []string{"10.9.0.1", "nowhere", "239.9.0.1:80"} {
		if _, err := rdmacm.JoinMulticast(ctx, group, at()); err == nil || !strings.Contains(err.Error(), "join multicast group "+group) {
			t.Errorf("%s: got error %v", group, err)
		}
	}
	broken := errors.New("prepare")
	o := at()
	o.Prepare = func(*rdmacm.Conn) error { return broken }
	_, err := rdmacm.JoinMulticast(ctx, "239.9.0.1", o)
	mustBe(t, "prepare", err, broken)
	defer k.Fail(fakekernel.CMCommand(abi.RDMA_USER_CM_CMD_JOIN_MCAST), syscall.ENOMEM)()
	_, err = rdmacm.JoinMulticast(ctx, "239.9.0.1", at())
	mustBe(t, "join", err, syscall.ENOMEM, "join multicast group 239.9.0.1")
}

// A membership that ends by itself ends the group.
func TestGroupLost(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	g, _ := mustJoin(t, k, "10.9.0.1:0", rdmacm.Options{})
	k.RaiseCM(func(c fakekernel.CMID) bool { return c.Datagrams }, uint32(rdmacm.EventMulticastError), -int32(syscall.ENETDOWN), nil)
	select {
	case <-g.Done():
		mustBe(t, "group", g.Err(), syscall.ENETDOWN, "join multicast group")
	case <-testContext(t).Done():
		t.Fatal("the group lives on")
	}
}

// Attached when the event comes, detached when the id leaves.
func TestMulticastByID(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	ctx := testContext(t)
	sends, sender := mustJoin(t, k, "10.9.0.2:0", rdmacm.Options{SendOnly: true})
	_, e := mustListenDatagram(t, k, "10.9.0.1:0", rdmacm.Options{})
	ch, err := rdmacm.NewEventChannel(on(k))
	if err != nil {
		t.Fatal(err)
	}
	closeLater(t, "event channel", ch.Close)
	id, err := ch.NewID(rdmacm.PortSpaceUDP)
	if err != nil {
		t.Fatal(err)
	}
	closeLater(t, "id", id.Close)
	if err := id.Bind(netip.MustParseAddrPort("10.9.0.1:0")); err != nil {
		t.Fatal(err)
	}
	group := netip.MustParseAddr("239.9.0.1")
	if err := id.JoinMulticast(group, rdmacm.JoinFull, e); err != nil {
		t.Fatal(err)
	}
	// A queue pair that is not the id's attaches itself.
	ev := expect(t, ch, rdmacm.EventMulticastJoin)
	if ev.Context != e {
		t.Errorf("got context %v, want what was given", ev.Context)
	}
	if err := e.QP().AttachMulticast(ev.UD.AH.DGID, ev.UD.AH.DLID); err != nil {
		t.Fatal(err)
	}
	if err := sender.tell(ctx, sends.Dest(), "hello"); err != nil {
		t.Fatal(err)
	}
	if got, _, _, err := e.told(ctx); err != nil || got != "hello" {
		t.Errorf("got %q and error %v, want hello", got, err)
	}
	if err := id.LeaveMulticast(group); err != nil {
		t.Error(err)
	}
	mustBe(t, "IPv6 on RoCE v2", id.JoinMulticast(netip.MustParseAddr("ff0e::1"), rdmacm.JoinFull, nil), rdmacm.ErrNotSupported, "IPv6")
}

// A queue pair of the id's own is in the group from the event to LeaveMulticast.
func TestMulticastAttaches(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	ch, err := rdmacm.NewEventChannel(on(k))
	if err != nil {
		t.Fatal(err)
	}
	closeLater(t, "event channel", ch.Close)
	id, err := ch.NewID(rdmacm.PortSpaceUDP)
	if err != nil {
		t.Fatal(err)
	}
	closeLater(t, "id", id.Close)
	if err := id.Bind(netip.MustParseAddrPort("10.9.0.1:0")); err != nil {
		t.Fatal(err)
	}
	qp := mustQP(t, id)
	group := netip.MustParseAddr("239.9.0.1")
	for range 2 {
		if err := id.JoinMulticast(group, rdmacm.JoinFull, nil); err != nil {
			t.Fatal(err)
		}
		ev := expect(t, ch, rdmacm.EventMulticastJoin)
		if err := id.LeaveMulticast(group); err != nil {
			t.Fatal(err)
		}
		if err := qp.DetachMulticast(ev.UD.AH.DGID, ev.UD.AH.DLID); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("detach after leaving: got error %v, want EINVAL", err)
		}
	}
	// One that cannot be attached.
	defer k.Fail(fakekernel.Command(abi.IB_USER_VERBS_CMD_ATTACH_MCAST), syscall.ENOMEM)()
	if err := id.JoinMulticast(group, rdmacm.JoinFull, "it"); err != nil {
		t.Fatal(err)
	}
	ev := expect(t, ch, rdmacm.EventMulticastError)
	mustBe(t, "attach", ev.Err, syscall.ENOMEM, "join multicast group")
	if ev.Context != "it" {
		t.Errorf("got context %v, want what was given", ev.Context)
	}
}
