package rdmacm

import (
	"context"
	"net/netip"
)

// Dial connects to a server: "192.0.2.1:7174", "[2001:db8::1]:7174", "[fe80::1%eth0]:7174",
// "server.example:7174". Of a name's addresses it takes the first that works. A link-local
// address needs a zone, the interface by name or number.
//
// Dial returns when the connection is there, when it failed, or when ctx ends, which also
// cuts the kernel's own patience (about a minute with a peer that does not answer). nil for
// o stands for the defaults.
//
// It opens an event channel and the device for itself, and a goroutine that ends with Close.
// Errors: a [RejectedError] if the server said no or nobody listens; ENODEV if the address
// leads to no RDMA device; what is missing on this system. Source: rdma_connect(3).
func Dial(ctx context.Context, address string, o *Options) (*Conn, error) {
	return firstOf(ctx, "dial", address, o, dialAddr)
}

// firstOf tries the addresses of a name one after the other. The error is that of the first.
func firstOf[T any](ctx context.Context, op, address string, o *Options,
	try func(context.Context, netip.AddrPort, *Options) (T, error)) (none T, first error) {
	opts, err := o.withDefaults()
	if err != nil {
		return none, &Error{Op: op, Addr: address, Err: err}
	}
	addrs, err := lookup(ctx, address, false)
	if err != nil {
		return none, &Error{Op: op, Addr: address, Err: err}
	}
	for _, addr := range addrs {
		c, err := try(ctx, addr, opts)
		if err == nil {
			return c, nil
		}
		if first == nil {
			first = err
		}
		if ctx.Err() != nil {
			break
		}
	}
	return none, first
}

func dialAddr(ctx context.Context, addr netip.AddrPort, o *Options) (*Conn, error) {
	c, err := resolved(ctx, "dial", PortSpaceTCP, addr, o)
	if err != nil {
		return nil, err
	}
	if _, err := c.connect(ctx, &o.ConnParam); err != nil {
		return nil, c.giveUp(wrap(opConnect, addr, err))
	}
	return c, nil
}

// resolved makes a queue pair on the device that leads to an address.
func resolved(ctx context.Context, op string, ps PortSpace, addr netip.AddrPort, o *Options) (*Conn, error) {
	ep, err := openHub(o.System, ps)
	if err != nil {
		return nil, err
	}
	if err := ep.resolve(ctx, addr, o); err != nil {
		return nil, joined(err, ep.hub.close(ep))
	}
	c, err := newConn(ep, o)
	return c, wrap(op, addr, err)
}

// resolve finds device and route.
func (e *endpoint) resolve(ctx context.Context, addr netip.AddrPort, o *Options) error {
	if err := e.resolveAddr(ctx, addr, o); err != nil {
		return err
	}
	if err := e.id.ResolveRoute(o.Timeout); err != nil {
		return err
	}
	_, err := e.await(ctx, EventRouteResolved)
	return wrap(opRoute, addr, err)
}

func (e *endpoint) resolveAddr(ctx context.Context, addr netip.AddrPort, o *Options) error {
	if err := e.id.ResolveAddr(o.Source, addr, o.Timeout); err != nil {
		return err
	}
	_, err := e.await(ctx, EventAddrResolved)
	return wrap(opResolve, addr, err)
}

func (c *Conn) connect(ctx context.Context, p *ConnParam) (*Event, error) {
	if err := c.ep.id.Connect(*p); err != nil {
		return nil, err
	}
	ev, err := c.ep.await(ctx, EventEstablished)
	if err != nil {
		return nil, err
	}
	c.private = ev.PrivateData
	return ev, nil
}
