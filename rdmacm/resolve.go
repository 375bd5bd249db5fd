package rdmacm

import (
	"net/netip"
	"time"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
)

// Bind gives the id its own address. An unspecified address (0.0.0.0, ::) stands for all
// devices, port 0 for a free port. A link-local address needs a zone, by name or number.
// [ID.LocalAddr] has the result when Bind returns.
//
// Errors: ENODEV if the address belongs to no RDMA device, EADDRNOTAVAIL if nobody has it
// in this network namespace, EADDRINUSE; EACCES for a port below 1024 without
// CAP_NET_BIND_SERVICE. Source: rdma_bind_addr(3).
func (id *ID) Bind(addr netip.AddrPort) error {
	return id.do(opBind, addr, func() error {
		in := abi.RdmaUcmBind{Id: id.kid}
		var err error
		if in.AddrSize, err = putSockaddr(&in.Addr, addr); err != nil {
			return err
		}
		if err := id.ch.call(abi.RDMA_USER_CM_CMD_BIND, uapi.Bytes(&in)); err != nil {
			return err
		}
		id.refresh()
		return nil
	})
}

// ResolveAddr finds the device and the link-layer address for dst. src is the own address
// to use, or the zero AddrPort for what the routing table says. The answer comes as
// EventAddrResolved or EventAddrError, which it will within timeout.
//
// Source: rdma_resolve_addr(3).
func (id *ID) ResolveAddr(src, dst netip.AddrPort, timeout time.Duration) error {
	return id.do(opResolve, dst, func() error {
		in := abi.RdmaUcmResolveAddr{Id: id.kid, TimeoutMs: milliseconds(timeout)}
		var err error
		if in.DstSize, err = putSockaddr(&in.DstAddr, dst); err != nil {
			return err
		}
		if src.IsValid() {
			if in.SrcSize, err = putSockaddr(&in.SrcAddr, src); err != nil {
				return err
			}
		}
		id.dst = dst
		return id.ch.call(abi.RDMA_USER_CM_CMD_RESOLVE_ADDR, uapi.Bytes(&in))
	})
}

// ResolveRoute finds the path to the resolved address. On InfiniBand the subnet manager is
// asked, on Ethernet there is nothing to find. The answer comes as EventRouteResolved or
// EventRouteError. Source: rdma_resolve_route(3).
func (id *ID) ResolveRoute(timeout time.Duration) error {
	return id.do(opRoute, id.RemoteAddr(), func() error {
		in := abi.RdmaUcmResolveRoute{Id: id.kid, TimeoutMs: milliseconds(timeout)}
		return id.ch.call(abi.RDMA_USER_CM_CMD_RESOLVE_ROUTE, uapi.Bytes(&in))
	})
}

// Listen makes the id take connection requests, which come as EventConnectRequest. backlog
// bounds the requests that wait to be received with NextEvent; 0 or less stands for the
// kernel's limit (sysctl net.rdma_ucm.max_backlog). Source: rdma_listen(3).
func (id *ID) Listen(backlog int) error {
	return id.do(opListen, id.LocalAddr(), func() error {
		in := abi.RdmaUcmListen{Id: id.kid, Backlog: uint32(min(max(backlog, 0), 1<<31-1))}
		if err := id.ch.call(abi.RDMA_USER_CM_CMD_LISTEN, uapi.Bytes(&in)); err != nil {
			return err
		}
		id.listens = true
		id.refresh()
		return nil
	})
}

// milliseconds rounds up, so that a short wait does not become none.
func milliseconds(d time.Duration) uint32 {
	ms := (d + time.Millisecond - 1) / time.Millisecond
	return uint32(min(max(ms, 0), 1<<31-1))
}
