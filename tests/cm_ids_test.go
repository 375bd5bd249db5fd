//go:build linux

package tests

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/uverbs"
)

// TestID: what an ID can do besides connecting, each once, and its effect.
func TestID(t *testing.T) {
	sameObjects(t)
	for name, test := range map[string]func(*testing.T){
		"options":                 idOptions,
		"reuse an address":        idReuseAddr,
		"one family":              idAFOnly,
		"path":                    idPath,
		"own queue pair":          idOwnQueuePair,
		"ECE":                     idECE,
		"addresses of InfiniBand": idInfiniBandAddresses,
		"epoll":                   idEpoll,
		"new commands":            idNewCommands,
		"notify":                  idNotify,
		"datagrams":               idDatagrams,
		"source":                  idSource,
		"names":                   idNames,
		"all addresses":           idAllAddresses,
	} {
		t.Run(name, test)
	}
}

// desk is an event channel whose events the test receives by itself.
type desk struct {
	t  testing.TB
	ch *rdmacm.EventChannel
}

func newDesk(t testing.TB) *desk {
	t.Helper()
	ch, err := rdmacm.NewEventChannel()
	own(t, ch, err)
	return &desk{t, ch}
}

func (d *desk) id(ps rdmacm.PortSpace) *rdmacm.ID {
	d.t.Helper()
	id, err := d.ch.NewID(ps)
	own(d.t, id, err)
	return id
}

// expect waits for an event, which has to be of that type.
func (d *desk) expect(typ rdmacm.EventType) *rdmacm.Event {
	d.t.Helper()
	ev, err := d.ch.NextEvent(limit(d.t, 20*time.Second))
	testutil.Must(d.t, err)
	if ev.Type != typ {
		d.t.Fatalf("event %q with status %d (%v), want %q", ev.Type, ev.Status, ev.Err, typ)
	}
	return ev
}

// quiet expects no event for a moment.
func (d *desk) quiet(moment time.Duration) {
	d.t.Helper()
	if ev, err := d.ch.NextEvent(limit(d.t, moment)); !errors.Is(err, context.DeadlineExceeded) {
		d.t.Errorf("got event %v, %v; want none", ev, err)
	}
}

func (d *desk) listener(ps rdmacm.PortSpace, addr string, set ...func(*rdmacm.ID) error) *rdmacm.ID {
	d.t.Helper()
	id := d.id(ps)
	for _, f := range set {
		testutil.Must(d.t, f(id))
	}
	testutil.Must(d.t, id.Bind(netip.MustParseAddrPort(addr)))
	testutil.Must(d.t, id.Listen(8))
	return id
}

func (d *desk) resolve(id *rdmacm.ID, dst netip.AddrPort) {
	d.t.Helper()
	testutil.Must(d.t, id.ResolveAddr(netip.AddrPort{}, dst, 2*time.Second))
	d.expect(rdmacm.EventAddrResolved)
}

func (d *desk) route(id *rdmacm.ID, dst netip.AddrPort) {
	d.t.Helper()
	d.resolve(id, dst)
	testutil.Must(d.t, id.ResolveRoute(2*time.Second))
	d.expect(rdmacm.EventRouteResolved)
}

// kit is what a queue pair needs: memory for a message to receive (first half) and one to
// send.
type kit struct {
	t  testing.TB
	pd *uverbs.PD
	ch *uverbs.CompChannel
	cq *uverbs.CQ
	mr *uverbs.MR
	qp *uverbs.QP
}

const kitHalf = 256

func newKit(t testing.TB, id *rdmacm.ID) *kit {
	t.Helper()
	c, err := id.Context()
	testutil.Must(t, err)
	k := &kit{t: t}
	k.pd, err = c.AllocPD()
	own(t, k.pd, err)
	k.ch, err = c.NewCompChannel()
	own(t, k.ch, err)
	k.cq, err = c.CreateCQ(8, k.ch)
	own(t, k.cq, err)
	k.mr, err = k.pd.AllocMR(2*kitHalf, uverbs.AccessLocalWrite)
	own(t, k.mr, err)
	return k
}

