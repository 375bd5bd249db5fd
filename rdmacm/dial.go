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
	const op = "dial"
	opts, err := o.withDefaults()
	if err != nil {
		return nil, &Error{Op: op, Addr: address, Err: err}
	}
	addrs, err := lookup(ctx, address, false)
	if err != nil {
		return nil, &Error{Op: op, Addr: address, Err: err}
	}
	var first error
	for _, addr := range addrs {
		c, err := dialAddr(ctx, addr, opts)
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
	return nil, first
}

func dialAddr(ctx context.Context, addr netip.AddrPort, o *Options) (*Conn, error) {
	h, err := newHub(o.System)
	if err != nil {
		return nil, err
	}
	ep, err := h.open()
	if err != nil {
		return nil, err
	}
	if err := ep.resolve(ctx, addr, o); err != nil {
		return nil, joined(err, h.close(ep))
	}
	c, err := newConn(ep, o)
	if err != nil {
		return nil, wrap("dial", addr, err)
	}
	if err := c.connect(ctx, &o.ConnParam); err != nil {
		return nil, c.giveUp(wrap(opConnect, addr, err))
	}
	return c, nil
}

// resolve finds device and route.
func (e *endpoint) resolve(ctx context.Context, addr netip.AddrPort, o *Options) error {
	if err := e.id.ResolveAddr(o.Source, addr, o.Timeout); err != nil {
		return err
	}
	if _, err := e.await(ctx, EventAddrResolved); err != nil {
		return wrap(opResolve, addr, err)
	}
	if err := e.id.ResolveRoute(o.Timeout); err != nil {
		return err
	}
	_, err := e.await(ctx, EventRouteResolved)
	return wrap(opRoute, addr, err)
}

func (c *Conn) connect(ctx context.Context, p *ConnParam) error {
	if err := c.ep.id.Connect(*p); err != nil {
		return err
	}
	ev, err := c.ep.await(ctx, EventEstablished)
	if err != nil {
		return err
	}
	c.private = ev.PrivateData
	return nil
}
