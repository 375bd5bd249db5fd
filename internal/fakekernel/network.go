//go:build linux

package fakekernel

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/internal/discover"
)

// network is the IP network: an interface for each device, with its addresses.
type network struct{ k *Kernel }

func (n network) Interfaces() ([]discover.Interface, error) {
	n.k.mu.Lock()
	defer n.k.mu.Unlock()
	var list []discover.Interface
	for _, d := range n.k.devices {
		if d.dead || d.Foreign {
			continue
		}
		i := discover.Interface{Name: d.NetDev, Index: int(d.IfIndex), Up: !d.Down, MTU: 1500}
		for _, a := range d.Addrs {
			bits := 64
			if a.Is4() {
				bits = 24
			}
			i.Addrs = append(i.Addrs, netip.PrefixFrom(a, bits))
		}
		list = append(list, i)
	}
	return list, nil
}

// Source is dst itself where it is of this system, or an address of its network.
func (n network) Source(dst netip.Addr) (netip.Addr, error) {
	list, _ := n.Interfaces()
	var src netip.Addr
	for _, i := range list {
		for _, p := range i.Addrs {
			switch {
			case !i.Up:
			case p.Addr() == dst.WithZone(""):
				return p.Addr(), nil
			case p.Contains(dst) && !src.IsValid():
				src = p.Addr()
			}
		}
	}
	if !src.IsValid() {
		return src, unix.ENETUNREACH
	}
	return src, nil
}
