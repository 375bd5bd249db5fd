package rdmacm

import (
	"context"
	"net"
	"net/netip"
)

// lookup turns "host:port" into addresses. A host that is an address stays as it is, with
// its zone; names go through Go's resolver. No host stands for all addresses, where anyHost
// allows that.
func lookup(ctx context.Context, address string, anyHost bool) ([]netip.AddrPort, error) {
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := net.DefaultResolver.LookupPort(ctx, "tcp", service)
	if err != nil {
		return nil, err
	}
	ips, err := lookupHost(ctx, host, anyHost)
	if err != nil {
		return nil, err
	}
	addrs := make([]netip.AddrPort, len(ips))
	for i, ip := range ips {
		addrs[i] = netip.AddrPortFrom(ip.Unmap(), uint16(port))
	}
	return addrs, nil
}

func lookupHost(ctx context.Context, host string, anyHost bool) ([]netip.Addr, error) {
	if host == "" {
		if !anyHost {
			return nil, invalidError("no host")
		}
		// Takes IPv4 as well.
		return []netip.Addr{netip.IPv6Unspecified()}, nil
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{ip}, nil
	}
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}
