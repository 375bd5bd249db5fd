package cmpeer

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/tests/pingpong/peer"
	"github.com/pureverbs/rdma/uverbs"
)

// noAddr leaves the own address to the routing table.
var noAddr netip.AddrPort

// Time is cmtime: many connections are made, step by step, and ended. No message is sent.
type Time struct {
	Options
	Connections int
}

// Step is how long one step took, for all connections together.
type Step struct {
	Name string
	Took time.Duration
}

// timer is a run of the client, or of the server.
type timer struct {
	ctx    context.Context
	ch     *rdmacm.EventChannel
	nodes  []*quick
	byID   map[*rdmacm.ID]*quick
	owned  peer.Owned // what all connections share, made with the first queue pair
	pd     *uverbs.PD
	cq     *uverbs.CQ
	steps  []Step
	events int // that the step waits for
}

// quick is a connection with a queue pair that nothing is posted to.
type quick struct {
	id *rdmacm.ID
	qp *uverbs.QP
}

func (t *timer) createQP(n *quick) (err error) {
	if t.pd == nil {
		if err := t.share(n.id); err != nil {
			return err
		}
	}
	n.qp, err = n.id.CreateQP(t.pd, &uverbs.QPInitAttr{
		SendCQ: t.cq, RecvCQ: t.cq, Cap: uverbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1},
	})
	return err
}

func (t *timer) share(id *rdmacm.ID) error {
	ctx, err := id.Context()
	if err != nil {
		return err
	}
	pd, err := ctx.AllocPD()
	if t.pd, err = peer.Own(&t.owned, pd, err); err != nil {
		return err
	}
	cq, err := ctx.CreateCQ(1, nil)
	t.cq, err = peer.Own(&t.owned, cq, err)
	return err
}

func (t *timer) close() error {
	var errs []error
	for _, n := range t.nodes {
		if n.qp != nil {
			errs = append(errs, n.qp.Close())
		}
	}
	errs = append(errs, t.owned.Close())
	for _, n := range t.nodes {
		errs = append(errs, n.id.Close())
	}
	return errors.Join(errs...)
}

// step does one thing for each connection, waits for as many events as there are
// connections if it has any, and takes the time.
func (t *timer) step(name string, events bool, do func(*quick) error) error {
	start := time.Now()
	for _, n := range t.nodes {
		if err := do(n); err != nil {
			return err
		}
	}
	if events {
		t.events = len(t.nodes)
		if err := loop(t.ctx, t.ch, func() bool { return t.events == 0 }, t.count); err != nil {
			return err
		}
	}
	t.steps = append(t.steps, Step{name, time.Since(start)})
	return nil
}

func (t *timer) count(ev *rdmacm.Event) error {
	if ev.Type != rdmacm.EventTimewaitExit {
		t.events--
	}
	return nil
}

// Call is the client. It returns how long each step took.
func (m *Time) Call(ctx context.Context) (steps []Step, err error) {
	ch, err := rdmacm.NewEventChannel(m.System...)
	if err != nil {
		return nil, err
	}
	t := &timer{ctx: ctx, ch: ch}
	defer func() { err = errors.Join(err, t.close(), ch.Close()) }()
	if err := t.create(m.Connections); err != nil {
		return nil, err
	}
	for _, s := range []struct {
		name   string
		events bool
		do     func(*quick) error
	}{
		{"resolve addr", true, func(n *quick) error { return n.id.ResolveAddr(noAddr, m.Addr, resolveTimeout) }},
		{"resolve route", true, func(n *quick) error { return n.id.ResolveRoute(resolveTimeout) }},
		{"create qp", false, t.createQP},
		{"connect", true, func(n *quick) error {
			return n.id.Connect(rdmacm.ConnParam{ResponderResources: 1, InitiatorDepth: 1, RetryCount: 2})
		}},
		{"disconnect", true, func(n *quick) error { return errors.Join(n.id.Disconnect(), n.qp.Close()) }},
	} {
		if err := t.step(s.name, s.events, s.do); err != nil {
			return nil, err
		}
	}
	if err := t.owned.Close(); err != nil {
		return nil, err
	}
	err = t.step("destroy", false, func(n *quick) error { return n.id.Close() })
	return t.steps, err
}

func (t *timer) create(n int) error {
	start := time.Now()
	for range n {
		id, err := t.ch.NewID(rdmacm.PortSpaceTCP)
		if err != nil {
			return err
		}
		t.nodes = append(t.nodes, &quick{id: id})
	}
	t.steps = append(t.steps, Step{"create id", time.Since(start)})
	return nil
}

// Serve accepts connections until as many as there are have come and gone.
func (m *Time) Serve(ctx context.Context) (err error) {
	t := &timer{ctx: ctx, byID: map[*rdmacm.ID]*quick{}}
	var listener peer.Owned
	if t.ch, err = m.listen(&listener, rdmacm.PortSpaceTCP); err != nil {
		return errors.Join(err, listener.Close())
	}
	defer func() { err = errors.Join(err, t.close(), listener.Close()) }()
	left := m.Connections
	return loop(ctx, t.ch, func() bool { return left == 0 }, func(ev *rdmacm.Event) error {
		switch ev.Type {
		case rdmacm.EventConnectRequest:
			n := &quick{id: ev.ID}
			t.nodes, t.byID[ev.ID] = append(t.nodes, n), n
			if err := t.createQP(n); err != nil {
				return err
			}
			return n.id.Accept(rdmacm.ConnParam{})
		case rdmacm.EventDisconnected:
			left--
			n := t.byID[ev.ID]
			return errors.Join(n.id.Disconnect(), n.qp.Close())
		}
		return nil
	})
}
