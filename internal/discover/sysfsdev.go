package discover

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/pureverbs/rdma/abi"
)

// sysfsDevices lists the devices without netlink; cause is what netlink said. It
// is rdma-core's way of before Linux 5.1 (libibverbs/ibdev_sysfs.c).
func (s *System) sysfsDevices(cause error) ([]Device, error) {
	version, err := readUint(s.path("sys/class/infiniband_verbs/abi_version"), 10, 32)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return s.withoutUverbs(cause)
	case err != nil:
		return nil, err
	case version != abi.IB_USER_VERBS_ABI_VERSION:
		return nil, fmt.Errorf("the kernel's verbs have ABI version %d, want %d", version, abi.IB_USER_VERBS_ABI_VERSION)
	}
	names, err := numbered(s.path("sys/class/infiniband_verbs"), "uverbs")
	if err != nil {
		return nil, err
	}
	devs := make([]Device, 0, len(names))
	for _, name := range names {
		if d, present := s.sysfsDevice(name); present {
			devs = append(devs, d)
		}
	}
	return devs, nil
}

// numbered lists the entries of a directory that are prefix and a number, in the
// order of the numbers.
func numbered(dir, prefix string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var numbers []int
	for _, e := range entries {
		digits, ok := strings.CutPrefix(e.Name(), prefix)
		if n, err := strconv.Atoi(digits); ok && err == nil && n >= 0 && strconv.Itoa(n) == digits {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	names := make([]string, len(numbers))
	for i, n := range numbers {
		names[i] = prefix + strconv.Itoa(n)
	}
	return names, nil
}

// sysfsDevice reads one device. A rename between two reads makes the files of the
// old name vanish, so a first miss is read again; one that stays away is gone.
func (s *System) sysfsDevice(sysName string) (d Device, present bool) {
	var err error
	for range 3 {
		d, err = s.readDevice(sysName)
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if errors.Is(err, fs.ErrNotExist) && !s.exists("sys/class/infiniband_verbs", sysName) {
		return d, false
	}
	if err != nil {
		d.Reason = &Error{Op: "use", Object: "device " + d.Name, Err: err}
		return d, true
	}
	d.Driver = s.sysfsDriver(d.Name)
	s.findNode(&d.CharDev, "device "+d.Name)
	s.findNetDevs(nil, &d)
	return d, true
}

func (s *System) readDevice(sysName string) (Device, error) {
	d := Device{Index: -1, Name: sysName, CharDev: CharDev{SysName: sysName}}
	dir := s.path("sys/class/infiniband_verbs", sysName)
	name, err := readValue(filepath.Join(dir, "ibdev"))
	if err == nil {
		err = validName(name)
	}
	if err != nil {
		return d, err
	}
	d.Name = name
	dev, err := readValue(filepath.Join(dir, "dev"))
	if err != nil {
		return d, err
	}
	if d.Dev, err = parseDev(dev); err != nil {
		return d, err
	}
	version, err := readUint(filepath.Join(dir, "abi_version"), 10, 32)
	if err != nil {
		return d, err
	}
	d.ABI = uint32(version)
	return d, s.readIBDev(&d)
}

// readIBDev adds what stands under the device's own name.
func (s *System) readIBDev(d *Device) error {
	dir := s.path("sys/class/infiniband", d.Name)
	guid, err := readValue(filepath.Join(dir, "node_guid"))
	if err != nil {
		return err
	}
	if d.NodeGUID, err = parseGUID(guid); err != nil {
		return err
	}
	nodeType, err := readValue(filepath.Join(dir, "node_type"))
	if err != nil {
		return err
	}
	number, _, _ := strings.Cut(nodeType, ":") // "1: CA"
	v, err := strconv.ParseUint(number, 10, 8)
	if err != nil {
		return fmt.Errorf("parse node type %q: %w", nodeType, err)
	}
	d.NodeType = uint8(v)
	if d.Ports, err = countEntries(filepath.Join(dir, "ports")); err != nil {
		return err
	}
	d.Firmware, _ = readValue(filepath.Join(dir, "fw_ver")) // not every driver has it
	layer, err := readValue(filepath.Join(dir, "ports/1/link_layer"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	d.Protocol = protocol(d.NodeType, layer)
	return nil
}

// protocol gives the name that netlink would.
func protocol(nodeType uint8, linkLayer string) string {
	switch {
	case nodeType == abi.RDMA_NODE_RNIC:
		return "iw"
	case nodeType == abi.RDMA_NODE_USNIC || nodeType == abi.RDMA_NODE_USNIC_UDP:
		return "usnic"
	case linkLayer == "Ethernet":
		return "roce"
	case linkLayer == "InfiniBand":
		return "ib"
	}
	return ""
}

// withoutUverbs is the list while /sys/class/infiniband_verbs does not exist: the
// devices of the kernel, none of them usable. Without those either, there is no
// RDMA in the kernel or none to be seen.
func (s *System) withoutUverbs(cause error) ([]Device, error) {
	entries, err := os.ReadDir(s.path("sys/class/infiniband"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, noRDMA("list RDMA devices", cause)
	}
	if err != nil {
		return nil, err
	}
	devs := make([]Device, 0, len(entries))
	for _, entry := range entries {
		d := Device{Index: -1, Name: entry.Name()}
		err := s.readIBDev(&d)
		if errors.Is(err, fs.ErrNotExist) {
			continue // gone
		}
		d.Driver = s.sysfsDriver(d.Name)
		d.Reason = noUverbs(d.Name, err)
		devs = append(devs, d)
	}
	return devs, nil
}

// noRDMA is the error when neither netlink nor sysfs has anything.
func noRDMA(op string, cause error) *Error {
	e := &Error{Op: op, Kind: ErrNoModule, Err: cause,
		Detail: "RDMA is not in this kernel: module ib_core is not loaded",
		Next:   "as root: modprobe ib_core, then the driver of the device; if the kernel has no such module, install one that has (kernels made for clouds and containers often leave it out)",
	}
	if errors.Is(cause, syscall.EPERM) || errors.Is(cause, syscall.EACCES) {
		e.Kind = ErrNoPermission
		e.Detail = "RDMA netlink is refused and there is no /sys/class/infiniband"
		e.Next = "allow NETLINK_RDMA sockets in the sandbox (seccomp), or mount /sys there"
	}
	return e
}
