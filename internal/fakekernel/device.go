//go:build linux

package fakekernel

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/discover"
)

// Device is an RDMA device to be: one port, on a network interface.
type Device struct {
	Name    string       // default: that of the driver and its place in the list
	NetDev  string       // default: "eth" and its place in the list
	IfIndex uint32       // of the interface; default: 2 and up
	Addrs   []netip.Addr // of the interface; each is a GID. Default: see [DefaultAddrs]
	GUID    uint64       // node GUID in host order; default: made from the place in the list
	Driver  uint32       // default: rxe
	ABI     uint32       // of the driver; default: 2 for rxe, 1 for the others
	MTU     uint8        // active MTU as a code: 1 is 256, 5 is 4096; default 3 (1024)
	V1      bool         // each GID has a twin of type RoCE v1 before it, as hardware has
	NoNode  bool         // there is no node in /dev
	NoVerbs bool         // ib_uverbs does not serve it
	Down    bool         // the port is down, and so is the interface
	Foreign bool         // the interface is in another network namespace
	MLX5    MLX5         // of a device of the driver mlx5
}

// DefaultAddrs are the addresses of device number i (from 0) unless told otherwise: one
// link-local, one IPv4 and one IPv6 address.
func DefaultAddrs(i int) []netip.Addr {
	return []netip.Addr{
		netip.MustParseAddr(fmt.Sprintf("fe80::a:%x", i+1)),
		netip.MustParseAddr(fmt.Sprintf("10.9.0.%d", i+1)),
		netip.MustParseAddr(fmt.Sprintf("2001:db8:9::%x", i+1)),
	}
}

type device struct {
	Device
	drv      driver
	hw       mlx5Device
	index    uint32
	gids     []abi.IbUverbsGidEntry
	qps      map[uint32]*qp     // by number
	mrs      map[uint32]*mr     // by key >> 8
	mws      map[uint32]*mw     // by key >> 8
	ahs      map[uint32]*ah     // by number
	groups   map[[16]byte][]*qp // members of multicast groups, by address
	version  version
	lastQPN  uint32
	lastKey  uint32
	lastSRQN uint32
	lastMW   uint32
	lastAH   uint32
	mapOff   uint64 // where the next queue goes in the file
	dead     bool   // unplugged
	zapped   bool   // as by a driver that takes its device away: what is left can be destroyed
}

// The major number of uverbs and the minor of the first device.
const (
	uverbsMajor = 231
	uverbsMinor = 192
)

func (d *device) sysName() string   { return fmt.Sprintf("uverbs%d", d.index) }
func (d *device) node() string      { return "/dev/infiniband/" + d.sysName() }
func (d *device) dev() discover.Dev { return discover.MakeDev(uverbsMajor, uverbsMinor+d.index) }
func (d *device) guid() abi.BE64    { return abi.ToBE64(d.GUID) }
func (d *device) localTo(a netip.Addr) bool {
	return slices.Contains(d.Addrs, a.WithZone(""))
}

func (k *Kernel) addDevices() {
	list := k.opts.Devices
	if list == nil {
		list = []Device{{}}
	}
	for i, d := range list {
		k.devices = append(k.devices, newDevice(i, d, k.version))
	}
}

func newDevice(i int, c Device, v version) *device {
	set(&c.Driver, abi.RDMA_DRIVER_RXE)
	drv := driverOf(c.Driver)
	set(&c.Name, fmt.Sprintf("%s%d", drv.link().name, i))
	set(&c.NetDev, fmt.Sprintf("eth%d", i))
	set(&c.IfIndex, uint32(i+2))
	set(&c.GUID, 0x0242_acff_fe11_0000+uint64(i))
	set(&c.ABI, drv.link().abi)
	set(&c.MTU, 3)
	if c.Addrs == nil {
		c.Addrs = DefaultAddrs(i)
	}
	d := &device{
		Device: c, drv: drv, index: uint32(i), qps: make(map[uint32]*qp), mrs: make(map[uint32]*mr),
		mws: make(map[uint32]*mw), ahs: make(map[uint32]*ah), groups: make(map[[16]byte][]*qp), version: v,
		lastQPN: 16, mapOff: pageSize,
	}
	d.hw.init(&c)
	if d.iwarp() {
		d.addMAC()
		return d
	}
	for _, a := range c.Addrs {
		if c.V1 {
			d.addGID(a, abi.IB_UVERBS_GID_TYPE_ROCE_V1)
		}
		d.addGID(a, abi.IB_UVERBS_GID_TYPE_ROCE_V2)
	}
	return d
}

func set[T comparable](p *T, def T) {
	var zero T
	if *p == zero {
		*p = def
	}
}

func (d *device) addGID(a netip.Addr, typ uint32) {
	e := abi.IbUverbsGidEntry{
		GidIndex: uint32(len(d.gids)), PortNum: 1, GidType: typ, NetdevIfindex: d.IfIndex,
	}
	raw := a.WithZone("").As16()
	copy(bytesOf(&e.Gid), raw[:])
	d.gids = append(d.gids, e)
}

// portState is PORT_ACTIVE or PORT_DOWN.
func (d *device) portState() uint8 {
	if d.Down {
		return portDown
	}
	return portActive
}

// mtu is the active MTU in bytes.
func (d *device) mtu() uint32 { return 128 << d.MTU }

// gidIndex finds the RoCE v2 entry of an address.
func (d *device) gidIndex(a netip.Addr) (uint8, bool) {
	want := a.WithZone("").As16()
	for i := range d.gids {
		if d.gids[i].GidType == abi.IB_UVERBS_GID_TYPE_ROCE_V2 && [16]byte(bytesOf(&d.gids[i].Gid)) == want {
			return uint8(i), true
		}
	}
	return 0, false
}

// deviceAt returns the device that has an address.
func (k *Kernel) deviceAt(a netip.Addr) *device {
	for _, d := range k.devices {
		if !d.dead && d.localTo(a) {
			return d
		}
	}
	return nil
}
