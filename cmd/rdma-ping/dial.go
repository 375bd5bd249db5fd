package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/pureverbs/rdma/rdmacm"
)

// dialTimeout covers address, route and connection: more than the connection manager's own
// retries take.
const dialTimeout = 30 * time.Second

// dial connects, with memory and receives for either protocol in place, and finds out which
// one the server speaks.
func (p *pinging) dial(ctx context.Context, source netip.AddrPort, opts []rdmacm.Option) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := rdmacm.Dial(ctx, p.target.addr.String(), &rdmacm.Options{
		QP: queueSizes(), Blocking: p.opts.block, Source: source, Prepare: p.prepare, System: opts,
		ConnParam: rdmacm.ConnParam{
			PrivateData: p.hello(), ResponderResources: 1, InitiatorDepth: 1, RetryCount: 7, RNRRetryCount: 7,
		},
	})
	if err != nil {
		// Dial could not close all of it while our regions were registered.
		return errors.Join(&dialError{p.target.addr, source.Addr(), firstError(err)}, p.link.close())
	}
	p.target.device = conn.PD().Context().Device().Name()
	if err := p.greeted(conn.PrivateData()); err != nil {
		return errors.Join(err, p.link.close())
	}
	return nil
}

// dialError is a connection that did not come about.
type dialError struct {
	addr   netip.AddrPort
	source netip.Addr // invalid: the kernel's choice
	err    error
}

func (e *dialError) Error() string { return e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }

// hello is the private data of our request: none where rping is to be imitated.
func (p *pinging) hello() []byte {
	if p.opts.rping {
		return nil
	}
	h := hello{kind: kindRequest, size: uint32(p.opts.size), window: uint16(windowFor(p.opts.size))}
	return h.marshal()
}

// prepare registers the memory and posts the receives. Slots 0 to window-1 are for
// requests; the others receive, in either protocol.
func (p *pinging) prepare(conn *rdmacm.Conn) error {
	window := windowFor(p.opts.size)
	frame := max(headerLen+p.opts.size, rpingInfoLen)
	if p.opts.rping {
		frame = rpingInfoLen
	}
	err := p.link.allocate(conn.PD(), 2*window, frame)
	if err == nil {
		err = p.link.attach(conn, window, window, p.opts.poll)
	}
	if err != nil {
		return errors.Join(err, p.link.free())
	}
	return nil
}

// firstError is the one that errors.Join was given first, the cause of those that follow.
func firstError(err error) error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok && strings.Contains(err.Error(), "\n") {
		return joined.Unwrap()[0]
	}
	return err
}

// greeted looks at the server's private data, of which nothing is taken on trust.
func (p *pinging) greeted(private []byte) error {
	if p.opts.rping || isRping(private) {
		if p.opts.size == 0 {
			return usagef("the server is rping, which needs a size of at least 1 (-s)")
		}
		return nil
	}
	h, err := parseHello(private)
	switch {
	case err != nil:
		return fmt.Errorf("the server is neither rdma-ping serve nor rping -s: %w", err)
	case h.version != helloVersion:
		return fmt.Errorf("the server speaks version %d of the protocol, this is %d: use the same rdma-ping on both sides", h.version, helloVersion)
	case h.kind != kindAccept || int64(h.size) != int64(p.opts.size) || h.window == 0 || int(h.window) > windowFor(p.opts.size):
		return fmt.Errorf("the server's hello makes no sense: kind %d, size %d, window %d", h.kind, h.size, h.window)
	case h.idle != 0 && p.opts.interval >= h.idleTime():
		return usagef("the server closes connections that are silent for %v: -i %v is too long", h.idleTime(), p.opts.interval)
	}
	p.answer = h
	return nil
}
