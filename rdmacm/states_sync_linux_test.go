package rdmacm_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/fakekernel"
	"github.com/pureverbs/rdma/rdmacm"
)

// waiter is somebody of the synchronous layer whom an event finds waiting.
type waiter struct {
	name  string
	start func(*waiting) // ends with the waiter at the point, and its id in target
	want  func(typ rdmacm.EventType, siw bool) []error
	roce  bool
	ctx   bool // it has a context, whose end it returns with
}

// waiting is one of them.
type waiting struct {
	t      *testing.T
	k      *fakekernel.Kernel
	ctx    context.Context
	target func(fakekernel.CMID) bool
	done   chan error
	undo   []func() error
}

func (w *waiting) closeLater(f func() error) { w.undo = append(w.undo, f) }

// run has f end what is waited for.
func (w *waiting) run(f func() error) { go func() { w.done <- f() }() }

// lasting is what ends a connection, or the like, that f made.
func (w *waiting) lasting(c *rdmacm.Conn) {
	w.closeLater(c.Close)
	w.run(func() error {
		<-c.Done()
		return c.Err()
	})
}

// reach waits until an id is in a state, and takes it for the target.
func (w *waiting) reach(match func(fakekernel.CMID) bool) {
	w.t.Helper()
	for end := time.Now().Add(watchdog); time.Now().Before(end); time.Sleep(20 * time.Microsecond) {
		if i := slices.IndexFunc(w.k.CM().IDs(), match); i >= 0 {
			id := w.k.CM().IDs()[i].ID
			w.target = func(c fakekernel.CMID) bool { return c.ID == id }
			return
		}
	}
	w.t.Fatal("the waiter does not get there")
}

func inState(state string) func(fakekernel.CMID) bool {
	return func(c fakekernel.CMID) bool { return c.State == state }
}

func ofConn(c *rdmacm.Conn) func(fakekernel.CMID) bool {
	src, dst := c.LocalAddr(), c.RemoteAddr() // not with the kernel's lock
	return func(id fakekernel.CMID) bool { return id.Src == src && id.Dst == dst }
}

// closing closes what came out although it was not to.
func closing[C interface{ Close() error }](c C, err error) error {
	if err == nil {
		return c.Close()
	}
	return err
}

func (w *waiting) dial(address string) {
	w.run(func() error { return closing(rdmacm.Dial(w.ctx, address, options(w.k, nil))) })
}

func (w *waiting) listen(o *rdmacm.Options) *rdmacm.Listener {
	w.t.Helper()
	l, err := rdmacm.Listen(w.ctx, server, options(w.k, o))
	if err != nil {
		w.t.Fatal(err)
	}
	w.closeLater(l.Close)
	return l
}

// pair is both ends of a connection.
func (w *waiting) pair() (s, c *rdmacm.Conn) {
	w.t.Helper()
	l := w.listen(nil)
	accepted := make(chan error)
	go func() {
		var err error
		s, err = l.Accept(w.ctx)
		accepted <- err
	}()
	c, err := rdmacm.Dial(w.ctx, server, options(w.k, nil))
	if err := errors.Join(err, <-accepted); err != nil {
		w.t.Fatal(err)
	}
	w.closeLater(s.Close)
	w.closeLater(c.Close)
	return s, c
}

// rawListener does not answer.
func (w *waiting) rawListener(ps rdmacm.PortSpace) {
	w.t.Helper()
	ch, err := rdmacm.NewEventChannel(on(w.k))
	if err != nil {
		w.t.Fatal(err)
	}
	w.closeLater(ch.Close)
	id, err := ch.NewID(ps)
	if err != nil {
		w.t.Fatal(err)
	}
	w.closeLater(id.Close)
	if err := errors.Join(id.Bind(netip.MustParseAddrPort(server)), id.Listen(16)); err != nil {
		w.t.Fatal(err)
	}
}

const (
	badNews = syscall.ETIMEDOUT // status of the events
	nobody  = "10.9.0.99:7174"
)

