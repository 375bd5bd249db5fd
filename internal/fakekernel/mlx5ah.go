//go:build linux

package fakekernel

import (
	"encoding/binary"
	"hash/fnv"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
)

// newAH: mlx5_ib_create_ah. The device has no such object: the kernel tells the user what
// only it knows, and he writes all of it into each datagram's request.
func (mlx5Driver) newAH(f *verbsFile, a *ah, c *abi.IbUverbsCreateAh, u *udata) error {
	const least = 10 // up to the address
	if u.room < least {
		return unix.EINVAL
	}
	r := abi.Mlx5IbCreateAhResp{ResponseLength: least, Dmac: f.k.linkAddr(a.way.dst)}
	if f.dev.robust() {
		u.respond(f.dev, bytesOf(&r))
	} else {
		u.answer(bytesOf(&r)[:least])
	}
	if f.k.version >= v612 && !f.dev.validRate(c.Attr.StaticRate) {
		return unix.EINVAL
	}
	return nil
}

// validRate: mlx5r_ib_rate, ib_rate_to_mlx5. Rates are those of enum ib_rate.
func (d *device) validRate(rate uint8) bool {
	const slowest, rate600, rate800, rate1600 = 2, 22, 23, 25
	most := uint8(rate600)
	switch {
	case d.version >= v702:
		most = rate1600
	case d.version >= v612:
		most = rate800
	}
	return rate == 0 || rate >= slowest && rate <= most
}

// linkAddr is the address of the interface that has an IP address: that of a device, or of
// a neighbour that nobody knows more about.
func (k *Kernel) linkAddr(a netip.Addr) (mac [6]byte) {
	switch d := k.deviceAt(a); {
	case a.IsMulticast() && a.Is4():
		ip := a.As4()
		return [6]byte{0x01, 0x00, 0x5e, ip[1] & 0x7f, ip[2], ip[3]}
	case a.IsMulticast():
		ip := a.As16()
		return [6]byte{0x33, 0x33, ip[12], ip[13], ip[14], ip[15]}
	case d != nil:
		return [6]byte(d.mac())
	}
	h := fnv.New64a()
	raw := a.As16()
	h.Write(raw[:])
	sum := h.Sum(nil)
	copy(mac[:], sum)
	mac[0] = mac[0]&^1 | 2
	return mac
}

// Offsets in the address of a datagram, which stands behind the control segment.
const (
	avQKey     = 0
	avQPN      = 8
	avMAC      = 20
	avClass    = 26
	avHopLimit = 27
	avRoute    = 28 // index of the source, flow label
	avGID      = 32
	avSize     = 48

	avExtended = 1 << 31 // in the number: the address is as long as this
	qpQKey     = 1 << 31 // in the key: that of the sender counts
)

// loadAddress decodes the address of a datagram. One that has the wrong link address goes
// nowhere.
func (w *work) loadAddress(q *qp, av []byte) bool {
	qpn, qkey := binary.BigEndian.Uint32(av[avQPN:]), binary.BigEndian.Uint32(av[avQKey:])
	if qpn&avExtended == 0 {
		return false
	}
	if qkey&qpQKey != 0 {
		qkey = q.attr.Qkey
	}
	w.to.RemoteQpn, w.to.RemoteQkey = qpn&psnMask, qkey
	route := binary.BigEndian.Uint32(av[avRoute:])
	to := &w.to.Av
	to.Grh.SgidIndex, to.Grh.FlowLabel = uint8(route>>20), route&0xf_ffff
	to.Grh.HopLimit, to.Grh.TrafficClass = av[avHopLimit], av[avClass]
	if int(to.Grh.SgidIndex) >= len(q.f.dev.gids) {
		return false
	}
	src, dst := q.f.dev.gidAddr(to.Grh.SgidIndex), netip.AddrFrom16([16]byte(av[avGID:])).Unmap()
	if q.f.k.linkAddr(dst) != [6]byte(av[avMAC:]) || src.Is4() != dst.Is4() {
		dst = netip.IPv6Unspecified()
		if src.Is4() {
			dst = netip.IPv4Unspecified()
		}
	}
	setRoute(to, src, dst)
	return true
}

// setRoute writes addresses of one family where requests of rxe have them.
func setRoute(to *abi.RxeAv, src, dst netip.Addr) {
	if src.Is4() {
		to.NetworkType = abi.RXE_NETWORK_TYPE_IPV4
		copy(bytesOf(&to.SgidAddrSockaddrIn().SinAddr), src.AsSlice())
		copy(bytesOf(&to.DgidAddrSockaddrIn().SinAddr), dst.AsSlice())
		return
	}
	to.NetworkType = abi.RXE_NETWORK_TYPE_IPV6
	copy(bytesOf(&to.SgidAddrSockaddrIn6().Sin6Addr), src.AsSlice())
	copy(bytesOf(&to.DgidAddrSockaddrIn6().Sin6Addr), dst.AsSlice())
}
