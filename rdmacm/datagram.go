package rdmacm

import (
	"context"
	"net/netip"

	"github.com/pureverbs/rdma/uverbs"
)

// Datagram is a datagram queue pair with the way to one peer. It may send to others as well,
// and receives from anybody who knows its number and Q_Key. Each message is one packet, and
// begins with [uverbs.GRHSize] bytes of header where it is received. It is safe for concurrent
// use.
type Datagram struct {
	*Conn
	ah   *uverbs.AH
	peer UDInfo
}

// ResolveDatagram looks a peer up that listens with [ListenDatagram], or the like of librdmacm:
// it asks for the number and the Q_Key of its queue pair, by service id resolution, and makes a
// queue pair and an address handle. Private data goes along in both directions, see the
// package's documentation. address is as for [Dial].
//
// Nothing is established with that: nobody is told of the end of either side.
//
// It returns when it is done, when it failed, or when ctx ends. Making the address handle may
// resolve a link-layer address, which can block for about a second. Errors: a [RejectedError]
// if nobody listens; ErrNotSupported on iWARP, which has no datagrams. Source: rdma_connect(3).
func ResolveDatagram(ctx context.Context, address string, o *Options) (*Datagram, error) {
	return firstOf(ctx, "resolve datagram", address, o, resolveDatagram)
}

func resolveDatagram(ctx context.Context, addr netip.AddrPort, o *Options) (*Datagram, error) {
	c, err := resolved(ctx, "resolve datagram", PortSpaceUDP, addr, o)
	if err != nil {
		return nil, err
	}
	ev, err := c.connect(ctx, &o.ConnParam)
	if err != nil {
		return nil, c.giveUp(wrap(opConnect, addr, err))
	}
	d := &Datagram{Conn: c, peer: ev.UD}
	if d.ah, err = c.createAH(&ev.UD); err != nil {
		return nil, c.giveUp(wrap(opConnect, addr, err))
	}
	return d, nil
}

// createAH makes an address handle that is closed with the connection, when no datagram can be
// under way any more.
func (c *Conn) createAH(to *UDInfo) (*uverbs.AH, error) {
	ah, err := c.pd.CreateAH(&to.AH)
	if err != nil {
		return nil, err
	}
	c.Cleanup(ah.Close)
	return ah, nil
}

// Dest returns where to send to: for [uverbs.SendWR].
func (d *Datagram) Dest() uverbs.Dest { return d.ah.Dest(d.peer.QPNum, d.peer.QKey) }

// Peer returns the peer's queue pair number and Q_Key, and the way to it.
func (d *Datagram) Peer() UDInfo { return d.peer }

// DatagramListener is a datagram queue pair that others can look up by IP address and port. It
// is safe for concurrent use.
type DatagramListener struct {
	*Conn
	addr netip.AddrPort
}

// ListenDatagram makes a datagram queue pair and answers those who look it up, see
// [ResolveDatagram], with its number, its Q_Key and the private data of the options. It does not
// keep them: who a datagram comes from is in its completion, see [uverbs.PD.CreateAHFromWC].
//
// address is that of one interface, with a port; port 0 stands for a free one, see
// [DatagramListener.Addr]. Prepare is the place to post receives. A program that wants a queue
// pair for each client, or a say in who gets an answer, uses an [EventChannel] with
// PortSpaceUDP.
//
// Errors: as for [Listen]; ErrInvalid for the unspecified address, which has no device;
// ErrNotSupported on iWARP. Source: rdma_listen(3), rdma_accept(3).
func ListenDatagram(ctx context.Context, address string, o *Options) (*DatagramListener, error) {
	const op = "listen for datagrams"
	return firstOf(ctx, op, address, o, func(_ context.Context, addr netip.AddrPort, o *Options) (*DatagramListener, error) {
		if addr.Addr().IsUnspecified() {
			return nil, wrap(op, addr, invalidError("a datagram queue pair needs the address of an interface"))
		}
		l, err := listenDatagram(addr, o)
		return l, wrap(op, addr, err)
	})
}

func listenDatagram(addr netip.AddrPort, o *Options) (*DatagramListener, error) {
	ep, err := openHub(o, PortSpaceUDP)
	if err != nil {
		return nil, err
	}
	if err := ep.id.Bind(addr); err != nil {
		return nil, joined(err, ep.hub.close(ep))
	}
	c, err := newConn(ep, o)
	if err != nil {
		return nil, err
	}
	p := o.ConnParam
	p.QPNum = c.qp.Num()
	ep.hub.mu.Lock()
	ep.answer = func(ev *Event) {
		_ = ev.ID.Accept(p) // the one who asked is gone, or asks again
	}
	ep.hub.mu.Unlock()
	if err := ep.id.Listen(o.Backlog); err != nil {
		return nil, c.giveUp(err)
	}
	return &DatagramListener{Conn: c, addr: ep.id.LocalAddr()}, nil
}

// Addr returns the address that the listener is bound to, with the port.
func (l *DatagramListener) Addr() netip.AddrPort { return l.addr }