func (k *kit) attr() *uverbs.QPInitAttr {
	return &uverbs.QPInitAttr{
		SendCQ: k.cq, RecvCQ: k.cq, Cap: uverbs.QPCap{MaxSendWR: 2, MaxRecvWR: 2, MaxSendSGE: 1, MaxRecvSGE: 1},
	}
}

// close closes what is closed at the end of the test otherwise.
func (k *kit) close() {
	k.t.Helper()
	testutil.Must(k.t, errors.Join(k.qp.Close(), k.mr.Close(), k.cq.Close(), k.ch.Close(), k.pd.Close()))
}

// take takes the queue pair that the kit is for.
func (k *kit) take(qp *uverbs.QP, err error) {
	k.t.Helper()
	own(k.t, qp, err)
	k.qp = qp
}

func (k *kit) post() {
	k.t.Helper()
	_, err := k.qp.PostRecv([]uverbs.RecvWR{{ID: 1, SGL: []uverbs.SGE{k.mr.SGE(0, kitHalf)}}})
	testutil.Must(k.t, err)
}

// send sends a text to the queue pair of another kit, and compares what arrives.
func (k *kit) send(to *kit, text string) {
	k.t.Helper()
	n := copy(k.mr.Bytes()[kitHalf:], text)
	_, err := k.qp.PostSend([]uverbs.SendWR{{
		ID: 2, Opcode: uverbs.OpSend, Flags: uverbs.SendSignaled, SGL: []uverbs.SGE{k.mr.SGE(kitHalf, n)},
	}})
	testutil.Must(k.t, err)
	ctx := limit(k.t, 20*time.Second)
	for _, end := range []struct {
		k  *kit
		id uint64
	}{{k, 2}, {to, 1}} {
		wc, err := one(ctx, end.k.cq)
		testutil.Must(k.t, err)
		if wc.ID != end.id {
			k.t.Fatalf("completion %d, want %d", wc.ID, end.id)
		}
		if got := string(end.k.mr.Bytes()[:wc.ByteLen]); end.id == 1 && got != text {
			k.t.Errorf("%q arrived, %q was sent", got, text)
		}
	}
}

// couple are the two ends of a connection that is being made of ids.
type couple struct {
	t        testing.TB
	a, b     *desk
	listener *rdmacm.ID
	from, to *rdmacm.ID
	ka, kb   *kit
	request  *rdmacm.Event
	answer   *rdmacm.Event // at the active side
}

// newCouple brings a request to a listener. set has its way with the active id before it has an
// address.
func newCouple(t testing.TB, set func(*rdmacm.ID) error) *couple {
	t.Helper()
	return newCoupleAt(t, labIPv4, set)
}

func newCoupleAt(t testing.TB, host string, set func(*rdmacm.ID) error) *couple {
	t.Helper()
	c := &couple{t: t, a: newDesk(t), b: newDesk(t)}
	c.listener = c.b.listener(rdmacm.PortSpaceTCP, host+":0")
	c.from = c.a.id(rdmacm.PortSpaceTCP)
	if set != nil {
		testutil.Must(t, set(c.from))
	}
	c.a.route(c.from, c.listener.LocalAddr())
	c.connect()
	return c
}

func (c *couple) connect() {
	c.t.Helper()
	c.ka = newKit(c.t, c.from)
	c.ka.take(c.from.CreateQP(c.ka.pd, c.ka.attr()))
	testutil.Must(c.t, c.from.Connect(rdmacm.ConnParam{}))
	c.receive()
}

func (c *couple) receive() {
	c.t.Helper()
	c.request = c.b.expect(rdmacm.EventConnectRequest)
	c.to = c.request.ID
	own(c.t, c.to, nil)
}

func (c *couple) accept() {
	c.t.Helper()
	c.kb = newKit(c.t, c.to)
	c.kb.take(c.to.CreateQP(c.kb.pd, c.kb.attr()))
	c.kb.post()
	testutil.Must(c.t, c.to.Accept(rdmacm.ConnParam{}))
	c.answer = c.a.expect(rdmacm.EventEstablished)
	c.b.expect(rdmacm.EventEstablished)
}

func iwarp(t testing.TB) bool { t.Helper(); return testutil.Device(t).Protocol() == "iw" }

