package discover

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/mdlayher/netlink"

	"github.com/pureverbs/rdma/abi"
)

// findNetDevs sets NetDevs and NetReason. The kernel tells the interface of a
// port through netlink only to the namespace that holds it. Interfaces stacked
// on that one (VLAN, macvlan in a container) carry GIDs too, so the GID table
// is looked through where the port has none here.
func (s *System) findNetDevs(t Transport, d *Device) {
	if t != nil {
		d.NetDevs = portNetDevs(t, d.Index)
	}
	if len(d.NetDevs) == 0 && d.needsNetDev() {
		d.NetDevs = s.gidNetDevs(d)
	}
	slices.Sort(d.NetDevs)
	d.NetDevs = slices.Compact(d.NetDevs)
	if len(d.NetDevs) == 0 && d.needsNetDev() {
		d.NetReason = &Error{
			Op: "use", Object: "device " + d.Name, Kind: ErrNoInterface,
			Detail: "no interface of this device in this network namespace",
			Next:   "move the interface here (ip link set DEV netns NS), or run in the namespace that has it",
		}
	}
}

// portNetDevs asks for the interfaces of the ports. It is no reason to drop the
// device if that fails: the GID table may still tell.
func portNetDevs(t Transport, index int) []string {
	payloads, err := dump(t, abi.RDMA_NLDEV_CMD_PORT_GET, func(ae *netlink.AttributeEncoder) {
		ae.Uint32(abi.RDMA_NLDEV_ATTR_DEV_INDEX, uint32(index))
	})
	if err != nil {
		return nil
	}
	var names []string
	for _, b := range payloads {
		if name, err := parsePort(b); err == nil && name != "" {
			names = append(names, name)
		}
	}
	return names
}

// maxGap is how many unused entries in a row end the search of a GID table. The kernel fills
// the first that is free, so what comes behind was made before very many others went. rxe has
// a thousand entries, and to look at each takes seconds on a slow machine.
const maxGap = 32

// gidNetDevs collects the interfaces of the GID tables that are in this
// namespace. The directory says which ports there are: a number that netlink gave
// would have to be trusted to be small.
func (s *System) gidNetDevs(d *Device) []string {
	local := s.localInterfaces()
	ports, _ := numbered(filepath.Join(s.ibdev(d), "ports"), "")
	var names []string
	for _, number := range ports {
		port, _ := strconv.Atoi(number)
		count, _ := s.GIDCount(d, port)
		dir, unused := s.port(d, port), 0
		for i := 0; i < count && unused < maxGap; i++ {
			name, err := readValue(filepath.Join(dir, "gid_attrs/ndevs", strconv.Itoa(i)))
			if err != nil {
				unused++ // an entry that is not in use cannot be read
				continue
			}
			if unused = 0; slices.Contains(names, name) {
				continue
			}
			if gid, err := s.gid(d, port, i); err == nil && local.carries(name, gid) {
				names = append(names, name)
			}
		}
	}
	return names
}

// interfaces are those of a network namespace, with their IPv6 addresses.
type interfaces map[string][]netip.Addr

// carries tells whether the interface is the one that the GID belongs to. A GID
// table names interfaces of any namespace, and two namespaces may both have an
// "eth0": so the GID, which is an address of the interface, has to be there
// too. Where IPv6 is off the name has to do.
func (l interfaces) carries(name string, gid [16]byte) bool {
	addrs, ok := l[name]
	return ok && (len(addrs) == 0 || slices.Contains(addrs, netip.AddrFrom16(gid)))
}

// localInterfaces reads the interfaces of the calling thread's namespace. /proc
// follows the thread; /sys/class/net shows the namespace that /sys was mounted
// in, and is better than nothing.
func (s *System) localInterfaces() interfaces {
	local := interfaces{}
	for _, name := range s.interfaceNames() {
		local[name] = nil
	}
	b, _ := os.ReadFile(s.path("proc/thread-self/net/if_inet6"))
	for line := range strings.Lines(string(b)) {
		// address, index, prefix length, scope, flags, name
		if f := strings.Fields(line); len(f) == 6 {
			if addr, ok := parseInet6(f[0]); ok {
				local[f[5]] = append(local[f[5]], addr)
			}
		}
	}
	return local
}

func (s *System) interfaceNames() (names []string) {
	b, err := os.ReadFile(s.path("proc/thread-self/net/dev"))
	if err == nil {
		for line := range strings.Lines(string(b)) {
			if name, _, ok := strings.Cut(line, ":"); ok {
				names = append(names, strings.TrimSpace(name))
			}
		}
		return names
	}
	entries, _ := os.ReadDir(s.path("sys/class/net"))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// parseInet6 reads an address of 32 hexadecimal digits without separators.
func parseInet6(text string) (netip.Addr, bool) {
	if len(text) != 32 {
		return netip.Addr{}, false
	}
	var groups []string
	for i := 0; i < len(text); i += 4 {
		groups = append(groups, text[i:i+4])
	}
	gid, err := parseGID(strings.Join(groups, ":"))
	return netip.AddrFrom16(gid), err == nil
}
