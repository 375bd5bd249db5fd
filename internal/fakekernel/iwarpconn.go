//go:build linux

package fakekernel

import (
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
)

// A listening id on an iWARP device is a TCP listener, in one port space whatever the id's
// own is. One for all addresses has a listener on each device.

// tcp tells whether a listening id has a TCP listener.
func (c *cmID) tcp() bool {
	if c.dev != nil {
		return c.iwarp()
	}
	for _, d := range c.file.k.devices {
		if !d.dead && d.iwarp() {
			return true
		}
	}
	return false
}

// covers tells whether a listener at a hears what is sent to b.
func (c *cmID) covers(b netip.Addr) bool {
	a := c.src.Addr()
	if a.IsUnspecified() {
		// Before 6.1 siw's socket for IPv6 takes both families whatever the id says.
		return a.Is4() == b.Is4() || a.Is6() && (!c.afOnly || c.file.k.version < v601)
	}
	return a.WithZone("") == b.WithZone("")
}

// listenTCP looks for another listener in the way: sw/siw/siw_cm.c, siw_create_listen.
func (c *cmID) listenTCP() error {
	if !c.tcp() {
		return nil
	}
	for _, o := range c.file.k.cm.ids {
		if o == c || o.state != cmListen || o.src.Port() != c.src.Port() || !o.tcp() {
			continue
		}
		if o.covers(c.src.Addr()) || c.covers(o.src.Addr()) {
			return unix.EADDRINUSE
		}
	}
	return nil
}

// tcpListener finds who listens at an address.
func (k *Kernel) tcpListener(to netip.AddrPort) *cmID {
	if !k.deviceAt(to.Addr()).iwarp() {
		return nil
	}
	for _, c := range k.cm.ids {
		if c.state == cmListen && c.src.Port() == to.Port() && c.tcp() && c.covers(to.Addr()) {
			return c
		}
	}
	return nil
}

// iwConnect makes the TCP connection, which takes its time inside the command, and sends
// the request: cma_connect_iw of core/cma.c, and siw_connect.
func (c *cmID) iwConnect(p *abi.RdmaUcmConnParam) error {
	k := c.file.k
	if c.state != cmRouteResolved {
		return unix.EINVAL
	}
	q := c.dev.qps[p.QpNum]
	switch {
	case q == nil:
		return unix.EINVAL
	case p.InitiatorDepth > siwMaxReads, p.ResponderResources > siwMaxReads:
		return unix.ENOMEM
	case k.cut, k.deviceAt(c.dst.Addr()) == nil:
		return c.unreachable()
	}
	l := k.tcpListener(c.dst)
	if l == nil {
		return unix.ECONNREFUSED
	}
	e := k.connectTCP(c, q.siw(), p)
	c.state = cmConnect
	c.iw = iwConn{state: iwSent, end: e, answered: make(chan struct{})}
	data := append([]byte(nil), p.PrivateData[:p.PrivateDataLen]...)
	e.tell(func() { l.iwRequest(e.other, data) })
	return nil
}

// unreachable is how TCP gives up.
func (c *cmID) unreachable() error {
	k := c.file.k
	c.state = cmConnect
	k.mu.Unlock()
	time.Sleep(k.opts.CMTimeout)
	k.mu.Lock()
	c.state = cmRouteResolved
	return unix.ETIMEDOUT
}

// iwRequest brings a request to its listener, with what the peer's user said, exactly:
// siw_proc_mpareq, and iw_conn_req_handler of core/cma.c.
func (l *cmID) iwRequest(e *siwEnd, data []byte) {
	from := e.other.id
	switch {
	case l.dead, l.slots == 0, l.uid == 0, len(data) > maxMPAData,
		l.src.Addr().Is4() != from.dst.Addr().Is4(): // no device has a mapped address
		e.drop()
		return
	}
	l.slots--
	k := l.file.k
	child := k.newID(l.file, abi.RDMA_PS_TCP)
	child.state, child.iw = cmConnect, iwConn{state: iwReceived, end: e}
	child.src, child.dst, child.dev = from.dst, from.src, k.deviceAt(from.dst.Addr())
	child.scope = child.dev.IfIndex
	seen := abi.RdmaUcmConnParam{InitiatorDepth: e.ord, ResponderResources: e.ird}
	l.push(EventConnectRequest, 0, private(seen, data, len(data)))
	request := &l.file.queue[len(l.file.queue)-1]
	request.child, request.resp.Id = child, child.id
}

// iwAccept: rdma_accept of core/cma.c, which rejects what it cannot accept.
func (c *cmID) iwAccept(in *abi.RdmaUcmAccept) error {
	err := c.tryAccept(&in.ConnParam, in.Uid)
	if err != nil {
		_ = c.iwReject(nil)
	}
	return err
}

// tryAccept: core/iwcm.c, iw_cm_accept. Without parameters there is nothing to establish,
// as the active side does it by itself.
func (c *cmID) tryAccept(p *abi.RdmaUcmConnParam, uid uint64) error {
	q := c.dev.qps[p.QpNum]
	if p.Valid == 0 || c.iw.state != iwReceived || q == nil {
		return unix.EINVAL
	}
	e := c.iw.end
	if err := e.accept(c, q.siw(), p); err != nil {
		c.iw.state = iwIdle
		return err
	}
	c.uid, c.iw.state = uid, iwEstablished
	c.push(EventEstablished, 0, abi.RdmaUcmConnParam{InitiatorDepth: e.ird, ResponderResources: e.ord})
	e.reply(append([]byte(nil), p.PrivateData[:p.PrivateDataLen]...))
	return nil
}