// attr is what the connection manager says about a queue pair.
func attr(t testing.TB, id *rdmacm.ID, to uverbs.QPState) uverbs.QPAttr {
	t.Helper()
	a, _, err := id.QPAttr(to)
	testutil.Must(t, err)
	return a
}

// idOptions: what is set on an id shows on both ends of its connection. On iWARP there is
// nowhere to see it, but a connection comes about all the same.
func idOptions(t *testing.T) {
	testutil.NoLeaks(t)
	c := newCouple(t, func(id *rdmacm.ID) error { return errors.Join(id.SetTOS(0x28), id.SetAckTimeout(9)) })
	testutil.Must(t, c.to.SetAckTimeout(11))
	c.accept()
	c.ka.send(c.kb, "with options")
	want := []uint8{0x28, 0x28, 9, 11}
	if iwarp(t) {
		want = []uint8{0, 0, 0, 0}
	}
	got := []uint8{
		attr(t, c.from, uverbs.StateRTR).AH.TrafficClass, attr(t, c.to, uverbs.StateRTR).AH.TrafficClass,
		attr(t, c.from, uverbs.StateRTS).Timeout, attr(t, c.to, uverbs.StateRTS).Timeout,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("traffic classes and timeouts of both ends (-want +got):\n%s", diff)
	}
}

// idReuseAddr: two ids that both allow it are bound to one port; one that does not is not.
func idReuseAddr(t *testing.T) {
	testutil.NoLeaks(t)
	d := newDesk(t)
	share := func() *rdmacm.ID {
		id := d.id(rdmacm.PortSpaceTCP)
		testutil.Must(t, id.SetReuseAddr(true))
		return id
	}
	first, second, third := share(), share(), d.id(rdmacm.PortSpaceTCP)
	testutil.Must(t, first.Bind(netip.MustParseAddrPort(labIPv4+":0")))
	testutil.Must(t, second.Bind(first.LocalAddr()))
	if first.LocalAddr() != second.LocalAddr() || first.LocalAddr().Port() == 0 {
		t.Errorf("bound to %v and %v, want the same", first.LocalAddr(), second.LocalAddr())
	}
	if err := third.Bind(first.LocalAddr()); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("bind without the option: got %v, want EADDRINUSE", err)
	}
}

// idAFOnly: a listener for each family on one port, and each gets what is its own.
func idAFOnly(t *testing.T) {
	testutil.NoLeaks(t)
	d := newDesk(t)
	only := func(id *rdmacm.ID) error { return id.SetAFOnly(true) }
	six := d.listener(rdmacm.PortSpaceTCP, "[::]:0", only)
	four := d.id(rdmacm.PortSpaceTCP)
	testutil.Must(t, four.Bind(netip.AddrPortFrom(netip.IPv4Unspecified(), six.LocalAddr().Port())))
	err := four.Listen(8)
	if oldSiw() {
		if !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("listen for the second family: got %v, want EADDRINUSE", err)
		}
		return
	}
	testutil.Must(t, err)
	for host, want := range map[string]*rdmacm.ID{labIPv4: four, labIPv6: six} {
		client := newDesk(t)
		id := client.id(rdmacm.PortSpaceTCP)
		client.route(id, labAddr(host, int(six.LocalAddr().Port())))
		k := newKit(t, id)
		k.take(id.CreateQP(k.pd, k.attr()))
		testutil.Must(t, id.Connect(rdmacm.ConnParam{}))
		ev := d.expect(rdmacm.EventConnectRequest)
		own(t, ev.ID, nil)
		if ev.Listener != want {
			t.Errorf("a client of %s came to the listener on %v", host, ev.Listener.LocalAddr())
		}
		testutil.Must(t, ev.ID.Reject(nil))
		client.expect(rdmacm.EventRejected)
	}
}

// oldSiw: siw of 5.10 cannot listen for both families on one port.
func oldSiw() bool { return len(wildcardHosts()) == 1 }

