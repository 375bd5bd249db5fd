package rdmacm

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
	"github.com/pureverbs/rdma/uverbs"
)

// AddrIB is an address of InfiniBand itself, without IP: struct sockaddr_ib. It is for ids of
// [PortSpaceIB], and of the others where their service ids are kept to. Source:
// rdma_getaddrinfo(3), rdma/ib.h.
type AddrIB struct {
	GID      uverbs.GID // the zero GID stands for any
	PKey     uint16     // 0 stands for any
	FlowInfo uint32
	ScopeID  uint64
	SID      uint64 // service id: in PortSpaceIB the port below, 0x13f<<16 above it
	SIDMask  uint64 // the bits of SID that count; 0 with SID 0 stands for a free one
}

// ServiceID is the service id that a port of a port space has, for [AddrIB].
func ServiceID(ps PortSpace, port uint16) uint64 { return uint64(ps)<<16 | uint64(port) }

func (a *AddrIB) String() string {
	return fmt.Sprintf("[%v] service %#x/%#x", a.GID, a.SID, a.SIDMask)
}

func putSockaddrIB(s *abi.KernelSockaddrStorage, a *AddrIB) uint16 {
	b := uapi.Bytes(s)
	clear(b)
	binary.NativeEndian.PutUint16(b, afIB)
	binary.BigEndian.PutUint16(b[2:], a.PKey)
	binary.BigEndian.PutUint32(b[4:], a.FlowInfo)
	copy(b[8:], a.GID[:])
	binary.BigEndian.PutUint64(b[24:], a.SID)
	binary.BigEndian.PutUint64(b[32:], a.SIDMask)
	binary.NativeEndian.PutUint64(b[40:], a.ScopeID)
	return sizeIB
}

func getSockaddrIB(s *abi.KernelSockaddrStorage) AddrIB {
	b := uapi.Bytes(s)
	return AddrIB{
		PKey: binary.BigEndian.Uint16(b[2:]), FlowInfo: binary.BigEndian.Uint32(b[4:]), GID: uverbs.GID(b[8:24]),
		SID: binary.BigEndian.Uint64(b[24:]), SIDMask: binary.BigEndian.Uint64(b[32:]), ScopeID: binary.NativeEndian.Uint64(b[40:]),
	}
}

// BindIB is [ID.Bind] with an address of InfiniBand. [ID.LocalIB] has the result. A port
// below 1024 of the service id needs CAP_NET_BIND_SERVICE.
//
// Errors: ENODEV, EADDRNOTAVAIL or EINVAL where no device of InfiniBand or RoCE has the GID.
// Source: rdma_bind_addr(3).
func (id *ID) BindIB(addr AddrIB) error {
	return id.doIB(opBind, &addr, func() error {
		in := abi.RdmaUcmBind{Id: id.kid}
		in.AddrSize = putSockaddrIB(&in.Addr, &addr)
		if err := id.ch.call(abi.RDMA_USER_CM_CMD_BIND, uapi.Bytes(&in)); err != nil {
			return err
		}
		id.refresh()
		return nil
	})
}

// ResolveIB is [ID.ResolveAddr] with addresses of InfiniBand; nil for src leaves the own one to
// the kernel. Source: rdma_resolve_addr(3).
func (id *ID) ResolveIB(src *AddrIB, dst AddrIB, timeout time.Duration) error {
	return id.doIB(opResolve, &dst, func() error {
		in := abi.RdmaUcmResolveAddr{Id: id.kid, TimeoutMs: milliseconds(timeout)}
		in.DstSize = putSockaddrIB(&in.DstAddr, &dst)
		if src != nil {
			in.SrcSize = putSockaddrIB(&in.SrcAddr, src)
		}
		if err := id.ch.call(abi.RDMA_USER_CM_CMD_RESOLVE_ADDR, uapi.Bytes(&in)); err != nil {
			return err
		}
		return nil
	})
}

// doIB is do for errors that name an address of InfiniBand.
func (id *ID) doIB(op string, addr *AddrIB, run func() error) error {
	err := id.do(op, noAddr, run)
	if e, ok := err.(*Error); ok { //nolint:errorlint // do has just made it
		e.Addr = addr.String()
	}
	return err
}

// LocalIB returns the address of this end where it is one of InfiniBand, else the zero
// AddrIB.
func (id *ID) LocalIB() AddrIB {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.local.ib
}

// RemoteIB returns the address of the peer where it is one of InfiniBand, else the zero
// AddrIB.
func (id *ID) RemoteIB() AddrIB {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.remote.ib
}

// afIB tells whether the id has addresses of InfiniBand. The caller has the lock.
func (id *ID) afIB() bool { return id.local.isIB || id.remote.isIB }

// GIDs returns the global identifiers of both ends: on RoCE and InfiniBand those of the queue
// pairs, on iWARP made from link-layer addresses. They are there with the device, the remote one
// after EventAddrResolved; before it is zero. Source: rdma_create_id(3), struct rdma_ib_addr.
func (id *ID) GIDs() (local, remote uverbs.GID, err error) {
	err = id.do("query GIDs", noAddr, func() error {
		in := abi.RdmaUcmQuery{Id: id.kid, Option: abi.RDMA_USER_CM_QUERY_GID}
		var out abi.RdmaUcmQueryAddrResp
		if err := id.ch.ask(abi.RDMA_USER_CM_CMD_QUERY, uapi.Bytes(&in), 0, uapi.Bytes(&out)); err != nil {
			return err
		}
		local, remote = getSockaddr(&out.SrcAddr).ib.GID, getSockaddr(&out.DstAddr).ib.GID
		return nil
	})
	return local, remote, err
}
