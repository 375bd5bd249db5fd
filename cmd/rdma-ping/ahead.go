package main

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/pureverbs/rdma/uverbs"
)

// usableDevice looks ahead of a connection: without a device, or with none that leads
// anywhere, the connection manager's errors point elsewhere. And rxe of Linux 6.1 stays deaf
// for good after a connection was tried while its port was down.
func (a *app) usableDevice() error {
	devs, err := uverbs.Devices(a.verbsOptions()...)
	if err != nil {
		return err
	}
	if len(devs) == 0 {
		return errNoDevices
	}
	var reasons error
	for _, d := range devs {
		reason := usable(d)
		if reason == nil {
			return nil
		}
		reasons = errors.Join(reasons, reason)
	}
	return fmt.Errorf("no RDMA device is usable here: %w", reasons)
}

// usable tells what keeps a device from carrying anything.
func usable(d *uverbs.Device) error {
	if err := errors.Join(d.Usable(), d.Reachable()); err != nil {
		return err
	}
	ctx, err := d.Open()
	if err != nil {
		return nil // whoever needs it opens it again, and says why
	}
	defer ctx.Close()
	for n := 1; n <= d.NumPorts(); n++ {
		if port, err := ctx.QueryPort(uint8(n)); err != nil || port.State == uverbs.PortActive {
			return nil
		}
	}
	switch names := d.NetDevs(); len(names) {
	case 0:
		return fmt.Errorf("%s has no active port; is the cable in, and is there a subnet manager? see: rdma-ping doctor", d.Name())
	default:
		return fmt.Errorf("%s has no active port: is its interface %[2]s up? as root: ip link set %[2]s up; see: rdma-ping doctor", d.Name(), names[0])
	}
}

// knownDevice refuses the name of a device that is not there.
func (a *app) knownDevice(name string) error {
	if name == "" || slices.Contains(a.deviceNames(), name) {
		return nil
	}
	return noDevice(name)
}

func noDevice(name string) error {
	return fmt.Errorf("no RDMA device %q: 'rdma-ping devices' lists those that are there", name)
}

// noDevices is what to do about an empty list.
const noDevices = "no RDMA devices: the kernel's RDMA support is there but knows no device; " +
	"load your adapter's driver, or make a software device as root: rdma-ping link add rxe0 type rxe netdev eth0"

var errNoDevices = errors.New(noDevices)

// reachable looks ahead of listening, which the connection manager does wherever there is a
// device: on an interface that is down, too, and on a loopback address, where nobody gets to
// unless the device is on that interface.
func (a *app) reachable(addrs []netip.AddrPort) error {
	addr := addrs[0].Addr()
	devs, err := uverbs.Devices(a.verbsOptions()...)
	if err != nil {
		return err
	}
	carried := false
	for _, i := range a.interfaceNames() {
		for _, p := range i.Addrs {
			switch {
			case p.Addr() == addr && !i.Up:
				return fmt.Errorf("listen on %v: its interface %[2]s is down; as root: ip link set %[2]s up", addr, i.Name)
			case p.Contains(addr) && slices.ContainsFunc(devs, func(d *uverbs.Device) bool { return slices.Contains(d.NetDevs(), i.Name) }):
				carried = true
			}
		}
	}
	if addr.IsLoopback() && !carried {
		return fmt.Errorf("listen on %v: no RDMA device is on the loopback interface: use an address of one, see rdma-ping devices", addr)
	}
	return nil
}
