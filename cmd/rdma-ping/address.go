package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// resolveAddr reads ADDR of the command line, whom to ask: an address or a name, with or
// without port.
func resolveAddr(ctx context.Context, text string, port uint16) (netip.AddrPort, error) {
	addr, host, err := parseAddr(text, port)
	if err != nil || host == "" {
		return addr, err
	}
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("look up %s: %w", host, err)
	}
	return checkTarget(netip.AddrPortFrom(addrs[0].Unmap(), addr.Port()))
}

// parseAddr is resolveAddr without looking anything up: of a name it returns host and port.
func parseAddr(text string, port uint16) (addr netip.AddrPort, host string, err error) {
	host, port, err = splitAddr(text, port)
	if err != nil {
		return addr, "", err
	}
	if port == 0 {
		return addr, "", usagef("port 0 is nobody's: from 1 to 65535")
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		addr, err = checkTarget(netip.AddrPortFrom(ip.Unmap(), port))
		return addr, "", err
	}
	switch {
	case strings.Contains(host, ":"):
		return addr, "", usagef("address %q: not an IPv6 address", text)
	case strings.Contains(host, "%"):
		return addr, "", usagef("address %q: neither an address nor a name; only IPv6 addresses have a zone, as in fe80::1%%eth0", text)
	case len(host) > 253 || strings.ContainsFunc(host, notInNames):
		return addr, "", usagef("address %q: neither an IP address nor a host name", text)
	}
	return netip.AddrPortFrom(netip.Addr{}, port), host, nil
}

// checkTarget refuses addresses that no host answers on. What the kernel makes of them ends
// in errors that speak of something else.
func checkTarget(a netip.AddrPort) (netip.AddrPort, error) {
	switch addr := a.Addr(); {
	case addr.IsUnspecified():
		return a, usagef("address %v is no host: name one", addr)
	case addr.IsMulticast():
		return a, usagef("address %v is a multicast group, and connections are with one host", addr)
	}
	return checkZone(a)
}

// splitAddr separates host and port. An IPv6 address needs brackets only together with a
// port: fe80::1%eth0, [fe80::1%eth0]:7174.
func splitAddr(text string, port uint16) (host string, _ uint16, err error) {
	if text == "" {
		return "", 0, usagef("address is empty")
	}
	if bare, ok := strings.CutPrefix(text, "["); ok {
		if bare, ok := strings.CutSuffix(bare, "]"); ok && bare != "" {
			return bare, port, nil
		}
	} else if strings.Count(text, ":") != 1 {
		return text, port, nil
	}
	host, service, err := net.SplitHostPort(text)
	if err != nil {
		return "", 0, usagef("address %q: want HOST, HOST:PORT or [IPv6]:PORT", text)
	}
	n, err := strconv.ParseUint(service, 10, 16)
	if err != nil || n == 0 || host == "" {
		return "", 0, usagef("address %q: want HOST:PORT with a port from 1 to 65535", text)
	}
	return host, uint16(n), nil
}

// checkZone refuses a link-local address that does not say on which link: the kernel would
// say EINVAL.
func checkZone(a netip.AddrPort) (netip.AddrPort, error) {
	if a.Addr().Is6() && a.Addr().IsLinkLocalUnicast() && a.Addr().Zone() == "" {
		return a, usagef("address %v is link-local: name the interface, like %v%%eth0", a.Addr(), a.Addr())
	}
	return a, nil
}

// listenAddrs returns where to listen. The IPv6 wildcard takes IPv4 clients too, unless
// the system says otherwise (net.ipv6.bindv6only) or has no IPv6: the IPv4 wildcard is for
// those, and fails where it is not needed.
func listenAddrs(text string, port uint16) ([]netip.AddrPort, error) {
	if text == "" {
		return []netip.AddrPort{
			netip.AddrPortFrom(netip.IPv6Unspecified(), port),
			netip.AddrPortFrom(netip.IPv4Unspecified(), port),
		}, nil
	}
	host, port, err := splitAddr(text, port)
	if err != nil {
		return nil, err
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return nil, usagef("address %q: listening needs an IP address", text)
	}
	a, err := checkZone(netip.AddrPortFrom(addr.Unmap(), port))
	return []netip.AddrPort{a}, err
}

func notInNames(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-._", r))
}
