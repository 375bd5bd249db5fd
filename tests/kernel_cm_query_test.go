//go:build linux

package tests

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
)

// cmQueryCases are about what an id tells of itself.
var cmQueryCases = []kernelCase{
	{"addresses of a new id", nil, func(r *rig) (fields, error) { c := r.cm(); return c.addr(c.tcp(1)), nil }},
	{"addresses of a bound id", nil, func(r *rig) (fields, error) {
		c := r.cm()
		id := c.tcp(1)
		c.must(c.bind(id, r.at(7111)))
		return c.addr(id), nil
	}},
	{"addresses of one bound to the wildcard", nil, func(r *rig) (fields, error) {
		c := r.cm()
		id := c.tcp(1)
		c.must(c.bind(id, netip.MustParseAddrPort("0.0.0.0:7111")))
		return c.addr(id), nil
	}},
	{"addresses of a resolved id", nil, func(r *rig) (fields, error) {
		c := r.cm()
		id := c.tcp(1)
		c.resolved(id, 7111, 7112)
		return c.addr(id), nil
	}},
	{"addresses without room", always(syscall.ENOSPC), func(r *rig) (fields, error) {
		c := r.cm()
		return nil, c.query(c.tcp(1), abi.RDMA_USER_CM_QUERY_ADDR, make([]byte, 271))
	}},
	{"addresses in an old program", nil, func(r *rig) (fields, error) {
		c := r.cm()
		return nil, c.query(c.tcp(1), abi.RDMA_USER_CM_QUERY_ADDR, make([]byte, 272))
	}},
	{"addresses of an id that is not there", always(syscall.ENOENT), func(r *rig) (fields, error) {
		return nil, r.cm().query(1<<30, abi.RDMA_USER_CM_QUERY_ADDR, make([]byte, 280))
	}},
	{"something that cannot be asked for", always(syscall.ENOSYS), func(r *rig) (fields, error) {
		c := r.cm()
		return nil, c.query(c.tcp(1), 4, make([]byte, 280))
	}},
	{"services", rules{{errno: syscall.ENOSYS}, {from: "7.0", errno: syscall.ENODATA}}, func(r *rig) (fields, error) {
		c := r.cm()
		return nil, c.query(c.tcp(1), abi.RDMA_USER_CM_QUERY_IB_SERVICE, make([]byte, 280))
	}},
	{"services without room", rules{{errno: syscall.ENOSYS}, {from: "7.0", errno: syscall.ENOSPC}}, func(r *rig) (fields, error) {
		c := r.cm()
		return nil, c.query(c.tcp(1), abi.RDMA_USER_CM_QUERY_IB_SERVICE, make([]byte, 7))
	}},
	{"GIDs of a new id", nil, func(r *rig) (fields, error) { c := r.cm(); return c.gids(c.tcp(1)) }},
	{"GIDs of a resolved id", nil, func(r *rig) (fields, error) {
		c := r.cm()
		id := c.tcp(1)
		c.resolved(id, 7111, 7112)
		return c.gids(id)
	}},
	{"GIDs of a bound datagram id", nil, func(r *rig) (fields, error) {
		c := r.cm()
		id := c.udp(1)
		c.must(c.bind(id, r.at(7111)))
		return c.gids(id)
	}},
	{"GIDs without room", always(syscall.ENOSPC), func(r *rig) (fields, error) {
		c := r.cm()
		return nil, c.query(c.tcp(1), abi.RDMA_USER_CM_QUERY_GID, make([]byte, 271))
	}},
	{"paths of a new id", nil, func(r *rig) (fields, error) { c := r.cm(); return c.paths(c.tcp(1), 2) }},
	{"paths of a resolved id", nil, func(r *rig) (fields, error) {
		c := r.cm()
		id := c.tcp(1)
		c.resolved(id, 7111, 7112)
		return c.paths(id, 2)
	}},
	{"paths of a route", nil, func(r *rig) (fields, error) {
		c := r.cm()
		return c.paths(c.dial(1, abi.RDMA_PS_TCP, 7111, 7112), 2)
	}},
	{"paths of a route with a type of service and a timeout", nil, func(r *rig) (fields, error) {
		c := r.cm()
		id := c.tcp(1)
		c.must(c.option(id, abi.RDMA_OPTION_ID, abi.RDMA_OPTION_ID_TOS, []byte{0x28}))
		c.must(c.option(id, abi.RDMA_OPTION_ID, abi.RDMA_OPTION_ID_ACK_TIMEOUT, []byte{14}))
		c.resolved(id, 7111, 7112)
		c.must(c.route(id))
		c.expect(evRouteResolved)
		return c.paths(id, 2)
	}},
	{"paths with room for none", nil, func(r *rig) (fields, error) {
		c := r.cm()
		return c.paths(c.dial(1, abi.RDMA_PS_TCP, 7111, 7112), 0)
	}},
	{"paths without room", always(syscall.ENOSPC), func(r *rig) (fields, error) {
		c := r.cm()
		return nil, c.query(c.tcp(1), abi.RDMA_USER_CM_QUERY_PATH, make([]byte, 7))
	}},
	{"route of a new id", nil, func(r *rig) (fields, error) { c := r.cm(); return c.routeOf(c.tcp(1)) }},
	{"route of a bound id", nil, func(r *rig) (fields, error) {
		c := r.cm()
		id := c.tcp(1)
		c.must(c.bind(id, r.at(7111)))
		return c.routeOf(id)
	}},
	{"route of a resolved route", nil, func(r *rig) (fields, error) {
		c := r.cm()
		return c.routeOf(c.dial(1, abi.RDMA_PS_TCP, 7111, 7112))
	}},
	{"route without room", always(syscall.ENOSPC), func(r *rig) (fields, error) {
		c := r.cm()
		return nil, c.ask(abi.RDMA_USER_CM_CMD_QUERY_ROUTE, uapi.Bytes(&abi.RdmaUcmQuery{Id: c.tcp(1)}), 0, make([]byte, 199))
	}},
	{"attributes without a device", inval, func(r *rig) (fields, error) {
		c := r.cm()
		_, err := c.qpAttr(c.tcp(1), stateInit)
		return nil, err
	}},
	{"attributes of a state that is none", inval, func(r *rig) (fields, error) {
		c := r.cm()
		_, err := c.qpAttr(c.dial(1, abi.RDMA_PS_TCP, 7111, 7112), 7)
		return nil, err
	}},
	{"attributes before connecting", nil, func(r *rig) (fields, error) {
		c := r.cm()
		return c.attrs(c.dial(1, abi.RDMA_PS_TCP, 7111, 7112))
	}},
	{"attributes for datagrams", nil, func(r *rig) (fields, error) {
		c := r.cm()
		return c.attrs(c.dial(1, abi.RDMA_PS_UDP, 7111, 7112))
	}},
	{"attributes of a listener", inval, func(r *rig) (fields, error) {
		c := r.cm()
		_, err := c.qpAttr(c.listener(1, abi.RDMA_PS_TCP, 7111), stateInit)
		return nil, err
	}},
}

