package rdmacm_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/fakekernel"
	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/uverbs"
)

// These tests bring an id into each of its states, and let each event happen there.

// allEvents are those that kernels have, and two that no kernel has.
func allEvents() (all []rdmacm.EventType) {
	for typ := rdmacm.EventAddrResolved; typ <= rdmacm.EventInternal; typ++ {
		all = append(all, typ)
	}
	return append(all, 99, math.MaxUint32)
}

// details are what an event may carry: also what does not fit its type.
var details = []struct {
	status int32
	data   []byte
}{
	{0, nil}, {-int32(syscall.ETIMEDOUT), bytes.Repeat([]byte{7}, 56)}, {28, bytes.Repeat([]byte{9}, 255)}, {math.MinInt32, nil},
}

// onBoth runs a test on a RoCE and on an iWARP device. No timer of the kernel fires, so nothing
// happens but what the test makes happen.
func onBoth(t *testing.T, f func(t *testing.T, k *fakekernel.Kernel, siw bool)) {
	for name, driver := range map[string]uint32{"rxe": abi.RDMA_DRIVER_RXE, "siw": abi.RDMA_DRIVER_SIW} {
		t.Run(name, func(t *testing.T) {
			f(t, newKernel(t, fakekernel.Options{
				Devices: []fakekernel.Device{{Driver: driver}}, CMTimeout: time.Hour, TimeWait: time.Hour,
			}), name == "siw")
		})
	}
}

// class is what a state means to events.
type class int

const (
	silent      class = iota // the kernel has no uid for its events, or the library has none any more
	idle                     // no connection yet
	sent                     // the handshake is under way
	established              // and over
	over                     // the end was reported
)

// spot is a state of an id.
type spot struct {
	name  string
	class class
	make  func(*walk) *rdmacm.ID
	step  int  // how far on the way to a connection, see walk.advance; noStep: elsewhere
	roce  bool // only there
	ready bool // the queue pair could send, or is the program's
	udp   bool
	bare  bool // without a queue pair
	group bool
}

const noStep = 99

func spots() []spot {
	tcp, udp := rdmacm.PortSpaceTCP, rdmacm.PortSpaceUDP
	to := func(ps rdmacm.PortSpace, step int) func(*walk) *rdmacm.ID {
		return func(w *walk) *rdmacm.ID { return w.client(ps, step) }
	}
	return []spot{
		{name: "new", class: idle, make: to(tcp, 0)},
		{name: "bound", class: idle, make: func(w *walk) *rdmacm.ID { return w.bound(tcp) }},
		{name: "address query", class: idle, make: (*walk).query, step: noStep},
		{name: "address resolved", class: idle, make: to(tcp, 1), step: 1},
		{name: "route resolved", class: idle, make: to(tcp, 2), step: 2},
		{name: "queue pair", class: idle, make: to(tcp, 3), step: 3},
		{name: "connect sent", class: sent, make: to(tcp, 4), step: 4},
		{name: "connect sent, no queue pair", class: sent, make: (*walk).bareClient, step: noStep, roce: true, ready: true, bare: true},
		{name: "rejected", class: over, make: (*walk).rejected, step: noStep},
		{name: "established", class: established, make: to(tcp, 5), step: noStep},
		{name: "established, passive", class: established, make: func(w *walk) *rdmacm.ID { return w.server(tcp) }, step: noStep},
		{name: "disconnect sent", class: established, make: (*walk).leaving, step: noStep},
		{name: "disconnected", class: over, make: (*walk).disconnected, step: noStep},
		{name: "listening", class: idle, make: (*walk).listening, step: noStep},
		{name: "requested", class: silent, make: func(w *walk) *rdmacm.ID { return w.requested(tcp) }, step: noStep},
		{name: "accepted", class: sent, make: (*walk).accepted, step: noStep, roce: true, ready: true},
		{name: "datagram queue pair", class: idle, make: to(udp, 3), step: 3, roce: true, udp: true},
		{name: "service request sent", class: sent, make: to(udp, 4), step: 4, roce: true, udp: true, ready: true},
		{name: "service requested", class: silent, make: func(w *walk) *rdmacm.ID { return w.requested(udp) }, step: noStep, roce: true, udp: true},
		{name: "service answered", class: established, make: func(w *walk) *rdmacm.ID { return w.server(udp) }, step: noStep, roce: true, udp: true},
		{name: "service found", class: established, make: to(udp, 5), step: noStep, roce: true, udp: true},
		{name: "joined", class: idle, make: (*walk).joined, step: noStep, roce: true, udp: true, group: true},
		{name: "closed", class: silent, make: (*walk).closed, step: noStep},
		{name: "migrated", class: established, make: (*walk).migrated, step: noStep},
		{name: "device removed", class: over, make: (*walk).removed, step: noStep},
	}
}

