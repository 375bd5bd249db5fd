//go:build linux

package tests

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"syscall"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
)

var inval = always(syscall.EINVAL)

// header is a command's, with room behind it.
func header(cmd uint32, in, out uint16, room int) []byte {
	return append(append([]byte(nil), uapi.Bytes(&abi.RdmaUcmCmdHdr{Cmd: cmd, In: in, Out: out})...), make([]byte, room)...)
}

// cmFrameCases are about commands before anything is done for them.
var cmFrameCases = []kernelCase{
	{"short header", inval, func(r *rig) (fields, error) { return nil, r.cm().write(make([]byte, 7)) }},
	{"less than the header says", inval, func(r *rig) (fields, error) {
		return nil, r.cm().write(header(abi.RDMA_USER_CM_CMD_LISTEN, 12, 0, 8))
	}},
	{"command without a function", always(syscall.ENOSYS), func(r *rig) (fields, error) {
		return nil, r.cm().write(header(abi.RDMA_USER_CM_CMD_GET_OPTION, 0, 0, 64))
	}},
	{"command beyond the last", inval, func(r *rig) (fields, error) { return nil, r.cm().write(header(25, 0, 0, 512)) }},
	{"resolve service with an id that is not there", rules{{errno: syscall.EINVAL}, {from: "7.0", errno: syscall.ENOENT}}, func(r *rig) (fields, error) {
		return nil, r.cm().do(abi.RDMA_USER_CM_CMD_RESOLVE_IB_SERVICE, uapi.Bytes(&abi.RdmaUcmResolveIbService{Id: 1 << 30}))
	}},
	{"write event with an id that is not there", rules{{errno: syscall.EINVAL}, {from: "7.0", errno: syscall.ENOENT}}, func(r *rig) (fields, error) {
		return nil, r.cm().do(abi.RDMA_USER_CM_CMD_WRITE_CM_EVENT, uapi.Bytes(&abi.RdmaUcmWriteCmEvent{Id: 1 << 30, Event: evUser}))
	}},
	{"create", nil, func(r *rig) (fields, error) { _, err := r.cm().create(1, abi.RDMA_PS_TCP, 0); return nil, err }},
	{"create with an odd port space", inval, func(r *rig) (fields, error) { _, err := r.cm().create(1, 5, 0); return nil, err }},
	{"create in UDP", nil, func(r *rig) (fields, error) { _, err := r.cm().create(1, abi.RDMA_PS_UDP, 0); return nil, err }},
	{"create in IPoIB", nil, func(r *rig) (fields, error) { _, err := r.cm().create(1, abi.RDMA_PS_IPOIB, 0); return nil, err }},
	{"create in IB of an odd type", nil, func(r *rig) (fields, error) { _, err := r.cm().create(1, abi.RDMA_PS_IB, 77); return nil, err }},
	{"create without room", always(syscall.ENOSPC), func(r *rig) (fields, error) {
		return nil, r.cm().ask(abi.RDMA_USER_CM_CMD_CREATE_ID, uapi.Bytes(&abi.RdmaUcmCreateId{Ps: abi.RDMA_PS_TCP}), 8, make([]byte, 3))
	}},
	{"create with a bad pointer", always(syscall.EFAULT), func(r *rig) (fields, error) {
		b := append(header(abi.RDMA_USER_CM_CMD_CREATE_ID, 24, 4, 0), uapi.Bytes(&abi.RdmaUcmCreateId{Ps: abi.RDMA_PS_TCP, Response: 1})...)
		return nil, r.cm().write(b)
	}},
	{"destroy", nil, func(r *rig) (fields, error) {
		c := r.cm()
		n, err := c.destroy(c.tcp(1))
		return fields{"events": n}, err
	}},
	{"destroy twice", always(syscall.ENOENT), func(r *rig) (fields, error) {
		c := r.cm()
		id := c.tcp(1)
		_, err := c.destroy(id)
		c.must(err)
		_, err = c.destroy(id)
		return nil, err
	}},
	{"destroy without room", always(syscall.ENOSPC), func(r *rig) (fields, error) {
		return nil, r.cm().ask(abi.RDMA_USER_CM_CMD_DESTROY_ID, uapi.Bytes(&abi.RdmaUcmDestroyId{}), 0, nil)
	}},
	{"an id of another file", inval, func(r *rig) (fields, error) { return nil, r.cm().route(r.cm().tcp(1)) }},
	{"get event", always(syscall.EAGAIN), func(r *rig) (fields, error) { _, err := r.cm().poll(); return nil, err }},
	{"get event in an old program", nil, func(r *rig) (fields, error) { return r.eventInto(324) }},
	{"get event without room", always(syscall.ENOSPC), func(r *rig) (fields, error) { return r.eventInto(323) }},
	{"get event with a bad pointer loses nothing", nil, func(r *rig) (fields, error) {
		c := r.cm()
		c.must(c.resolve(c.tcp(1), netip.AddrPort{}, r.at(7100)))
		e := c.expectAfterFault()
		return fields{"event": e.Event}, nil
	}},
	{"connect that is cut", inval, func(r *rig) (fields, error) {
		return nil, r.cm().write(header(abi.RDMA_USER_CM_CMD_CONNECT, 279, 0, 288))
	}},
	{"connect of before ECE", always(syscall.ENOENT), func(r *rig) (fields, error) {
		in := abi.RdmaUcmConnect{Id: 1 << 30, ConnParam: param(1, 0)}
		return nil, r.cm().write(append(header(abi.RDMA_USER_CM_CMD_CONNECT, 280, 0, 0), uapi.Bytes(&in)...))
	}},
	{"connect that is not valid", inval, func(r *rig) (fields, error) {
		return nil, r.cm().connect(1<<30, abi.RdmaUcmConnParam{})
	}},
	{"accept that is cut", inval, func(r *rig) (fields, error) {
		return nil, r.cm().write(header(abi.RDMA_USER_CM_CMD_ACCEPT, 287, 0, 296))
	}},
	{"reject for an odd reason", inval, func(r *rig) (fields, error) { return nil, r.cm().reject(1<<30, 5, 0) }},
}

