//go:build linux

package tests

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
)

// asked brings a request about a service of datagrams to its listener.
func (r *rig) asked(n int) pair {
	r.t.Helper()
	p := pair{a: r.cm(), b: r.cm()}
	p.l = p.b.listener(100, abi.RDMA_PS_UDP, 7140)
	p.from = p.a.dial(1, abi.RDMA_PS_UDP, 7141, 7140)
	p.a.must(p.a.connect(p.from, param(0, n)))
	return p
}

func (r *rig) heard() pair {
	r.t.Helper()
	p := r.asked(3)
	p.to = p.b.expect(evRequest).Id
	return p
}

// cmDatagramCases ask for the queue pair of a service.
var cmDatagramCases = []kernelCase{
	{"request" + rxeOnly, nil, func(r *rig) (fields, error) {
		p := r.asked(180)
		e := p.b.next()
		f := p.b.ofUD(e)
		f["addresses"], f["is new"] = p.b.addr(e.Id), e.Id != p.l
		f["route"], _ = p.b.routeOf(e.Id)
		f["attributes"], _ = p.b.attrs(e.Id)
		return f, nil
	}},
	{"request with 181 bytes" + rxeOnly, inval, func(r *rig) (fields, error) {
		c := r.cm()
		id := c.dial(1, abi.RDMA_PS_UDP, 7141, 7140)
		return nil, c.connect(id, param(0, 181))
	}},
	{"answer" + rxeOnly, nil, func(r *rig) (fields, error) {
		p := r.heard()
		q := param(0x4711, 136)
		q.Qkey = 0x99 // which counts with addresses of IB only
		p.b.must(p.b.accept(p.to, 2, q))
		return p.a.ofUD(p.a.next()), nil
	}},
	{"answer without parameters" + rxeOnly, nil, func(r *rig) (fields, error) {
		p := r.heard()
		p.b.must(p.b.establish(p.to))
		return p.a.ofUD(p.a.next()), nil
	}},
	{"answer with 137 bytes rejects" + rxeOnly, inval, func(r *rig) (fields, error) {
		p := r.heard()
		err := p.b.accept(p.to, 2, param(0x4711, 137))
		return p.a.ofUD(p.a.next()), err
	}},
	{"answer twice" + rxeOnly, inval, func(r *rig) (fields, error) {
		p := r.heard()
		p.b.must(p.b.accept(p.to, 2, param(0x4711, 0)))
		return nil, p.b.accept(p.to, 2, param(0x4711, 0))
	}},
	{"rejection" + rxeOnly, nil, func(r *rig) (fields, error) {
		p := r.heard()
		p.b.must(p.b.reject(p.to, 0, 136))
		return p.a.ofUD(p.a.next()), nil
	}},
	{"rejection with 137 bytes" + rxeOnly, inval, func(r *rig) (fields, error) {
		p := r.heard()
		return nil, p.b.reject(p.to, 0, 137)
	}},
	{"rejection after the answer" + rxeOnly, inval, func(r *rig) (fields, error) {
		p := r.heard()
		p.b.must(p.b.accept(p.to, 2, param(0x4711, 0)))
		return nil, p.b.reject(p.to, 0, 0)
	}},
	{"nobody listens" + rxeOnly, nil, func(r *rig) (fields, error) {
		c := r.cm()
		id := c.dial(1, abi.RDMA_PS_UDP, 7141, 7142)
		c.must(c.connect(id, param(0, 0)))
		return c.ofUD(c.next()), nil
	}},
	{"one listens in TCP" + rxeOnly, nil, func(r *rig) (fields, error) {
		a, b := r.cm(), r.cm()
		b.listener(100, abi.RDMA_PS_TCP, 7142)
		a.must(a.connect(a.dial(1, abi.RDMA_PS_UDP, 7141, 7142), param(0, 0)))
		return a.ofUD(a.next()), nil
	}},
	{"destroyed before the answer" + rxeOnly, nil, func(r *rig) (fields, error) {
		p := r.heard()
		_, err := p.b.destroy(p.to)
		p.b.must(err)
		return p.a.ofUD(p.a.next()), nil
	}},
	{"the client goes before the answer" + rxeOnly, nil, func(r *rig) (fields, error) {
		p := r.heard()
		_, err := p.a.destroy(p.from)
		p.a.must(err)
		return nil, p.b.accept(p.to, 2, param(0x4711, 0))
	}},
	{"what may come after the answer" + rxeOnly, nil, func(r *rig) (fields, error) {
		p := r.heard()
		p.b.must(p.b.accept(p.to, 2, param(0x4711, 0)))
		p.a.expect(evEstablished)
		f := fields{
			"connect": fmt.Sprint(p.a.connect(p.from, param(0, 0))), "disconnect": fmt.Sprint(p.a.disconnect(p.from)),
			"peer": fmt.Sprint(p.b.disconnect(p.to)), "reject": fmt.Sprint(p.a.reject(p.from, 0, 0)),
			"notify": fmt.Sprint(p.a.notify(p.from, 4)), "accept": fmt.Sprint(p.a.accept(p.from, 1, param(1, 0))),
		}
		f["attributes"], _ = p.a.attrs(p.from)
		_, err := p.b.poll()
		f["quiet"] = errors.Is(err, syscall.EAGAIN)
		return f, nil
	}},
	{"events are counted" + rxeOnly, nil, func(r *rig) (fields, error) {
		p := r.heard()
		p.b.must(p.b.accept(p.to, 2, param(0x4711, 0)))
		p.a.expect(evEstablished)
		a, err := p.a.destroy(p.from)
		p.a.must(err)
		b, err := p.b.destroy(p.to)
		p.b.must(err)
		l, err := p.b.destroy(p.l)
		return fields{"active": a, "passive": b, "listener": l}, err
	}},
	{"connect on iWARP", rules{{errno: 0}, {driver: "siw", errno: syscall.EINVAL}}, func(r *rig) (fields, error) {
		c := r.cm()
		return nil, c.connect(c.dial(1, abi.RDMA_PS_UDP, 7141, 7140), param(0, 0))
	}},
}