func (c cm) query(id, what uint32, out []byte) error {
	return c.ask(abi.RDMA_USER_CM_CMD_QUERY, uapi.Bytes(&abi.RdmaUcmQuery{Id: id, Option: what}), 0, out)
}

// gids are the addresses as GIDs. What they are on iWARP is the hardware's.
func (c cm) gids(id uint32) (fields, error) {
	var a abi.RdmaUcmQueryAddrResp
	err := c.query(id, abi.RDMA_USER_CM_QUERY_GID, uapi.Bytes(&a))
	f := fields{"sizes": []uint16{a.SrcSize, a.DstSize}, "pkey": a.Pkey, "port": a.PortNum, "device": a.NodeGuid != 0}
	for name, raw := range map[string][]byte{"src": uapi.Bytes(&a.SrcAddr), "dst": uapi.Bytes(&a.DstAddr)} {
		f[name+" family"] = binary.NativeEndian.Uint16(raw)
		f[name+" pkey"] = binary.BigEndian.Uint16(raw[2:])
		f[name+" flow"] = binary.BigEndian.Uint32(raw[4:])
		f[name+" service"] = binary.BigEndian.Uint64(raw[24:])
		f[name+" mask"] = binary.BigEndian.Uint64(raw[32:])
		if gid := [16]byte(raw[8:]); c.r.rxe() {
			f[name] = c.name(gid)
		}
	}
	return f, err
}

