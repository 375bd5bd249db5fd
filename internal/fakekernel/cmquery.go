//go:build linux

package fakekernel

import (
	"encoding/binary"
	"net/netip"

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
	case abi.RDMA_USER_CM_QUERY_IB_SERVICE:
		if f.k.version >= v700 {
			return noServices(c)
		}
	}
	return unix.ENOSYS
}

// noServices: only the administration of a subnet knows services.
func noServices(c cmCall) error {
	if err := roomFor[abi.RdmaUcmQueryIbServiceResp](c); err != nil {
		return err
	}
	return unix.ENODATA
}

func (c *cmID) ipAddrs(r *abi.RdmaUcmQueryAddrResp) {
	if c.ib != nil {
		c.ibAddrs(r)
		return
	}
	r.SrcSize = putAddr(bytesOf(&r.SrcAddr), c.src, c.scope)
	r.DstSize = putAddr(bytesOf(&r.DstAddr), c.dst, c.scope)
}

func (c *cmID) ibAddrs(r *abi.RdmaUcmQueryAddrResp) {
	r.SrcSize, r.DstSize = c.ib.src.put(bytesOf(&r.SrcAddr)), c.ib.dst.put(bytesOf(&r.DstAddr))
}

// gidAddrs gives GIDs as addresses of family AF_IB.
func (c *cmID) gidAddrs(r *abi.RdmaUcmQueryAddrResp) {
	if c.ib != nil {
		c.ibAddrs(r)
		return
	}
	as := func(a netip.AddrPort) ibAddr {
		x := ibAddr{pkey: c.pkey(), sid: serviceID(c.ps, a.Port())}
		if c.dev != nil && a.IsValid() {
			x.gid = a.Addr().As16()
		}
		return x
	}
	src, dst := as(c.src), as(c.dst)
	r.SrcSize, r.DstSize = src.put(bytesOf(&r.SrcAddr)), dst.put(bytesOf(&r.DstAddr))
}

// pkey is the partition of the address. An Ethernet interface has none, so it is known only
// where the id came to its device without one.
func (c *cmID) pkey() uint16 {
	switch {
	case c.ib != nil:
		return c.ib.src.pkey
	case c.dev != nil && !c.bound:
		return 0xffff
	}
	return 0
}

// serviceID is the service of a port: rdma_get_service_id.
func serviceID(ps, port uint16) uint64 { return uint64(ps)<<16 | uint64(port) }

func (c *cmID) queryAddr(call cmCall, addr uint64, fill func(*cmID, *abi.RdmaUcmQueryAddrResp)) error {
	const oldSize = 272 // without the device index
	if call.out < oldSize {
		return unix.ENOSPC
	}
	var r abi.RdmaUcmQueryAddrResp
	fill(c, &r)
	if c.dev != nil {
		r.NodeGuid, r.PortNum, r.IbdevIndex = uint64(c.dev.guid()), 1, c.dev.index
		binary.BigEndian.PutUint16(bytesOf(&r.Pkey), c.pkey())
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
	var r resp
	n, all := len(bytesOf(&r.head)), len(bytesOf(&r))
	if call.out < n {
		return unix.ENOSPC
	}
	if c.path != nil {
		r.head.NumPaths = 1
		if call.out > all || call.out == all && c.file.k.version >= v601 { // which was a mistake
			r.path.Flags = pathFlags
			copy(bytesOf(&r.path.PathRec), c.path[:])
			n = all
		}
	}
	return copyOut(addr, bytesOf(&r)[:n])
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
	if id.ib == nil {
		putAddr(bytesOf(&r.SrcAddr), id.src, id.scope)
		putAddr(bytesOf(&r.DstAddr), id.dst, id.scope)
	} else {
		var full abi.RdmaUcmQueryAddrResp
		id.ibAddrs(&full)
		copy(bytesOf(&r.SrcAddr), bytesOf(&full.SrcAddr))
		copy(bytesOf(&r.DstAddr), bytesOf(&full.DstAddr))
	}
	if id.dev != nil {
		r.NodeGuid, r.PortNum, r.IbdevIndex = uint64(id.dev.guid()), 1, id.dev.index
		id.putRoute(&r)
	}
	raw := bytesOf(&r)
	return copyOut(in.Response, raw[:min(len(raw), c.out)])
}

// putRoute: ucma_copy_iboe_route. Without a path there are the GIDs alone. iWARP has hardware
// addresses there, which are left out here.
func (c *cmID) putRoute(r *abi.RdmaUcmQueryRouteResp) {
	p := &r.IbRoute[0]
	switch {
	case c.iwarp():
	case c.path != nil:
		r.NumPaths, *p = 1, c.path.user()
	default:
		p.Pkey = abi.ToBE16(0xffff)
		if c.ib == nil {
			p.Sgid, p.Dgid = c.src.Addr().As16(), c.dst.Addr().As16()
		}
	}
}

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
	if in.QpState > stateError {
		return unix.EINVAL
	}
	id, err := f.findBound(in.Id)
	if err != nil {
		return err
	}
	a := abi.IbUverbsQpAttr{QpState: in.QpState}
	switch {
	case id.iwarp():
		err = id.iwAttr(&a)
	case !id.hasCM() || id.datagrams():
		id.attrAlone(&a)
	default:
		err = id.attrLinked(&a)
	}
	if err != nil {
		return err
	}
	return answer(c, in.Response, &a)
}

// attrAlone are the attributes as long as no peer is known: core/cma.c,
// cma_ib_init_qp_attr. They are the same for every state.
func (c *cmID) attrAlone(a *abi.IbUverbsQpAttr) {
	a.QpAttrMask, a.PortNum = maskState|initBits, 1
	if c.datagrams() {
		c.setDefaultQKey()
		a.QpAttrMask, a.Qkey = maskState|maskPKey|maskPort|maskQKey, c.qkey
	}
	if a.QpState == stateRTR {
		a.RqPsn = c.psn
	}
}

// attrLinked are those of a connection: core/cm.c, ib_cm_init_qp_attr.
func (c *cmID) attrLinked(a *abi.IbUverbsQpAttr) error {
	ok := c.between(linkReqRcvd) // then there is a path, and a peer
	switch {
	case a.QpState == stateInit:
		ok = c.attrInit(a)
	case ok && a.QpState == stateRTR:
		c.attrRTR(a)
	case ok && a.QpState == stateRTS:
		c.attrRTS(a)
	default:
		ok = false
	}
	return unless(ok)
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

func (c *cmID) attrRTR(a *abi.IbUverbsQpAttr) {
	a.QpAttrMask = maskState | maskAV | maskMTU | maskDest | maskRQPSN | maskMaxDestRD | maskMinRNR
	a.AhAttr = c.path.ahAttr(c.dev)
	a.PathMtu, a.DestQpNum, a.RqPsn = uint32(c.path[pathMTU]&0x3f), c.remoteQPN, c.psn
	a.MaxDestRdAtomic = c.respRes
}

func (c *cmID) attrRTS(a *abi.IbUverbsQpAttr) {
	a.QpAttrMask = maskState | maskSQPSN | maskRetry | maskRNRRetry | maskMaxRD | maskTimeout
	a.SqPsn, a.RetryCnt, a.RnrRetry = c.remotePSN, c.retry, c.rnrRetry
	a.MaxRdAtomic, a.Timeout = c.initDepth, c.path.life()+1
	if c.timeoutSet {
		a.Timeout = c.timeout
	}
}
