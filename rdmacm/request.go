package rdmacm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"

	"github.com/pureverbs/rdma/uverbs"
)

// requestQueue holds the requests of a listener that nobody has taken. put and closed are
// under the hub's lock.
type requestQueue struct {
	listener *Listener
	ch       chan *Request
	closed   bool
}

// put makes a Request of an event, with an endpoint of its own. It reports false if there is
// no room.
func (q *requestQueue) put(h *hub, ev *Event) bool {
	if q == nil || q.closed || len(q.ch) == cap(q.ch) {
		return false
	}
	// Only the hub's goroutine puts, so the room cannot vanish.
	q.ch <- &Request{ep: h.addLocked(ev.ID), opts: q.listener.opts, event: ev}
	return true
}

// Request is the request of a client for a connection. Answer it with Accept or Reject, or
// close it. The client may have given up meanwhile, which shows when it is answered.
type Request struct {
	ep    *endpoint
	opts  *Options
	event *Event
	used  atomic.Bool
}

// PrivateData returns what the client's program sent along. On InfiniBand and RoCE it is
// padded with zeros to 56 bytes, also if the client sent none. It comes from a peer: check
// all of it.
func (r *Request) PrivateData() []byte { return r.event.PrivateData }

// Conn returns the parameters that the client offers, seen from this side.
func (r *Request) Conn() ConnInfo { return r.event.Conn }

// LocalAddr returns the address that the client connects to.
func (r *Request) LocalAddr() netip.AddrPort { return r.ep.id.LocalAddr() }

// RemoteAddr returns the address of the client.
func (r *Request) RemoteAddr() netip.AddrPort { return r.ep.id.RemoteAddr() }

// Context returns the open device that the request came in on, see [ID.Context]. It closes
// with the last connection of the listener on that device.
func (r *Request) Context() (*uverbs.Context, error) { return r.ep.id.Context() }

// Accept accepts the request and waits until the client confirms, or ctx ends. nil for o
// stands for the listener's options. Whatever the outcome, the request is used up.
//
// Errors: ErrRequestGone if the client has gone, a normal race.
func (r *Request) Accept(ctx context.Context, o *Options) (*Conn, error) {
	addr := r.RemoteAddr()
	if r.used.Swap(true) {
		return nil, wrap(opAccept, addr, net.ErrClosed)
	}
	opts := r.opts
	if o != nil {
		var err error
		if opts, err = o.withDefaults(); err != nil {
			return nil, joined(wrap(opAccept, addr, err), r.ep.hub.close(r.ep))
		}
	}
	if err := opts.control(r.ep.id); err != nil {
		return nil, joined(err, r.ep.hub.close(r.ep))
	}
	c, err := newConn(r.ep, opts)
	if err != nil {
		return nil, wrap(opAccept, addr, err)
	}
	c.private = r.event.PrivateData
	if err := c.accept(ctx, &opts.ConnParam); err != nil {
		return nil, c.giveUp(wrap(opAccept, addr, err))
	}
	return c, nil
}

func (c *Conn) accept(ctx context.Context, p *ConnParam) error {
	if err := c.ep.id.Accept(*p); err != nil {
		return err
	}
	_, err := c.ep.await(ctx, EventEstablished)
	if err != nil && !errors.Is(err, context.Cause(ctx)) && !errors.Is(err, ErrRequestGone) {
		err = fmt.Errorf("%w: %w", ErrRequestGone, err)
	}
	return err
}

// Reject turns the request down, with private data for the client's program. Whatever the
// outcome, the request is used up. That the client has gone is success.
func (r *Request) Reject(private []byte) error {
	if r.used.Swap(true) {
		return wrap(opReject, r.RemoteAddr(), net.ErrClosed)
	}
	return joined(r.ep.id.Reject(private), r.ep.hub.close(r.ep))
}

// Close drops the request; the client sees it rejected. After Accept or Reject it does
// nothing.
func (r *Request) Close() error {
	if r.used.Swap(true) {
		return nil
	}
	return r.ep.hub.close(r.ep)
}