// outcome is what the library reports of an event.
type outcome struct {
	typ      rdmacm.EventType
	bad      bool // Err says what
	reported bool
}

func (s *spot) outcome(c class, typ rdmacm.EventType, status int32, siw bool) outcome {
	good, bad := outcome{typ, false, true}, outcome{typ, true, true}
	failure := bad
	switch c {
	case silent:
		return outcome{}
	case over:
		failure = outcome{}
	case established:
		failure.typ = rdmacm.EventDisconnected
	}
	switch typ {
	case rdmacm.EventRouteError, rdmacm.EventServiceError, rdmacm.EventDeviceRemoval:
		return bad
	case rdmacm.EventAddrError:
		if s.udp && c != idle {
			return failure
		}
		return bad
	case rdmacm.EventConnectError, rdmacm.EventUnreachable, rdmacm.EventRejected:
		return failure
	case rdmacm.EventDisconnected:
		if c == over {
			return outcome{}
		}
		if status < 0 { // nobody answered ours
			return bad
		}
	case rdmacm.EventEstablished:
		if c != sent || !s.ready && !siw {
			return outcome{}
		}
	case rdmacm.EventConnectResponse:
		switch {
		case c != sent:
			return outcome{}
		case !s.bare: // the kernel knows better
			return outcome{rdmacm.EventConnectError, true, true}
		}
	case rdmacm.EventMulticastJoin, rdmacm.EventMulticastError:
		return outcome{typ, typ == rdmacm.EventMulticastError, s.group}
	}
	return good
}

// after is the class behind what was reported.
func (c class) after(o outcome) class {
	switch o.typ {
	case rdmacm.EventConnectError, rdmacm.EventUnreachable, rdmacm.EventRejected, rdmacm.EventDisconnected, rdmacm.EventDeviceRemoval:
		if o.reported {
			return over
		}
	case rdmacm.EventAddrError:
		if o.reported && c == sent {
			return over
		}
	case rdmacm.EventEstablished:
		if o.reported {
			return established
		}
	}
	return c
}

// site is a channel with what queue pairs need.
type site struct {
	*rdmacm.EventChannel
	w      *walk
	anchor *rdmacm.ID // keeps the device open, and its events mark the end of others
	pd     *uverbs.PD
	cq     *uverbs.CQ
}

// walk is a kernel in which ids are brought into their states, one after the other.
type walk struct {
	t     *testing.T
	k     *fakekernel.Kernel
	siw   bool
	sites []*site
	kids  map[*rdmacm.ID]fakekernel.CMID
	base  fakekernel.Counts

	// Of the present id.
	served *rdmacm.ID // the server's end
	left   *site      // that it has migrated from
	undo   []func() error
}

func newWalk(t *testing.T, k *fakekernel.Kernel, siw bool) *walk {
	w := &walk{t: t, k: k, siw: siw, kids: make(map[*rdmacm.ID]fakekernel.CMID)}
	for range 3 { // of the client, of the server, and for those that migrate
		s := &site{EventChannel: mustChannel(t, k), w: w}
		w.sites = append(w.sites, s)
		s.anchor = w.bindNew(s, rdmacm.PortSpaceTCP, "10.9.0.1:0")
		closeLater(t, "anchor", s.anchor.Close)
		ctx, err := s.anchor.Context()
		w.must(err)
		s.pd, err = ctx.AllocPD()
		w.must(err)
		closeLater(t, "protection domain", s.pd.Close)
		s.cq, err = ctx.CreateCQ(4, nil)
		w.must(err)
		closeLater(t, "completion queue", s.cq.Close)
	}
	for _, ps := range []rdmacm.PortSpace{rdmacm.PortSpaceTCP, rdmacm.PortSpaceUDP} {
		if ps == rdmacm.PortSpaceTCP || !siw {
			l := w.bindNew(w.sites[1], ps, server)
			closeLater(t, "listener", l.Close)
			w.must(l.Listen(16))
		}
	}
	w.base = k.Counts()
	return w
}

func (w *walk) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// note finds out which id of the kernel is a new one.
func (w *walk) note(id *rdmacm.ID) *rdmacm.ID {
	for _, c := range w.k.CM().IDs() {
		known := false
		for _, k := range w.kids {
			known = known || k.ID == c.ID
		}
		if !known {
			w.kids[id] = c
			return id
		}
	}
	w.t.Fatal("the kernel has no new id")
	return nil
}