// cmMulticastCases join and leave groups.
var cmMulticastCases = []kernelCase{
	{"join an id without a device", inval, func(r *rig) (fields, error) {
		c := r.cm()
		_, err := c.join(c.udp(1), mcastGID, 0)
		return nil, err
	}},
	{"join in TCP", inval, func(r *rig) (fields, error) {
		c := r.cm()
		id := c.tcp(1)
		c.must(c.bind(id, r.at(7150)))
		_, err := c.join(id, mcastGID, 0)
		return nil, err
	}},
	{"join", onlySiw(syscall.ENOSYS), func(r *rig) (fields, error) { return r.joined(mcastGID, 0) }},
	{"join to send only", onlySiw(syscall.ENOSYS), func(r *rig) (fields, error) { return r.joined(mcastGID, 1) }},
	{"join with other flags", inval, func(r *rig) (fields, error) { return r.joined(mcastGID, 2) }},
	{"join a unicast address", onlySiw(syscall.ENOSYS), func(r *rig) (fields, error) {
		return r.joined(netip.MustParseAddr("10.1.2.3"), 0)
	}},
	{"join the wildcard", rules{{errno: syscall.EINVAL}, {driver: "siw", errno: syscall.ENOSYS}}, func(r *rig) (fields, error) {
		return r.joined(netip.IPv4Unspecified(), 0)
	}},
	{"join by IPv6", rules{{errno: enotsupp}, {driver: "siw", errno: syscall.ENOSYS}}, func(r *rig) (fields, error) {
		return r.joined(netip.MustParseAddr("ff0e::1234"), 0)
	}},
	{"join when resolved" + rxeOnly, nil, func(r *rig) (fields, error) {
		c := r.cm()
		id := c.udp(1)
		c.resolved(id, 7150, 7151)
		_, err := c.join(id, mcastGID, 0)
		c.must(err)
		return c.ofUD(c.expect(evJoin)), nil
	}},
	{"join with a route" + rxeOnly, inval, func(r *rig) (fields, error) {
		c := r.cm()
		_, err := c.join(c.dial(1, abi.RDMA_PS_UDP, 7150, 7151), mcastGID, 0)
		return nil, err
	}},
	{"join in the old way" + rxeOnly, nil, func(r *rig) (fields, error) {
		c := r.cm()
		in := abi.RdmaUcmJoinIpMcast{Id: c.boundUDP(), Uid: 5}
		putAddr(uapi.Bytes(&in.Addr), netip.AddrPortFrom(mcastGID, 0))
		var resp abi.RdmaUcmCreateIdResp
		c.must(c.ask(abi.RDMA_USER_CM_CMD_JOIN_IP_MCAST, uapi.Bytes(&in), 0, uapi.Bytes(&resp)))
		e := c.next()
		f := c.ofUD(e)
		f["names the group"] = e.Id == resp.Id
		return f, nil
	}},
	{"join nothing in the old way", inval, func(r *rig) (fields, error) {
		c := r.cm()
		var resp abi.RdmaUcmCreateIdResp
		return nil, c.ask(abi.RDMA_USER_CM_CMD_JOIN_IP_MCAST, uapi.Bytes(&abi.RdmaUcmJoinIpMcast{Id: c.boundUDP()}), 0, uapi.Bytes(&resp))
	}},
	{"join with a size that does not fit", inval, func(r *rig) (fields, error) {
		c := r.cm()
		in := abi.RdmaUcmJoinMcast{Id: c.boundUDP()}
		in.AddrSize = putAddr(uapi.Bytes(&in.Addr), netip.AddrPortFrom(mcastGID, 0)) + 1
		var resp abi.RdmaUcmCreateIdResp
		return nil, c.ask(abi.RDMA_USER_CM_CMD_JOIN_MCAST, uapi.Bytes(&in), 0, uapi.Bytes(&resp))
	}},
	{"join without room", always(syscall.ENOSPC), func(r *rig) (fields, error) {
		c := r.cm()
		in := abi.RdmaUcmJoinMcast{Id: c.boundUDP()}
		in.AddrSize = putAddr(uapi.Bytes(&in.Addr), netip.AddrPortFrom(mcastGID, 0))
		return nil, c.ask(abi.RDMA_USER_CM_CMD_JOIN_MCAST, uapi.Bytes(&in), 0, nil)
	}},
	{"join twice" + rxeOnly, nil, func(r *rig) (fields, error) {
		c := r.cm()
		id := c.boundUDP()
		a, err := c.join(id, mcastGID, 0)
		c.must(err)
		b, err := c.join(id, mcastGID, 0)
		return fields{"differ": a != b, "events": []uint32{c.next().Event, c.next().Event}}, err
	}},
	{"leave" + rxeOnly, nil, func(r *rig) (fields, error) {
		c := r.cm()
		id := c.boundUDP()
		m, err := c.join(id, mcastGID, 0)
		c.must(err)
		c.expect(evJoin)
		n, err := c.leave(m)
		c.must(err)
		all, err := c.destroy(id)
		return fields{"events": n, "all": all}, err
	}},
	{"leave takes its events along" + rxeOnly, nil, func(r *rig) (fields, error) {
		c := r.cm()
		m, err := c.join(c.boundUDP(), mcastGID, 0)
		c.must(err)
		c.wait()
		n, err := c.leave(m)
		c.must(err)
		_, err = c.poll()
		return fields{"events": n, "quiet": errors.Is(err, syscall.EAGAIN)}, nil
	}},
	{"leave twice" + rxeOnly, always(syscall.ENOENT), func(r *rig) (fields, error) {
		c := r.cm()
		m, err := c.join(c.boundUDP(), mcastGID, 0)
		c.must(err)
		_, err = c.leave(m)
		c.must(err)
		_, err = c.leave(m)
		return nil, err
	}},
	{"leave from another file" + rxeOnly, inval, func(r *rig) (fields, error) {
		c := r.cm()
		m, err := c.join(c.boundUDP(), mcastGID, 0)
		c.must(err)
		_, err = r.cm().leave(m)
		return nil, err
	}},
	{"leave with the id" + rxeOnly, always(syscall.ENOENT), func(r *rig) (fields, error) {
		c := r.cm()
		id := c.boundUDP()
		m, err := c.join(id, mcastGID, 0)
		c.must(err)
		_, err = c.destroy(id)
		c.must(err)
		_, err = c.leave(m)
		return nil, err
	}},
	{"attributes when joined" + rxeOnly, nil, func(r *rig) (fields, error) {
		c := r.cm()
		id := c.boundUDP()
		_, err := c.join(id, mcastGID, 0)
		c.must(err)
		return c.attrs(id)
	}},
}

