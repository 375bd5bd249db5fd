package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/pureverbs/rdma/internal/discover"
	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/uverbs"
)

// way is how the routing table leads to the address, as far as that is known without RDMA.
type way struct {
	src      netip.Addr
	netdev   string // "" if unknown
	loopback bool
}

// findWay looks for the interface: the one of the source address, that of the zone, or, where
// no route is (the interface may be down), the one whose network the address is in.
func (e *examination) findWay() {
	if !e.Addr.IsValid() || e.System.Network == nil {
		return
	}
	e.way.loopback = e.Addr.IsLoopback()
	if i := e.interfaceWith(func(p netip.Prefix) bool { return p.Addr().WithZone("") == e.Addr.WithZone("") }); i != nil {
		e.way.src, e.way.netdev = e.Addr.WithZone(""), i.Name
	} else if src, err := e.System.Network.Source(e.Addr); err == nil {
		e.way.src = src
		if i := e.interfaceWith(func(p netip.Prefix) bool { return p.Addr().WithZone("") == src }); i != nil {
			e.way.netdev = i.Name
		}
	} else if i := e.interfaceWith(func(p netip.Prefix) bool { return p.Bits() > 0 && p.Contains(e.Addr.WithZone("")) }); i != nil {
		e.way.netdev = i.Name
	}
	if i := e.interfaceNamed(e.Addr.Zone()); i != nil {
		e.way.netdev = i.Name
	}
}

func (e *examination) interfaceWith(match func(netip.Prefix) bool) *discover.Interface {
	i := slices.IndexFunc(e.interfaces, func(i discover.Interface) bool { return slices.ContainsFunc(i.Addrs, match) })
	if i < 0 {
		return nil
	}
	return &e.interfaces[i]
}

// resolveTimeout is how long the kernel may look for the peer's link-layer address.
const resolveTimeout = 2 * time.Second

// checkWay has the connection manager resolve the address, and tells what it would use.
func (e *examination) checkWay() {
	err := e.resolve()
	if err == nil {
		return
	}
	f := Finding{Severity: Error, Object: "address " + e.Addr.String(), Fixes: []Fix{}}
	switch {
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		f.Code = NoRoute
		f.What = "there is no route to it: " + reason(err)
		f.Fixes = []Fix{{hereRoot, fmt.Sprintf("ip route add %v via GATEWAY", e.Addr.WithZone(""))}}
	case errors.Is(err, syscall.ENODEV), errors.Is(err, syscall.EADDRNOTAVAIL), e.way.loopback:
		f.Code = NotRDMA
		f.What, f.Fixes = e.notRDMA()
	default:
		f.Code = NotResolved
		f.What = err.Error()
		f.Fixes = []Fix{{here, fmt.Sprintf("ip neigh show %v; ip route get %v  # is it the right address, and the host up?", e.Addr.WithZone(""), e.Addr.WithZone(""))}}
	}
	f.Why = f.Code.why()
	e.check(false, "address", e.Addr.String(), f.What)
	e.find(f)
}

// notRDMA says where the way goes and where it should.
func (e *examination) notRDMA() (what string, fixes []Fix) {
	var served []string
	for _, p := range e.devices {
		if len(p.netdevs) > 0 {
			served = append(served, p.name()+" on "+strings.Join(p.netdevs, ", "))
		}
	}
	there := "; there is " + strings.Join(served, "; ")
	switch {
	case e.way.loopback:
		return "the loopback interface has no RDMA: to reach this host use the address of a device's interface" + there,
			[]Fix{{here, "rdma-ping ADDRESS-OF-THE-INTERFACE"}}
	case e.way.netdev == "":
		return "no RDMA device leads to it" + there, e.softDevice()
	}
	return fmt.Sprintf("the way to it is over interface %s, which has no RDMA device", e.way.netdev) + there, e.softDevice()
}

// resolve asks for device, port and GID. The port of the peer means nothing here.
func (e *examination) resolve() error {
	ctx, cancel := context.WithTimeout(e.ctx, 2*resolveTimeout)
	defer cancel()
	ch, err := rdmacm.NewEventChannel(e.cmOptions())
	if err != nil {
		return err
	}
	defer ch.Close()
	id, err := ch.NewID(rdmacm.PortSpaceTCP)
	if err != nil {
		return err
	}
	defer id.Close()
	for _, step := range []func() error{
		func() error { return id.ResolveAddr(netip.AddrPort{}, netip.AddrPortFrom(e.Addr, 1), resolveTimeout) },
		func() error { return id.ResolveRoute(resolveTimeout) },
	} {
		if err := step(); err != nil {
			return err
		}
		ev, err := ch.NextEvent(ctx)
		if err == nil {
			err = ev.Err
		}
		if err != nil {
			return err
		}
	}
	return e.describeWay(id)
}

// describeWay tells which GID a connection uses and why.
func (e *examination) describeWay(id *rdmacm.ID) error {
	d, err := id.Device()
	if err != nil {
		return err
	}
	e.from = id.LocalAddr().Addr()
	detail := fmt.Sprintf("by device %s port %d, from %v", d.Name(), id.PortNum(), e.from)
	i := slices.IndexFunc(e.devices, func(p *patient) bool { return p.name() == d.Name() })
	if i >= 0 {
		e.through = e.devices[i]
		detail += e.gidOf(e.through, id.PortNum())
	}
	e.check(true, "address", e.Addr.String(), detail)
	return nil
}

// gidOf says which GID is used and why, where there is a choice.
func (e *examination) gidOf(p *patient, port int) string {
	if p.dev.Protocol() != "roce" {
		return ""
	}
	g, err := uverbs.FindGID(p.gids, port, e.from)
	if err != nil {
		return "; no GID of type RoCE v2 has that address"
	}
	return fmt.Sprintf(", so with GID index %d (%v): the routing table chose the address, and it is that address's entry", g.Index, g.Type)
}
