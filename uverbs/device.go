package uverbs

import (
	"fmt"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/discover"
)

// Option changes where devices come from.
type Option func(*discover.System) *discover.System

// WithSystem replaces the running kernel. It exists for this module's own tests: the
// argument's type is internal.
func WithSystem(s *discover.System) Option {
	return func(*discover.System) *discover.System { return s }
}

func system(opts []Option) *discover.System {
	s := discover.Host()
	for _, o := range opts {
		s = o(s)
	}
	return s
}

// Devices lists the RDMA devices that the kernel knows, whether or not they can be used
// from here: [Device.Usable] says. No device is opened, and none stays open. A system
// without devices is an empty list, not an error.
//
// No privilege is needed. Source: ibv_get_device_list(3).
func Devices(opts ...Option) ([]*Device, error) {
	sys := system(opts)
	found, err := sys.Devices()
	if err != nil {
		return nil, wrap("list devices", "", err)
	}
	devs := make([]*Device, len(found))
	for i := range found {
		devs[i] = &Device{sys: sys, info: found[i]}
	}
	return devs, nil
}

// Device is an RDMA device as it was when it was listed. The name is a label and may
// change at any time; what was opened stays open.
type Device struct {
	// NoBlueFlame, set before Open, makes an mlx5 device fetch all requests from memory.
	// Otherwise a single short one is copied to it along with the doorbell (BlueFlame),
	// which spares it that. It means nothing to other devices.
	NoBlueFlame bool

	sys  *discover.System
	info discover.Device
}

// Name is the kernel's name of the device: "rxe0", "mlx5_0".
func (d *Device) Name() string { return d.info.Name }

// Index is the kernel's number of the device, which no other device ever gets; -1 if the
// kernel would not tell.
func (d *Device) Index() int { return d.info.Index }

// NodeGUID identifies the device among all others, in host byte order.
func (d *Device) NodeGUID() uint64 { return d.info.NodeGUID }

// NumPorts is the number of ports; they count from 1.
func (d *Device) NumPorts() int { return d.info.Ports }

// NodeType is what the device is: "CA" (channel adapter: InfiniBand, RoCE), "RNIC" (iWARP),
// or a number. Source: ibv_node_type_str(3).
func (d *Device) NodeType() string {
	switch d.info.NodeType {
	case abi.RDMA_NODE_IB_CA:
		return "CA"
	case abi.RDMA_NODE_RNIC:
		return "RNIC"
	}
	return utoa(uint32(d.info.NodeType))
}

// Firmware is the version of the device's firmware, "" if there is none.
func (d *Device) Firmware() string { return d.info.Firmware }

// Protocol is "ib", "roce", "iw", or "" if unknown.
func (d *Device) Protocol() string { return d.info.Protocol }

// Driver is the kernel driver's name: "rxe", "mlx5".
func (d *Device) Driver() string { return discover.DriverName(d.info.Driver) }

// ABI is the version of the kernel driver's interface; which ones this package speaks says
// [Drivers]. Source: /sys/class/infiniband_verbs/uverbsN/abi_version.
func (d *Device) ABI() uint32 { return d.info.ABI }

// Path is the device node that Open opens.
func (d *Device) Path() string { return d.info.Node }

// NetDevs are the network interfaces of the device in this network namespace.
func (d *Device) NetDevs() []string { return d.info.NetDevs }

// Usable returns nil if the device can be opened and this package has a provider for it,
// otherwise the reason and what to do about it.
func (d *Device) Usable() error {
	if d.info.Reason != nil {
		return d.info.Reason
	}
	_, err := d.provider()
	return err
}

// Reachable returns nil if addresses can lead to the device from this network namespace,
// otherwise the reason: the device opens all the same.
func (d *Device) Reachable() error { return d.info.NetReason }

func (d *Device) String() string { return "device " + d.info.Name }

func (d *Device) provider() (*providerInfo, error) {
	p := findProvider(d.info.Driver)
	switch {
	case p == nil:
		return nil, &Error{Op: "open", Object: d.Name(), Err: fmt.Errorf("%w: driver %s", ErrNotSupported, d.Driver()),
			Hint: "this package drives " + providerNames()}
	case d.info.ABI < p.minABI || d.info.ABI > p.maxABI:
		return nil, &Error{Op: "open", Object: d.Name(), Err: fmt.Errorf("%w: driver %s has ABI version %d, want %d to %d",
			ErrNotSupported, d.Driver(), d.info.ABI, p.minABI, p.maxABI)}
	}
	return p, nil
}