func (w *walk) bindNew(s *site, ps rdmacm.PortSpace, addr string) *rdmacm.ID {
	id, err := s.NewID(ps)
	w.must(err)
	w.note(id)
	if addr != "" {
		w.must(id.Bind(netip.MustParseAddrPort(addr)))
	}
	return id
}

func (w *walk) at(id *rdmacm.ID) *site {
	i := slices.IndexFunc(w.sites, func(s *site) bool { return s.EventChannel == id.Channel() })
	return w.sites[i]
}

func (w *walk) closeLater(f func() error) { w.undo = append(w.undo, f) }

func (w *walk) id(ps rdmacm.PortSpace) *rdmacm.ID {
	id := w.bindNew(w.sites[0], ps, "")
	w.closeLater(id.Close)
	return id
}

// drain returns the events that there are.
func (s *site) drain() (events []*rdmacm.Event) {
	s.w.t.Helper()
	s.w.k.CM().Inject(s.w.kids[s.anchor].ID, uint32(rdmacm.EventAddrChange), 0, nil)
	for {
		ev, err := s.NextEvent(testContext(s.w.t))
		s.w.must(err)
		if ev.ID == s.anchor {
			return events
		}
		events = append(events, ev)
	}
}

// hangUp closes the requests that nobody has taken.
func (s *site) hangUp() {
	for _, ev := range s.drain() {
		if ev.Type == rdmacm.EventConnectRequest {
			s.w.must(ev.ID.Close())
		}
	}
}

// await is the next event of an id, which has to be of that type, as others are an error.
func (w *walk) await(s *site, id *rdmacm.ID, typ rdmacm.EventType) (*rdmacm.Event, error) {
	for {
		ev, err := s.NextEvent(testContext(w.t))
		w.must(err)
		switch {
		case ev.Type == typ && (ev.ID == id || id == nil):
			return ev, nil
		case ev.ID == id:
			return nil, fmt.Errorf("got event %v (%w), want %v", ev.Type, errors.Join(ev.Err), typ)
		}
	}
}

// advance leads a client from one step to another on the way to a connection.
func (w *walk) advance(id *rdmacm.ID, from, to int) error {
	then := func(err error, typ rdmacm.EventType) error {
		if err == nil {
			_, err = w.await(w.at(id), id, typ)
		}
		return err
	}
	for _, step := range []func() error{
		func() error {
			return then(id.ResolveAddr(netip.AddrPort{}, netip.MustParseAddrPort(server), time.Hour), rdmacm.EventAddrResolved)
		},
		func() error { return then(id.ResolveRoute(time.Hour), rdmacm.EventRouteResolved) },
		func() error { return w.qp(id) },
		func() error { return id.Connect(rdmacm.ConnParam{}) },
		func() error {
			s := w.request()
			w.must(w.qp(s))
			return then(s.Accept(rdmacm.ConnParam{}), rdmacm.EventEstablished)
		},
	}[from:to] {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) qp(id *rdmacm.ID) error {
	s := w.at(id)
	_, err := id.CreateQP(s.pd, &uverbs.QPInitAttr{
		SendCQ: s.cq, Cap: uverbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1},
	})
	return err
}

// request is the server's end of what a client asks for.
func (w *walk) request() *rdmacm.ID {
	ev, err := w.await(w.sites[1], nil, rdmacm.EventConnectRequest)
	w.must(err)
	w.closeLater(ev.ID.Close)
	w.served = w.note(ev.ID)
	return w.served
}

func (w *walk) client(ps rdmacm.PortSpace, step int) *rdmacm.ID {
	id := w.id(ps)
	w.must(w.advance(id, 0, step))
	return id
}

func (w *walk) bareClient() *rdmacm.ID {
	id := w.client(rdmacm.PortSpaceTCP, 2)
	w.must(id.Connect(rdmacm.ConnParam{QPNum: 77, ResponderResources: 1, InitiatorDepth: 1}))
	return id
}

func (w *walk) bound(ps rdmacm.PortSpace) *rdmacm.ID {
	id := w.id(ps)
	w.must(id.Bind(netip.MustParseAddrPort("10.9.0.1:0")))
	return id
}

// query is an id that looks for a host that there is not.
func (w *walk) query() *rdmacm.ID {
	id := w.id(rdmacm.PortSpaceTCP)
	w.must(id.ResolveAddr(netip.AddrPort{}, netip.MustParseAddrPort("10.9.0.99:1"), time.Hour))
	return id
}

