//go:build linux

package fakekernel

import (
	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
)

// query answers in the form of sockaddr_storage.
func (f *cmFile) query(c cmCall) error {
	in, err := body[abi.RdmaUcmQuery](c)
	if err != nil {
		return err
	}
	id, err := f.find(in.Id)
	if err != nil {
		return err
	}
	switch in.Option {
	case abi.RDMA_USER_CM_QUERY_ADDR:
		return id.queryAddr(c, in.Response, (*cmID).ipAddrs)
	case abi.RDMA_USER_CM_QUERY_GID:
		return id.queryAddr(c, in.Response, (*cmID).gidAddrs)
	case abi.RDMA_USER_CM_QUERY_PATH:
		return id.queryPath(c, in.Response)
	}
	return unix.ENOSYS
}

func (c *cmID) ipAddrs(r *abi.RdmaUcmQueryAddrResp) {
	r.SrcSize = putAddr(bytesOf(&r.SrcAddr), c.src, c.scope)
	r.DstSize = putAddr(bytesOf(&r.DstAddr), c.dst, c.scope)
}

// gidAddrs gives GIDs as addresses of family AF_IB.
func (c *cmID) gidAddrs(r *abi.RdmaUcmQueryAddrResp) {
	const afIB, size = 27, 48
	r.SrcSize, r.DstSize = size, size
	put := func(to []byte, gid [16]byte) {
		*view[uint16](to) = afIB
		*view[abi.BE16](to[2:]) = abi.ToBE16(0xffff)
		copy(to[8:], gid[:])
	}
	var src, dst [16]byte
	if c.dev != nil && c.src.IsValid() {
		src = c.src.Addr().As16()
		if c.dst.IsValid() {
			dst = c.dst.Addr().As16()
		}
	}
	put(bytesOf(&r.SrcAddr), src)
	put(bytesOf(&r.DstAddr), dst)
}

func (c *cmID) queryAddr(call cmCall, addr uint64, fill func(*cmID, *abi.RdmaUcmQueryAddrResp)) error {
	const oldSize = 272 // without the device index
	if call.out < oldSize {
		return unix.ENOSPC
	}
	var r abi.RdmaUcmQueryAddrResp
	fill(c, &r)
	if c.dev != nil {
		r.NodeGuid, r.PortNum, r.Pkey, r.IbdevIndex = uint64(c.dev.guid()), 1, 0xffff, c.dev.index
	}
	raw := bytesOf(&r)
	return copyOut(addr, raw[:min(len(raw), call.out)])
}

// queryPath gives the one path of a resolved route.
func (c *cmID) queryPath(call cmCall, addr uint64) error {
	type resp struct {
		head abi.RdmaUcmQueryPathResp
		path abi.IbPathRecData
	}
	head := len(bytesOf(&abi.RdmaUcmQueryPathResp{}))
	if call.out < head {
		return unix.ENOSPC
	}
	var r resp
	n := head
	if c.hasRoute() {
		const flags = 0x1 | 0x2 | 0x20 // GMP, primary, bidirectional
		r.head.NumPaths, r.path.Flags = 1, flags
		rec := bytesOf(&r.path.PathRec) // struct ib_path_rec of the wire: service id, DGID, SGID ...
		dst, src := c.dst.Addr().As16(), c.src.Addr().As16()
		copy(rec[8:], dst[:])
		copy(rec[24:], src[:])
		n = len(bytesOf(&r))
	}
	return copyOut(addr, bytesOf(&r)[:min(n, call.out)])
}

func (c *cmID) hasRoute() bool {
	return !c.iwarp() && c.routed()
}

func (c *cmID) routed() bool {
	return c.state == cmRouteResolved || c.state == cmConnect || c.state == cmDisconnect
}

