package discover

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"github.com/mdlayher/netlink"

	"github.com/pureverbs/rdma/abi"
)

// Devices lists the RDMA devices that the kernel shows to the network namespace
// of the calling thread, ordered by index, each exactly once even if it is
// renamed meanwhile. A system without devices gives an empty list and no error.
//
// A device that cannot be opened is in the list, with Reason. The error is for
// the list as a whole: ErrNoModule if the kernel has no RDMA, uapi.ErrNotLinux,
// or a fault of netlink.
//
// No privilege is needed and nothing is left open. The kernel may load ib_uverbs
// as a consequence. Linux 5.1 for netlink, else sysfs. Source: rdma_netlink.h
// and rdma-core's libibverbs/ibdev_nl.c.
func (s *System) Devices() ([]Device, error) {
	devs, err := s.netlinkDevices()
	if err != nil && refused(err) {
		devs, err = s.sysfsDevices(err)
	}
	if err == nil {
		return devs, nil
	}
	if e := (*Error)(nil); errors.As(err, &e) {
		return nil, e
	}
	return nil, &Error{Op: "list RDMA devices", Err: err}
}

func (s *System) netlinkDevices() ([]Device, error) {
	t, err := s.Netlink()
	if err != nil {
		return nil, err
	}
	defer t.Close()
	devs, err := dumpDevices(t)
	if err != nil {
		return nil, err
	}
	listed := devs[:0]
	for _, d := range devs {
		if s.complete(t, &d) {
			listed = append(listed, d)
		}
	}
	return listed, nil
}

// dumpDevices returns the list without the nodes. A device that appears twice,
// as can happen when the list changes between two parts of the dump, counts
// once.
func dumpDevices(t Transport) ([]Device, error) {
	payloads, err := dump(t, abi.RDMA_NLDEV_CMD_GET, nil)
	if err != nil {
		return nil, err
	}
	byIndex := make(map[int]Device, len(payloads))
	for _, b := range payloads {
		d, err := parseDevice(b)
		if err != nil {
			return nil, err
		}
		byIndex[d.Index] = d
	}
	devs := make([]Device, 0, len(byIndex))
	for _, d := range byIndex {
		devs = append(devs, d)
	}
	slices.SortFunc(devs, func(a, b Device) int { return a.Index - b.Index })
	return devs, nil
}

// complete adds what takes further requests: node, driver, interfaces. It
// reports false if the device is gone. What fails for one device becomes its
// Reason, so that the others stay usable.
func (s *System) complete(t Transport, d *Device) (present bool) {
	byIndex := func(ae *netlink.AttributeEncoder) { ae.Uint32(abi.RDMA_NLDEV_ATTR_DEV_INDEX, uint32(d.Index)) }
	cd, driver, err := getCharDev(t, "uverbs", byIndex)
	if errors.Is(err, syscall.EINVAL) && gone(t, byIndex) {
		return false
	}
	d.CharDev, d.Driver = cd, driver
	if d.Driver == abi.RDMA_DRIVER_UNKNOWN {
		d.Driver = s.sysfsDriver(d.Name)
	}
	if err != nil {
		d.Reason = s.noCharDev(d.Name, err)
	} else {
		s.findNode(&d.CharDev, "device "+d.Name)
	}
	s.findNetDevs(t, d)
	return true
}

// gone asks for the device again: the kernel answers EINVAL to any request for
// an index that it does not know (any more).
func gone(t Transport, byIndex encode) bool {
	_, err := ask(t, abi.RDMA_NLDEV_CMD_GET, byIndex)
	return errors.Is(err, syscall.EINVAL)
}

// getCharDev asks for the character device of a kind. The kernel loads the module
// that serves it, if it can.
func getCharDev(t Transport, kind string, fill encode) (CharDev, uint32, error) {
	b, err := ask(t, abi.RDMA_NLDEV_CMD_GET_CHARDEV, func(ae *netlink.AttributeEncoder) {
		if fill != nil {
			fill(ae)
		}
		ae.String(abi.RDMA_NLDEV_ATTR_CHARDEV_TYPE, kind)
	})
	if err != nil {
		return CharDev{}, abi.RDMA_DRIVER_UNKNOWN, err
	}
	return parseCharDev(b)
}

// noCharDev explains why the kernel named no uverbs device. EOPNOTSUPP covers
// two cases: ib_uverbs is not there, or it is and the driver is for the
// kernel's own use.
func (s *System) noCharDev(name string, err error) error {
	e := &Error{Op: "use", Object: "device " + name, Err: err}
	switch {
	case !errors.Is(err, syscall.EOPNOTSUPP):
		e.Detail = "ask for its uverbs node"
	case s.exists("sys/class/infiniband_verbs"):
		e.Kind = ErrNoVerbs
		e.Detail = "its kernel driver offers nothing to programs"
	default:
		return noUverbs(name, err)
	}
	return e
}

// noUverbs is the reason of a device while ib_uverbs is not loaded.
func noUverbs(name string, err error) *Error {
	return &Error{
		Op: "use", Object: "device " + name, Kind: ErrNoModule, Err: err,
		Detail: "the kernel has the device but module ib_uverbs is not loaded",
		Next:   "as root: modprobe ib_uverbs",
	}
}

// Find returns the device of that name. The error is ErrNoDevice and lists the
// names that there are: names change, so the old one is a likely cause.
func Find(devs []Device, name string) (*Device, error) {
	present := make([]string, len(devs))
	for i := range devs {
		if devs[i].Name == name {
			return &devs[i], nil
		}
		present[i] = devs[i].Name
	}
	e := &Error{Op: "find RDMA device", Object: name, Kind: ErrNoDevice}
	if len(present) == 0 {
		e.Detail = "there is no RDMA device at all"
		e.Next = "plug one in, or as root: rdma link add rxe0 type rxe netdev eth0"
	} else {
		e.Detail = fmt.Sprintf("no such device, there is %s", strings.Join(present, ", "))
	}
	return nil, e
}
