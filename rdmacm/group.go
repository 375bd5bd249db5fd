package rdmacm

import (
	"context"
	"net/netip"

	"github.com/pureverbs/rdma/uverbs"
)

// Group is a datagram queue pair in a multicast group. Each message is one packet, and begins
// with [uverbs.GRHSize] bytes of header where it is received. It is safe for concurrent use.
type Group struct {
	*Conn
	ah   *uverbs.AH
	to   UDInfo
	addr netip.Addr
}

// JoinMulticast joins a multicast group, "239.1.2.3", and makes what it takes to send to it and
// to receive from it: a datagram queue pair that is attached to the group, and an address
// handle. Prepare is the place to post receives. With SendOnly in the options it does not
// receive. Source in the options, with port 0, says which interface; without it the routing
// table does, which needs a route to the group.
//
// It returns when it is done, when it failed, or when ctx ends. Done is closed with an error
// also when the membership is lost. Close leaves the group.
//
// Errors: as for [ID.JoinMulticast]. Source: rdma_join_multicast(3).
func JoinMulticast(ctx context.Context, group string, o *Options) (*Group, error) {
	opts, err := o.withDefaults()
	if err != nil {
		return nil, &Error{Op: opJoin, Addr: group, Err: err}
	}
	addr, err := netip.ParseAddr(group)
	if err == nil && !addr.IsMulticast() {
		err = invalidError("that is no multicast address")
	}
	if err != nil {
		return nil, &Error{Op: opJoin, Addr: group, Err: err}
	}
	g := &Group{addr: addr.Unmap()}
	if err := g.join(ctx, opts); err != nil {
		return nil, err
	}
	return g, nil
}

func (g *Group) join(ctx context.Context, o *Options) error {
	dst := netip.AddrPortFrom(g.addr, 0)
	ep, err := openHub(o, PortSpaceUDP)
	if err != nil {
		return err
	}
	if err := ep.toGroup(ctx, dst, o); err != nil {
		return joined(err, ep.hub.close(ep))
	}
	if g.Conn, err = newConn(ep, o); err != nil {
		return wrap(opJoin, dst, err)
	}
	if err := g.enter(ctx, o.SendOnly); err != nil {
		return g.giveUp(wrap(opJoin, dst, err))
	}
	return nil
}

// toGroup finds the device: that of the own address, or the one that the route leads to.
func (e *endpoint) toGroup(ctx context.Context, dst netip.AddrPort, o *Options) error {
	if o.Source.Addr().IsValid() && !o.Source.Addr().IsUnspecified() {
		return e.id.Bind(o.Source)
	}
	return e.resolveAddr(ctx, dst, o)
}

func (g *Group) enter(ctx context.Context, sendOnly bool) error {
	flags := JoinFull
	if sendOnly {
		flags = JoinSendOnly
	}
	if err := g.ep.id.JoinMulticast(g.addr, flags, nil); err != nil {
		return g.ep.reason(err)
	}
	ev, err := g.ep.await(ctx, EventMulticastJoin)
	if err != nil {
		return err
	}
	g.to = ev.UD
	g.ah, err = g.createAH(&g.to)
	return err
}

// Dest returns where to send to: for [uverbs.SendWR].
func (g *Group) Dest() uverbs.Dest { return g.ah.Dest(MulticastQPNum, g.to.QKey) }

// Addr returns the address of the group.
func (g *Group) Addr() netip.Addr { return g.addr }

// Membership returns the Q_Key of the group, and the way to it.
func (g *Group) Membership() UDInfo { return g.to }
