//go:build linux

package verbstest

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/uverbs"
)

// dial connects two hosts by the connection manager. On iWARP there is no other way, and the
// side that dials, a, has to be the first to send: it says hello here.
func (u *Suite) dial(t testing.TB, ha, hb *host, sa, sb shape) (a, b *side) {
	t.Helper()
	m := u.newMatch(t)
	client, err := m.ch.NewID(rdmacm.PortSpaceTCP)
	testutil.Must(t, err)
	m.ids = append(m.ids, client)
	testutil.Must(t, client.ResolveAddr(netip.AddrPort{}, m.listener.LocalAddr(), patience))
	m.want(t, rdmacm.EventAddrResolved)
	testutil.Must(t, client.ResolveRoute(patience))
	m.want(t, rdmacm.EventRouteResolved)
	a = m.make(t, client, ha, sa)
	testutil.Must(t, client.Connect(rdmacm.ConnParam{SRQ: sa.SRQ != nil}))
	server := m.want(t, rdmacm.EventConnectRequest).ID
	m.ids = append(m.ids, server)
	b = m.make(t, server, hb, sb)
	recv := []uverbs.RecvWR{{ID: hello}}
	if sb.SRQ != nil {
		_, err = sb.SRQ.PostRecv(recv)
	} else {
		_, err = b.qp.PostRecv(recv)
	}
	testutil.Must(t, err)
	testutil.Must(t, server.Accept(rdmacm.ConnParam{SRQ: sb.SRQ != nil}))
	m.want(t, rdmacm.EventEstablished)
	m.want(t, rdmacm.EventEstablished)
	a.send(t, uverbs.SendWR{ID: hello, Opcode: uverbs.OpSend, Flags: uverbs.SendSignaled})
	expect(t, next(t, a.qp.SendCQ()), hello, uverbs.WCSend)
	expect(t, next(t, b.qp.RecvCQ()), hello, uverbs.WCRecv)
	return a, b
}

const hello = 0x48656c6c6f

// match is what brings two queue pairs together.
type match struct {
	ch       *rdmacm.EventChannel
	listener *rdmacm.ID
	ids      []*rdmacm.ID
	qps      []*uverbs.QP
}

func (u *Suite) newMatch(t testing.TB) *match {
	t.Helper()
	m := &match{}
	var err error
	m.ch, err = rdmacm.NewEventChannel(u.CM...)
	testutil.Must(t, err)
	t.Cleanup(func() { m.close(t) })
	m.listener, err = m.ch.NewID(rdmacm.PortSpaceTCP)
	testutil.Must(t, err)
	m.ids = append(m.ids, m.listener)
	testutil.Must(t, m.listener.Bind(netip.AddrPortFrom(u.Addr, 0)))
	testutil.Must(t, m.listener.Listen(4))
	return m
}

func (m *match) close(t testing.TB) {
	for _, qp := range m.qps {
		closeAll(t, qp)
	}
	for _, id := range m.ids {
		if err := id.Close(); err != nil {
			t.Errorf("close id: %v", err)
		}
	}
	if err := m.ch.Close(); err != nil {
		t.Errorf("close event channel: %v", err)
	}
}

func (m *match) want(t testing.TB, typ rdmacm.EventType) *rdmacm.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	ev, err := m.ch.NextEvent(ctx)
	testutil.Must(t, err)
	if ev.Type != typ || ev.Err != nil {
		t.Fatalf("event is %v (%v), want %v", ev.Type, ev.Err, typ)
	}
	return ev
}

func (m *match) make(t testing.TB, id *rdmacm.ID, h *host, s shape) *side {
	t.Helper()
	qp, err := id.CreateQP(h.pd, h.complete(t, s))
	testutil.Must(t, err)
	m.qps = append(m.qps, qp)
	return &side{h, qp}
}

// moment lets goroutines get where they park. No outcome may depend on it.
func moment() { time.Sleep(20 * time.Millisecond) }
