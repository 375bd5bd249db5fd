//go:build linux

package fakekernel

import (
	"net/netip"
	"os"
	"time"

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
	if a.Addr().IsLinkLocalUnicast() {
		v.Sin6ScopeId = scope
	}
	return uint16(copy(to, bytesOf(&v)))
}

// linkLocal tells whether an address means nothing without an interface.
func linkLocal(a netip.Addr) bool { return a.Is6() && !a.Is4In6() && a.IsLinkLocalUnicast() }

// local checks an address to bind to and returns its device, nil for the wildcard.
func (k *Kernel) local(a netip.Addr, scope uint32) (*device, error) {
	switch {
	case a.IsUnspecified():
		return nil, nil
	case linkLocal(a) && scope == 0:
		return nil, unix.EINVAL
	case a.IsLoopback():
		return nil, unix.ENODEV
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
	old, only := c.src, c.afOnly
	c.afOnly = only || a.Addr().Is4()
	if c.src = a; a.Port() == 0 {
		c.src = netip.AddrPortFrom(a.Addr(), k.freePort(c.ps))
	} else if err = c.checkPort(c.reuse); err == nil && a.Port() < 1024 && os.Geteuid() != 0 {
		err = unix.EACCES
	}
	if err != nil {
		c.src, c.afOnly = old, only
		return err
	}
	c.dev, c.scope, c.port, c.state = d, scope, true, cmBound
	return nil
}

// checkPort looks for another holder of the source port: cma_check_port of core/cma.c.
func (c *cmID) checkPort(reuse bool) error {
	for _, o := range c.file.k.cm.ids {
		if o == c || !o.port || o.ps != c.ps || o.src.Port() != c.src.Port() || reuse && o.reuse {
			continue
		}
		a, b := c.src.Addr(), o.src.Addr()
		switch {
		case c.afOnly && o.afOnly && a.Is4() != b.Is4():
		case a.IsUnspecified() || b.IsUnspecified():
			return unix.EADDRNOTAVAIL
		case a == b:
			return unix.EADDRINUSE
		}
	}
	return nil
}

// freePort returns an ephemeral port that no id holds.
func (k *Kernel) freePort(ps uint16) uint16 {
	for {
		p := k.cm.nextPort
		if k.cm.nextPort++; k.cm.nextPort >= 61000 {
			k.cm.nextPort = 32768
		}
		taken := false
		for _, o := range k.cm.ids {
			taken = taken || o.port && o.ps == ps && o.src.Port() == p
		}
		if !taken {
			return p
		}
	}
}

func (f *cmFile) bind(c cmCall) error {
	in, err := body[abi.RdmaUcmBind](c)
	if err != nil {
		return err
	}
	a, scope, err := parseAddr(&in.Addr, in.AddrSize)
	if err != nil || in.Reserved != 0 {
		return unix.EINVAL
	}
	id, err := f.find(in.Id)
	if err != nil {
		return err
	}
	if id.state != cmIdle {
		return unix.EINVAL
	}
	return id.bindTo(a, scope)
}

func (f *cmFile) resolveAddr(c cmCall) error {
	in, err := body[abi.RdmaUcmResolveAddr](c)
	if err != nil {
		return err
	}
	dst, scope, err := parseAddr(&in.DstAddr, in.DstSize)
	if err != nil || in.Reserved != 0 {
		return unix.EINVAL
	}
	src, srcScope := netip.AddrPort{}, scope
	if in.SrcSize != 0 {
		if src, srcScope, err = parseAddr(&in.SrcAddr, in.SrcSize); err != nil {
			return err
		}
	}
	id, err := f.find(in.Id)
	if err != nil {
		return err
	}
	if linkLocal(dst.Addr()) && scope == 0 {
		return unix.EINVAL
	}
	if err := id.bindForResolve(src, srcScope, dst); err != nil {
		return err
	}
	id.dst = dst
	if id.scope == 0 {
		id.scope = scope
	}
	return f.k.route(id, time.Duration(in.TimeoutMs)*time.Millisecond)
}

// bindForResolve binds an idle id to the source, or to the wildcard of the destination's
// family.
func (c *cmID) bindForResolve(src netip.AddrPort, scope uint32, dst netip.AddrPort) error {
	if c.state == cmIdle {
		if !src.IsValid() {
			any := netip.IPv6Unspecified()
			if dst.Addr().Is4() {
				any = netip.IPv4Unspecified()
			}
			src = netip.AddrPortFrom(any, 0)
		}
		if err := c.bindTo(src, scope); err != nil {
			return err
		}
	}
	if c.state != cmBound || c.src.Addr().Is4() != dst.Addr().Is4() {
		return unix.EINVAL
	}
	return nil
}

// route finds the device that leads to the destination; the answer is an event, or, where
// there is no route at all, an error.
func (k *Kernel) route(c *cmID, timeout time.Duration) error {
	dst := c.dst.Addr()
	if dst.IsUnspecified() { // this host
		if d := k.anyDevice(dst); d != nil {
			dst = d.source(dst)
			c.dst = netip.AddrPortFrom(dst, c.dst.Port())
		}
	}
	out, reachable := k.egress(c, dst)
	switch {
	case out == nil && dst.IsLoopback():
		c.state = cmAddrResolved // back to bound when it fails
		c.resolved(nil, -int32(unix.ENODEV))
	case out == nil:
		return unix.ENETUNREACH
	case !reachable:
		c.state = cmAddrQuery
		k.after(min(timeout, k.opts.CMTimeout), func() { c.resolved(nil, -int32(unix.ETIMEDOUT)) })
	default:
		c.state = cmAddrQuery
		c.resolved(out, 0)
	}
	return nil
}

// egress is the device towards an address, and whether a host answers there.
func (k *Kernel) egress(c *cmID, dst netip.Addr) (out *device, reachable bool) {
	target := k.deviceAt(dst)
	reachable = target != nil || k.silent(dst)
	switch {
	case c.dev != nil:
		return c.dev, reachable
	case linkLocal(dst):
		return k.deviceOn(c.scope), reachable
	case target != nil:
		return target, true
	}
	for _, d := range k.devices {
		for _, a := range d.Addrs {
			if !d.dead && a.Is4() == dst.Is4() && samePrefix(a, dst) {
				return d, reachable
			}
		}
	}
	return nil, false
}

// deviceOn is the device on an interface.
func (k *Kernel) deviceOn(ifIndex uint32) *device {
	for _, d := range k.devices {
		if !d.dead && d.IfIndex == ifIndex {
			return d
		}
	}
	return nil
}

func (k *Kernel) silent(a netip.Addr) bool {
	for _, s := range k.opts.Silent {
		if s == a.WithZone("") {
			return true
		}
	}
	return false
}

// samePrefix: all interfaces have a /24 and a /64.
func samePrefix(a, b netip.Addr) bool {
	bits := 64
	if a.Is4() {
		bits = 24
	}
	return netip.PrefixFrom(a, bits).Masked().Contains(b)
}

// anyDevice is a device with an address of the same family.
func (k *Kernel) anyDevice(a netip.Addr) *device {
	for _, d := range k.devices {
		if !d.dead && d.source(a).IsValid() {
			return d
		}
	}
	return nil
}

// source is the address from which the device speaks to another: a host reaches itself
// from the very address, others from an address of the same family and reach.
func (d *device) source(to netip.Addr) (best netip.Addr) {
	if d.localTo(to) {
		return to
	}
	for _, a := range d.Addrs {
		if a.Is4() == to.Is4() && (!best.IsValid() || linkLocal(best) != linkLocal(to)) {
			best = a
		}
	}
	return best
}

// resolved ends the search for an address.
func (c *cmID) resolved(d *device, status int32) {
	if c.dead || c.state != cmAddrQuery && c.state != cmAddrResolved {
		return
	}
	if status != 0 {
		c.state = cmBound
		c.push(EventAddrError, status, abi.RdmaUcmConnParam{})
		return
	}
	c.dev, c.state = d, cmAddrResolved
	if c.src.Addr().IsUnspecified() {
		c.src = netip.AddrPortFrom(d.source(c.dst.Addr()), c.src.Port())
	}
	c.push(EventAddrResolved, 0, abi.RdmaUcmConnParam{})
}

func (f *cmFile) resolveRoute(c cmCall) error {
	in, err := body[abi.RdmaUcmResolveRoute](c)
	if err != nil {
		return err
	}
	id, err := f.find(in.Id)
	if err != nil {
		return err
	}
	if id.state != cmAddrResolved {
		return unix.EINVAL
	}
	id.state = cmRouteResolved
	id.push(EventRouteResolved, 0, abi.RdmaUcmConnParam{})
	return nil
}

// setPath is the option that gives the route instead of resolving it.
func (c *cmID) setPath(val []byte) error {
	size := len(bytesOf(&abi.IbPathRecData{}))
	if c.state != cmAddrResolved || len(val) == 0 || len(val)%size != 0 {
		return unix.EINVAL
	}
	c.state = cmRouteResolved
	c.push(EventRouteResolved, 0, abi.RdmaUcmConnParam{})
	return nil
}
