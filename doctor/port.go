package doctor

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/pureverbs/rdma/internal/discover"
	"github.com/pureverbs/rdma/uverbs"
)

// smallMTU is an active MTU that nobody chooses: an ordinary Ethernet gives 1024 bytes.
const smallMTU = 1024

// examinePorts tells whether a port is active.
func (e *examination) examinePorts(p *patient) (active bool) {
	var down []int
	for n := 1; n <= p.dev.NumPorts(); n++ {
		port, err := p.ctx.QueryPort(uint8(n))
		if err != nil {
			p.findings = append(p.findings, e.notOpened(p.object(), "", err))
			return false
		}
		up := port.State == uverbs.PortActive
		detail := port.State.String()
		if up {
			detail += fmt.Sprintf(", MTU %d of at most %d bytes", port.ActiveMTU.Bytes(), port.MaxMTU.Bytes())
		}
		e.check(up, "port", fmt.Sprintf("%s port %d", p.name(), n), detail)
		if !up {
			down = append(down, n)
			continue
		}
		active = true
		e.examineMTU(p, &port, n)
	}
	if !active {
		e.portDown(p, down)
	}
	return active
}

func (e *examination) portDown(p *patient, ports []int) {
	if p.dev.Protocol() == "ib" || p.dev.Protocol() == "opa" {
		p.find(Error, PortDown, fmt.Sprintf("no port is active (of %d): the cable is out, or no subnet manager has set it up", len(ports)),
			Fix{"on a host of the fabric, as root", "systemctl start opensm"})
		return
	}
	netdev := "INTERFACE"
	if len(p.netdevs) > 0 {
		netdev = p.netdevs[0]
	}
	what := fmt.Sprintf("no port is active (of %d): the network interface %s is down", len(ports), netdev)
	if i := e.interfaceNamed(netdev); i != nil && i.Up {
		what = fmt.Sprintf("no port is active (of %d): the network interface %s is up and has no carrier; is the cable in?", len(ports), netdev)
	}
	where := hereRoot
	if e.facts.container != onHost {
		where = "on the host, or here if the interface is the container's own, as root"
	}
	p.find(Error, PortDown, what, Fix{where, fmt.Sprintf("ip link set %s up", netdev)})
}

func (e *examination) interfaceNamed(name string) *discover.Interface {
	i := slices.IndexFunc(e.interfaces, func(i discover.Interface) bool { return i.Name == name })
	if i < 0 {
		return nil
	}
	return &e.interfaces[i]
}

// examineMTU warns of an MTU that is smaller than any Ethernet's.
func (e *examination) examineMTU(p *patient, port *uverbs.PortAttr, n int) {
	if !port.Ethernet || p.dev.Protocol() == "iw" || port.ActiveMTU.Bytes() >= smallMTU || len(p.netdevs) == 0 {
		return
	}
	netdev := p.netdevs[0]
	what := fmt.Sprintf("the MTU of port %d is %d bytes", n, port.ActiveMTU.Bytes())
	if i := e.interfaceNamed(netdev); i != nil {
		what += fmt.Sprintf(", as that of interface %s is %d", netdev, i.MTU)
	}
	p.find(Warning, SmallMTU, what, Fix{e.facts.asRoot(), fmt.Sprintf("ip link set %s mtu 1500", netdev)})
}

// verdict is what a GID is good for.
type verdict struct {
	used bool // for its own address
	why  string
}

// judgeGID says which GIDs are used: type v2, an address of this network namespace, one that
// is known beyond the link.
func (e *examination) judgeGID(g *uverbs.GIDEntry) verdict {
	addr := g.GID.Addr()
	switch {
	case g.Type == uverbs.GIDTypeRoCEv1:
		return verdict{false, "not used: RoCE v1 does not cross routers and does not talk to v2"}
	case addr.IsLinkLocalUnicast():
		return verdict{false, "for peers on the same link only, with a zone"}
	case !e.isLocal(addr):
		return verdict{false, "not used: the address is not of this network namespace"}
	}
	return verdict{true, fmt.Sprintf("used for %v: the address matches and the type is the one that is routed", addr)}
}

// isLocal tells whether an interface here has the address. Where nothing is known of
// interfaces it may well be.
func (e *examination) isLocal(addr netip.Addr) bool {
	if len(e.interfaces) == 0 {
		return true
	}
	return slices.ContainsFunc(e.interfaces, func(i discover.Interface) bool {
		return slices.ContainsFunc(i.Addrs, func(p netip.Prefix) bool { return p.Addr().WithZone("") == addr })
	})
}

// examineGIDs shows the table with a verdict on each entry. InfiniBand has its GIDs from the
// subnet, iWARP its addresses from the interface alone.
func (e *examination) examineGIDs(p *patient) {
	switch p.dev.Protocol() {
	case "roce":
	case "iw":
		e.examineAddrs(p)
		return
	default:
		return
	}
	usable, v1 := 0, 0
	for i := range p.gids {
		g := &p.gids[i]
		v := e.judgeGID(g)
		e.check(true, "gid", fmt.Sprintf("%s port %d index %d", p.name(), g.Port, g.Index), fmt.Sprintf("%v, %v: %s", g.GID.Addr(), g.Type, v.why))
		switch {
		case v.used:
			usable++
		case g.Type == uverbs.GIDTypeRoCEv1 && !g.GID.Addr().IsLinkLocalUnicast():
			v1++
		}
	}
	if usable == 0 {
		e.noGID(p, v1 > 0)
	}
}

func (e *examination) examineAddrs(p *patient) {
	for _, name := range p.netdevs {
		i := e.interfaceNamed(name)
		if i == nil || slices.ContainsFunc(i.Addrs, func(a netip.Prefix) bool { return !a.Addr().IsLinkLocalUnicast() }) {
			return
		}
	}
	e.noGID(p, false)
}

func (e *examination) noGID(p *patient, onlyV1 bool) {
	if e.Addr.IsLinkLocalUnicast() {
		return // for which a link-local one is right
	}
	netdev := "INTERFACE"
	if len(p.netdevs) > 0 {
		netdev = p.netdevs[0]
	}
	what := fmt.Sprintf("no GID of it can be reached from beyond the link: interface %s has no IP address but a link-local one", netdev)
	if onlyV1 {
		what = "its GIDs are of type RoCE v1 only"
	}
	p.find(Error, NoGID, what, Fix{e.facts.asRoot(), fmt.Sprintf("ip addr add ADDRESS/PREFIX dev %s", netdev)})
}