// queryRoute answers in the form of sockaddr_in6.
func (f *cmFile) queryRoute(c cmCall) error {
	const oldSize = 200 // without the device index
	if c.out < oldSize {
		return unix.ENOSPC
	}
	in, err := body[abi.RdmaUcmQuery](c)
	if err != nil {
		return err
	}
	id, err := f.find(in.Id)
	if err != nil {
		return err
	}
	var r abi.RdmaUcmQueryRouteResp
	putAddr(bytesOf(&r.SrcAddr), id.src, id.scope)
	putAddr(bytesOf(&r.DstAddr), id.dst, id.scope)
	if id.dev != nil {
		r.NodeGuid, r.PortNum, r.IbdevIndex = uint64(id.dev.guid()), 1, id.dev.index
	}
	if id.hasRoute() {
		r.NumPaths = 1
		p := &r.IbRoute[0]
		p.Dgid, p.Sgid = id.dst.Addr().As16(), id.src.Addr().As16()
		p.Pkey, p.Mtu, p.Reversible = abi.ToBE16(0xffff), uint32(id.dev.MTU), 1
		p.HopLimit, p.PacketLifeTime = 64, packetLifeTime
	}
	raw := bytesOf(&r)
	return copyOut(in.Response, raw[:min(len(raw), c.out)])
}

// packetLifeTime is what RoCE assumes: 4.096 µs * 2^16.
const packetLifeTime = 16

// initQPAttr tells how to modify a queue pair: rdma_init_qp_attr, and from the moment that
// there is a connection ib_cm_init_qp_attr.
func (f *cmFile) initQPAttr(c cmCall) error {
	if err := roomFor[abi.IbUverbsQpAttr](c); err != nil {
		return err
	}
	in, err := body[abi.RdmaUcmInitQpAttr](c)
	if err != nil {
		return err
	}
	id, err := f.find(in.Id)
	if err != nil {
		return err
	}
	if id.dev == nil || in.QpState > stateError {
		return unix.EINVAL
	}
	a := abi.IbUverbsQpAttr{QpState: in.QpState}
	if id.iwarp() {
		if err := id.iwAttr(&a); err != nil {
			return err
		}
		return answer(c, in.Response, &a)
	}
	ok := true
	switch {
	case id.link == linkIdle && id.state != cmConnect && id.state != cmDisconnect:
		a.QpAttrMask, a.PortNum = maskState|initBits, 1 // no access before the peer is known
	case in.QpState == stateInit:
		ok = id.attrInit(&a)
	case in.QpState == stateRTR:
		ok = id.attrRTR(&a)
	case in.QpState == stateRTS:
		ok = id.attrRTS(&a)
	default:
		ok = false
	}
	if !ok {
		return unix.EINVAL
	}
	return answer(c, in.Response, &a)
}

// between tells whether the connection is being made, or is there.
func (c *cmID) between(from linkState) bool { return c.link >= from && c.link <= linkEstablished }

func (c *cmID) attrInit(a *abi.IbUverbsQpAttr) bool {
	a.QpAttrMask, a.PortNum = maskState|initBits, 1
	a.QpAccessFlags = abi.IB_UVERBS_ACCESS_REMOTE_WRITE
	if c.respRes > 0 {
		a.QpAccessFlags |= abi.IB_UVERBS_ACCESS_REMOTE_READ | abi.IB_UVERBS_ACCESS_REMOTE_ATOMIC
		if c.dev.version >= v603 {
			a.QpAccessFlags |= abi.IB_UVERBS_ACCESS_FLUSH_GLOBAL | abi.IB_UVERBS_ACCESS_FLUSH_PERSISTENT
		}
	}
	return c.between(linkReqSent)
}

func (c *cmID) attrRTR(a *abi.IbUverbsQpAttr) bool {
	a.QpAttrMask = maskState | maskAV | maskMTU | maskDest | maskRQPSN | maskMaxDestRD | maskMinRNR
	index, _ := c.dev.gidIndex(c.src.Addr())
	a.AhAttr = abi.IbUverbsAhAttr{
		Grh:      abi.IbUverbsGlobalRoute{Dgid: c.dst.Addr().As16(), SgidIndex: index, HopLimit: 64},
		IsGlobal: 1, PortNum: 1,
	}
	a.PathMtu, a.DestQpNum, a.RqPsn = uint32(c.dev.MTU), c.remoteQPN, c.psn
	a.MaxDestRdAtomic = c.respRes
	return c.between(linkReqRcvd)
}

func (c *cmID) attrRTS(a *abi.IbUverbsQpAttr) bool {
	a.QpAttrMask = maskState | maskSQPSN | maskRetry | maskRNRRetry | maskMaxRD | maskTimeout
	a.SqPsn, a.RetryCnt, a.RnrRetry = c.remotePSN, c.retry, c.rnrRetry
	a.MaxRdAtomic, a.Timeout = c.initDepth, packetLifeTime+2
	return c.between(linkReqRcvd)
}