// enotsupp is an errno of the kernel's own that reaches the user here.
const enotsupp = syscall.Errno(524)

func (c cm) boundUDP() uint32 {
	c.r.t.Helper()
	id := c.udp(1)
	c.must(c.bind(id, c.r.at(7150)))
	return id
}

func (c cm) join(id uint32, group netip.Addr, flags uint16) (uint32, error) {
	in := abi.RdmaUcmJoinMcast{Id: id, Uid: 77, JoinFlags: flags}
	in.AddrSize = putAddr(uapi.Bytes(&in.Addr), netip.AddrPortFrom(group, 0))
	var r abi.RdmaUcmCreateIdResp
	err := c.ask(abi.RDMA_USER_CM_CMD_JOIN_MCAST, uapi.Bytes(&in), 0, uapi.Bytes(&r))
	return r.Id, err
}

func (c cm) leave(group uint32) (uint32, error) {
	var r abi.RdmaUcmDestroyIdResp
	err := c.ask(abi.RDMA_USER_CM_CMD_LEAVE_MCAST, uapi.Bytes(&abi.RdmaUcmDestroyId{Id: group}), 0, uapi.Bytes(&r))
	return r.EventsReported, err
}

// joined joins and tells of the event.
func (r *rig) joined(group netip.Addr, flags uint16) (fields, error) {
	c := r.cm()
	m, err := c.join(c.boundUDP(), group, flags)
	if err != nil {
		return nil, err
	}
	e := c.next()
	f := c.ofUD(e)
	f["names the group"], f["group"] = e.Id == m, fmt.Sprintf("%x", e.ParamUd().AhAttr.Grh.Dgid)
	return f, nil
}