// idPath: the path and the GIDs of a route, and a connection by a path that the program
// gives.
func idPath(t *testing.T) {
	testutil.NoLeaks(t)
	c := &couple{t: t, a: newDesk(t), b: newDesk(t)}
	c.listener = c.b.listener(rdmacm.PortSpaceTCP, labIPv4+":0")
	probe := c.a.id(rdmacm.PortSpaceTCP)
	c.a.route(probe, c.listener.LocalAddr())
	paths, err := probe.Path()
	testutil.Must(t, err)
	local, remote, err := probe.GIDs()
	testutil.Must(t, err)
	if iwarp(t) {
		if len(paths) != 0 {
			t.Errorf("paths %+v, want none on iWARP", paths)
		}
		paths = []rdmacm.PathRecord{{Flags: rdmacm.PathGMP | rdmacm.PathPrimary | rdmacm.PathBidirectional}}
	} else {
		gid := uverbs.GID(netip.MustParseAddr(labIPv4).As16())
		if len(paths) != 1 || paths[0].SGID != gid || paths[0].DGID != gid || local != gid || remote != gid {
			t.Fatalf("paths %+v between %v and %v, want one, between %v", paths, local, remote, gid)
		}
		paths[0].TrafficClass = 0x44
	}
	c.from = c.a.id(rdmacm.PortSpaceTCP)
	c.a.resolve(c.from, c.listener.LocalAddr())
	testutil.Must(t, c.from.SetIBPath(paths))
	c.a.expect(rdmacm.EventRouteResolved)
	c.connect()
	c.accept()
	c.ka.send(c.kb, "by a path of the program's")
	if got := attr(t, c.from, uverbs.StateRTR).AH.TrafficClass; !iwarp(t) && got != 0x44 {
		t.Errorf("the connection has traffic class %#x, want that of the path", got)
	}
}

// idOwnQueuePair: queue pairs that the program makes and moves itself are connected and
// carry a message.
func idOwnQueuePair(t *testing.T) {
	testutil.NoLeaks(t)
	c := &couple{t: t, a: newDesk(t), b: newDesk(t)}
	c.listener = c.b.listener(rdmacm.PortSpaceTCP, labIPv4+":0")
	c.from = c.a.id(rdmacm.PortSpaceTCP)
	c.a.route(c.from, c.listener.LocalAddr())
	c.ka = newKit(t, c.from)
	c.ka.take(c.ka.pd.CreateQP(c.ka.attr()))
	c.ka.move(c.from, uverbs.StateInit)
	testutil.Must(t, c.from.Connect(rdmacm.ConnParam{QPNum: c.ka.qp.Num()}))
	c.receive()
	c.kb = newKit(t, c.to)
	c.kb.take(c.kb.pd.CreateQP(c.kb.attr()))
	c.kb.move(c.to, uverbs.StateInit)
	c.kb.post()
	if iwarp(t) { // whose kernel brings queue pairs to RTS itself: the library is told
		testutil.Must(t, c.to.Accept(rdmacm.ConnParam{QPNum: c.kb.qp.Num()}))
		c.a.expect(rdmacm.EventEstablished)
		c.b.expect(rdmacm.EventEstablished)
		rts := uverbs.QPAttr{State: uverbs.StateRTS}
		testutil.Must(t, errors.Join(c.ka.qp.Modify(&rts, uverbs.QPAttrState), c.kb.qp.Modify(&rts, uverbs.QPAttrState)))
	} else {
		c.kb.move(c.to, uverbs.StateRTR)
		c.kb.move(c.to, uverbs.StateRTS)
		testutil.Must(t, c.to.Accept(rdmacm.ConnParam{QPNum: c.kb.qp.Num()}))
		ev := c.a.expect(rdmacm.EventConnectResponse)
		if ev.Conn.QPNum != c.kb.qp.Num() {
			t.Errorf("the answer names queue pair %#x, want %#x", ev.Conn.QPNum, c.kb.qp.Num())
		}
		c.ka.move(c.from, uverbs.StateRTR)
		c.ka.move(c.from, uverbs.StateRTS)
		testutil.Must(t, c.from.Establish())
		c.b.expect(rdmacm.EventEstablished)
	}
	c.ka.send(c.kb, "between queue pairs of the program's")
	testutil.Must(t, c.from.Disconnect())
	c.b.expect(rdmacm.EventDisconnected)
}

// move moves a queue pair of the program's as the connection manager says.
func (k *kit) move(id *rdmacm.ID, to uverbs.QPState) {
	k.t.Helper()
	a, mask, err := id.QPAttr(to)
	testutil.Must(k.t, err)
	testutil.Must(k.t, k.qp.Modify(&a, mask))
}