// fails are the events that end whatever waits for a step, and how.
func fails(typ rdmacm.EventType) error {
	switch typ {
	case rdmacm.EventAddrError, rdmacm.EventRouteError, rdmacm.EventConnectError, rdmacm.EventUnreachable, rdmacm.EventServiceError:
		return badNews
	case rdmacm.EventRejected:
		return syscall.ECONNREFUSED
	}
	return endsAll(typ)
}

// endsAll are those that end anything. Behind each event the device is removed.
func endsAll(typ rdmacm.EventType) error {
	if typ == rdmacm.EventDisconnected { // with a status: the peer did not answer
		return badNews
	}
	return rdmacm.ErrDeviceRemoved
}

func resolving(typ rdmacm.EventType, _ bool) []error {
	if typ == rdmacm.EventAddrResolved { // the kernel knows better
		return []error{syscall.EINVAL, syscall.ENXIO}
	}
	return []error{fails(typ)}
}

func connecting(typ rdmacm.EventType, siw bool) []error {
	switch {
	case typ == rdmacm.EventConnectResponse:
		return []error{rdmacm.ErrDisconnected, rdmacm.ErrInvalid, syscall.ENXIO}
	case typ == rdmacm.EventEstablished && siw:
		return []error{nil}
	}
	return []error{fails(typ)}
}

func lookingUp(typ rdmacm.EventType, _ bool) []error {
	if typ == rdmacm.EventEstablished { // a peer that is none
		return []error{nil, rdmacm.ErrInvalid, syscall.EINVAL, syscall.ENXIO}
	}
	return connecting(typ, false)
}

// accepting: whatever happens to a request, it has gone.
func accepting(typ rdmacm.EventType, _ bool) []error {
	if typ == rdmacm.EventEstablished {
		return []error{nil}
	}
	return []error{rdmacm.ErrRequestGone}
}

func live(typ rdmacm.EventType, _ bool) []error {
	switch typ {
	case rdmacm.EventConnectError, rdmacm.EventUnreachable, rdmacm.EventRejected:
		return []error{badNews}
	}
	return []error{endsAll(typ)}
}

func liveDatagram(typ rdmacm.EventType, _ bool) []error {
	if typ == rdmacm.EventAddrError {
		return []error{badNews}
	}
	return live(typ, false)
}

func listens(typ rdmacm.EventType, _ bool) []error { return []error{endsAll(typ)} }

func inGroup(typ rdmacm.EventType, _ bool) []error {
	if typ == rdmacm.EventMulticastError {
		return []error{badNews}
	}
	return []error{endsAll(typ)}
}

func waiters() []waiter {
	return []waiter{
		{name: "dial, address", want: resolving, ctx: true, start: func(w *waiting) {
			w.dial(nobody)
			w.reach(inState("addr_query"))
		}},
		{name: "dial, connect", want: connecting, ctx: true, start: func(w *waiting) {
			w.rawListener(rdmacm.PortSpaceTCP)
			w.dial(server)
			w.reach(func(c fakekernel.CMID) bool { return c.State == "connect" && c.UID != 0 })
		}},
		{name: "dialled", want: live, start: func(w *waiting) {
			_, c := w.pair()
			w.target = ofConn(c)
			w.lasting(c)
		}},
		{name: "accepted", want: live, start: func(w *waiting) {
			s, _ := w.pair()
			w.target = ofConn(s)
			w.lasting(s)
		}},
		{name: "accept", want: listens, ctx: true, start: func(w *waiting) {
			l := w.listen(&rdmacm.Options{AcceptTimeout: 5 * time.Millisecond})
			w.run(func() error { return closing(l.Accept(w.ctx)) })
			w.reach(inState("listen"))
		}},
		{name: "answer", want: accepting, ctx: true, roce: true, start: func(w *waiting) {
			l := w.listen(nil)
			ch, id := deafClient(w)
			w.closeLater(ch.Close)
			w.closeLater(id.Close)
			r, err := l.Next(w.ctx)
			if err != nil {
				w.t.Fatal(err)
			}
			w.run(func() error { return closing(r.Accept(w.ctx, nil)) })
			w.reach(func(c fakekernel.CMID) bool { return c.Link == "rep_sent" })
		}},
		{name: "datagram, address", want: resolving, ctx: true, roce: true, start: func(w *waiting) {
			w.run(func() error { return closing(rdmacm.ResolveDatagram(w.ctx, nobody, options(w.k, nil))) })
			w.reach(inState("addr_query"))
		}},
		{name: "datagram, service", want: lookingUp, ctx: true, roce: true, start: func(w *waiting) {
			w.rawListener(rdmacm.PortSpaceUDP)
			w.run(func() error { return closing(rdmacm.ResolveDatagram(w.ctx, server, options(w.k, nil))) })
			w.reach(func(c fakekernel.CMID) bool { return c.Link == "sidr_req_sent" })
		}},
		{name: "datagram", want: liveDatagram, roce: true, start: func(w *waiting) {
			w.datagramListener()
			d, err := rdmacm.ResolveDatagram(w.ctx, server, options(w.k, nil))
			if err != nil {
				w.t.Fatal(err)
			}
			w.target = ofConn(d.Conn)
			w.lasting(d.Conn)
		}},
		{name: "datagram listener", want: listens, roce: true, start: func(w *waiting) {
			l := w.datagramListener()
			w.reach(inState("listen"))
			w.lasting(l.Conn)
		}},
		{name: "group", want: inGroup, roce: true, start: func(w *waiting) {
			g, err := rdmacm.JoinMulticast(w.ctx, "239.9.0.1", options(w.k, nil))
			if err != nil {
				w.t.Fatal(err)
			}
			w.target = func(c fakekernel.CMID) bool { return c.Datagrams }
			w.lasting(g.Conn)
		}},
	}
}

