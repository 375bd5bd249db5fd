//go:build linux

package fakekernel

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
)

const maxBacklog = 1024

func (f *cmFile) listen(c cmCall) error {
	in, err := body[abi.RdmaUcmListen](c)
	if err != nil {
		return err
	}
	id, err := f.find(in.Id)
	if err != nil {
		return err
	}
	if id.state == cmIdle {
		if err := id.bindTo(netip.AddrPortFrom(netip.IPv4Unspecified(), 0), 0); err != nil {
			return err
		}
	}
	if id.state != cmBound {
		return unix.EINVAL
	}
	if err := id.checkPort(false); err != nil {
		return err
	}
	if err := id.listenTCP(); err != nil {
		return err
	}
	id.state, id.reuse, id.slots = cmListen, false, int(in.Backlog)
	if n := int32(in.Backlog); n <= 0 || n > maxBacklog {
		id.slots = maxBacklog
	}
	return nil
}

// listener finds who listens at an address: cma_find_listener.
func (k *Kernel) listener(ps uint16, to netip.AddrPort) *cmID {
	for _, c := range k.cm.ids {
		if c.state != cmListen || c.ps != ps || c.src.Port() != to.Port() || c.dead {
			continue
		}
		a := c.src.Addr()
		if a.IsUnspecified() && (!c.afOnly || a.Is4() == to.Addr().Is4()) || a.WithZone("") == to.Addr().WithZone("") {
			return c
		}
	}
	return nil
}

// connect sends a request: cma_connect_ib.
func (f *cmFile) connect(c cmCall) error {
	in := partial[abi.RdmaUcmConnect](c)
	if in.ConnParam.Valid == 0 {
		return unix.EINVAL
	}
	id, err := f.find(in.Id)
	if err != nil {
		return err
	}
	switch {
	case id.iwarp():
		return id.iwConnect(&in.ConnParam)
	case id.state != cmRouteResolved || in.ConnParam.PrivateDataLen > connectData:
		return unix.EINVAL
	case id.ps != abi.RDMA_PS_TCP && id.ps != abi.RDMA_PS_IB:
		return unix.EOPNOTSUPP
	}
	p := &in.ConnParam
	id.state, id.link = cmConnect, linkReqSent
	id.respRes, id.initDepth = p.ResponderResources, p.InitiatorDepth
	id.retry, id.rnrRetry = min(p.RetryCount, 7), min(p.RnrRetryCount, 7)
	f.k.request(id, p)
	return nil
}

// request brings a connection request to its listener.
func (k *Kernel) request(from *cmID, p *abi.RdmaUcmConnParam) {
	d := k.deviceAt(from.dst.Addr())
	if d == nil || k.cut {
		k.after(k.opts.CMTimeout, func() { from.unanswered() })
		return
	}
	l := k.listener(from.ps, from.dst)
	switch {
	case l == nil:
		from.rejected(rejectNoService, nil)
		return
	case l.slots == 0:
		from.rejected(rejectConsumer, nil)
		return
	}
	l.slots--
	child := k.newID(l.file, l.ps)
	child.state, child.link = cmConnect, linkReqRcvd
	child.src, child.dst, child.dev = from.dst, from.src, d
	child.scope = d.IfIndex
	child.respRes, child.initDepth = p.InitiatorDepth, p.ResponderResources
	child.retry, child.rnrRetry = from.retry, from.rnrRetry
	child.remoteQPN, child.remotePSN = p.QpNum, from.psn
	child.peer, from.peer = from, child

	// The peer's depth is what this side has to answer, and the other way round.
	seen := abi.RdmaUcmConnParam{
		QpNum: p.QpNum, ResponderResources: p.InitiatorDepth, InitiatorDepth: p.ResponderResources,
		FlowControl: p.FlowControl, RetryCount: from.retry, RnrRetryCount: from.rnrRetry, Srq: p.Srq,
	}
	if l.uid == 0 { // nobody would hear of it
		k.endID(child)
		return
	}
	l.push(EventConnectRequest, 0, private(seen, p.PrivateData[:p.PrivateDataLen], connectData))
	e := &l.file.queue[len(l.file.queue)-1]
	e.child, e.resp.Id = child, child.id
}