// idECE: options of the vendor's travel both ways, and can be the reason to refuse. iWARP
// has no place for them.
func idECE(t *testing.T) {
	testutil.NoLeaks(t)
	asked, agreed := rdmacm.ECE{VendorID: 0x15b3, Options: 0x1234}, rdmacm.ECE{VendorID: 0x15b3, Options: 0x30}
	want := []rdmacm.ECE{asked, asked, agreed, agreed}
	reason := int32(rdmacm.RejectECE)
	if iwarp(t) {
		want, reason = make([]rdmacm.ECE, 4), -int32(syscall.ECONNRESET)
	}
	begin := func() *couple { return newCouple(t, func(id *rdmacm.ID) error { return id.SetLocalECE(asked) }) }
	c := begin()
	testutil.Must(t, c.to.SetLocalECE(agreed))
	c.accept()
	got := []rdmacm.ECE{c.request.ECE, c.to.RemoteECE(), c.answer.ECE, c.from.RemoteECE()}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("options at the passive and at the active side (-want +got):\n%s", diff)
	}
	c = begin()
	testutil.Must(t, c.to.RejectECE([]byte("not these")))
	var rejected *rdmacm.RejectedError
	if ev := c.a.expect(rdmacm.EventRejected); !errors.As(ev.Err, &rejected) || rejected.Reason != reason {
		t.Errorf("got %v, want a rejection for reason %d", ev.Err, reason)
	} else {
		padded(t, "rejection", rejected.PrivateData, []byte("not these"))
	}
}

// idInfiniBandAddresses: on Ethernet the kernel takes addresses of InfiniBand as far as to
// the device, but has no route for them.
func idInfiniBandAddresses(t *testing.T) {
	testutil.NoLeaks(t)
	d := newDesk(t)
	service := rdmacm.AddrIB{SID: rdmacm.ServiceID(rdmacm.PortSpaceIB, 7160), SIDMask: ^uint64(0)}
	listener := d.id(rdmacm.PortSpaceIB)
	testutil.Must(t, listener.BindIB(service))
	testutil.Must(t, listener.Listen(1))
	if got := listener.LocalIB(); got.SID != service.SID || got.GID != (uverbs.GID{}) {
		t.Errorf("bound to %v, want %v", &got, &service)
	}
	if err := d.id(rdmacm.PortSpaceIB).BindIB(service); !errors.Is(err, syscall.EADDRNOTAVAIL) {
		t.Errorf("bind again: got %v, want EADDRNOTAVAIL, which is the kernel's word for it", err)
	}
	to := service
	to.GID, to.PKey = uverbs.GID(testutil.Address(t, testutil.Device(t)).As16()), 0xffff
	id := d.id(rdmacm.PortSpaceIB)
	err := id.ResolveIB(nil, to, time.Second)
	if iwarp(t) {
		if !errors.Is(err, syscall.ENODEV) {
			t.Errorf("resolve: got %v, want ENODEV", err)
		}
		return
	}
	testutil.Must(t, err)
	d.expect(rdmacm.EventAddrResolved)
	dev, err := id.Device()
	testutil.Must(t, err)
	if local, remote, err := id.GIDs(); err != nil || local != to.GID || remote != to.GID || dev.Name() != testutil.Device(t).Name() {
		t.Errorf("resolved from %v to %v on %s, %v; want %v twice", local, remote, dev.Name(), err, to.GID)
	}
	if err := id.ResolveRoute(time.Second); !errors.Is(err, syscall.ENODEV) {
		t.Errorf("route: got %v, want ENODEV", err)
	}
}