// name says what a GID is, without saying which.
func (c cm) name(gid [16]byte) string {
	switch {
	case gid == [16]byte{}:
		return "none"
	case gid == c.r.ip().As16():
		return "ours"
	}
	return netip.AddrFrom16(gid).String()
}

// paths are the records, of which there is room for n.
func (c cm) paths(id uint32, n int) (fields, error) {
	const head, size = 8, 72
	out := make([]byte, head+n*size, head+n*size+1)
	if n > 0 {
		out = out[:cap(out)] // some kernels want room to spare
	}
	err := c.query(id, abi.RDMA_USER_CM_QUERY_PATH, out)
	f := fields{"paths": binary.NativeEndian.Uint32(out)}
	for i := range n {
		rec := out[head+i*size:]
		if c.r.rxe() { // where InfiniBand has its LIDs RoCE has a hardware address, which leaks
			clear(rec[48:52])
			rec[52] &= 0x7f
		}
		f[fmt.Sprint("flags ", i)] = binary.NativeEndian.Uint32(rec)
		f[fmt.Sprint("gids ", i)] = []string{c.name([16]byte(rec[16:])), c.name([16]byte(rec[32:]))}
		f[fmt.Sprint("service ", i)] = binary.BigEndian.Uint64(rec[8:])
		f[fmt.Sprint("rest ", i)] = fmt.Sprintf("%x", rec[48:size])
	}
	return f, err
}

func (c cm) routeOf(id uint32) (fields, error) {
	var r abi.RdmaUcmQueryRouteResp
	err := c.ask(abi.RDMA_USER_CM_CMD_QUERY_ROUTE, uapi.Bytes(&abi.RdmaUcmQuery{Id: id}), 0, uapi.Bytes(&r))
	p := r.IbRoute[0]
	f := fields{"paths": r.NumPaths, "port": r.PortNum, "device": r.NodeGuid != 0}
	if c.r.rxe() {
		f["gids"] = []string{c.name(p.Dgid), c.name(p.Sgid)}
		p.Dgid, p.Sgid = [16]uint8{}, [16]uint8{}
		f["rest"] = p
	}
	return f, err
}

// attrs are the attributes for all states, or that there are none.
func (c cm) attrs(id uint32) (fields, error) {
	f := fields{}
	for state := uint32(stateReset); state <= stateErr; state++ {
		a, err := c.qpAttr(id, state)
		if err != nil {
			f[fmt.Sprint(state)] = err.Error()
			continue
		}
		f[fmt.Sprint(state)] = c.attr(&a)
	}
	return f, nil
}

// attr are attributes without packet numbers, which differ every time.
func (c cm) attr(a *abi.IbUverbsQpAttr) fields {
	return fields{
		"mask": fmt.Sprintf("%#x", a.QpAttrMask), "access": a.QpAccessFlags, "pkey": a.PkeyIndex, "port": a.PortNum, "qkey": a.Qkey,
		"mtu": a.PathMtu, "dest": a.DestQpNum, "rd": a.MaxRdAtomic, "dest rd": a.MaxDestRdAtomic, "rnr timer": a.MinRnrTimer,
		"timeout": a.Timeout, "retry": a.RetryCnt, "rnr": a.RnrRetry, "ah": c.ah(&a.AhAttr), "alt": a.AltPortNum, "state": a.QpState,
	}
}

