//go:build linux

package main

import (
	"fmt"
	"net"

	"github.com/jsimonetti/rtnetlink/v2"
	"golang.org/x/sys/unix"
)

// Rules of routing, by priority. An address of this machine is reached over lo
// unless a rule says otherwise before: so the rule for local addresses moves down
// and those for the two ends go first. They are for what is sent from here ("from
// lo") and for those who ask for the way over an interface, as rdma_cm does to
// judge where a request comes from; what arrives at an end is local.
const (
	prefPair  = 10
	prefLocal = 100
)

// wirePair makes what goes from one end of the pair to the other cross it.
func wirePair(c *rtnetlink.Conn) error {
	for _, f := range []uint8{unix.AF_INET, unix.AF_INET6} {
		if err := moveLocal(c, f); err != nil {
			return fmt.Errorf("move the rule for local addresses: %w", err)
		}
	}
	for _, d := range directions {
		if err := d.wire(c); err != nil {
			return fmt.Errorf("wire %s to %s: %w", d.dev, d.peer, err)
		}
	}
	return nil
}

// moveLocal adds the new rule first, so that there is one at any time.
func moveLocal(c *rtnetlink.Conn, family uint8) error {
	rule := func(pref uint32) *rtnetlink.RuleMessage {
		table := uint32(unix.RT_TABLE_LOCAL)
		return &rtnetlink.RuleMessage{
			Family: family, Table: unix.RT_TABLE_LOCAL, Action: unix.FR_ACT_TO_TBL,
			Attributes: &rtnetlink.RuleAttributes{Priority: &pref, Table: &table},
		}
	}
	if err := c.Rule.Add(rule(prefLocal)); err != nil {
		return err
	}
	return c.Rule.Delete(rule(0))
}

// wire routes to each address of the peer over dev, from dev's own.
func (d direction) wire(c *rtnetlink.Conn) error {
	from, err := net.InterfaceByName(d.dev)
	if err != nil {
		return err
	}
	to, err := net.InterfaceByName(d.peer)
	if err != nil {
		return err
	}
	addrs, err := to.Addrs()
	if err != nil {
		return err
	}
	for _, a := range addrs {
		ip := a.(*net.IPNet).IP
		if err := neighbour(c, from, ip, to.HardwareAddr); err != nil {
			return fmt.Errorf("add neighbour %s: %w", ip, err)
		}
		if ip.IsLinkLocalUnicast() { // its zone says where it goes
			continue
		}
		if err := d.route(c, from, ip); err != nil {
			return fmt.Errorf("route to %s: %w", ip, err)
		}
	}
	return nil
}

func neighbour(c *rtnetlink.Conn, dev *net.Interface, ip net.IP, mac net.HardwareAddr) error {
	if ip4 := ip.To4(); ip4 != nil {
		ip = ip4
	}
	return c.Neigh.New(&rtnetlink.NeighMessage{
		Family: uint16(family(ip)), Index: uint32(dev.Index), State: unix.NUD_PERMANENT,
		Attributes: &rtnetlink.NeighAttributes{Address: ip, LLAddress: mac, IfIndex: uint32(dev.Index)},
	})
}

func (d direction) route(c *rtnetlink.Conn, dev *net.Interface, to net.IP) error {
	bits := uint8(128)
	if to.To4() != nil {
		bits = 32
	}
	src, err := ownAddress(dev, to)
	if err != nil {
		return err
	}
	lo := "lo"
	for _, r := range []rtnetlink.RuleAttributes{{IIFName: &lo}, {OIFName: &d.dev}} {
		pref := uint32(prefPair)
		r.Dst, r.Priority, r.Table = &to, &pref, &d.table
		err := c.Rule.Add(&rtnetlink.RuleMessage{
			Family: family(to), DstLength: bits, Table: uint8(d.table), Action: unix.FR_ACT_TO_TBL, Attributes: &r,
		})
		if err != nil {
			return fmt.Errorf("rule: %w", err)
		}
	}
	return c.Route.Add(&rtnetlink.RouteMessage{
		Family: family(to), DstLength: bits, Table: uint8(d.table), Protocol: unix.RTPROT_STATIC,
		Scope: unix.RT_SCOPE_LINK, Type: unix.RTN_UNICAST,
		Attributes: rtnetlink.RouteAttributes{Dst: to, Src: src, OutIface: uint32(dev.Index), Table: d.table},
	})
}

// ownAddress is dev's global address of the same family as ip.
func ownAddress(dev *net.Interface, ip net.IP) (net.IP, error) {
	addrs, err := dev.Addrs()
	if err != nil {
		return nil, err
	}
	for _, a := range addrs {
		own := a.(*net.IPNet).IP
		if family(own) == family(ip) && !own.IsLinkLocalUnicast() {
			return own, nil
		}
	}
	return nil, fmt.Errorf("%s has no address for it", dev.Name)
}
