package flows

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/uverbs"
)

// EchoClient sends texts, one after the other, and returns what comes back.
func EchoClient(ctx context.Context, addr netip.AddrPort, texts []string, opts ...rdmacm.Option) (echoes []string, err error) {
	// 1 event channel
	events, err := rdmacm.NewEventChannel(opts...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, events.Close()) }()
	// 2 id
	id, err := events.NewID(rdmacm.PortSpaceTCP)
	if err != nil {
		return nil, err
	}
	e := endpoint{id: id}
	defer func() { err = errors.Join(err, e.close()) }()
	if err := e.connect(ctx, events, addr); err != nil {
		return nil, err
	}
	// 8 operations
	for _, text := range texts {
		if err := e.send(ctx, text); err != nil {
			return echoes, err
		}
		echo, err := e.receive(ctx)
		if err != nil {
			return echoes, err
		}
		echoes = append(echoes, echo)
	}
	return echoes, id.Disconnect()
}

func (e *endpoint) connect(ctx context.Context, events *rdmacm.EventChannel, addr netip.AddrPort) error {
	// 3 address, which leads to a device
	if err := e.id.ResolveAddr(netip.AddrPort{}, addr, 2*time.Second); err != nil {
		return err
	}
	if _, err := next(ctx, events, rdmacm.EventAddrResolved); err != nil {
		return err
	}
	// 4 protection domain, completion queues, queue pair; memory region, first receive
	if err := e.prepare(e.id); err != nil {
		return err
	}
	// 5 route
	if err := e.id.ResolveRoute(2 * time.Second); err != nil {
		return err
	}
	if _, err := next(ctx, events, rdmacm.EventRouteResolved); err != nil {
		return err
	}
	// 6 connect
	if err := e.id.Connect(rdmacm.ConnParam{}); err != nil {
		return err
	}
	// 7 connected
	_, err := next(ctx, events, rdmacm.EventEstablished)
	return err
}

// flushed tells whether a work request came back unused, because the connection has ended.
func flushed(err error) bool {
	var failed *uverbs.WCError
	return errors.As(err, &failed) && failed.Status == uverbs.WCFlushError
}