// expectAfterFault waits for an event in a place that is none, and then fetches it well.
func (c cm) expectAfterFault() abi.RdmaUcmEventResp {
	c.r.t.Helper()
	bad := append(header(abi.RDMA_USER_CM_CMD_GET_EVENT, 8, 336, 0), uapi.Bytes(&abi.RdmaUcmGetEvent{Response: 1})...)
	for {
		switch err := c.write(bad); {
		case errors.Is(err, syscall.EAGAIN):
		case errors.Is(err, syscall.EFAULT):
			return c.next()
		default:
			c.r.t.Fatalf("got %v, want EFAULT", err)
		}
	}
}

// eventInto fetches an event where there is so much room.
func (r *rig) eventInto(n int) (fields, error) {
	c := r.cm()
	c.must(c.resolve(c.tcp(9), netip.AddrPort{}, r.at(7100)))
	out := make([]byte, n)
	for {
		err := c.ask(abi.RDMA_USER_CM_CMD_GET_EVENT, uapi.Bytes(&abi.RdmaUcmGetEvent{}), 0, out)
		if !errors.Is(err, syscall.EAGAIN) {
			return fields{"uid": binary.NativeEndian.Uint64(out)}, err
		}
	}
}

// cmAddressCases give ids addresses.
var cmAddressCases = []kernelCase{
	{"bind", nil, func(r *rig) (fields, error) { c := r.cm(); return nil, c.bind(c.tcp(1), r.at(7101)) }},
	{"bind twice", inval, func(r *rig) (fields, error) {
		c := r.cm()
		id := c.tcp(1)
		c.must(c.bind(id, r.at(7101)))
		return nil, c.bind(id, r.at(7102))
	}},
	{"bind a port that is taken", always(syscall.EADDRINUSE), func(r *rig) (fields, error) {
		c := r.cm()
		c.must(c.bind(c.tcp(1), r.at(7101)))
		return nil, c.bind(c.tcp(2), r.at(7101))
	}},
	{"bind it in another port space", nil, func(r *rig) (fields, error) {
		c := r.cm()
		c.must(c.bind(c.tcp(1), r.at(7101)))
		return nil, c.bind(c.udp(2), r.at(7101))
	}},
	{"bind the wildcard beside it", always(syscall.EADDRNOTAVAIL), func(r *rig) (fields, error) {
		c := r.cm()
		c.must(c.bind(c.tcp(1), r.at(7101)))
		return nil, c.bind(c.tcp(2), netip.MustParseAddrPort("0.0.0.0:7101"))
	}},
	{"bind a foreign address", always(syscall.EADDRNOTAVAIL), func(r *rig) (fields, error) {
		c := r.cm()
		return nil, c.bind(c.tcp(1), netip.MustParseAddrPort("192.0.2.1:7101"))
	}},
	{"bind loopback", nil, func(r *rig) (fields, error) {
		c := r.cm()
		return nil, c.bind(c.tcp(1), netip.MustParseAddrPort("127.0.0.1:7101"))
	}},
	{"bind IPv6 loopback", nil, func(r *rig) (fields, error) {
		c := r.cm()
		return nil, c.bind(c.tcp(1), netip.MustParseAddrPort("[::1]:7101"))
	}},
	{"bind link-local without scope", inval, func(r *rig) (fields, error) {
		c := r.cm()
		return nil, c.bind(c.tcp(1), netip.MustParseAddrPort("[fe80::1]:7101"))
	}},
	{"bind a size that does not fit", inval, func(r *rig) (fields, error) {
		c := r.cm()
		in := abi.RdmaUcmBind{Id: c.tcp(1), AddrSize: 28}
		putAddr(uapi.Bytes(&in.Addr), r.at(0))
		return nil, c.do(abi.RDMA_USER_CM_CMD_BIND, uapi.Bytes(&in))
	}},
	{"bind a family that is none", inval, func(r *rig) (fields, error) {
		c := r.cm()
		in := abi.RdmaUcmBind{Id: c.tcp(1), AddrSize: 16}
		uapi.Bytes(&in.Addr)[0] = 1
		return nil, c.do(abi.RDMA_USER_CM_CMD_BIND, uapi.Bytes(&in))
	}},
	{"bind with something reserved", inval, func(r *rig) (fields, error) {
		c := r.cm()
		in := abi.RdmaUcmBind{Id: c.tcp(1), Reserved: 1}
		in.AddrSize = putAddr(uapi.Bytes(&in.Addr), r.at(0))
		return nil, c.do(abi.RDMA_USER_CM_CMD_BIND, uapi.Bytes(&in))
	}},
	{"bind in IPoIB", inval, func(r *rig) (fields, error) {
		c := r.cm()
		return nil, c.bind(c.id(1, abi.RDMA_PS_IPOIB), r.at(7101))
	}},
	{"bind the wildcard in IPoIB", nil, func(r *rig) (fields, error) {
		c := r.cm()
		return nil, c.bind(c.id(1, abi.RDMA_PS_IPOIB), netip.MustParseAddrPort("0.0.0.0:7101"))
	}},
	{"bind in the old way", nil, func(r *rig) (fields, error) {
		c := r.cm()
		in := abi.RdmaUcmBindIp{Id: c.tcp(1)}
		putAddr(uapi.Bytes(&in.Addr), r.at(7101))
		err := c.do(abi.RDMA_USER_CM_CMD_BIND_IP, uapi.Bytes(&in))
		return c.addr(in.Id), err
	}},
	{"bind nothing in the old way", inval, func(r *rig) (fields, error) {
		c := r.cm()
		return nil, c.do(abi.RDMA_USER_CM_CMD_BIND_IP, uapi.Bytes(&abi.RdmaUcmBindIp{Id: c.tcp(1)}))
	}},
	{"resolve in the old way", nil, func(r *rig) (fields, error) {
		c := r.cm()
		in := abi.RdmaUcmResolveIp{Id: c.tcp(1), TimeoutMs: 2000}
		putAddr(uapi.Bytes(&in.SrcAddr), r.at(7101))
		putAddr(uapi.Bytes(&in.DstAddr), r.at(7102))
		err := c.do(abi.RDMA_USER_CM_CMD_RESOLVE_IP, uapi.Bytes(&in))
		c.must(err)
		e := c.next()
		f := c.addr(in.Id)
		f["event"] = e.Event
		return f, nil
	}},
	{"resolve", nil, func(r *rig) (fields, error) {
		c := r.cm()
		c.must(c.resolve(c.tcp(1), r.at(7101), r.at(7102)))
		return c.of(c.next()), nil
	}},
	{"resolve in UDP", nil, func(r *rig) (fields, error) {
		c := r.cm()
		c.must(c.resolve(c.udp(1), r.at(7101), r.at(7102)))
		return c.ofUD(c.next()), nil
	}},
	{"resolve in IPoIB", nil, func(r *rig) (fields, error) {
		c := r.cm()
		c.must(c.resolve(c.id(1, abi.RDMA_PS_IPOIB), netip.AddrPort{}, r.at(7102)))
		return c.ofUD(c.next()), nil
	}},
	{"resolve twice", inval, func(r *rig) (fields, error) {
		c := r.cm()
		id := c.tcp(1)
		c.resolved(id, 7101, 7102)
		return nil, c.resolve(id, netip.AddrPort{}, r.at(7102))
	}},
	{"resolve another family", inval, func(r *rig) (fields, error) {
		c := r.cm()
		id := c.tcp(1)
		c.must(c.bind(id, r.at(7101)))
		return nil, c.resolve(id, netip.AddrPort{}, netip.MustParseAddrPort("[2001:db8:9::1]:1"))
	}},
	{"resolve nothing", inval, func(r *rig) (fields, error) {
		c := r.cm()
		return nil, c.do(abi.RDMA_USER_CM_CMD_RESOLVE_ADDR, uapi.Bytes(&abi.RdmaUcmResolveAddr{Id: c.tcp(1), TimeoutMs: 9}))
	}},
	{"resolve loopback", onlySiw(syscall.EINVAL), func(r *rig) (fields, error) {
		c := r.cm()
		if err := c.resolve(c.tcp(1), netip.AddrPort{}, netip.MustParseAddrPort("127.0.0.1:7102")); err != nil {
			return nil, err
		}
		return c.of(c.next()), nil
	}},
	{"route to loopback" + rxeOnly, always(syscall.ENODEV), func(r *rig) (fields, error) {
		c := r.cm()
		id := c.tcp(1)
		c.must(c.resolve(id, netip.AddrPort{}, netip.MustParseAddrPort("127.0.0.1:7102")))
		c.expect(evAddrResolved)
		f := c.addr(id)
		return f, c.route(id)
	}},
	{"route to the wildcard" + rxeOnly, always(syscall.ENODEV), func(r *rig) (fields, error) {
		c := r.cm()
		id := c.tcp(1)
		c.must(c.resolve(id, netip.AddrPort{}, netip.MustParseAddrPort("0.0.0.0:7102")))
		c.expect(evAddrResolved)
		f := c.addr(id)
		return f, c.route(id)
	}},
	{"route from an address to loopback" + rxeOnly, nil, func(r *rig) (fields, error) {
		c := r.cm()
		id := c.tcp(1)
		c.must(c.resolve(id, r.at(7101), netip.MustParseAddrPort("127.0.0.1:7102")))
		c.expect(evAddrResolved)
		c.must(c.route(id))
		f := c.addr(id)
		f["event"] = c.next().Event
		return f, nil
	}},
	{"route without a device", inval, func(r *rig) (fields, error) { c := r.cm(); return nil, c.route(c.tcp(1)) }},
	{"route of a bound id", inval, func(r *rig) (fields, error) {
		c := r.cm()
		id := c.tcp(1)
		c.must(c.bind(id, r.at(7101)))
		return nil, c.route(id)
	}},
	{"route without time", rules{{from: "6.1", errno: syscall.EINVAL}}, func(r *rig) (fields, error) {
		c := r.cm()
		id := c.tcp(1)
		c.resolved(id, 7101, 7102)
		return nil, c.do(abi.RDMA_USER_CM_CMD_RESOLVE_ROUTE, uapi.Bytes(&abi.RdmaUcmResolveRoute{Id: id}))
	}},
	{"route twice", inval, func(r *rig) (fields, error) {
		c := r.cm()
		return nil, c.route(c.dial(1, abi.RDMA_PS_TCP, 7101, 7102))
	}},
	{"listen without an address", nil, func(r *rig) (fields, error) { c := r.cm(); return nil, c.listen(c.tcp(1), 0) }},
	{"listen twice", inval, func(r *rig) (fields, error) {
		c := r.cm()
		return nil, c.listen(c.listener(1, abi.RDMA_PS_TCP, 7101), 1)
	}},
	{"listen in UDP", rules{{driver: "siw", errno: 0}}, func(r *rig) (fields, error) {
		c := r.cm()
		id := c.udp(1)
		c.must(c.bind(id, r.at(7101)))
		return nil, c.listen(id, 1)
	}},
	{"listen with a backlog below zero", nil, func(r *rig) (fields, error) {
		c := r.cm()
		id := c.tcp(1)
		c.must(c.bind(id, r.at(7101)))
		return nil, c.listen(id, -1)
	}},
	{"listen beside one who may share", always(syscall.EADDRINUSE), func(r *rig) (fields, error) {
		c := r.cm()
		var ids [2]uint32
		for i := range ids {
			ids[i] = c.tcp(uint64(i + 1))
			c.must(c.option(ids[i], abi.RDMA_OPTION_ID, abi.RDMA_OPTION_ID_REUSEADDR, []byte{1, 0, 0, 0}))
			c.must(c.bind(ids[i], r.at(7101)))
		}
		return nil, c.listen(ids[0], 1)
	}},
}

// addr is what QUERY tells of the addresses.
func (c cm) addr(id uint32) fields {
	c.r.t.Helper()
	var a abi.RdmaUcmQueryAddrResp
	c.must(c.ask(abi.RDMA_USER_CM_CMD_QUERY, uapi.Bytes(&abi.RdmaUcmQuery{Id: id}), 0, uapi.Bytes(&a)))
	text := func(raw []byte, size uint16) string {
		if size == 0 {
			return "none"
		}
		if size != 16 {
			return "not IPv4"
		}
		ip := netip.AddrFrom4([4]byte(raw[4:]))
		if ip == c.r.ip() {
			return "ours"
		}
		return ip.String()
	}
	port := func(raw []byte) uint16 {
		if p := binary.BigEndian.Uint16(raw[2:]); p < 32768 {
			return p
		}
		return 1 // it was chosen
	}
	src, dst := uapi.Bytes(&a.SrcAddr), uapi.Bytes(&a.DstAddr)
	return fields{
		"src": text(src, a.SrcSize), "dst": text(dst, a.DstSize), "src port": port(src), "dst port": port(dst),
		"device": a.NodeGuid != 0, "port": a.PortNum, "pkey": a.Pkey,
	}
}