// idEpoll: an event loop of the program's, over descriptors, makes a connection; waiting
// with a context keeps working beside it.
func idEpoll(t *testing.T) {
	testutil.NoLeaks(t)
	addr := echoServer(t, labIPv4+":0", kitHalf)
	d := newDesk(t)
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	testutil.Must(t, err)
	defer unix.Close(epoll)
	rc, err := d.ch.SyscallConn()
	testutil.Must(t, err)
	testutil.Must(t, rc.Control(func(fd uintptr) {
		err = unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, int(fd), &unix.EpollEvent{Events: unix.EPOLLIN})
	}))
	testutil.Must(t, err)
	turns := 0
	wait := func(want rdmacm.EventType) {
		t.Helper()
		for ctx := limit(t, 20*time.Second); ctx.Err() == nil; {
			ev, err := d.ch.TryEvent()
			testutil.Must(t, err)
			if ev != nil && ev.Type != want {
				t.Fatalf("event %q (%v), want %q", ev.Type, ev.Err, want)
			}
			if ev != nil {
				return
			}
			if _, err := unix.EpollWait(epoll, make([]unix.EpollEvent, 1), 20_000); err != nil && !errors.Is(err, unix.EINTR) {
				t.Fatal(err)
			}
			turns++
		}
		t.Fatalf("no event %q", want)
	}
	id := d.id(rdmacm.PortSpaceTCP)
	testutil.Must(t, id.ResolveAddr(netip.AddrPort{}, addr, 2*time.Second))
	wait(rdmacm.EventAddrResolved)
	d.quiet(10 * time.Millisecond)
	testutil.Must(t, id.ResolveRoute(2*time.Second))
	wait(rdmacm.EventRouteResolved)
	k := newKit(t, id)
	k.take(id.CreateQP(k.pd, k.attr()))
	testutil.Must(t, id.Connect(rdmacm.ConnParam{}))
	wait(rdmacm.EventEstablished)
	testutil.Must(t, id.Disconnect())
	wait(rdmacm.EventDisconnected)
	if turns == 0 {
		t.Error("the loop never had to wait")
	}
}

// idNewCommands: what 7.2 has works there, and on older kernels says what it takes.
func idNewCommands(t *testing.T) {
	testutil.NoLeaks(t)
	d := newDesk(t)
	id := d.id(rdmacm.PortSpaceTCP)
	testutil.Must(t, id.Bind(netip.MustParseAddrPort(labIPv4+":0")))
	errWrite := id.WriteEvent(rdmacm.EventUser, 5, 0x1122334455667788)
	errResolve := id.ResolveService(rdmacm.Service{Name: "here"})
	says := "7.2"
	if testutil.RunningKernel().AtLeast(testutil.MustKernel("7.0")) {
		testutil.Must(t, errWrite)
		ev := d.expect(rdmacm.EventUser)
		if ev.ID != id || ev.Status != 5 || ev.Arg != 0x1122334455667788 || ev.Err != nil {
			t.Errorf("the event came back as %+v", ev)
		}
		errWrite, says = errResolve, "InfiniBand" // no service without a subnet administration
	}
	for _, err := range []error{errWrite, errResolve} {
		if !errors.Is(err, rdmacm.ErrNotSupported) || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want ErrNotSupported, and %s named", err, says)
		}
	}
}

// idNotify: that the first message came is as good as the confirmation. On iWARP the call
// does nothing.
func idNotify(t *testing.T) {
	testutil.NoLeaks(t)
	if iwarp(t) {
		c := newCouple(t, nil)
		c.accept()
		testutil.Must(t, c.to.NotifyEstablished())
		c.b.quiet(50 * time.Millisecond)
		return
	}
	c := &couple{t: t, a: newDesk(t), b: newDesk(t)}
	c.listener = c.b.listener(rdmacm.PortSpaceTCP, labIPv4+":0")
	c.from = c.a.id(rdmacm.PortSpaceTCP)
	c.a.route(c.from, c.listener.LocalAddr())
	testutil.Must(t, c.from.Connect(rdmacm.ConnParam{QPNum: 0x800001})) // nobody sends by it
	c.receive()
	c.kb = newKit(t, c.to)
	c.kb.take(c.to.CreateQP(c.kb.pd, c.kb.attr()))
	testutil.Must(t, c.to.Accept(rdmacm.ConnParam{}))
	c.a.expect(rdmacm.EventConnectResponse)
	c.b.quiet(50 * time.Millisecond) // the client does not confirm
	testutil.Must(t, c.to.Notify(uverbs.EventCommEstablished))
	c.b.expect(rdmacm.EventEstablished)
	if err := c.to.Notify(uverbs.EventPathMigrated); !errors.Is(err, rdmacm.ErrInvalid) {
		t.Errorf("notify of a path: got %v, want ErrInvalid", err)
	}
}

