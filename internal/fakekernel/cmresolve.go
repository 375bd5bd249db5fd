//go:build linux

package fakekernel

import (
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
)

func (f *cmFile) resolveAddr(c cmCall) error {
	in, err := body[abi.RdmaUcmResolveAddr](c)
	if err != nil {
		return err
	}
	if in.Reserved != 0 || in.DstSize == 0 {
		return unix.EINVAL
	}
	return f.resolve(&in)
}

// resolveIP is the older command.
func (f *cmFile) resolveIP(c cmCall) error {
	in, err := body[abi.RdmaUcmResolveIp](c)
	if err != nil {
		return err
	}
	to := abi.RdmaUcmResolveAddr{Id: in.Id, TimeoutMs: in.TimeoutMs}
	to.SrcSize, to.DstSize = fromIn6(&to.SrcAddr, &in.SrcAddr), fromIn6(&to.DstAddr, &in.DstAddr)
	if to.DstSize == 0 || to.SrcSize == 0 && in.SrcAddr.Sin6Family != 0 {
		return unix.EINVAL
	}
	return f.resolve(&to)
}

func (f *cmFile) resolve(in *abi.RdmaUcmResolveAddr) error {
	ibDst, isIB := parseIB(&in.DstAddr, in.DstSize)
	dst, scope, err := parseAddr(&in.DstAddr, in.DstSize)
	if err != nil && !isIB {
		return err
	}
	ibSrc, fromIB := parseIB(&in.SrcAddr, in.SrcSize)
	src, srcScope := netip.AddrPort{}, scope
	if in.SrcSize != 0 && !fromIB {
		if src, srcScope, err = parseAddr(&in.SrcAddr, in.SrcSize); err != nil {
			return err
		}
	}
	id, err := f.find(in.Id)
	switch {
	case err != nil:
		return err
	case isIB:
		return id.resolveIB(ibSrc, ibDst, fromIB)
	case linkLocal(dst.Addr()) && scope == 0:
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
			src = netip.AddrPortFrom(unspecified(dst.Addr()), 0)
		}
		if err := c.bindTo(src, scope); err != nil {
			return err
		}
	}
	if c.state != cmBound || c.ib != nil || c.src.Addr().Is4() != dst.Addr().Is4() {
		return unix.EINVAL
	}
	return nil
}

// route finds the device that leads to the destination; the answer is an event, or, where
// there is no route at all, an error.
func (k *Kernel) route(c *cmID, timeout time.Duration) error {
	dst := c.dst.Addr()
	if anyAddr(dst) {
		return c.resolveLoopback()
	}
	out, reachable := k.egress(c, dst)
	switch {
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

// egress is the device towards an address, and whether a host answers there. The hardware
// address of a multicast group follows from its own, so nobody has to.
func (k *Kernel) egress(c *cmID, dst netip.Addr) (out *device, reachable bool) {
	target := k.deviceAt(dst)
	reachable = target != nil || k.silent(dst) || dst.IsMulticast()
	switch {
	case c.dev != nil:
		return c.dev, reachable
	case linkLocal(dst):
		return k.deviceOn(c.scope), reachable
	case target != nil:
		return target, true
	}
	for _, d := range k.devices { // the first has the route to all groups
		for _, a := range d.Addrs {
			if !d.dead && a.Is4() == dst.Is4() && (samePrefix(a, dst) || dst.IsMulticast()) {
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

// resolveLoopback takes any device for what is on this host: core/cma.c,
// cma_resolve_loopback. No route leads there unless the id is bound to an address.
func (c *cmID) resolveLoopback() error {
	if c.dev == nil {
		for _, d := range c.file.k.devices {
			if !d.dead && c.dev == nil {
				c.dev = d
			}
		}
		switch {
		case c.dev == nil:
			return unix.ENODEV
		case c.iwarp(): // without partitions
			c.dev = nil
			return unix.EINVAL
		}
		loopback := netip.IPv6Loopback()
		if c.src.Addr().Is4() {
			loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})
		}
		c.src = netip.AddrPortFrom(loopback, c.src.Port())
	}
	c.state = cmAddrQuery
	c.resolvedHere()
	return nil
}

// resolvedHere ends the search for an address that needed none.
func (c *cmID) resolvedHere() {
	c.state = cmAddrResolved
	c.push(EventAddrResolved, 0, abi.RdmaUcmConnParam{})
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
	if status == 0 && c.ps == abi.RDMA_PS_IPOIB {
		status = -int32(unix.EINVAL)
	}
	if status != 0 {
		c.state = cmBound
		c.push(EventAddrError, status, abi.RdmaUcmConnParam{})
		return
	}
	c.dev, c.state, c.bound, c.hops = d, cmAddrResolved, true, unicastHops
	if anyAddr(c.src.Addr()) {
		c.src = netip.AddrPortFrom(d.source(c.dst.Addr()), c.src.Port())
	}
	c.push(EventAddrResolved, 0, abi.RdmaUcmConnParam{})
}