func (w *waiting) datagramListener() *rdmacm.DatagramListener {
	w.t.Helper()
	l, err := rdmacm.ListenDatagram(w.ctx, server, options(w.k, nil))
	if err != nil {
		w.t.Fatal(err)
	}
	w.closeLater(l.Close)
	return l
}

// deafClient asks for a connection and does not look at the answer.
func deafClient(w *waiting) (*rdmacm.EventChannel, *rdmacm.ID) {
	w.t.Helper()
	ch, err := rdmacm.NewEventChannel(on(w.k))
	if err != nil {
		w.t.Fatal(err)
	}
	id, err := ch.NewID(rdmacm.PortSpaceTCP)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := id.ResolveAddr(netip.AddrPort{}, netip.MustParseAddrPort(server), time.Hour); err != nil {
		w.t.Fatal(err)
	}
	expect(w.t, ch, rdmacm.EventAddrResolved)
	if err := id.ResolveRoute(time.Hour); err != nil {
		w.t.Fatal(err)
	}
	expect(w.t, ch, rdmacm.EventRouteResolved)
	if err := id.Connect(rdmacm.ConnParam{QPNum: 77, ResponderResources: 1, InitiatorDepth: 1}); err != nil {
		w.t.Fatal(err)
	}
	return ch, id
}

// TestEveryEventAtEveryWaiter: each event, and behind it the end of the device. It is the event
// that ends the waiting, if that is what it does.
func TestEveryEventAtEveryWaiter(t *testing.T) {
	eachWaiter(t, func(w *waiting, x *waiter, typ rdmacm.EventType, siw bool) {
		w.k.RaiseCM(w.target, uint32(typ), -int32(badNews), []byte("data"))
		w.k.RaiseCM(w.target, uint32(rdmacm.EventDeviceRemoval), 0, nil)
		w.judge(x.want(typ, siw))
	})
}

// TestEveryEventThenCancel: each event, and behind it the end of the context.
func TestEveryEventThenCancel(t *testing.T) {
	cause := errors.New("enough")
	eachWaiter(t, func(w *waiting, x *waiter, typ rdmacm.EventType, siw bool) {
		// On iWARP the kernel would hold the end of a connection that it lied about.
		if !x.ctx || siw && typ == rdmacm.EventEstablished {
			w.k.RaiseCM(w.target, uint32(rdmacm.EventDeviceRemoval), 0, nil)
			<-w.done
			return
		}
		cancel := w.ctx.Value(cancelKey{}).(context.CancelCauseFunc)
		w.k.RaiseCM(w.target, uint32(typ), -int32(badNews), []byte("data"))
		cancel(cause)
		w.judge(append(x.want(typ, siw), cause))
	})
}

