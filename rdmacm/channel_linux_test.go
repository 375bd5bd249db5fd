package rdmacm_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pureverbs/rdma/internal/fakekernel"
	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/uverbs"
)

// party is one end of an asynchronous connection.
type party struct {
	id *rdmacm.ID
	pd *uverbs.PD
	ch *uverbs.CompChannel
	cq *uverbs.CQ
	mr *uverbs.MR
	qp *uverbs.QP
}

// loop is a program with one event channel: it resolves, connects, accepts, and disconnects
// when it is told to, until all its ids are closed.
type loop struct {
	t       *testing.T
	ch      *rdmacm.EventChannel
	parties map[*rdmacm.ID]*party

	established chan *party
	left        int // ids that are to end
}

func (l *loop) add(id *rdmacm.ID) *party {
	ctx, err := id.Context()
	if err != nil {
		l.t.Error(err)
		return nil
	}
	p := &party{id: id}
	if p.pd, err = ctx.AllocPD(); err == nil {
		p.ch, err = ctx.NewCompChannel()
	}
	if err == nil {
		p.cq, err = ctx.CreateCQ(8, p.ch)
	}
	if err == nil {
		p.mr, err = p.pd.AllocMR(64, uverbs.AccessLocalWrite)
	}
	if err == nil {
		p.qp, err = id.CreateQP(p.pd, &uverbs.QPInitAttr{
			SendCQ: p.cq, Cap: uverbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1},
		})
	}
	if err == nil {
		_, err = p.qp.PostRecv([]uverbs.RecvWR{{ID: 1, SGL: []uverbs.SGE{p.mr.SGE(0, 32)}}})
	}
	if err != nil {
		l.t.Error(err)
	}
	l.parties[id] = p
	return p
}

// close is what a handler does with the id whose event it has in hand.
func (l *loop) close(p *party) {
	err := errors.Join(p.qp.Close(), p.mr.Close(), p.cq.Close(), p.ch.Close(), p.pd.Close(), p.id.Close())
	if err != nil {
		l.t.Error(err)
	}
	delete(l.parties, p.id)
	l.left--
}

func (l *loop) run(ctx context.Context) {
	for l.left > 0 {
		ev, err := l.ch.NextEvent(ctx)
		if err != nil {
			l.t.Error(err)
			return
		}
		if ev.Err != nil {
			l.t.Errorf("%v: %v", ev.Type, ev.Err)
		}
		switch ev.Type {
		case rdmacm.EventAddrResolved:
			err = ev.ID.ResolveRoute(time.Second)
		case rdmacm.EventRouteResolved:
			l.add(ev.ID)
			err = ev.ID.Connect(rdmacm.ConnParam{})
		case rdmacm.EventConnectRequest:
			l.add(ev.ID)
			err = ev.ID.Accept(rdmacm.ConnParam{})
		case rdmacm.EventEstablished:
			l.established <- l.parties[ev.ID]
		case rdmacm.EventDisconnected:
			l.close(l.parties[ev.ID])
		}
		if err != nil {
			l.t.Errorf("%v: %v", ev.Type, err)
			return
		}
	}
}

// 64 connections, both ends of each, on one event channel. All are told to end at once, and
// each is closed from the handler of its own event (RW-39).
func TestRW39ManyOnOneChannel(t *testing.T) {
	const connections = 64
	k := newKernel(t, fakekernel.Options{})
	ch, err := rdmacm.NewEventChannel(on(k))
	if err != nil {
		t.Fatal(err)
	}
	closeLater(t, "event channel", ch.Close)
	listener, err := ch.NewID(rdmacm.PortSpaceTCP)
	if err != nil {
		t.Fatal(err)
	}
	closeLater(t, "listener", listener.Close)
	if err := errors.Join(listener.Bind(netip.MustParseAddrPort(server)), listener.Listen(0)); err != nil {
		t.Fatal(err)
	}
	l := &loop{
		t: t, ch: ch, parties: make(map[*rdmacm.ID]*party), left: 2 * connections,
		established: make(chan *party, 2*connections),
	}
	for range connections {
		id, err := ch.NewID(rdmacm.PortSpaceTCP)
		if err != nil {
			t.Fatal(err)
		}
		if err := id.ResolveAddr(netip.AddrPort{}, netip.MustParseAddrPort(server), time.Second); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		l.run(testContext(t))
	}()
	parties := make([]*party, 0, 2*connections)
	for len(parties) < cap(parties) {
		select {
		case p := <-l.established:
			parties = append(parties, p)
		case <-testContext(t).Done():
			t.Fatalf("%d ends are established, want %d", len(parties), cap(parties))
		}
	}
	for i, p := range parties {
		sendText(t, p, fmt.Sprint("message ", i))
	}
	for _, p := range parties {
		receive(t, p)
	}
	for _, p := range parties {
		if p.id.RemoteAddr().Port() == 7174 { // the client's end
			if err := p.id.Disconnect(); err != nil {
				t.Error(err)
			}
		}
	}
	wg.Wait()

	// A further connection works.
	l.left, l.established = 2, make(chan *party, 2)
	id, err := ch.NewID(rdmacm.PortSpaceTCP)
	if err != nil {
		t.Fatal(err)
	}
	if err := id.ResolveAddr(netip.AddrPort{}, netip.MustParseAddrPort(server), time.Second); err != nil {
		t.Fatal(err)
	}
	wg.Add(1)
	go func() {
		defer wg.Done()
		l.run(testContext(t))
	}()
	<-l.established
	<-l.established
	if err := id.Disconnect(); err != nil {
		t.Error(err)
	}
	wg.Wait()
}

