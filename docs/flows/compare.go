package flows

import (
	"context"
	"errors"
	"net/netip"
	"strings"

	"github.com/pureverbs/rdma/rdmacm"
)

// comparison is a server of rdma_cm, beside that of sockets.
type comparison struct {
	events   *rdmacm.EventChannel
	listener *rdmacm.ID
	conn     endpoint
}

// CompareServer serves one client, over IPv4 or IPv6: it answers a message by the same in
// capital letters. ready is called with the address when clients may come.
func CompareServer(ctx context.Context, addr netip.AddrPort, ready func(netip.AddrPort), opts ...rdmacm.Option) (err error) {
	var s comparison
	defer func() { err = errors.Join(err, s.teardown()) }()
	if err := s.listen(addr, opts); err != nil {
		return err
	}
	ready(s.listener.LocalAddr())
	if err := s.accept(ctx); err != nil {
		return err
	}
	return s.transfer(ctx)
}

func (s *comparison) listen(addr netip.AddrPort, opts []rdmacm.Option) (err error) {
	// 1 event channel
	if s.events, err = rdmacm.NewEventChannel(opts...); err != nil {
		return err
	}
	// 2 id that listens
	if s.listener, err = s.events.NewID(rdmacm.PortSpaceTCP); err != nil {
		return err
	}
	// 3 address
	if err := s.listener.Bind(addr); err != nil {
		return err
	}
	// 4 listen
	return s.listener.Listen(10)
}

func (s *comparison) accept(ctx context.Context) error {
	// 5 connection request
	request, err := next(ctx, s.events, rdmacm.EventConnectRequest)
	if err != nil {
		return err
	}
	// 6 protection domain, completion queues, queue pair
	if err := s.conn.open(request.ID); err != nil {
		return err
	}
	// 7 memory region and first receive
	if err := s.conn.register(); err != nil {
		return err
	}
	// 8 accept
	if err := request.ID.Accept(rdmacm.ConnParam{}); err != nil {
		return err
	}
	_, err = next(ctx, s.events, rdmacm.EventEstablished)
	return err
}

func (s *comparison) transfer(ctx context.Context) error {
	// 9 receive
	text, err := s.conn.receive(ctx)
	if err != nil {
		return err
	}
	// 10 send
	if err := s.conn.send(ctx, strings.ToUpper(text)); err != nil && !flushed(err) {
		return err // a client that leaves at once may not have acknowledged it: that is no error
	}
	// 11 end of the connection
	if _, err := next(ctx, s.events, rdmacm.EventDisconnected); err != nil {
		return err
	}
	return s.conn.id.Disconnect()
}

func (s *comparison) teardown() error {
	return closeAll(
		// 12 queue pair, memory region, completion queues, protection domain
		s.conn.close,
		// 13 id that listened
		closer(s.listener),
		// 14 close the event channel
		closer(s.events),
	)
}
