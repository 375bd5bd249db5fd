//go:build linux

package fakekernel

import (
	"encoding/binary"
	"net/netip"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
)

// Addresses of family AF_IB: a GID and a service. On Ethernet an id can be bound to the
// wildcard with one, and find the device that is on a GID's subnet; that is all, because
// nothing leads from there to a network interface, and so no route can be resolved.

const (
	afIB       = 27
	ibAddrSize = 48
)

// ibAddr is struct sockaddr_ib, but for what nobody looks at here.
type ibAddr struct {
	pkey      uint16
	flow      uint32
	gid       [16]byte
	sid, mask uint64
	scope     uint64
}

// ibPair are the addresses of an id.
type ibPair struct{ src, dst ibAddr }

// Services of port spaces: enum rdma_ib_ip_ps... of rdma/ib.h.
const (
	ibPSMask = 0xffff_ffff_ffff_0000
	ibPSTCP  = 0x0106_0000
	ibPSUDP  = 0x0111_0000
	ibPSIB   = 0x013f_0000
)

// parseIB reads an address; false if it is of another family, or of another size.
func parseIB(s *abi.KernelSockaddrStorage, size uint16) (a ibAddr, ok bool) {
	raw := bytesOf(s)
	if *s.SsFamily() != afIB || size != ibAddrSize {
		return a, false
	}
	return ibAddr{
		pkey: binary.BigEndian.Uint16(raw[2:]), flow: binary.BigEndian.Uint32(raw[4:]), gid: [16]byte(raw[8:]),
		sid: binary.BigEndian.Uint64(raw[24:]), mask: binary.BigEndian.Uint64(raw[32:]), scope: binary.NativeEndian.Uint64(raw[40:]),
	}, true
}

func (a *ibAddr) put(to []byte) uint16 {
	*view[uint16](to) = afIB
	binary.BigEndian.PutUint16(to[2:], a.pkey)
	binary.BigEndian.PutUint32(to[4:], a.flow)
	copy(to[8:], a.gid[:])
	binary.BigEndian.PutUint64(to[24:], a.sid)
	binary.BigEndian.PutUint64(to[32:], a.mask)
	binary.NativeEndian.PutUint64(to[40:], a.scope)
	return ibAddrSize
}

// any tells whether it is the wildcard, or loopback, which the kernel takes for the same.
func (a *ibAddr) any() bool {
	return a.gid == [16]byte{} || a.gid == [16]byte{15: 1}
}

func (a *ibAddr) port() uint16 { return uint16(a.sid & a.mask) }

// space finds the port space of the service, and completes the service with it: core/cma.c,
// cma_select_ib_ps.
func (a *ibAddr) space(ps uint16) (uint16, bool) {
	mask := a.mask & ibPSMask
	sid := a.sid & mask
	for _, s := range []struct {
		sid uint64
		ps  uint16
	}{{ibPSIB, abi.RDMA_PS_IB}, {ibPSTCP, abi.RDMA_PS_TCP}, {ibPSUDP, abi.RDMA_PS_UDP}} {
		if (ps == abi.RDMA_PS_IB || ps == s.ps) && sid == s.sid&mask {
			a.sid, a.mask = s.sid|uint64(a.port()), a.mask|ibPSMask
			return s.ps, true
		}
	}
	return 0, false
}

// bindIB gives an idle id an address of this family: rdma_bind_addr. A GID of its own is
// refused, as that is for devices of InfiniBand.
func (c *cmID) bindIB(a ibAddr) error {
	if !a.any() {
		return unix.ENODEV
	}
	ps, ok := a.space(c.ps)
	if !ok {
		return unix.EPROTONOSUPPORT
	}
	old, oldPS := c.src, c.bindPS
	c.bindPS = ps
	var err error
	if port := a.port(); port == 0 {
		c.src = netip.AddrPortFrom(netip.IPv6Unspecified(), c.file.k.freePort())
	} else {
		c.src = netip.AddrPortFrom(netip.IPv6Unspecified(), port)
		if err = c.checkPort(c.reuse); err == nil && port < 1024 && os.Geteuid() != 0 {
			err = unix.EACCES
		}
	}
	if err != nil {
		c.src, c.bindPS = old, oldPS
		return err
	}
	a.sid, a.mask = a.sid&a.mask|uint64(c.src.Port()), ^uint64(0)
	c.hold()
	c.ib, c.state = &ibPair{src: a}, cmBound
	return nil
}

// resolveIB finds the device for a GID.
func (c *cmID) resolveIB(src, dst ibAddr, srcGiven bool) error {
	if c.state == cmIdle {
		if !srcGiven {
			src = ibAddr{pkey: dst.pkey}
		}
		if err := c.bindIB(src); err != nil {
			return err
		}
	}
	if c.state != cmBound || c.ib == nil {
		return unix.EINVAL
	}
	c.ib.dst = dst
	if dst.any() {
		return c.resolveLoopback()
	}
	if c.dev == nil {
		if err := c.findIB(&dst); err != nil {
			return err
		}
	}
	c.state = cmAddrQuery
	c.resolvedHere()
	return nil
}

// findIB: core/cma.c, cma_resolve_ib_dev. The GID itself, or the first one of its subnet.
func (c *cmID) findIB(dst *ibAddr) error {
	if dst.pkey&0x7fff != 0x7fff {
		return unix.ENODEV
	}
	for _, d := range c.file.k.devices {
		if d.dead || d.iwarp() {
			continue
		}
		i := slices.IndexFunc(d.gids, func(e abi.IbUverbsGidEntry) bool {
			gid := [16]byte(bytesOf(&e.Gid))
			return gid == dst.gid || [8]byte(gid[:8]) == [8]byte(dst.gid[:8])
		})
		if i >= 0 {
			c.dev, c.ib.src.gid = d, [16]byte(bytesOf(&d.gids[i].Gid))
			return nil
		}
	}
	return unix.ENODEV
}