func sendText(t *testing.T, p *party, text string) {
	t.Helper()
	n := copy(p.mr.Bytes()[32:], text)
	if _, err := p.qp.PostSend([]uverbs.SendWR{{ID: 2, Opcode: uverbs.OpSend, SGL: []uverbs.SGE{p.mr.SGE(32, n)}}}); err != nil {
		t.Error(err)
	}
}

// receive waits for the one receive.
func receive(t *testing.T, p *party) {
	t.Helper()
	var wc [1]uverbs.WC
	if _, err := p.cq.Wait(testContext(t), wc[:]); err != nil {
		t.Error(err)
		return
	}
	if err := wc[0].Err(); err != nil || wc[0].ID != 1 {
		t.Errorf("got completion %d with %v, want that of the receive", wc[0].ID, err)
	}
}

// The active side's handshake fails here: the program hears of it once, the peer is told.
func TestHandshakeFailsHere(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	l := mustListen(t, k, server, nil)
	_, id := rawClient(t, k)
	if err := id.Connect(rdmacm.ConnParam{}); err != nil {
		t.Fatal(err)
	}
	accepted := make(chan error)
	go func() {
		r, err := l.Next(testContext(t))
		if err == nil {
			_, err = r.Accept(testContext(t), nil)
		}
		accepted <- err
	}()
	// The queue pair goes away under the library's feet.
	if err := id.QP().Close(); err != nil {
		t.Fatal(err)
	}
	ev := expect(t, id.Channel(), rdmacm.EventConnectError)
	mustBe(t, "event", ev.Err, net.ErrClosed, "connect 10.9.0.1:7174")
	mustBe(t, "accept", <-accepted, rdmacm.ErrRequestGone, "rejected")
}

func TestCreateQPChecks(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	ch, id := rawClient(t, k)
	_, err := id.CreateQP(id.QP().PD(), &uverbs.QPInitAttr{SendCQ: id.QP().SendCQ()})
	mustBe(t, "second queue pair", err, rdmacm.ErrInvalid, "a queue pair already")
	other := resolved(t, ch)
	_, err = other.CreateQP(id.QP().PD(), &uverbs.QPInitAttr{})
	mustBe(t, "no completion queue", err, uverbs.ErrInvalid, "no completion queue")
	if other.QP() != nil {
		t.Error("the id has a queue pair")
	}
	attr, mask, err := other.QPAttr(uverbs.StateInit)
	if err != nil || attr.State != uverbs.StateInit || mask&uverbs.QPAttrState == 0 || attr.PortNum != 1 {
		t.Errorf("got %+v, mask %v and error %v, want those of INIT on port 1", attr, mask, err)
	}
}

// The channel keeps a device open that objects of the program live on, and says so.
func TestContextOutlivesID(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	ch, err := rdmacm.NewEventChannel(on(k))
	if err != nil {
		t.Fatal(err)
	}
	id := resolved(t, ch)
	ctx, err := id.Context()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := id.Context(); again != ctx || err != nil {
		t.Errorf("got another context, or error %v", err)
	}
	pd, err := ctx.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	if err := id.Close(); err != nil {
		t.Errorf("close id: %v", err)
	}
	mustBe(t, "close channel", ch.Close(), rdmacm.ErrBusy, "protection domain")
	if err := pd.Close(); err != nil {
		t.Error(err)
	}
	if err := ch.Close(); err != nil {
		t.Error(err)
	}
	if err := ch.Close(); err != nil {
		t.Error(err)
	}
}

// The server gives up when it has accepted: the kernel says EINVAL to the next step of the
// client's handshake, and the program hears what that means.
func TestServerGivesUp(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	l := mustListen(t, k, server, nil)
	_, id := rawClient(t, k)
	if err := id.Connect(rdmacm.ConnParam{}); err != nil {
		t.Fatal(err)
	}
	r, err := l.Next(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = r.Accept(ctx, nil) // returns when the answer is sent
	mustBe(t, "accept", err, context.Canceled)
	ev := expect(t, id.Channel(), rdmacm.EventConnectError)
	mustBe(t, "event", ev.Err, rdmacm.ErrDisconnected, "connect 10.9.0.1:7174: peer disconnected during the handshake")
	if strings.Contains(ev.Err.Error(), "has to be resolved") {
		t.Errorf("got %q, whose hint is beside the point", ev.Err)
	}
}
