package rdmacm

import (
	"context"
	"net/netip"
	"time"
)

// Dial connects to a server: "192.0.2.1:7174", "[2001:db8::1]:7174", "[fe80::1%eth0]:7174",
// "server.example:7174". Of a name's addresses it takes the first that works, and gives each an
// equal share of the time that ctx leaves. A link-local address needs a zone, the interface by
// name or number.
//
// Dial returns when the connection is there, when it failed, or when ctx ends, which also
// cuts the kernel's own patience (about a minute with a peer that does not answer). nil for
// o stands for the defaults.
//
// On iWARP the kernel cannot be stopped while it waits for a host that swallows everything:
// Dial returns all the same, and a goroutine closes what it made when the kernel is through,
// after two minutes at the latest. Until then a protection domain or queue that was shared by
// the options is in use.
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
	for i, addr := range addrs {
		c, err := tryOne(ctx, addr, opts, len(addrs)-i, try)
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

// leastShare is what an address gets of the time at least, if that much is left.
const leastShare = 2 * time.Second

// tryOne gives one address its share of the time that ctx leaves, for one that is silent not to
// take it all.
func tryOne[T any](ctx context.Context, addr netip.AddrPort, o *Options, left int,
	try func(context.Context, netip.AddrPort, *Options) (T, error)) (T, error) {
	if deadline, ok := ctx.Deadline(); ok && left > 1 {
		share := max(time.Until(deadline)/time.Duration(left), leastShare)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, share)
		defer cancel()
	}
	return try(ctx, addr, o)
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
	ep, err := openHub(o, ps)
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
	if err := c.callConnect(ctx, p); err != nil {
		return nil, c.ep.reason(err)
	}
	ev, err := c.ep.await(ctx, EventEstablished)
	if err != nil {
		if ctx.Err() != nil && c.ep.id.iwarp() {
			// The kernel ends nothing before the peer has answered, or its time for that is
			// over: 10 s with siw.
			c.calling = make(chan struct{})
			close(c.calling)
		}
		return nil, err
	}
	c.private = ev.PrivateData
	return ev, nil
}

// callConnect returns early when ctx ends: on iWARP the kernel makes the TCP connection within
// the call, and waits for a host that does not answer as long as TCP does, two minutes.
func (c *Conn) callConnect(ctx context.Context, p *ConnParam) error {
	if !c.ep.id.iwarp() {
		return c.ep.id.Connect(*p)
	}
	var err error
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		err = c.ep.id.Connect(*p)
	}()
	select {
	case <-returned:
		return err
	case <-ctx.Done():
		c.calling = returned
		return context.Cause(ctx)
	}
}