// idDatagrams: a service and its client, a group and one who sends to it.
func idDatagrams(t *testing.T) {
	testutil.NoLeaks(t)
	ctx := limit(t, time.Minute)
	const group = "239.1.7.1"
	source := netip.AddrPortFrom(netip.MustParseAddr(labIPv4), 0)
	var in, out, member, sender mailbox
	service, err := rdmacm.ListenDatagram(ctx, labIPv4+":0", &rdmacm.Options{
		Prepare: in.prepare, ConnParam: rdmacm.ConnParam{PrivateData: []byte("welcome")},
	})
	if iwarp(t) {
		_, errResolve := rdmacm.ResolveDatagram(ctx, labIPv4+":7180", nil)
		_, errJoin := rdmacm.JoinMulticast(ctx, group, &rdmacm.Options{Source: source})
		for _, err := range []error{err, errResolve, errJoin} {
			if !errors.Is(err, rdmacm.ErrNotSupported) {
				t.Errorf("got %v, want ErrNotSupported", err)
			}
		}
		return
	}
	own(t, service, err)
	client, err := rdmacm.ResolveDatagram(ctx, service.Addr().String(), &rdmacm.Options{Prepare: out.prepare})
	own(t, client, err)
	padded(t, "answer", client.PrivateData(), []byte("welcome"))
	out.send(t, client.Dest(), "question")
	wc := in.expect(t, "question")
	back, err := service.PD().CreateAHFromWC(wc, in.mr.Bytes()[:uverbs.GRHSize], 1)
	testutil.Must(t, err)
	in.send(t, back.Dest(wc.SrcQP, rdmacm.DefaultQKey), "answer")
	testutil.Must(t, back.Close())
	out.expect(t, "answer")

	joined, err := rdmacm.JoinMulticast(ctx, group, &rdmacm.Options{Source: source, Prepare: member.prepare})
	own(t, joined, err)
	talker, err := rdmacm.JoinMulticast(ctx, group, &rdmacm.Options{Source: source, SendOnly: true, Prepare: sender.prepare})
	own(t, talker, err)
	sender.send(t, talker.Dest(), "to all")
	member.expect(t, "to all")
}

// mailbox is memory for a datagram to receive, behind its header, and one to send.
type mailbox struct {
	conn *rdmacm.Conn
	mr   *uverbs.MR
}

const mailboxHalf = uverbs.GRHSize + 64

func (m *mailbox) prepare(c *rdmacm.Conn) (err error) {
	m.conn = c
	if m.mr, err = c.AllocMR(2*mailboxHalf, uverbs.AccessLocalWrite); err != nil {
		return err
	}
	_, err = c.QP().PostRecv([]uverbs.RecvWR{{SGL: []uverbs.SGE{m.mr.SGE(0, mailboxHalf)}}})
	return err
}

func (m *mailbox) send(t *testing.T, to uverbs.Dest, text string) {
	t.Helper()
	n := copy(m.mr.Bytes()[mailboxHalf:], text)
	_, err := m.conn.QP().PostSend([]uverbs.SendWR{{
		Opcode: uverbs.OpSend, Flags: uverbs.SendSignaled, SGL: []uverbs.SGE{m.mr.SGE(mailboxHalf, n)}, Dest: to,
	}})
	testutil.Must(t, err)
	_, err = one(limit(t, 20*time.Second), m.conn.SendCQ())
	testutil.Must(t, err)
}

func (m *mailbox) expect(t *testing.T, text string) *uverbs.WC {
	t.Helper()
	wc, err := one(limit(t, 20*time.Second), m.conn.RecvCQ())
	testutil.Must(t, err)
	if got := m.mr.Bytes()[uverbs.GRHSize:max(wc.ByteLen, uverbs.GRHSize)]; !bytes.Equal(got, []byte(text)) {
		t.Errorf("%q arrived, %q was sent", got, text)
	}
	return &wc
}