type cancelKey struct{}

func eachWaiter(t *testing.T, each func(*waiting, *waiter, rdmacm.EventType, bool)) {
	for _, x := range waiters() {
		t.Run(x.name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, k *fakekernel.Kernel, siw bool) {
				if siw && x.roce {
					return
				}
				for _, typ := range allEvents() {
					t.Run(typ.String(), func(t *testing.T) {
						ctx, cancel := context.WithCancelCause(testContext(t))
						defer cancel(nil)
						w := &waiting{t: t, k: k, ctx: context.WithValue(ctx, cancelKey{}, cancel), done: make(chan error, 1)}
						x.start(w)
						each(w, &x, typ, siw)
						for _, f := range slices.Backward(w.undo) {
							if err := f(); err != nil {
								t.Errorf("close: %v", err)
							}
						}
						// On iWARP Dial leaves what the kernel holds to a goroutine.
						for end := time.Now().Add(watchdog); siw && k.Counts() != (fakekernel.Counts{}) && time.Now().Before(end); {
							time.Sleep(20 * time.Microsecond)
						}
						if diff := cmp.Diff(fakekernel.Counts{}, k.Counts()); diff != "" {
							t.Fatalf("objects are left in the kernel (-want +got):\n%s", diff)
						}
					})
				}
			})
		})
	}
}

// judge waits for what the waiter returns with, which is one of want.
func (w *waiting) judge(want []error) {
	w.t.Helper()
	select {
	case err := <-w.done:
		if !slices.ContainsFunc(want, func(e error) bool { return errors.Is(err, e) }) {
			w.t.Errorf("got error %v, want one of %v", err, want)
		}
		if e := (*rdmacm.Error)(nil); err != nil && (!errors.As(err, &e) || e.Op == "") {
			w.t.Errorf("error %#v does not say what failed", err)
		}
	case <-testContext(w.t).Done():
		w.t.Fatal("it does not end")
	}
}

// TestEventsWhileNobodyWaits: what happens while the program prepares its queue pair is not
// lost, and of whatever there is too much of does not take the place of what counts.
func TestEventsWhileNobodyWaits(t *testing.T) {
	for name, attempt := range map[string]func(context.Context, *rdmacm.Options) error{
		"dial": func(ctx context.Context, o *rdmacm.Options) error { return closing(rdmacm.Dial(ctx, server, o)) },
		"datagram": func(ctx context.Context, o *rdmacm.Options) error {
			return closing(rdmacm.ResolveDatagram(ctx, server, o))
		},
		"join": func(ctx context.Context, o *rdmacm.Options) error {
			return closing(rdmacm.JoinMulticast(ctx, "239.9.0.1", o))
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKernel(t, fakekernel.Options{})
			ctx := testContext(t)
			serve(t, k)
			for _, typ := range allEvents() {
				const many = 9 // more than anybody keeps
				o := options(k, &rdmacm.Options{})
				o.Prepare = func(c *rdmacm.Conn) error {
					src := c.LocalAddr() // not with the kernel's lock
					target := func(id fakekernel.CMID) bool { return !id.Listens && id.Src == src }
					for range many {
						k.RaiseCM(target, uint32(typ), -int32(badNews), nil)
					}
					// A request, which is closed when all before it has been handled.
					k.RaiseCM(target, uint32(rdmacm.EventConnectRequest), 0, nil)
					waits := func(id fakekernel.CMID) bool { return id.UID == 0 && id.Src == src }
					for slices.ContainsFunc(k.CM().IDs(), waits) && ctx.Err() == nil {
						time.Sleep(20 * time.Microsecond)
					}
					return nil
				}
				err := attempt(ctx, o)
				want := fails(typ)
				if errors.Is(want, rdmacm.ErrDeviceRemoved) && typ != rdmacm.EventDeviceRemoval { // nothing bad
					want = nil
				}
				if name == "join" && typ == rdmacm.EventDisconnected { // of no connection
					want = err
				}
				if ctx.Err() != nil || !errors.Is(err, want) {
					t.Fatalf("%v: got error %v, want %v", typ, err, want)
				}
			}
		})
	}
}

