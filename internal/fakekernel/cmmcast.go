//go:build linux

package fakekernel

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
)

// cmGroup is a multicast group that an id has joined: struct ucma_multicast. On RoCE nobody
// has to be asked, so the joining is an event, and no more: what a queue pair receives is a
// matter of being attached.
type cmGroup struct {
	id       uint32
	uid      uint64
	owner    *cmID
	reported uint32
	ah       abi.IbUverbsAhAttr
}

// Hops of what is sent to a group: IPV6_DEFAULT_HOPLIMIT.
const multicastHops = 64

// notSupported is an errno of the kernel's own that reaches the user by mistake: ENOTSUPP.
const notSupported = unix.Errno(524)

// joinIP is the older command, which knows IP addresses only.
func (f *cmFile) joinIP(c cmCall) error {
	in, err := body[abi.RdmaUcmJoinIpMcast](c)
	if err != nil {
		return err
	}
	to := abi.RdmaUcmJoinMcast{Response: in.Response, Uid: in.Uid, Id: in.Id}
	copy(bytesOf(&to.Addr), bytesOf(&in.Addr))
	if to.AddrSize = sizeOf(&to.Addr); to.AddrSize == 0 || int(to.AddrSize) > len(bytesOf(&in.Addr)) {
		return unix.EINVAL
	}
	return f.join(c, &to)
}

func (f *cmFile) joinGroup(c cmCall) error {
	in, err := body[abi.RdmaUcmJoinMcast](c)
	if err != nil {
		return err
	}
	if sizeOf(&in.Addr) == 0 {
		return unix.EINVAL
	}
	return f.join(c, &in)
}

// join is ucma_process_join.
func (f *cmFile) join(c cmCall, in *abi.RdmaUcmJoinMcast) error {
	if err := roomFor[abi.RdmaUcmCreateIdResp](c); err != nil {
		return err
	}
	if in.AddrSize != sizeOf(&in.Addr) || in.JoinFlags > abi.RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER {
		return unix.EINVAL
	}
	id, err := f.findBound(in.Id)
	if err != nil {
		return err
	}
	ah, err := id.groupAt(&in.Addr)
	if err != nil {
		return err
	}
	g := &cmGroup{uid: in.Uid, owner: id, ah: ah}
	for f.k.cm.groups[g.id] != nil {
		g.id++
	}
	if err := answer(c, in.Response, &abi.RdmaUcmCreateIdResp{Id: g.id}); err != nil {
		return err
	}
	f.k.cm.groups[g.id] = g
	id.groups = append(id.groups, g)
	g.push(EventMulticastJoin, 0)
	return nil
}

// groupAt makes the address vector of a group: core/cma.c, rdma_join_multicast and
// cma_iboe_join_multicast. That the address is one of a group nobody checks.
func (c *cmID) groupAt(s *abi.KernelSockaddrStorage) (ah abi.IbUverbsAhAttr, err error) {
	if c.state != cmBound && c.state != cmAddrResolved || !c.datagrams() {
		return ah, unix.EINVAL
	}
	a, _, _ := parseAddr(s, sizeOf(s))
	addr := a.Addr()
	switch {
	case c.iwarp():
		return ah, unix.ENOSYS
	case addr.Is4() && addr.As4()[0] == 0, addr == netip.IPv6Unspecified(), *s.SsFamily() == afIB && zeroIB(s):
		return ah, unix.EINVAL
	case !c.bound:
		return ah, unix.ENODEV
	case !addr.Is4():
		return ah, notSupported
	}
	if c.qkey == 0 {
		c.setDefaultQKey()
	}
	index, _ := c.dev.gidIndex(c.src.Addr())
	return abi.IbUverbsAhAttr{
		Grh:      abi.IbUverbsGlobalRoute{Dgid: addr.As16(), SgidIndex: index, HopLimit: multicastHops},
		IsGlobal: 1, PortNum: 1,
	}, nil
}

// push queues an event of the group. The user knows it by the uid of the group.
func (g *cmGroup) push(typ uint32, status int32) {
	e := g.owner.event(typ, status)
	e.group, e.resp.Uid, e.resp.Id = g, g.uid, g.id
	if typ == EventMulticastJoin {
		p := abi.RdmaUcmUdParam{QpNum: multicastQPN, Qkey: g.owner.qkey, AhAttr: g.ah}
		copy(bytesOf(&e.resp.Param), bytesOf(&p))
	}
	g.owner.post(e)
}

func (f *cmFile) leaveGroup(c cmCall) error {
	if err := roomFor[abi.RdmaUcmDestroyIdResp](c); err != nil {
		return err
	}
	in, err := body[abi.RdmaUcmDestroyId](c)
	if err != nil {
		return err
	}
	g := f.k.cm.groups[in.Id]
	switch {
	case g == nil:
		return unix.ENOENT
	case g.owner.file != f:
		return unix.EINVAL
	case g.owner.removed:
		return unix.ENXIO
	}
	delete(f.k.cm.groups, g.id)
	g.owner.groups = slices.DeleteFunc(g.owner.groups, func(o *cmGroup) bool { return o == g })
	f.forget(func(e cmEvent) bool { return e.group == g })
	return answer(c, in.Response, &abi.RdmaUcmDestroyIdResp{EventsReported: g.reported})
}

// sizeOf is the size that a socket address has by its family: rdma_addr_size.
func sizeOf(s *abi.KernelSockaddrStorage) uint16 {
	switch *s.SsFamily() {
	case unix.AF_INET:
		return 16
	case unix.AF_INET6:
		return 28
	case afIB:
		return ibAddrSize
	}
	return 0
}

// zeroIB tells whether an address of family AF_IB is the wildcard.
func zeroIB(s *abi.KernelSockaddrStorage) bool {
	raw := bytesOf(s)
	return binary.BigEndian.Uint64(raw[8:]) == 0 && binary.BigEndian.Uint64(raw[16:]) == 0
}