// meet has a client of the listener connect, and returns what the server sees of it.
func meet(t *testing.T, l *rdmacm.Listener, address string, o *rdmacm.Options) (client, server *rdmacm.Conn) {
	t.Helper()
	ctx := limit(t, 30*time.Second)
	accepted := make(chan error, 1)
	go func() {
		var err error
		server, err = l.Accept(ctx)
		accepted <- err
	}()
	client, err := rdmacm.Dial(ctx, address, o)
	own(t, client, err)
	own(t, server, <-accepted)
	return client, server
}

// idSource: a client comes from the address and the port that it asks for.
func idSource(t *testing.T) {
	testutil.NoLeaks(t)
	l, err := rdmacm.Listen(limit(t, time.Minute), labIPv4+":0", nil)
	own(t, l, err)
	source := netip.MustParseAddrPort(labIPv4 + ":17990")
	client, server := meet(t, l, l.Addr().String(), &rdmacm.Options{Source: source})
	got := []netip.AddrPort{client.LocalAddr(), client.RemoteAddr(), server.LocalAddr(), server.RemoteAddr()}
	want := []netip.AddrPort{source, l.Addr(), l.Addr(), source}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("local and remote address of client and server are %v, want %v", got, want)
	}
	_, err = rdmacm.Dial(limit(t, 20*time.Second), l.Addr().String(), &rdmacm.Options{Source: netip.MustParseAddrPort("192.0.2.1:0")})
	if !errors.Is(err, syscall.EADDRNOTAVAIL) {
		t.Errorf("dial from an address that nobody has: got %v, want EADDRNOTAVAIL", err)
	}
}

// idNames: a server is reached by a name, and by an IPv4 address in the form of IPv6.
func idNames(t *testing.T) {
	testutil.Lab(t, "ID")
	testutil.NoLeaks(t)
	const name = "peer.example"
	hosts(t, labIPv4+" "+name+"\n", name)
	l, err := rdmacm.Listen(limit(t, time.Minute), name+":0", nil)
	own(t, l, err)
	for _, host := range []string{name, "::ffff:" + labIPv4} {
		client, _ := meet(t, l, net.JoinHostPort(host, fmt.Sprint(l.Addr().Port())), nil)
		if want := labAddr(labIPv4, int(l.Addr().Port())); client.RemoteAddr() != want {
			t.Errorf("%s leads to %v, want %v", host, client.RemoteAddr(), want)
		}
	}
}

// hosts adds a name to those of this machine. The resolver looks at the file every five
// seconds.
func hosts(t *testing.T, line, name string) {
	t.Helper()
	const file = "/etc/hosts"
	old, err := os.ReadFile(file)
	testutil.Must(t, err)
	t.Cleanup(func() { testutil.Must(t, os.WriteFile(file, old, 0o644)) })
	testutil.Must(t, os.WriteFile(file, append(bytes.Clone(old), line...), 0o644))
	for ctx := limit(t, 10*time.Second); ; time.Sleep(100 * time.Millisecond) {
		_, err := net.DefaultResolver.LookupNetIP(ctx, "ip", name)
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}

// idAllAddresses: a listener on all addresses is reached by both families, also where
// [::] stands for IPv6 only unless a program says otherwise.
func idAllAddresses(t *testing.T) {
	testutil.Lab(t, "ID")
	testutil.NoLeaks(t)
	const file = "/proc/sys/net/ipv6/bindv6only"
	for _, only := range []string{"0", "1"} {
		testutil.Must(t, os.WriteFile(file, []byte(only), 0o644))
		t.Cleanup(func() { testutil.Must(t, os.WriteFile(file, []byte("0"), 0o644)) })
		l, err := rdmacm.Listen(limit(t, time.Minute), ":0", nil)
		if oldSiw() && only == "0" {
			if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "5.10") {
				t.Errorf("got %v, want EADDRINUSE, and that siw of 5.10 cannot", err)
			}
			continue
		}
		own(t, l, err)
		for _, host := range []string{labIPv4, labIPv6} {
			client, server := meet(t, l, labAddr(host, int(l.Addr().Port())).String(), nil)
			if client.RemoteAddr() != server.LocalAddr() {
				t.Errorf("bindv6only %s: the client is connected to %v, the server is %v", only, client.RemoteAddr(), server.LocalAddr())
			}
		}
	}
}