// cmGIDCases use addresses of family AF_IB.
var cmGIDCases = []kernelCase{
	{"bind the wildcard", nil, func(r *rig) (fields, error) {
		c := r.cm()
		return nil, c.bindIB(c.id(1, abi.RDMA_PS_IB), ibAddr{sid: 0x13f0000 | 7160, mask: ^uint64(0)})
	}},
	{"bind without a service", nil, func(r *rig) (fields, error) {
		c := r.cm()
		id := c.id(1, abi.RDMA_PS_IB)
		c.must(c.bindIB(id, ibAddr{}))
		f, err := c.gids(id)
		for _, name := range []string{"src service", "dst service"} {
			f[name] = f[name].(uint64) >> 16
		}
		return f, err
	}},
	{"bind a service of TCP in IB", nil, func(r *rig) (fields, error) {
		c := r.cm()
		id := c.id(1, abi.RDMA_PS_IB)
		c.must(c.bindIB(id, ibAddr{sid: 0x1060000 | 7160, mask: ^uint64(0), pkey: 0xffff}))
		return c.gids(id)
	}},
	{"bind a service of UDP in TCP", always(syscall.EPROTONOSUPPORT), func(r *rig) (fields, error) {
		c := r.cm()
		return nil, c.bindIB(c.tcp(1), ibAddr{sid: 0x1110000 | 7160, mask: ^uint64(0)})
	}},
	{"bind in IPoIB", rules{{errno: syscall.EPROTONOSUPPORT}}, func(r *rig) (fields, error) {
		c := r.cm()
		return nil, c.bindIB(c.id(1, abi.RDMA_PS_IPOIB), ibAddr{})
	}},
	{"bind a GID", always(syscall.ENODEV), func(r *rig) (fields, error) {
		c := r.cm()
		return nil, c.bindIB(c.id(1, abi.RDMA_PS_IB), ibAddr{gid: r.ip().As16(), sid: 0x13f0000 | 7160, mask: ^uint64(0)})
	}},
	{"bind in the old way", inval, func(r *rig) (fields, error) {
		c := r.cm()
		in := abi.RdmaUcmBindIp{Id: c.id(1, abi.RDMA_PS_IB)}
		binary.NativeEndian.PutUint16(uapi.Bytes(&in.Addr), 27)
		return nil, c.do(abi.RDMA_USER_CM_CMD_BIND_IP, uapi.Bytes(&in))
	}},
	{"listen on the wildcard", nil, func(r *rig) (fields, error) {
		c := r.cm()
		id := c.id(1, abi.RDMA_PS_IB)
		c.must(c.bindIB(id, ibAddr{sid: 0x13f0000 | 7160, mask: ^uint64(0)}))
		return nil, c.listen(id, 1)
	}},
	{"resolve a GID", onlySiw(syscall.ENODEV), func(r *rig) (fields, error) {
		c := r.cm()
		id := c.id(1, abi.RDMA_PS_IB)
		if err := c.resolveIB(id, ibAddr{gid: r.ip().As16(), pkey: 0xffff, sid: 0x13f0000 | 7160, mask: ^uint64(0)}); err != nil {
			return nil, err
		}
		f := c.of(c.next())
		f["route"] = fmt.Sprint(c.route(id))
		f["path"] = fmt.Sprint(c.path(id, goodPath, 1))
		f["gids"], _ = c.gids(id)
		f["attributes"], _ = c.attrs(id)
		if s := f["gids"].(fields); true {
			s["src service"] = s["src service"].(uint64) >> 16
		}
		return f, nil
	}},
	{"resolve a GID of no subnet here", always(syscall.ENODEV), func(r *rig) (fields, error) {
		c := r.cm()
		gid := netip.MustParseAddr("2001:db8:77::1").As16()
		return nil, c.resolveIB(c.id(1, abi.RDMA_PS_IB), ibAddr{gid: gid, pkey: 0xffff})
	}},
	{"resolve with another partition", always(syscall.ENODEV), func(r *rig) (fields, error) {
		c := r.cm()
		return nil, c.resolveIB(c.id(1, abi.RDMA_PS_IB), ibAddr{gid: r.ip().As16(), pkey: 0x8001})
	}},
	{"resolve with addresses of two families", inval, func(r *rig) (fields, error) {
		c := r.cm()
		id := c.id(1, abi.RDMA_PS_IB)
		c.must(c.bind(id, r.at(7160)))
		return nil, c.resolveIB(id, ibAddr{gid: r.ip().As16(), pkey: 0xffff})
	}},
}

