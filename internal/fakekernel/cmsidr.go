//go:build linux

package fakekernel

import (
	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
)

// Datagrams have no connections. Their ids ask a service for its queue pair (SIDR): one
// request, one reply, and both sides are done.

// Status of a reply: enum ib_cm_sidr_status.
const (
	sidrSuccess     = 0
	sidrUnsupported = 1
	sidrReject      = 2
)

// defaultQKey is what queue pairs of rdma_cm have: RDMA_UDP_QKEY.
const defaultQKey = 0x0123_4567

func (c *cmID) setDefaultQKey() {
	if c.qkey == 0 || c.ps == abi.RDMA_PS_UDP || c.ps == abi.RDMA_PS_IB {
		c.qkey = defaultQKey
	}
}

// sidrConnect: core/cma.c, cma_resolve_ib_udp.
func (c *cmID) sidrConnect(p *abi.RdmaUcmConnParam) error {
	if p.PrivateDataLen > sidrData {
		return unix.EINVAL
	}
	c.state, c.link = cmConnect, linkSidrSent
	c.file.k.sidrRequest(c, append([]byte(nil), p.PrivateData[:p.PrivateDataLen]...))
	return nil
}

// sidrRequest brings a request to the service. One that has no room says no.
func (k *Kernel) sidrRequest(from *cmID, data []byte) {
	d := k.deviceAt(from.dst.Addr())
	if d == nil || k.lost(CMServiceRequest, from) {
		from.waitInVain()
		return
	}
	l, service := k.listener(from.ps, from.dst)
	switch {
	case !service:
		from.sidrReplied(sidrUnsupported, 0, 0, nil)
		return
	case l == nil, l.slots == 0, l.qpType != 0 && !l.datagrams():
		from.sidrReplied(sidrReject, 0, 0, nil)
		return
	}
	child := from.requestTo(l, d)
	child.link = linkSidrRcvd
	var seen abi.RdmaUcmUdParam
	seen.PrivateDataLen = sidrData
	copy(seen.PrivateData[:sidrData], data)
	l.announce(child, bytesOf(&seen), abi.RdmaUcmEce{})
}

// sidrAccept: core/cma.c, rdma_accept. The user's Q_Key counts with addresses of IB only.
func (c *cmID) sidrAccept(in *abi.RdmaUcmAccept) error {
	p := &in.ConnParam
	qpn := c.remoteQPN
	var data []byte
	if p.Valid != 0 {
		qpn, data = p.QpNum&0xff_ffff, p.PrivateData[:p.PrivateDataLen]
	}
	c.setDefaultQKey()
	if err := c.sidrAnswer(sidrSuccess, qpn, data); err != nil {
		_ = c.sidrAnswer(sidrReject, 0, nil)
		return err
	}
	if p.Valid != 0 {
		c.uid = in.Uid
	}
	return nil
}

// sidrAnswer: core/cm.c, ib_send_cm_sidr_rep. There is one answer.
func (c *cmID) sidrAnswer(status int32, qpn uint32, data []byte) error {
	if len(data) > sidrReply || c.link != linkSidrRcvd {
		return unix.EINVAL
	}
	c.link = linkIdle
	c.sendSidr(status, qpn, data)
	return nil
}

func (c *cmID) sendSidr(status int32, qpn uint32, data []byte) {
	if p := c.send(CMServiceReply); p != nil {
		p.sidrReplied(status, qpn, c.qkey, data)
		return
	}
	c.peer.waitInVain()
}

// sidrReplied: core/cma.c, cma_sidr_rep_handler.
func (c *cmID) sidrReplied(status int32, qpn, qkey uint32, data []byte) {
	if c.link != linkSidrSent {
		return
	}
	c.link = linkIdle
	seen := abi.RdmaUcmUdParam{PrivateDataLen: sidrReply}
	copy(seen.PrivateData[:sidrReply], data)
	switch {
	case status != sidrSuccess:
		c.pushUD(EventUnreachable, status, seen)
	case c.qkey != 0 && c.qkey != qkey:
		c.pushUD(EventAddrError, -int32(unix.EINVAL), seen)
	default:
		c.qkey = qkey
		seen.QpNum, seen.Qkey, seen.AhAttr = qpn, qkey, c.path.ahAttr(c.dev)
		c.pushUD(EventEstablished, 0, seen)
	}
}
