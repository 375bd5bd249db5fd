//go:build linux

package fakekernel

import (
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
)

// parseAddr reads a socket address of exactly its family's size.
func parseAddr(s *abi.KernelSockaddrStorage, size uint16) (a netip.AddrPort, scope uint32, err error) {
	raw := bytesOf(s)
	switch {
	case *s.SsFamily() == unix.AF_INET && size == 16:
		v := load[abi.SockaddrIn](raw)
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(raw[4:8])), v.SinPort.Get()), 0, nil
	case *s.SsFamily() == unix.AF_INET6 && size == 28:
		v := load[abi.SockaddrIn6](raw)
		addr := netip.AddrFrom16(*v.Sin6Addr.In6UU6Addr8())
		return netip.AddrPortFrom(addr, v.Sin6Port.Get()), v.Sin6ScopeId, nil
	}
	return a, 0, unix.EINVAL
}

// putAddr writes a socket address and returns its size.
func putAddr(to []byte, a netip.AddrPort, scope uint32) uint16 {
	switch {
	case !a.IsValid():
		return 0
	case a.Addr().Is4():
		v := abi.SockaddrIn{SinFamily: unix.AF_INET, SinPort: abi.ToBE16(a.Port())}
		ip := a.Addr().As4()
		copy(bytesOf(&v.SinAddr), ip[:])
		return uint16(copy(to, bytesOf(&v)))
	}
	v := abi.SockaddrIn6{Sin6Family: unix.AF_INET6, Sin6Port: abi.ToBE16(a.Port())}
	*v.Sin6Addr.In6UU6Addr8() = a.Addr().As16()
	if linkLocal(a.Addr()) {
		v.Sin6ScopeId = scope
	}
	return uint16(copy(to, bytesOf(&v)))
}

// anyAddr tells whether an address stands for any: the kernel takes loopback for the same.
func anyAddr(a netip.Addr) bool { return a.IsUnspecified() || a.IsLoopback() }

// linkLocal tells whether an address means nothing without an interface.
func linkLocal(a netip.Addr) bool {
	return a.Is6() && !a.Is4In6() && (a.IsLinkLocalUnicast() || a.IsLinkLocalMulticast())
}

// local checks an address to bind to and returns its device, nil for the wildcard.
func (k *Kernel) local(a netip.Addr, scope uint32) (*device, error) {
	switch {
	case anyAddr(a):
		return nil, nil
	case linkLocal(a) && scope == 0:
		return nil, unix.EINVAL
	}
	d := k.deviceAt(a)
	switch {
	case d == nil:
		return nil, unix.EADDRNOTAVAIL
	case linkLocal(a) && scope != d.IfIndex:
		return nil, unix.EADDRNOTAVAIL
	}
	return d, nil
}

// bindTo gives an idle id its address: rdma_bind_addr.
func (c *cmID) bindTo(a netip.AddrPort, scope uint32) error {
	k := c.file.k
	d, err := k.local(a.Addr(), scope)
	if err != nil {
		return err
	}
	if d != nil && c.ps == abi.RDMA_PS_IPOIB { // which needs InfiniBand
		return unix.EINVAL
	}
	old, only := c.src, c.afOnly
	if !c.afSet {
		c.afOnly = a.Addr().Is4()
	}
	if c.src = a; a.Port() == 0 {
		c.src = netip.AddrPortFrom(a.Addr(), k.freePort())
	} else if err = c.checkPort(c.reuse); err == nil && a.Port() < 1024 && os.Geteuid() != 0 {
		err = unix.EACCES
	}
	if err != nil {
		c.src, c.afOnly = old, only
		return err
	}
	c.hold()
	c.dev, c.scope, c.state = d, scope, cmBound
	c.bound = d != nil
	if !c.dst.IsValid() { // its family is known now
		c.dst = netip.AddrPortFrom(unspecified(a.Addr()), 0)
	}
	return nil
}

// unspecified is the wildcard of an address's family.
func unspecified(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// checkPort looks for another holder of the source port: cma_check_port of core/cma.c.
func (c *cmID) checkPort(reuse bool) error {
	for _, o := range c.file.k.cm.ids {
		if o == c || !o.port || o.bindPS != c.bindPS || o.src.Port() != c.src.Port() || reuse && o.reuse {
			continue
		}
		a, b := c.src.Addr(), o.src.Addr()
		switch {
		case c.afOnly && o.afOnly && a.Is4() != b.Is4():
		case anyAddr(a) || anyAddr(b):
			return unix.EADDRNOTAVAIL
		case a == b:
			return unix.EADDRINUSE
		}
	}
	return nil
}

// freePort returns an ephemeral port that no id holds, in whatever port space.
func (k *Kernel) freePort() uint16 {
	for {
		p := k.cm.nextPort
		if k.cm.nextPort++; k.cm.nextPort >= 61000 {
			k.cm.nextPort = 32768
		}
		if k.cm.ports[p] == 0 {
			return p
		}
	}
}

// hold makes the id the holder of its source port.
func (c *cmID) hold() {
	c.port = true
	c.file.k.cm.ports[c.src.Port()]++
}

func (f *cmFile) bind(c cmCall) error {
	in, err := body[abi.RdmaUcmBind](c)
	if err != nil {
		return err
	}
	if in.Reserved != 0 || in.AddrSize == 0 {
		return unix.EINVAL
	}
	return f.bindID(in.Id, &in.Addr, in.AddrSize)
}

// bindIP is the older command.
func (f *cmFile) bindIP(c cmCall) error {
	in, err := body[abi.RdmaUcmBindIp](c)
	if err != nil {
		return err
	}
	var s abi.KernelSockaddrStorage
	size := fromIn6(&s, &in.Addr)
	return f.bindID(in.Id, &s, size)
}

// fromIn6 takes an address of an older command, which has no room for one of family AF_IB.
func fromIn6(to *abi.KernelSockaddrStorage, from *abi.SockaddrIn6) uint16 {
	copy(bytesOf(to), bytesOf(from))
	if size := sizeOf(to); int(size) <= len(bytesOf(from)) {
		return size
	}
	return 0
}

func (f *cmFile) bindID(id uint32, s *abi.KernelSockaddrStorage, size uint16) error {
	ib, isIB := parseIB(s, size)
	a, scope, err := parseAddr(s, size)
	if err != nil && !isIB {
		return err
	}
	c, err := f.find(id)
	switch {
	case err != nil:
		return err
	case c.state != cmIdle:
		return unix.EINVAL
	case isIB:
		return c.bindIB(ib)
	}
	return c.bindTo(a, scope)
}