// unanswered ends a request that got no answer.
func (c *cmID) unanswered() {
	if c.link == linkReqSent && c.peer == nil {
		c.link = linkIdle
		c.push(EventUnreachable, -int32(unix.ETIMEDOUT), abi.RdmaUcmConnParam{})
	}
}

// rejected is what an id hears when the peer declines.
func (c *cmID) rejected(reason int32, data []byte) {
	c.link = linkIdle
	c.push(EventRejected, reason, private(abi.RdmaUcmConnParam{}, data, rejectData))
}

// accept is both the reply of the passive side and the last word of the active one.
func (f *cmFile) accept(c cmCall) error {
	in := partial[abi.RdmaUcmAccept](c)
	id, err := f.find(in.Id)
	if err != nil {
		return err
	}
	if id.state != cmConnect {
		return unix.EINVAL
	}
	switch {
	case id.iwarp():
		return id.iwAccept(&in)
	case in.ConnParam.Valid == 0:
		return id.readyToUse()
	}
	if id.link != linkReqRcvd || in.ConnParam.PrivateDataLen > acceptData {
		id.decline(rejectConsumer, nil) // as rdma_accept does with what it cannot send
		return unix.EINVAL
	}
	id.uid = in.Uid
	id.reply(&in.ConnParam)
	return nil
}

// reply tells the active side that it is accepted.
func (c *cmID) reply(p *abi.RdmaUcmConnParam) {
	c.link, c.respRes, c.initDepth = linkRepSent, p.ResponderResources, p.InitiatorDepth
	peer := c.other()
	if peer == nil {
		return
	}
	peer.link, peer.remoteQPN, peer.remotePSN = linkRepRcvd, p.QpNum, c.psn
	peer.respRes, peer.initDepth = p.InitiatorDepth, p.ResponderResources
	peer.rnrRetry = min(p.RnrRetryCount, 7)
	seen := abi.RdmaUcmConnParam{
		QpNum: p.QpNum, ResponderResources: p.InitiatorDepth, InitiatorDepth: p.ResponderResources,
		FlowControl: p.FlowControl, RnrRetryCount: peer.rnrRetry, Srq: p.Srq,
	}
	peer.push(EventConnectResponse, 0, private(seen, p.PrivateData[:p.PrivateDataLen], acceptData))
}

// readyToUse is the active side's RTU.
func (c *cmID) readyToUse() error {
	if c.link != linkRepRcvd {
		c.decline(rejectConsumer, nil)
		return unix.EINVAL
	}
	c.link = linkEstablished
	if p := c.other(); p != nil {
		p.establish()
	}
	return nil
}

// establish is the end of the passive side's waiting.
func (c *cmID) establish() {
	if c.link == linkRepSent {
		c.link = linkEstablished
		c.push(EventEstablished, 0, abi.RdmaUcmConnParam{})
	}
}

func (f *cmFile) reject(c cmCall) error {
	in, err := body[abi.RdmaUcmReject](c)
	if err != nil {
		return err
	}
	reason := int32(in.Reason)
	switch in.Reason {
	case 0:
		reason = rejectConsumer
	case rejectConsumer, rejectVendor:
	default:
		return unix.EINVAL
	}
	id, err := f.find(in.Id)
	if err != nil {
		return err
	}
	if id.iwarp() {
		return id.iwReject(in.PrivateData[:in.PrivateDataLen])
	}
	if in.PrivateDataLen > rejectData || !id.decline(reason, in.PrivateData[:in.PrivateDataLen]) {
		return unix.EINVAL
	}
	return nil
}

// decline refuses a connection that is not established; false if there is none.
func (c *cmID) decline(reason int32, data []byte) bool {
	switch c.link {
	case linkReqRcvd, linkRepSent, linkRepRcvd:
		c.link = linkIdle
		if p := c.other(); p != nil {
			p.rejected(reason, data)
		}
		return true
	}
	return false
}

func (f *cmFile) notify(c cmCall) error {
	in, err := body[abi.RdmaUcmNotify](c)
	if err != nil {
		return err
	}
	id, err := f.find(in.Id)
	if err != nil {
		return err
	}
	if id.iwarp() {
		return id.iwNotify()
	}
	if in.Event != asyncCommEst || id.state != cmConnect {
		return unix.EINVAL
	}
	id.establish()
	return nil
}
