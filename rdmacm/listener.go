package rdmacm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"

	"github.com/pureverbs/rdma/uverbs"
)

// Listener takes connection requests. It is safe for concurrent use.
type Listener struct {
	ep   *endpoint
	opts *Options
	addr netip.AddrPort
	life context.Context // ends with Close
	end  context.CancelFunc

	mu   sync.Mutex
	undo closers
}

// Listen takes connection requests on an address: "192.0.2.1:7174", "[fe80::1%eth0]:7174",
// ":7174" or "[::]:7174" for all addresses of IPv4 and IPv6, "0.0.0.0:7174" for those of
// IPv4. Port 0 stands for a free one, see [Listener.Addr]. nil for o stands for the
// defaults.
//
// It belongs to the network namespace of the calling thread: a goroutine that changed its
// namespace has to be locked to its thread.
//
// Errors: ENODEV if the address belongs to no RDMA device, or there is none at all;
// EADDRNOTAVAIL, EADDRINUSE (also for all addresses of both families on siw of Linux 5.10,
// which cannot listen for both); what is missing on this system. Source: rdma_listen(3).
func Listen(ctx context.Context, address string, o *Options) (*Listener, error) {
	opts, err := o.withDefaults()
	if err != nil {
		return nil, &Error{Op: opListen, Addr: address, Err: err}
	}
	addrs, err := lookup(ctx, address, true)
	if err != nil {
		return nil, &Error{Op: opListen, Addr: address, Err: err}
	}
	l, err := listen(addrs[0], opts)
	for range portTries {
		if addrs[0].Port() != 0 || !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
		l, err = listen(addrs[0], opts)
	}
	return l, err
}

// portTries is how often Listen asks for another free port, where the one of IPv6 is not free
// for IPv4.
const portTries = 3

func listen(addr netip.AddrPort, o *Options) (*Listener, error) {
	ep, err := openHub(o, PortSpaceTCP)
	if err != nil {
		return nil, err
	}
	l := &Listener{ep: ep, opts: o}
	l.life, l.end = context.WithCancel(context.Background())
	l.undo.add(func() error { return ep.hub.close(ep) })
	if err := l.start(addr); err != nil {
		return nil, joined(err, l.Close())
	}
	return l, nil
}

func (l *Listener) start(addr netip.AddrPort) error {
	h := l.ep.hub
	apart := false // IPv4 needs an id of its own
	if addr.Addr().IsUnspecified() {
		devs, err := h.ch.devs.list()
		if err == nil {
			err = anyDevice(devs)
		}
		if err != nil {
			return err
		}
		apart = slices.ContainsFunc(devs, speaksIWARP)
	}
	if addr.Addr() == netip.IPv6Unspecified() { // whatever sysctl net.ipv6.bindv6only says
		if err := l.ep.id.SetAFOnly(apart); err != nil {
			return err
		}
	} else {
		apart = false
	}
	if err := l.ep.id.Bind(addr); err != nil {
		return err
	}
	h.mu.Lock()
	l.ep.queue = &requestQueue{listener: l, ch: make(chan *Request, l.opts.Backlog)}
	h.mu.Unlock()
	l.undo.add(l.drain)
	if err := l.ep.id.Listen(l.opts.Backlog); err != nil {
		return err
	}
	l.addr = l.ep.id.LocalAddr()
	if apart {
		return l.addIPv4()
	}
	return nil
}

func speaksIWARP(d *uverbs.Device) bool { return d.Protocol() == protocolIWARP }

// addIPv4 listens for IPv4 on a second id, whose requests go into the same queue. On RoCE and
// InfiniBand a listener on [::] takes both families; on iWARP the kernel refuses what
// comes to it by IPv4, because it cannot tell the device of such an address.
func (l *Listener) addIPv4() error {
	h := l.ep.hub
	id, err := h.ch.NewID(PortSpaceTCP)
	if err != nil {
		return err
	}
	h.mu.Lock()
	ep := h.addLocked(id)
	ep.queue = l.ep.queue
	h.mu.Unlock()
	l.undo.add(func() error { return h.close(ep) })
	if err := l.opts.control(id); err != nil {
		return err
	}
	if err := id.Bind(netip.AddrPortFrom(netip.IPv4Unspecified(), l.addr.Port())); err != nil {
		return err
	}
	err = id.Listen(l.opts.Backlog)
	if e := (*Error)(nil); errors.As(err, &e) && errors.Is(err, syscall.EADDRINUSE) {
		e.Hint += "; siw of Linux 5.10 listens for one family a port only: for IPv4 listen on 0.0.0.0"
	}
	return err
}

// over is why there are no requests any more. Whatever it was, the listener is as good as
// closed: a loop that goes on after all other errors has to see it.
func (l *Listener) over() error {
	err := l.ep.err
	if !errors.Is(err, net.ErrClosed) {
		err = fmt.Errorf("%w: %w", net.ErrClosed, err)
	}
	return &Error{Op: opAccept, Addr: text(l.addr), Err: err}
}

// Addr returns the address that the listener is bound to, with the port.
func (l *Listener) Addr() netip.AddrPort { return l.addr }

// Next waits for a connection request. It has to be answered, or closed. Next returns when
// there is one, when ctx ends, or with net.ErrClosed when l is closed, or has ended because its
// device was removed (ErrDeviceRemoved as well).
func (l *Listener) Next(ctx context.Context) (*Request, error) {
	q := l.ep.queue
	select {
	case <-l.ep.done:
		return nil, l.over()
	default:
	}
	select {
	case r := <-q.ch:
		return r, nil
	case <-l.ep.done:
		return nil, l.over()
	case <-ctx.Done():
		return nil, wrap(opAccept, l.addr, context.Cause(ctx))
	}
}

// Accept waits for a connection request and accepts it with the listener's options. Clients
// that gave up in between are skipped. A client that never confirms holds Accept up for
// AcceptTimeout: a server that faces strangers calls Accept from several goroutines, or Next
// and [Request.Accept] in a goroutine each.
//
// Accept returns when ctx ends, or with net.ErrClosed when l is closed or has ended, see Next.
// Another error, for one of Prepare, or EMFILE, concerns that request; the listener goes on.
func (l *Listener) Accept(ctx context.Context) (*Conn, error) {
	for {
		r, err := l.Next(ctx)
		if err != nil {
			return nil, err
		}
		c, err := l.accept(ctx, r)
		switch {
		case err == nil:
			return c, nil
		case l.ep.ended():
			return nil, l.over()
		case errors.Is(err, ErrRequestGone):
		default:
			return nil, err
		}
	}
}

// accept gives one client its time, and ends early when the listener is closed.
func (l *Listener) accept(ctx context.Context, r *Request) (*Conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, l.opts.AcceptTimeout, ErrRequestGone)
	defer cancel()
	ctx, closed := context.WithCancelCause(ctx)
	defer closed(nil)
	defer context.AfterFunc(l.life, func() { closed(net.ErrClosed) })()
	return r.Accept(ctx, nil)
}

// Close stops listening and wakes Next and Accept with net.ErrClosed. Requests that nobody
// has taken are rejected. Accepted connections, and requests that Next returned, live on.
// Closing again does nothing.
func (l *Listener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ep.finish(net.ErrClosed)
	l.end()
	return wrap("close listener", l.addr, l.undo.run())
}

// drain rejects what is in the queue and lets nothing in any more.
func (l *Listener) drain() error {
	h, q := l.ep.hub, l.ep.queue
	h.mu.Lock()
	q.closed = true
	h.mu.Unlock()
	for {
		select {
		case r := <-q.ch:
			if err := r.Close(); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}
