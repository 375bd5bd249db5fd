package rdmacm_test

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pureverbs/rdma/internal/fakekernel"
	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/uverbs"
)

// server is where the first device of the fake kernel is; the second dials.
const server = "10.9.0.1:7174"

// watchdog ends a test that hangs.
const watchdog = 20 * time.Second

// newKernel starts a fake kernel with two devices, unless the options say otherwise. At the
// end of the test nothing may be left in it, nor in this process.
func newKernel(t *testing.T, opts fakekernel.Options) *fakekernel.Kernel {
	t.Helper()
	testutil.NoLeaks(t)
	if opts.Devices == nil {
		opts.Devices = make([]fakekernel.Device, 2)
	}
	k := fakekernel.New(opts)
	t.Cleanup(func() {
		if diff := cmp.Diff(fakekernel.Counts{}, k.Counts()); diff != "" {
			t.Errorf("objects are left in the kernel (-want +got):\n%s", diff)
		}
		k.Close()
	})
	return k
}

func on(k *fakekernel.Kernel) rdmacm.Option { return rdmacm.WithSystem(k.System()) }

// options returns o, or new ones, for the fake kernel.
func options(k *fakekernel.Kernel, o *rdmacm.Options) *rdmacm.Options {
	if o == nil {
		o = new(rdmacm.Options)
	}
	o.System = []rdmacm.Option{on(k)}
	return o
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), watchdog)
	t.Cleanup(cancel)
	return ctx
}

func mustListen(t *testing.T, k *fakekernel.Kernel, address string, o *rdmacm.Options) *rdmacm.Listener {
	t.Helper()
	l, err := rdmacm.Listen(testContext(t), address, options(k, o))
	if err != nil {
		t.Fatal(err)
	}
	closeLater(t, "listener", l.Close)
	return l
}

func closeLater(t *testing.T, what string, f func() error) {
	t.Cleanup(func() {
		if err := f(); err != nil {
			t.Errorf("close %s: %v", what, err)
		}
	})
}

// mustBe checks cause and words of an error.
func mustBe(t *testing.T, what string, err, cause error, words ...string) {
	t.Helper()
	if !errors.Is(err, cause) {
		t.Errorf("%s: got error %v, want one that is %v", what, err, cause)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s: got error %q, want it to say %q", what, err, w)
		}
	}
}

// end is one end of a connection with 16 receives posted.
type end struct {
	*rdmacm.Conn
	send, recv *uverbs.MR
}

const (
	slots    = 16
	slotSize = 256
)

// prepare makes memory and posts receives; it is to be the Prepare of the options.
func (e *end) prepare(c *rdmacm.Conn) error {
	var err error
	if e.send, err = c.AllocMR(slotSize, 0); err != nil {
		return err
	}
	if e.recv, err = c.AllocMR(slots*slotSize, uverbs.AccessLocalWrite); err != nil {
		return err
	}
	wrs := make([]uverbs.RecvWR, slots)
	for i := range wrs {
		wrs[i] = uverbs.RecvWR{ID: uint64(i), SGL: []uverbs.SGE{e.recv.SGE(i*slotSize, slotSize)}}
	}
	_, err = c.QP().PostRecv(wrs)
	return err
}

// say sends a message and waits until it is sent.
func (e *end) say(ctx context.Context, text string) error {
	n := copy(e.send.Bytes(), text)
	wr := []uverbs.SendWR{{Opcode: uverbs.OpSend, Flags: uverbs.SendSignaled, SGL: []uverbs.SGE{e.send.SGE(0, n)}}}
	if _, err := e.QP().PostSend(wr); err != nil {
		return err
	}
	var wc [1]uverbs.WC
	if _, err := e.SendCQ().Wait(ctx, wc[:]); err != nil {
		return err
	}
	return wc[0].Err()
}

// hear waits for a message.
func (e *end) hear(ctx context.Context) (string, error) {
	var wc [1]uverbs.WC
	if _, err := e.RecvCQ().Wait(ctx, wc[:]); err != nil {
		return "", err
	}
	if err := wc[0].Err(); err != nil {
		return "", err
	}
	off := int(wc[0].ID) * slotSize
	return string(e.recv.Bytes()[off : off+int(wc[0].ByteLen)]), nil
}

// connect makes a connection to a listener. Its ends are closed with the test.
func connect(t *testing.T, k *fakekernel.Kernel, l *rdmacm.Listener, server, client rdmacm.Options) (s, c *end) {
	t.Helper()
	return connectWith(t, k, l, l.Addr().String(), server, client)
}

// connectTo is connect to an address that is not the listener's own.
func connectTo(t *testing.T, k *fakekernel.Kernel, l *rdmacm.Listener, address string, client rdmacm.Options) (s, c *end) {
	t.Helper()
	return connectWith(t, k, l, address, rdmacm.Options{}, client)
}

func connectWith(t *testing.T, k *fakekernel.Kernel, l *rdmacm.Listener, address string, server, client rdmacm.Options) (s, c *end) {
	t.Helper()
	ctx := testContext(t)
	s, c = new(end), new(end)
	server.Prepare, client.Prepare = s.prepare, c.prepare
	accepted := make(chan error)
	go func() {
		r, err := l.Next(ctx)
		if err == nil {
			s.Conn, err = r.Accept(ctx, &server)
		}
		accepted <- err
	}()
	var err error
	c.Conn, err = rdmacm.Dial(ctx, address, options(k, &client))
	if aerr := <-accepted; err != nil || aerr != nil {
		t.Fatalf("dial: %v; accept: %v", err, aerr)
	}
	closeLater(t, "server's end", s.Close)
	closeLater(t, "client's end", c.Close)
	return s, c
}

// talk sends a message each way.
func talk(t *testing.T, a, b *end) {
	t.Helper()
	ctx := testContext(t)
	for i, pair := range [][2]*end{{a, b}, {b, a}} {
		want := strings.Repeat("x", i) + "hello"
		if err := pair[0].say(ctx, want); err != nil {
			t.Fatal(err)
		}
		if got, err := pair[1].hear(ctx); err != nil || got != want {
			t.Fatalf("got message %q and error %v, want %q", got, err, want)
		}
	}
}

// ended waits for the end of a connection.
func ended(t *testing.T, e *end) error {
	t.Helper()
	select {
	case <-e.Done():
	case <-testContext(t).Done():
		t.Fatal("the connection does not end")
	}
	return e.Err()
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