type ibAddr struct {
	gid       [16]byte
	pkey      uint16
	sid, mask uint64
}

// put writes a sockaddr_ib.
func (a ibAddr) put(to []byte) uint16 {
	binary.NativeEndian.PutUint16(to, 27)
	binary.BigEndian.PutUint16(to[2:], a.pkey)
	copy(to[8:], a.gid[:])
	binary.BigEndian.PutUint64(to[24:], a.sid)
	binary.BigEndian.PutUint64(to[32:], a.mask)
	return 48
}

func (c cm) bindIB(id uint32, a ibAddr) error {
	in := abi.RdmaUcmBind{Id: id}
	in.AddrSize = a.put(uapi.Bytes(&in.Addr))
	return c.do(abi.RDMA_USER_CM_CMD_BIND, uapi.Bytes(&in))
}

func (c cm) resolveIB(id uint32, a ibAddr) error {
	in := abi.RdmaUcmResolveAddr{Id: id, TimeoutMs: 2000}
	in.DstSize = a.put(uapi.Bytes(&in.DstAddr))
	return c.do(abi.RDMA_USER_CM_CMD_RESOLVE_ADDR, uapi.Bytes(&in))
}

// cmNewCases are commands of new kernels.
var cmNewCases = []kernelCase{
	{"resolve a service of a new id", inval, func(r *rig) (fields, error) {
		c := r.cm()
		return nil, c.do(abi.RDMA_USER_CM_CMD_RESOLVE_IB_SERVICE, uapi.Bytes(&abi.RdmaUcmResolveIbService{Id: c.tcp(1)}))
	}},
	{"resolve a service", rules{{errno: syscall.EINVAL}, {from: "7.0", errno: syscall.EOPNOTSUPP}}, func(r *rig) (fields, error) {
		c := r.cm()
		id := c.tcp(1)
		c.must(c.bind(id, r.at(7170)))
		return nil, c.do(abi.RDMA_USER_CM_CMD_RESOLVE_IB_SERVICE, uapi.Bytes(&abi.RdmaUcmResolveIbService{Id: id}))
	}},
	{"write an event", rules{{errno: syscall.EINVAL}, {from: "7.0"}}, func(r *rig) (fields, error) {
		c := r.cm()
		in := abi.RdmaUcmWriteCmEvent{Id: c.tcp(7), Event: evUser, Status: 5}
		*in.ParamArg() = 0x1122334455667788
		if err := c.do(abi.RDMA_USER_CM_CMD_WRITE_CM_EVENT, uapi.Bytes(&in)); err != nil {
			return nil, err
		}
		f := c.of(c.next())
		f["counted"], _ = c.destroy(in.Id)
		return f, nil
	}},
	{"write an event of the kernel's", inval, func(r *rig) (fields, error) {
		c := r.cm()
		return nil, c.do(abi.RDMA_USER_CM_CMD_WRITE_CM_EVENT, uapi.Bytes(&abi.RdmaUcmWriteCmEvent{Id: c.tcp(7), Event: evRejected}))
	}},
	{"write an event to an id without an identity", inval, func(r *rig) (fields, error) {
		c := r.cm()
		return nil, c.do(abi.RDMA_USER_CM_CMD_WRITE_CM_EVENT, uapi.Bytes(&abi.RdmaUcmWriteCmEvent{Id: c.tcp(0), Event: evUser}))
	}},
}
