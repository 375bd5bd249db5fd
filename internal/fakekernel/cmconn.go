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
		if err = id.bindTo(netip.AddrPortFrom(netip.IPv4Unspecified(), 0), 0); err != nil {
			return err
		}
	}
	if id.state != cmBound {
		return unix.EINVAL
	}
	if id.reuse {
		if err := id.checkPort(false); err != nil {
			return err
		}
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

// listener finds who listens at an address: cma_find_listener. Where nobody does at the
// port of the address, there is no service at all.
func (k *Kernel) listener(ps uint16, to netip.AddrPort) (l *cmID, service bool) {
	for _, c := range k.cm.ids {
		if c.state != cmListen || c.bindPS != ps || c.src.Port() != to.Port() || c.ib != nil || c.dead {
			continue
		}
		service = true
		a := c.src.Addr()
		if anyAddr(a) && (!c.afOnly || a.Is4() == to.Addr().Is4()) || a.WithZone("") == to.Addr().WithZone("") {
			return c, true
		}
	}
	return nil, service
}

// connect sends a request: rdma_connect of core/cma.c.
func (f *cmFile) connect(c cmCall) error {
	in, err := partial[abi.RdmaUcmConnect](c)
	if err != nil {
		return err
	}
	if in.ConnParam.Valid == 0 {
		return unix.EINVAL
	}
	id, err := f.findBound(in.Id)
	if err != nil {
		return err
	}
	id.ece = in.Ece
	in.ConnParam.QpNum &= 0xff_ffff
	switch {
	case id.iwarp():
		return id.iwConnect(&in.ConnParam)
	case id.state != cmRouteResolved:
		return unix.EINVAL
	case id.datagrams():
		return id.sidrConnect(&in.ConnParam)
	case in.ConnParam.PrivateDataLen > connectData || !connects(id.qpType):
		return unix.EINVAL
	}
	p := &in.ConnParam
	id.state, id.link = cmConnect, linkReqSent
	id.respRes, id.initDepth = p.ResponderResources, p.InitiatorDepth
	id.retry, id.rnrRetry = min(p.RetryCount, 7), min(p.RnrRetryCount, 7)
	f.k.request(id, p, 0)
	return nil
}

// connects tells whether a request can be for a transport.
func connects(qpType uint8) bool {
	return qpType == abi.IB_UVERBS_QPT_RC || qpType == abi.IB_UVERBS_QPT_UC || qpType == abi.IB_UVERBS_QPT_XRC_INI
}

// maxTries is how often a message is sent that is not answered.
const maxTries = 16

// request brings a connection request to its listener. A full one does not answer, so that
// the request comes again.
func (k *Kernel) request(from *cmID, p *abi.RdmaUcmConnParam, tries int) {
	d := k.deviceAt(from.dst.Addr())
	if d == nil || k.lost(CMRequest, from) {
		k.after(k.opts.CMTimeout, func() { from.unanswered() })
		return
	}
	l, service := k.listener(from.ps, from.dst)
	switch {
	case !service:
		from.rejected(rejectNoService, nil)
		return
	case l == nil || l.qpType != 0 && l.qpType != from.qpType:
		from.rejected(rejectConsumer, nil)
		return
	case l.slots == 0 && tries == maxTries:
		from.unanswered()
		return
	case l.slots == 0:
		again := *p
		k.after(k.opts.CMTimeout, func() {
			if !from.dead && from.link == linkReqSent {
				k.request(from, &again, tries+1)
			}
		})
		return
	}
	child := from.requestTo(l, d)
	child.respRes, child.initDepth = p.InitiatorDepth, p.ResponderResources
	child.retry, child.rnrRetry = from.retry, from.rnrRetry
	child.remoteQPN, child.remotePSN = p.QpNum, from.psn
	child.link, child.path = linkReqRcvd, from.path.inbound(from)

	// The peer's depth is what this side has to answer, and the other way round.
	seen := abi.RdmaUcmConnParam{
		QpNum: p.QpNum, ResponderResources: p.InitiatorDepth, InitiatorDepth: p.ResponderResources,
		FlowControl: p.FlowControl & 1, RetryCount: from.retry, RnrRetryCount: from.rnrRetry, Srq: oneIf(p.Srq != 0),
	}
	seen = private(seen, p.PrivateData[:p.PrivateDataLen], connectData)
	l.announce(child, bytesOf(&seen), from.sentECE())
}

// requestTo makes the id of a request at its listener.
func (c *cmID) requestTo(l *cmID, d *device) *cmID {
	child := c.file.k.newID(l.file, l.ps, c.qpType)
	child.state, child.bound = cmConnect, true
	child.src, child.dst, child.dev, child.scope = c.dst, c.src, d, d.IfIndex
	child.peer, c.peer = c, child
	return child
}

// sentECE is what the messages carry: 24 bits of the vendor.
func (c *cmID) sentECE() abi.RdmaUcmEce {
	return abi.RdmaUcmEce{VendorId: c.ece.VendorId & 0xff_ffff, AttrMod: c.ece.AttrMod}
}

func oneIf(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

// unanswered ends a request that got no answer, or a reply of which nobody heard.
func (c *cmID) unanswered() {
	switch c.link {
	case linkReqSent, linkRepSent, linkSidrSent:
		c.link = linkIdle
		c.push(EventUnreachable, -int32(unix.ETIMEDOUT), abi.RdmaUcmConnParam{})
	}
}

// rejected is what an id hears when the peer declines.
func (c *cmID) rejected(reason int32, data []byte) {
	c.link = linkIdle
	c.push(EventRejected, reason, private(abi.RdmaUcmConnParam{}, data, rejectData))
}

// sendReject tells the peer that nothing comes of the connection. If it does not arrive the
// peer waits in vain.
func (c *cmID) sendReject(reason int32, data []byte) {
	if p := c.send(CMReject); p != nil {
		p.rejected(reason, data)
		return
	}
	c.peer.waitInVain()
}

// waitInVain ends the waiting for a message that was lost.
func (c *cmID) waitInVain() {
	if c == nil || c.dead {
		return
	}
	k, link := c.file.k, c.link
	k.after(k.opts.CMTimeout, func() {
		if !c.dead && c.link == link {
			c.unanswered()
		}
	})
}

// accept is both the reply of the passive side and the last word of the active one.
func (f *cmFile) accept(c cmCall) error {
	in, err := partial[abi.RdmaUcmAccept](c)
	if err != nil {
		return err
	}
	id, err := f.findBound(in.Id)
	if err != nil {
		return err
	}
	id.ece = in.Ece
	if id.state != cmConnect {
		return unix.EINVAL
	}
	switch {
	case id.iwarp():
		return id.iwAccept(&in)
	case id.datagrams():
		return id.sidrAccept(&in)
	case in.ConnParam.Valid == 0:
		return id.readyToUse()
	}
	if id.link != linkReqRcvd || in.ConnParam.PrivateDataLen > acceptData {
		id.decline(rejectConsumer, nil) // as rdma_accept does with what it cannot send
		return unix.EINVAL
	}
	id.uid = in.Uid
	in.ConnParam.QpNum &= 0xff_ffff
	id.reply(&in.ConnParam)
	return nil
}

// reply tells the active side that it is accepted.
func (c *cmID) reply(p *abi.RdmaUcmConnParam) {
	c.link, c.respRes, c.initDepth = linkRepSent, p.ResponderResources, p.InitiatorDepth
	peer := c.send(CMReply)
	if peer == nil {
		c.waitInVain()
		c.peer.waitInVain()
		return
	}
	peer.link, peer.remoteQPN, peer.remotePSN = linkRepRcvd, p.QpNum, c.psn
	peer.respRes, peer.initDepth = p.InitiatorDepth, p.ResponderResources
	peer.rnrRetry = min(p.RnrRetryCount, 7)
	seen := abi.RdmaUcmConnParam{
		QpNum: p.QpNum, ResponderResources: p.InitiatorDepth, InitiatorDepth: p.ResponderResources,
		FlowControl: p.FlowControl & 1, RnrRetryCount: peer.rnrRetry, Srq: oneIf(p.Srq != 0),
	}
	seen = private(seen, p.PrivateData[:p.PrivateDataLen], acceptData)
	e := peer.event(EventConnectResponse, 0)
	e.resp.Ece = c.sentECE()
	copy(bytesOf(&e.resp.Param), bytesOf(&seen))
	peer.post(e)
}

// readyToUse is the active side's RTU.
func (c *cmID) readyToUse() error {
	if c.link != linkRepRcvd {
		c.decline(rejectConsumer, nil)
		return unix.EINVAL
	}
	c.link = linkEstablished
	if p := c.send(CMReadyToUse); p != nil {
		p.establish()
	} else {
		c.peer.waitInVain()
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
	id, err := f.findBound(in.Id)
	if err != nil {
		return err
	}
	data := in.PrivateData[:in.PrivateDataLen]
	switch {
	case id.iwarp():
		return id.iwReject(data)
	case id.datagrams():
		return id.sidrAnswer(sidrReject, 0, data)
	case len(data) > rejectData || !id.decline(reason, data):
		return unix.EINVAL
	}
	return nil
}

// decline refuses a connection that is not established; false if there is none. After its
// reply the passive side waits, as after a connection.
func (c *cmID) decline(reason int32, data []byte) bool {
	switch c.link {
	case linkReqSent, linkReqRcvd, linkRepRcvd:
		c.link = linkIdle
	case linkRepSent:
		c.timeWait()
	default:
		return false
	}
	c.sendReject(reason, data)
	return true
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
	switch {
	case id.dev == nil:
		return unix.EINVAL
	case id.iwarp():
		return id.iwNotify()
	case !id.hasCM():
		return unix.EINVAL
	}
	return id.hint(in.Event)
}

// hint: core/cm.c, ib_cm_notify. The kernel believes that a path was migrated also where
// there is no other, and cannot end the connection well after that; the fake can.
func (c *cmID) hint(event uint32) error {
	switch {
	case event == asyncCommEst && c.link == linkRepSent:
		c.establish()
	case event == asyncCommEst && c.link == linkEstablished:
		return unix.EISCONN
	case event == asyncPathMig && c.link == linkEstablished:
	default:
		return unix.EINVAL
	}
	return nil
}
