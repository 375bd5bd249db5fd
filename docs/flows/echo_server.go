package flows

import (
	"context"
	"errors"
	"net/netip"

	"github.com/pureverbs/rdma/rdmacm"
)

// EchoServer sends what a client sends back to it, until the client leaves. ready is called
// with the address when clients may come.
func EchoServer(ctx context.Context, addr netip.AddrPort, ready func(netip.AddrPort), opts ...rdmacm.Option) (err error) {
	// 1 event channel
	events, err := rdmacm.NewEventChannel(opts...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, events.Close()) }()
	listener, err := events.NewID(rdmacm.PortSpaceTCP)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, listener.Close()) }()
	// 2 address
	if err := listener.Bind(addr); err != nil {
		return err
	}
	// 3 listen, and tell the port
	if err := listener.Listen(10); err != nil {
		return err
	}
	ready(listener.LocalAddr())
	var e endpoint
	defer func() { err = errors.Join(err, e.close()) }()
	return serveEcho(ctx, events, &e)
}

func serveEcho(ctx context.Context, events *rdmacm.EventChannel, e *endpoint) error {
	// 4 connection request
	request, err := next(ctx, events, rdmacm.EventConnectRequest)
	if err != nil {
		return err
	}
	// 5 protection domain, completion queues, queue pair; memory region, first receive
	if err := e.prepare(request.ID); err != nil {
		return err
	}
	// 6 accept
	if err := request.ID.Accept(rdmacm.ConnParam{}); err != nil {
		return err
	}
	// 7 connected
	if _, err := next(ctx, events, rdmacm.EventEstablished); err != nil {
		return err
	}
	// 8 operations
	echoes := make(chan error, 1)
	go func() { echoes <- e.echo(ctx) }()
	_, err = next(ctx, events, rdmacm.EventDisconnected)
	// This flushes the receive that waits, which ends the echoing.
	return errors.Join(err, e.id.Disconnect(), <-echoes)
}

// echo ends with the connection, when what is posted comes back unused.
func (e *endpoint) echo(ctx context.Context) error {
	for {
		text, err := e.receive(ctx)
		if err == nil {
			err = e.send(ctx, text)
		}
		switch {
		case flushed(err):
			return nil
		case err != nil:
			return err
		}
	}
}
