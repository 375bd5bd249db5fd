//go:build linux

package fakekernel

import (
	"encoding/binary"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
)

// pathRec is a path record as it is on the wire, which is how the user gives and gets it:
// path_rec_table of core/sa_query.c. RoCE makes its own.
type pathRec [64]byte

// Where the fields are.
const (
	pathService = 0
	pathDGID    = 8
	pathSGID    = 24
	pathLID     = 40 // two of them, and a bit
	pathFlow    = 44 // in the low 20 of its first 24 bits
	pathHops    = 47
	pathClass   = 48
	pathNumber  = 49 // with "reversible" in the highest bit
	pathPKey    = 50
	pathSL      = 53 // the low 4 bits
	pathMTU     = 54 // the low 6 bits; the rest is a selector
	pathRate    = 55 // likewise
	pathLife    = 56 // likewise
	pathPrefer  = 57

	selectEqual = 2 << 6
	reversible  = 0x80
)

// lifeTime is the packet life time that RoCE assumes, 4.096 µs * 2^n. It was a quarter before.
func (v version) lifeTime() uint8 {
	if v >= v604 {
		return 16
	}
	return 18
}

// makePath is core/cma.c, cma_resolve_iboe_route.
func (c *cmID) makePath() *pathRec {
	p := new(pathRec)
	dst, src := c.dst.Addr().As16(), c.src.Addr().As16()
	copy(p[pathDGID:], dst[:])
	copy(p[pathSGID:], src[:])
	flow := (uint32(c.src.Port())*31 + uint32(c.dst.Port())) & 0xf_ffff
	binary.BigEndian.PutUint32(p[pathFlow:], flow<<8|uint32(c.hops))
	p[pathClass], p[pathNumber] = c.tos, reversible
	p[pathPKey], p[pathPKey+1] = 0xff, 0xff
	p[pathMTU], p[pathRate] = selectEqual|c.dev.MTU, selectEqual
	p[pathLife] = selectEqual | c.dev.version.lifeTime()
	if c.timeoutSet && c.timeout != 0 {
		p[pathLife] = selectEqual | (c.timeout-1)&0x3f
	}
	p.leak()
	return p
}

// leak: RoCE keeps the destination's hardware address where InfiniBand has its LIDs, and the
// kernel tells it as if it was these.
func (p *pathRec) leak() {
	copy(p[pathLID:], []byte{1, 0x02, 0x42, 0xac})
	p[pathFlow] |= 0x80
}

// inbound is the path as the peer has it: core/cm.c, cm_format_paths_from_req.
func (p *pathRec) inbound(from *cmID) *pathRec {
	q := *p
	copy(q[pathDGID:], p[pathSGID:pathSGID+16])
	copy(q[pathSGID:], p[pathDGID:pathDGID+16])
	binary.BigEndian.PutUint64(q[pathService:], serviceID(from.ps, from.dst.Port()))
	q[pathNumber] = reversible
	q[pathMTU], q[pathRate] = selectEqual|p[pathMTU]&0x3f, selectEqual|p[pathRate]&0x3f
	q[pathLife], q[pathPrefer] = selectEqual|p[pathLife]&0x3f, 0
	return &q
}

func (p *pathRec) flow() uint32 { return binary.BigEndian.Uint32(p[pathFlow:]) >> 8 & 0xf_ffff }
func (p *pathRec) life() uint8  { return p[pathLife] & 0x3f }

// ahAttr is the address vector of a path: core/sa_query.c, ib_init_ah_attr_from_path.
func (p *pathRec) ahAttr(d *device) abi.IbUverbsAhAttr {
	gid := [16]byte(p[pathSGID:])
	index := max(0, slices.IndexFunc(d.gids, func(e abi.IbUverbsGidEntry) bool {
		return [16]byte(bytesOf(&e.Gid)) == gid && e.GidType == abi.IB_UVERBS_GID_TYPE_ROCE_V2
	}))
	return abi.IbUverbsAhAttr{
		Grh: abi.IbUverbsGlobalRoute{
			Dgid: [16]byte(p[pathDGID:]), FlowLabel: p.flow(), SgidIndex: uint8(index),
			HopLimit: p[pathHops], TrafficClass: p[pathClass],
		},
		Sl: p[pathSL] & 0xf, StaticRate: p[pathRate] & 0x3f, IsGlobal: 1, PortNum: 1,
	}
}

// user is the record in the form of QUERY_ROUTE.
func (p *pathRec) user() abi.IbUserPathRec {
	return abi.IbUserPathRec{
		Dgid: [16]byte(p[pathDGID:]), Sgid: [16]byte(p[pathSGID:]),
		FlowLabel: abi.ToBE32(p.flow()), HopLimit: p[pathHops], TrafficClass: p[pathClass],
		Reversible: uint32(p[pathNumber] >> 7), NumbPath: p[pathNumber] & 0x7f,
		Pkey: abi.ToBE16(binary.BigEndian.Uint16(p[pathPKey:])), Sl: p[pathSL] & 0xf,
		MtuSelector: p[pathMTU] >> 6, Mtu: uint32(p[pathMTU] & 0x3f),
		RateSelector: p[pathRate] >> 6, Rate: p[pathRate] & 0x3f,
		PacketLifeTimeSelector: p[pathLife] >> 6, PacketLifeTime: p.life(), Preference: p[pathPrefer],
	}
}

func (f *cmFile) resolveRoute(c cmCall) error {
	in, err := body[abi.RdmaUcmResolveRoute](c)
	if err != nil {
		return err
	}
	id, err := f.findBound(in.Id)
	if err != nil {
		return err
	}
	switch {
	case in.TimeoutMs == 0 && f.k.version >= v601, id.state != cmAddrResolved:
		return unix.EINVAL
	case !id.iwarp() && !id.bound:
		return unix.ENODEV
	}
	id.state = cmRouteResolved
	if !id.iwarp() {
		id.path = id.makePath()
	}
	id.push(EventRouteResolved, 0, abi.RdmaUcmConnParam{})
	return nil
}

// Flags of a path: what it is for, and that it leads both ways. The user's must be these.
const pathFlags = 1<<0 | 1<<1 | 1<<3 | 1<<5

// setPath is the option that gives the route instead of resolving it: the first record with
// the right flags.
func (c *cmID) setPath(val []byte) error {
	const head = 8
	size := len(bytesOf(&abi.IbPathRecData{}))
	if len(val)%size != 0 {
		return unix.EINVAL
	}
	for len(val) > 0 && load[uint32](val) != pathFlags {
		val = val[size:]
	}
	switch {
	case len(val) == 0, c.state != cmAddrResolved:
		return unix.EINVAL
	case !c.iwarp() && !c.bound:
		return unix.ENODEV
	}
	c.state, c.path = cmRouteResolved, new(pathRec)
	copy(c.path[:], val[head:size])
	c.path[pathFlow] &= 0x8f // the rest is reserved
	clear(c.path[pathPrefer+1:])
	if !c.iwarp() {
		c.path.leak()
	}
	c.push(EventRouteResolved, 0, abi.RdmaUcmConnParam{})
	return nil
}
