package main

import (
	"fmt"
	"slices"

	"github.com/pureverbs/rdma/internal/discover"
	"github.com/pureverbs/rdma/uverbs"
)

// describe asks a device about itself, as far as it can be opened.
func describe(d *uverbs.Device, names interfaceNames) deviceInfo {
	info := deviceInfo{
		Name: d.Name(), Driver: d.Driver(), ABI: d.ABI(), Protocol: d.Protocol(), NodeType: d.NodeType(), Node: d.Path(),
		Firmware: d.Firmware(), NodeGUID: formatGUID(d.NodeGUID()), NetDevs: d.NetDevs(),
	}
	if err := d.Reachable(); err != nil {
		info.Note = err.Error()
	}
	err := d.Usable()
	if err == nil {
		err = info.query(d, names)
	}
	if err != nil {
		info.Reason = err.Error()
	}
	info.Usable = err == nil
	return info
}

// query fills in what only the opened device tells.
func (info *deviceInfo) query(d *uverbs.Device, names interfaceNames) error {
	ctx, err := d.Open()
	if err != nil {
		return err
	}
	defer ctx.Close()
	attr, err := ctx.QueryDevice()
	if err != nil {
		return err
	}
	info.Limits = valuesOf(deviceAttributes, &attr)
	info.SystemGUID = formatGUID(attr.SystemGUID)
	info.Capabilities = capabilities(&attr)
	gids, err := ctx.GIDTable()
	if err != nil {
		return err
	}
	for n := 1; n <= d.NumPorts(); n++ {
		port, err := queryPort(ctx, n)
		if err != nil {
			return err
		}
		port.GIDs = portGIDs(gids, n, func(e uverbs.GIDEntry) string { return names.of(d, e) })
		info.Ports = append(info.Ports, port)
	}
	return nil
}

func queryPort(ctx *uverbs.Context, n int) (portInfo, error) {
	a, err := ctx.QueryPort(uint8(n))
	if err != nil {
		return portInfo{}, err
	}
	p := describePort(n, &a)
	// A driver that refuses to tell has a nominal speed all the same.
	if rate, err := ctx.QueryPortSpeed(uint8(n)); err == nil {
		p.Gbps = gbps(rate)
	}
	p.PKeys = portPKeys(ctx, n, a.PKeyTableLen)
	return p, nil
}

func describePort(n int, a *uverbs.PortAttr) portInfo {
	p := portInfo{
		Port: n, State: a.State.String(), PhysState: physState(a.PhysState), LinkLayer: "InfiniBand",
		MTU: a.ActiveMTU.Bytes(), MaxMTU: a.MaxMTU.Bytes(), Gbps: gbps(a.Rate()), Width: portWidth(a.ActiveWidth),
		Attributes: valuesOf(portAttributes, a),
	}
	if a.Ethernet {
		p.LinkLayer = "Ethernet"
	}
	return p
}

// gbps makes Gb/s of Mb/s.
func gbps(rate int) float64 { return float64(rate) / 1000 }

// portPKeys reads the table of partition keys, which is in /sys: where that is not mounted
// there is none. Entries that are 0 are not in use.
func portPKeys(ctx *uverbs.Context, port, n int) (keys []pkeyInfo) {
	for i := range n {
		switch key, err := ctx.QueryPKey(uint8(port), i); {
		case err != nil:
			return keys
		case key != 0:
			keys = append(keys, pkeyInfo{Index: i, PKey: fmt.Sprintf("0x%04x", key)})
		}
	}
	return keys
}

func portGIDs(table []uverbs.GIDEntry, port int, netDev func(uverbs.GIDEntry) string) []gidInfo {
	gids := []gidInfo{}
	for _, e := range table {
		if e.Port != port {
			continue
		}
		g := gidInfo{Index: e.Index, GID: e.GID.String(), Type: e.Type.String(), Interface: netDev(e)}
		if addr := e.GID.Addr(); addr.Is4() {
			g.IPv4 = addr.String()
		}
		gids = append(gids, g)
	}
	return gids
}

// interfaceNames are the interfaces of this network namespace by index.
type interfaceNames map[int]discover.Interface

func (a *app) interfaceNames() interfaceNames {
	names := interfaceNames{}
	sys := a.host()
	if sys.Network == nil {
		return names
	}
	list, err := sys.Network.Interfaces()
	if err != nil {
		return names // it is a name less
	}
	for _, i := range list {
		names[i.Index] = i
	}
	return names
}

// of names the interface of a GID, "" if it is not here. The index is that of the namespace
// that has the interface, so an interface of that index here has to be one of the device, or
// have the address.
func (n interfaceNames) of(d *uverbs.Device, e uverbs.GIDEntry) string {
	i, ok := n[e.IfIndex]
	if !ok || e.IfIndex == 0 {
		return ""
	}
	if slices.Contains(d.NetDevs(), i.Name) {
		return i.Name
	}
	for _, p := range i.Addrs {
		if p.Addr().WithZone("") == e.GID.Addr() {
			return i.Name
		}
	}
	return ""
}

// host is the running system, or what stands for it in tests.
func (a *app) host() *discover.System {
	if a.system != nil {
		return a.system
	}
	return discover.Host()
}

func formatGUID(g uint64) string {
	return fmt.Sprintf("%04x:%04x:%04x:%04x", g>>48, g>>32&0xffff, g>>16&0xffff, g&0xffff)
}
