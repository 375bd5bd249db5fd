package rdmacm

import (
	"encoding/binary"
	"net"
	"net/netip"
	"strconv"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
)

// The address families and the sizes of their addresses, which the kernel wants exactly.
const (
	afINET  = 2
	afINET6 = 10
	afIB    = 27

	sizeINET  = 16
	sizeINET6 = 28
	sizeIB    = 48
)

// putSockaddr writes addr as struct sockaddr_in or sockaddr_in6 and returns its size. The
// port travels in network order, the family and the zone in the machine's. A zone is looked
// up in the network namespace of the calling thread.
func putSockaddr(s *abi.KernelSockaddrStorage, addr netip.AddrPort) (uint16, error) {
	ip := addr.Addr().Unmap()
	b := uapi.Bytes(s)
	clear(b)
	switch {
	case ip.Is4():
		binary.NativeEndian.PutUint16(b, afINET)
		binary.BigEndian.PutUint16(b[2:], addr.Port())
		copy(b[4:], ip.AsSlice())
		return sizeINET, nil
	case ip.Is6():
		scope, err := scopeID(ip)
		if err != nil {
			return 0, err
		}
		binary.NativeEndian.PutUint16(b, afINET6)
		binary.BigEndian.PutUint16(b[2:], addr.Port())
		copy(b[8:], ip.AsSlice())
		binary.NativeEndian.PutUint32(b[24:], scope)
		return sizeINET6, nil
	}
	return 0, invalidError("no address")
}

// scopeID turns the zone of an address into sin6_scope_id.
func scopeID(ip netip.Addr) (uint32, error) {
	zone := ip.Zone()
	if zone == "" {
		if ip.IsLinkLocalUnicast() {
			return 0, invalidError("a link-local address needs a zone, the interface that it is on: [" +
				ip.String() + "%eth0] or [" + ip.String() + "%2]")
		}
		return 0, nil
	}
	ifi, err := net.InterfaceByName(zone)
	if n, bad := strconv.ParseUint(zone, 10, 32); err != nil && bad == nil && n > 0 {
		return uint32(n), nil
	}
	if err != nil {
		return 0, invalidError("zone " + strconv.Quote(zone) + " is no interface of this network namespace")
	}
	return uint32(ifi.Index), nil
}

// sockaddr is an address as the kernel gives it.
type sockaddr struct {
	addr  netip.AddrPort // without zone
	scope uint32
	ib    AddrIB // where the family is that of InfiniBand
	isIB  bool
}

// getSockaddr reads an address. One that is not set, or of a family that is not known, is
// the zero sockaddr.
func getSockaddr(s *abi.KernelSockaddrStorage) sockaddr {
	b := uapi.Bytes(s)
	port := binary.BigEndian.Uint16(b[2:])
	switch binary.NativeEndian.Uint16(b) {
	case afINET:
		return sockaddr{addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), port)}
	case afINET6:
		ip := netip.AddrFrom16([16]byte(b[8:24])).Unmap()
		return sockaddr{addr: netip.AddrPortFrom(ip, port), scope: binary.NativeEndian.Uint32(b[24:])}
	case afIB:
		return sockaddr{ib: getSockaddrIB(s), isIB: true}
	}
	return sockaddr{}
}

// withZone gives the zone back, by name where the interface is in the network namespace of
// the calling thread, else by number.
func (s sockaddr) withZone() netip.AddrPort {
	ip := s.addr.Addr()
	if s.scope == 0 || !ip.IsLinkLocalUnicast() || !ip.Is6() {
		return s.addr
	}
	zone := strconv.FormatUint(uint64(s.scope), 10)
	if ifi, err := net.InterfaceByIndex(int(s.scope)); err == nil {
		zone = ifi.Name
	}
	return netip.AddrPortFrom(ip.WithZone(zone), s.addr.Port())
}
