package discover

import (
	"net"
	"net/netip"
)

// Network is what the IP network of a network namespace looks like to a program.
type Network interface {
	// Interfaces lists the interfaces with their addresses.
	Interfaces() ([]Interface, error)
	// Source is the address that the kernel would send from to dst. Nothing is sent. The
	// error is the kernel's: there is no route.
	Source(dst netip.Addr) (netip.Addr, error)
}

// Interface is a network interface.
type Interface struct {
	Name  string
	Index int  // the kernel's number for it, in this namespace
	Up    bool // the administrator wants it up
	MTU   int  // bytes
	Addrs []netip.Prefix
}

// hostNetwork is that of the calling thread.
type hostNetwork struct{}

func (hostNetwork) Interfaces() ([]Interface, error) {
	list, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	out := make([]Interface, 0, len(list))
	for _, ifi := range list {
		i := Interface{Name: ifi.Name, Index: ifi.Index, Up: ifi.Flags&net.FlagUp != 0, MTU: ifi.MTU}
		addrs, err := ifi.Addrs()
		if err != nil {
			continue // gone meanwhile
		}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				i.Addrs = append(i.Addrs, p)
			}
		}
		out = append(out, i)
	}
	return out, nil
}

// Source connects a datagram socket, which sends nothing.
func (hostNetwork) Source(dst netip.Addr) (netip.Addr, error) {
	const discard = 9
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(dst, discard)))
	if err != nil {
		return netip.Addr{}, err
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap().WithZone(""), nil
}
