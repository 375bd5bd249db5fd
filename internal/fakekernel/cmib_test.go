//go:build linux

package fakekernel

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
)

// TestIBAddresses: on Ethernet an id of family AF_IB can be bound to the wildcard and find a
// device, and no more.
func TestIBAddresses(t *testing.T) {
	k := start(t, Options{})
	c := openCM(t, k)
	id := func(ps uint16) uint32 {
		t.Helper()
		id, err := c.create(1, ps)
		must(t, err)
		return id
	}
	bind := func(ps uint16, a ibAddr) error {
		in := abi.RdmaUcmBind{Id: id(ps)}
		in.AddrSize = a.put(bytesOf(&in.Addr))
		return c.call(abi.RDMA_USER_CM_CMD_BIND, bytesOf(&in), uapi.NoResponse, nil)
	}
	all := ^uint64(0)
	gid := ap("10.9.0.1:0").Addr().As16()
	want(t, "wildcard", bind(abi.RDMA_PS_IB, ibAddr{sid: ibPSIB | 7000, mask: all}), 0)
	want(t, "again", bind(abi.RDMA_PS_IB, ibAddr{sid: ibPSIB | 7000, mask: all}), unix.EADDRNOTAVAIL)
	want(t, "in another space", bind(abi.RDMA_PS_IB, ibAddr{sid: ibPSTCP | 7000, mask: all}), 0)
	want(t, "which is that of TCP", c.bind(c.id(2), ap("10.9.0.1:7000"), 0), unix.EADDRNOTAVAIL)
	want(t, "foreign service", bind(abi.RDMA_PS_TCP, ibAddr{sid: ibPSUDP | 7000, mask: all}), unix.EPROTONOSUPPORT)
	want(t, "GID", bind(abi.RDMA_PS_IB, ibAddr{gid: gid, sid: ibPSIB | 7001, mask: all}), unix.ENODEV)

	in := abi.RdmaUcmResolveAddr{Id: id(abi.RDMA_PS_IB), TimeoutMs: 9}
	dst := ibAddr{gid: gid, pkey: 0xffff, sid: ibPSIB | 7002, mask: all}
	in.DstSize = dst.put(bytesOf(&in.DstAddr))
	must(t, c.call(abi.RDMA_USER_CM_CMD_RESOLVE_ADDR, bytesOf(&in), uapi.NoResponse, nil))
	c.next(EventAddrResolved, 1)
	want(t, "route", c.route(in.Id), unix.ENODEV)
	var r abi.RdmaUcmQueryAddrResp
	must(t, c.call(abi.RDMA_USER_CM_CMD_QUERY, bytesOf(&abi.RdmaUcmQuery{Id: in.Id}), 0, bytesOf(&r)))
	src, ok := parseIB(&r.SrcAddr, r.SrcSize)
	if !ok || src.gid != gid || r.PortNum != 1 {
		t.Errorf("source %+v of %+v", src, r)
	}
	in.Id = id(abi.RDMA_PS_IB)
	dst.pkey = 0x8001
	dst.put(bytesOf(&in.DstAddr))
	want(t, "other partition", c.call(abi.RDMA_USER_CM_CMD_RESOLVE_ADDR, bytesOf(&in), uapi.NoResponse, nil), unix.ENODEV)
}
