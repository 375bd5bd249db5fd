//go:build linux

package main

import (
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/jsimonetti/rtnetlink/v2"
	"github.com/jsimonetti/rtnetlink/v2/driver"
	"golang.org/x/sys/unix"
)

// The guest's networks: a dummy for traffic within one device, and a veth pair
// for two devices whose frames really cross a wire, without a namespace: on most
// kernels rxe does not work between namespaces.
var addresses = []struct {
	dev  string
	cidr []string
}{
	{"dum0", []string{"10.9.0.1/24", "2001:db8:9::1/64"}},
	{"va", []string{"10.5.0.1/24", "2001:db8:5::1/64"}},
	{"vb", []string{"10.5.0.2/24", "2001:db8:5::2/64"}},
}

// wire is one direction of the veth pair: from src on dev to dst.
type direction struct {
	dev, peer string
	table     uint32 // of its own, to route by
}

var directions = []direction{{"va", "vb", 101}, {"vb", "va", 102}}

// sysctls come before the links, which take the defaults over. Without duplicate
// address detection an IPv6 address can be used at once.
var sysctls = []struct{ value, names string }{
	{"0", "net/ipv6/conf/{all,default}/accept_dad net/ipv6/conf/{all,default}/router_solicitations net/ipv6/conf/{all,default}/accept_ra"},
	{"0", "net/ipv4/conf/{all,default}/rp_filter"},
	// Each end takes what the other sends, and answers only for its own address.
	{"1", "net/ipv4/conf/{all,default}/accept_local net/ipv4/conf/{all,default}/arp_ignore"},
	{"2", "net/ipv4/conf/{all,default}/arp_announce"},
	// ping without privileges, for any group.
	{"0 2147483647", "net/ipv4/ping_group_range"},
}

func network() error {
	for _, s := range sysctls {
		for name := range strings.FieldsSeq(s.names) {
			if err := sysctl(name, s.value); err != nil {
				return err
			}
		}
	}
	c, err := rtnetlink.Dial(nil)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := makeLinks(c); err != nil {
		return err
	}
	for _, a := range addresses {
		for _, cidr := range a.cidr {
			if err := addAddress(c, a.dev, cidr); err != nil {
				return fmt.Errorf("add address %s to %s: %w", cidr, a.dev, err)
			}
		}
	}
	return wirePair(c)
}

func sysctl(pattern, value string) error {
	for _, which := range []string{"all", "default"} {
		p := "/proc/sys/" + strings.Replace(pattern, "{all,default}", which, 1)
		if err := os.WriteFile(p, []byte(value), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func makeLinks(c *rtnetlink.Conn) error {
	peer := &rtnetlink.LinkMessage{Attributes: &rtnetlink.LinkAttributes{Name: "vb"}}
	for _, a := range []*rtnetlink.LinkAttributes{
		{Name: "dum0", Info: &rtnetlink.LinkInfo{Kind: "dummy"}},
		{Name: "va", Info: &rtnetlink.LinkInfo{Kind: "veth", Data: &driver.Veth{PeerInfo: peer}}},
	} {
		if err := c.Link.New(&rtnetlink.LinkMessage{Attributes: a}); err != nil {
			return fmt.Errorf("make link %s: %w", a.Name, err)
		}
	}
	for _, name := range []string{"lo", "dum0", "va", "vb"} {
		i, err := net.InterfaceByName(name)
		if err != nil {
			return err
		}
		err = c.Link.Set(&rtnetlink.LinkMessage{Index: uint32(i.Index), Flags: unix.IFF_UP, Change: unix.IFF_UP})
		if err != nil {
			return fmt.Errorf("set link %s up: %w", name, err)
		}
	}
	return nil
}

func addAddress(c *rtnetlink.Conn, dev, cidr string) error {
	i, err := net.InterfaceByName(dev)
	if err != nil {
		return err
	}
	ip, network, err := net.ParseCIDR(cidr)
	if err != nil {
		return err
	}
	ones, _ := network.Mask.Size()
	a := &rtnetlink.AddressAttributes{Address: ip, Local: ip}
	if ip4 := ip.To4(); ip4 != nil {
		a.Broadcast = net.IPv4(ip4[0], ip4[1], ip4[2], 255)
	}
	return c.Address.New(&rtnetlink.AddressMessage{
		Family: family(ip), PrefixLength: uint8(ones), Index: uint32(i.Index), Attributes: a,
	})
}

func family(ip net.IP) uint8 {
	if ip.To4() != nil {
		return unix.AF_INET
	}
	return unix.AF_INET6
}