// cmOptionCases set options.
var cmOptionCases = []kernelCase{
	{"type of service", nil, idOption(abi.RDMA_OPTION_ID_TOS, 1)},
	{"type of service, four bytes", inval, idOption(abi.RDMA_OPTION_ID_TOS, 1, 0, 0, 0)},
	{"reuse", nil, idOption(abi.RDMA_OPTION_ID_REUSEADDR, 1, 0, 0, 0)},
	{"reuse, one byte", inval, idOption(abi.RDMA_OPTION_ID_REUSEADDR, 1)},
	{"one family", nil, idOption(abi.RDMA_OPTION_ID_AFONLY, 1, 0, 0, 0)},
	{"one family, one byte", inval, idOption(abi.RDMA_OPTION_ID_AFONLY, 1)},
	{"timeout", nil, idOption(abi.RDMA_OPTION_ID_ACK_TIMEOUT, 14)},
	{"timeout, no bytes", inval, idOption(abi.RDMA_OPTION_ID_ACK_TIMEOUT)},
	{"timeout that is none", nil, idOption(abi.RDMA_OPTION_ID_ACK_TIMEOUT, 200)},
	{"an option that is none", always(syscall.ENOSYS), idOption(4, 1)},
	{"a level that is none", always(syscall.ENOSYS), func(r *rig) (fields, error) {
		c := r.cm()
		return nil, c.option(c.tcp(1), 2, 0, []byte{1})
	}},
	{"an option of IB that is none", always(syscall.ENOSYS), func(r *rig) (fields, error) {
		c := r.cm()
		return nil, c.option(c.tcp(1), abi.RDMA_OPTION_IB, 0, []byte{1})
	}},
	{"of an id that is not there", always(syscall.ENOENT), func(r *rig) (fields, error) {
		return nil, r.cm().option(1<<30, abi.RDMA_OPTION_ID, abi.RDMA_OPTION_ID_TOS, []byte{1})
	}},
	{"at a bad address", always(syscall.EFAULT), func(r *rig) (fields, error) {
		c := r.cm()
		return nil, c.do(abi.RDMA_USER_CM_CMD_SET_OPTION, uapi.Bytes(&abi.RdmaUcmSetOption{Id: c.tcp(1), Optlen: 1, Optval: 1}))
	}},
	{"of 5 MB", inval, func(r *rig) (fields, error) {
		c := r.cm()
		return nil, c.do(abi.RDMA_USER_CM_CMD_SET_OPTION, uapi.Bytes(&abi.RdmaUcmSetOption{Id: c.tcp(1), Optlen: 5 << 20, Optval: 1}))
	}},
	{"timeout for datagrams", inval, func(r *rig) (fields, error) {
		c := r.cm()
		return nil, c.option(c.udp(1), abi.RDMA_OPTION_ID, abi.RDMA_OPTION_ID_ACK_TIMEOUT, []byte{14})
	}},
	{"reuse when bound", nil, func(r *rig) (fields, error) { return r.optionWhen(false, abi.RDMA_OPTION_ID_REUSEADDR, 1) }},
	{"no reuse when bound", inval, func(r *rig) (fields, error) { return r.optionWhen(false, abi.RDMA_OPTION_ID_REUSEADDR, 0) }},
	{"reuse when listening", inval, func(r *rig) (fields, error) { return r.optionWhen(true, abi.RDMA_OPTION_ID_REUSEADDR, 1) }},
	{"one family when bound", nil, func(r *rig) (fields, error) { return r.optionWhen(false, abi.RDMA_OPTION_ID_AFONLY, 1) }},
	{"one family when listening", inval, func(r *rig) (fields, error) { return r.optionWhen(true, abi.RDMA_OPTION_ID_AFONLY, 0) }},
	{"one family frees the other", nil, func(r *rig) (fields, error) {
		c := r.cm()
		id := c.tcp(1)
		c.must(c.option(id, abi.RDMA_OPTION_ID, abi.RDMA_OPTION_ID_AFONLY, []byte{1, 0, 0, 0}))
		c.must(c.bind(id, netip.MustParseAddrPort("[::]:7113")))
		return nil, c.bind(c.tcp(2), netip.MustParseAddrPort("0.0.0.0:7113"))
	}},
	{"path before there is an address", inval, func(r *rig) (fields, error) {
		c := r.cm()
		return nil, c.path(c.tcp(1), goodPath, 1)
	}},
	{"path of a bound id", inval, func(r *rig) (fields, error) {
		c := r.cm()
		id := c.tcp(1)
		c.must(c.bind(id, r.at(7111)))
		return nil, c.path(id, goodPath, 1)
	}},
	{"path", nil, func(r *rig) (fields, error) {
		c := r.cm()
		id := c.tcp(1)
		c.resolved(id, 7111, 7112)
		c.must(c.path(id, goodPath, 1))
		e := c.next()
		f, err := c.paths(id, 1)
		f["event"] = e.Event
		return f, err
	}},
	{"paths, the second of which is good", nil, func(r *rig) (fields, error) {
		c := r.cm()
		id := c.tcp(1)
		c.resolved(id, 7111, 7112)
		return nil, c.path(id, goodPath, 2)
	}},
	{"path with other flags", inval, func(r *rig) (fields, error) {
		c := r.cm()
		id := c.tcp(1)
		c.resolved(id, 7111, 7112)
		return nil, c.path(id, goodPath&^2, 1)
	}},
	{"path that is cut", inval, func(r *rig) (fields, error) {
		c := r.cm()
		id := c.tcp(1)
		c.resolved(id, 7111, 7112)
		return nil, c.option(id, abi.RDMA_OPTION_IB, abi.RDMA_OPTION_IB_PATH, make([]byte, 71))
	}},
	{"no path", inval, func(r *rig) (fields, error) {
		c := r.cm()
		id := c.tcp(1)
		c.resolved(id, 7111, 7112)
		return nil, c.option(id, abi.RDMA_OPTION_IB, abi.RDMA_OPTION_IB_PATH, nil)
	}},
}