func (w *walk) listening() *rdmacm.ID {
	id := w.bound(rdmacm.PortSpaceTCP)
	w.must(id.Listen(4))
	return id
}

func (w *walk) requested(ps rdmacm.PortSpace) *rdmacm.ID {
	w.client(ps, 4)
	return w.request()
}

// accepted: the client has not looked at the answer.
func (w *walk) accepted() *rdmacm.ID {
	id := w.requested(rdmacm.PortSpaceTCP)
	w.must(w.qp(id))
	w.must(id.Accept(rdmacm.ConnParam{}))
	return id
}

func (w *walk) server(ps rdmacm.PortSpace) *rdmacm.ID {
	w.client(ps, 5)
	w.sites[1].drain()
	return w.served
}

func (w *walk) rejected() *rdmacm.ID {
	id := w.client(rdmacm.PortSpaceTCP, 4)
	w.must(w.request().Reject([]byte("no")))
	_, err := w.await(w.sites[0], id, rdmacm.EventRejected)
	w.must(err)
	return id
}

func (w *walk) leaving() *rdmacm.ID {
	id := w.client(rdmacm.PortSpaceTCP, 5)
	w.must(id.Disconnect())
	return id
}

func (w *walk) disconnected() *rdmacm.ID {
	id := w.client(rdmacm.PortSpaceTCP, 5)
	w.sites[1].drain()
	w.must(w.served.Disconnect())
	_, err := w.await(w.sites[0], id, rdmacm.EventDisconnected)
	w.must(err)
	w.must(id.Disconnect())
	w.sites[1].drain()
	return id
}

func (w *walk) joined() *rdmacm.ID {
	id := w.bound(rdmacm.PortSpaceUDP)
	w.must(w.qp(id))
	w.must(id.JoinMulticast(netip.MustParseAddr("239.9.0.1"), rdmacm.JoinFull, w))
	_, err := w.await(w.sites[0], id, rdmacm.EventMulticastJoin)
	w.must(err)
	return id
}

func (w *walk) closed() *rdmacm.ID {
	id := w.client(rdmacm.PortSpaceTCP, 5)
	w.must(id.Close())
	w.left = w.sites[0]
	return id
}

func (w *walk) migrated() *rdmacm.ID {
	id := w.client(rdmacm.PortSpaceTCP, 5)
	w.must(id.Migrate(w.sites[2].EventChannel))
	w.left = w.sites[0]
	return id
}

func (w *walk) removed() *rdmacm.ID {
	id := w.bound(rdmacm.PortSpaceTCP)
	w.raise(id, rdmacm.EventDeviceRemoval, 0, nil)
	_, err := w.await(w.sites[0], id, rdmacm.EventDeviceRemoval)
	w.must(err)
	return id
}

// raise makes an event happen: by the kernel's books, or where those do not know the id any
// more, by a record that has its number.
func (w *walk) raise(id *rdmacm.ID, typ rdmacm.EventType, status int32, data []byte) {
	w.k.CM().Inject(w.kids[id].ID, uint32(typ), status, data)
	if w.left != nil {
		w.k.CM().InjectRaw(w.kids[w.left.anchor].ID, abi.RdmaUcmEventResp{
			Uid: w.kids[id].UID, Id: math.MaxInt32, Event: uint32(typ), Status: uint32(status),
		})
	}
}

// TestEveryEventInEveryState: what is reported is what the state allows, each end once. What the
// event does not end goes on to the connection that it was to become, and the rest can be
// closed.
func TestEveryEventInEveryState(t *testing.T) {
	for _, s := range spots() {
		t.Run(s.name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, k *fakekernel.Kernel, siw bool) {
				if siw && s.roce {
					return
				}
				w := newWalk(t, k, siw)
				for i, typ := range allEvents() {
					w.pair(&s, typ, i%len(details))
					w.pair(&s, typ, (i+1+i/len(details))%len(details))
				}
			})
		})
	}
}