// serve accepts connections, and answers who looks for datagrams, until the end of the test.
func serve(t *testing.T, k *fakekernel.Kernel) {
	t.Helper()
	l := mustListen(t, k, server, nil)
	mustListenDatagram(t, k, server, rdmacm.Options{})
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan struct{})
	go func() {
		defer close(served)
		for ctx.Err() == nil {
			if c, err := l.Accept(ctx); err == nil {
				closed(t, c)
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-served
	})
}

// TestEveryEventAtEveryStep: the client's id gets an event right before a command is carried
// out. Dialling fails, or there is a connection.
func TestEveryEventAtEveryStep(t *testing.T) {
	for _, cmd := range []uint32{
		abi.RDMA_USER_CM_CMD_RESOLVE_ADDR, abi.RDMA_USER_CM_CMD_RESOLVE_ROUTE, abi.RDMA_USER_CM_CMD_INIT_QP_ATTR,
		abi.RDMA_USER_CM_CMD_CONNECT, abi.RDMA_USER_CM_CMD_ACCEPT, abi.RDMA_USER_CM_CMD_DISCONNECT, abi.RDMA_USER_CM_CMD_DESTROY_ID,
	} {
		for name, driver := range map[string]uint32{"rxe": abi.RDMA_DRIVER_RXE, "siw": abi.RDMA_DRIVER_SIW} {
			t.Run(fmt.Sprint("command ", cmd, ", ", name), func(t *testing.T) { atCommand(t, cmd, driver) })
		}
	}
}

func atCommand(t *testing.T, cmd, driver uint32) {
	var (
		k   *fakekernel.Kernel
		typ atomic.Uint32
		on  atomic.Bool
	)
	k = newKernel(t, fakekernel.Options{
		Devices: []fakekernel.Device{{Driver: driver}}, CMTimeout: 2 * time.Millisecond, TimeWait: time.Millisecond,
		Log: func(c fakekernel.Call) {
			if c.Kind == fakekernel.CallCM && c.Cmd == cmd && on.CompareAndSwap(true, false) {
				k.RaiseCM(func(id fakekernel.CMID) bool { return !id.Listens && id.Src.Port() != 7174 }, typ.Load(), -int32(badNews), nil)
			}
		},
	})
	l := mustListen(t, k, server, &rdmacm.Options{AcceptTimeout: 50 * time.Millisecond})
	ctx, cancel := context.WithCancel(testContext(t))
	served := make(chan struct{})
	go func() {
		defer close(served)
		for ctx.Err() == nil {
			if c, err := l.Accept(ctx); err == nil {
				closed(t, c)
			}
		}
	}()
	for _, e := range allEvents() {
		typ.Store(uint32(e))
		on.Store(true)
		c, err := rdmacm.Dial(ctx, server, options(k, nil))
		switch {
		case ctx.Err() != nil:
			t.Fatalf("%v: it does not end: %v", e, err)
		case err == nil:
			connected(t, c)
			closed(t, c)
		default:
			if x := (*rdmacm.Error)(nil); !errors.As(err, &x) || x.Op == "" {
				t.Errorf("%v: error %#v does not say what failed", e, err)
			}
		}
		on.Store(false)
	}
	cancel()
	<-served
}

// TestAcceptSaysWhyItEnds: a client that has gone is no news to one whose context has ended.
func TestAcceptSaysWhyItEnds(t *testing.T) {
	w := &waiting{t: t, k: newKernel(t, fakekernel.Options{}), ctx: testContext(t)}
	ctx, cancel := context.WithCancelCause(w.ctx)
	cause := errors.New("enough")
	var ch *rdmacm.EventChannel
	var client *rdmacm.ID
	l := mustListen(t, w.k, server, &rdmacm.Options{Prepare: func(*rdmacm.Conn) error {
		cancel(cause)
		return client.Close()
	}})
	ch, client = deafClient(w)
	closeLater(t, "client's channel", ch.Close)
	_, err := l.Accept(ctx)
	mustBe(t, "accept", err, cause)
}