// goodPath are the flags of a path that the kernel takes: for the connection manager,
// primary, both ways.
const goodPath = 1 | 2 | 8 | 32

// path sets n paths, the last of which has flags.
func (c cm) path(id, flags uint32, n int) error {
	b := make([]byte, 72*n)
	last := b[len(b)-72:]
	binary.NativeEndian.PutUint32(last, flags)
	gid := c.r.ip().As16()
	copy(last[16:], gid[:])
	copy(last[32:], gid[:])
	copy(last[48:], []byte{0, 0, 0, 0, 0, 0x12, 0x34, 9, 0x20, 0x80, 0xff, 0xff, 0, 3, 0x83, 0x85, 0x92})
	return c.option(id, abi.RDMA_OPTION_IB, abi.RDMA_OPTION_IB_PATH, b)
}

// idOption sets an option of a new id.
func idOption(name uint32, val ...byte) func(*rig) (fields, error) {
	return func(r *rig) (fields, error) {
		c := r.cm()
		return nil, c.option(c.tcp(1), abi.RDMA_OPTION_ID, name, val)
	}
}

func (r *rig) optionWhen(listens bool, name uint32, val byte) (fields, error) {
	c := r.cm()
	id := c.tcp(1)
	c.must(c.bind(id, r.at(7111)))
	if listens {
		c.must(c.listen(id, 1))
	}
	return nil, c.option(id, abi.RDMA_OPTION_ID, name, []byte{val, 0, 0, 0})
}