// pair lets an event happen in a state, twice.
func (w *walk) pair(s *spot, typ rdmacm.EventType, detail int) {
	w.t.Helper()
	before := maps.Clone(w.kids)
	id := s.make(w)
	class := s.class
	for _, ev := range w.at(id).drain() { // what is the kernel's own
		class = class.after(outcome{ev.Type, ev.Err != nil, true})
	}
	for range 2 {
		want := s.outcome(class, typ, details[detail].status, w.siw)
		w.raise(id, typ, details[detail].status, details[detail].data)
		got := w.at(id).drain()
		if w.left != nil {
			got = append(got, w.left.drain()...)
		}
		w.judge(s, id, typ, detail, want, got)
		class = class.after(want)
	}
	what := fmt.Sprintf("%s, %v", s.name, typ)
	if s.step < noStep && typ != rdmacm.EventDeviceRemoval {
		err := error(nil)
		if class == s.class {
			err = w.advance(id, s.step, 5)
		} else if s.step < 4 {
			err = w.advance(id, s.step, 4)
			if !errors.Is(err, rdmacm.ErrInvalid) {
				w.t.Errorf("%s: connect after the end: got error %v, want ErrInvalid", what, err)
			}
			err = nil
		}
		if err != nil {
			w.t.Errorf("%s: it does not go on: %v", what, err)
		}
	}
	w.sites[1].hangUp() // on iWARP who waits for an answer cannot be closed
	w.use(what, id)
	for _, f := range slices.Backward(w.undo) {
		if err := f(); err != nil {
			w.t.Errorf("%s: close: %v", what, err)
		}
	}
	if err := id.Disconnect(); !errors.Is(err, net.ErrClosed) {
		w.t.Errorf("%s: use after close: got error %v, want ErrClosed", what, err)
	}
	for _, s := range w.sites {
		s.hangUp()
	}
	if diff := cmp.Diff(w.base, w.k.Counts()); diff != "" {
		w.t.Fatalf("%s: objects in the kernel (-want +got):\n%s", what, diff)
	}
	w.kids, w.undo, w.served, w.left = before, nil, nil, nil
}

// judge compares what was reported of an event.
func (w *walk) judge(s *spot, id *rdmacm.ID, typ rdmacm.EventType, detail int, want outcome, got []*rdmacm.Event) {
	w.t.Helper()
	what := fmt.Sprintf("%s, %v", s.name, typ)
	var of []*rdmacm.Event
	for _, ev := range got {
		if ev.ID == id || ev.Type == rdmacm.EventConnectRequest {
			of = append(of, ev)
		}
	}
	if len(of) != len(got) || len(of) > 1 || (len(of) == 1) != want.reported {
		w.t.Errorf("%s: got %d events, %d of them of the id, want it reported: %v", what, len(got), len(of), want.reported)
	}
	for _, ev := range of {
		if ev.Type != want.typ || (ev.Err != nil) != want.bad || ev.Status != details[detail].status {
			w.t.Errorf("%s: got %v, status %d, error %v; want %v, an error: %v", what, ev.Type, ev.Status, ev.Err, want.typ, want.bad)
		}
		if ev.Err != nil {
			w.sound(what, ev.Err)
		}
		if ev.PrivateData != nil && !bytes.Equal(ev.PrivateData, details[detail].data) {
			w.t.Errorf("%s: got private data %x", what, ev.PrivateData)
		}
		if (ev.Type == rdmacm.EventMulticastJoin || ev.Type == rdmacm.EventMulticastError) && ev.Context != any(w) {
			w.t.Errorf("%s: got context %v", what, ev.Context)
		}
		if ev.Type == rdmacm.EventConnectRequest {
			if ev.ID == id || ev.Listener != id {
				w.t.Errorf("%s: got request %v on %v", what, ev.ID, ev.Listener)
			}
			w.must(ev.ID.Close())
		}
	}
}

// sound: an error says what failed.
func (w *walk) sound(what string, err error) {
	w.t.Helper()
	if e := (*rdmacm.Error)(nil); !errors.As(err, &e) || e.Op == "" || err.Error() == "" {
		w.t.Errorf("%s: error %#v does not say what failed", what, err)
	}
}

// use calls what may be called in any state. It works, or says what does not.
func (w *walk) use(what string, id *rdmacm.ID) {
	w.t.Helper()
	_, _, _ = id.LocalAddr(), id.RemoteAddr(), id.PortNum()
	_, errDevice := id.Device()
	_, errPath := id.Path()
	_, _, errGIDs := id.GIDs()
	_, _, errInit := id.QPAttr(uverbs.StateInit)
	_, _, errRTS := id.QPAttr(uverbs.StateRTS)
	for _, err := range []error{
		errDevice, errPath, errGIDs, errInit, errRTS, id.SetTOS(4), id.NotifyEstablished(), id.Establish(),
		id.JoinMulticast(netip.MustParseAddr("239.9.0.2"), rdmacm.JoinFull, nil), id.LeaveMulticast(netip.MustParseAddr("239.9.0.1")),
		id.Reject(nil), id.Disconnect(), id.Listen(1),
	} {
		if err != nil {
			w.sound(what, err)
		}
	}
}
