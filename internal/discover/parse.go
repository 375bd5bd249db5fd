package discover

import (
	"fmt"
	"math"
	"strings"

	"github.com/mdlayher/netlink"

	"github.com/pureverbs/rdma/abi"
)

// The parsers take what the kernel sent, and fuzzing takes that place: any bytes
// give a result or an error. The decoder checks the length of each number.

// maxName is the longest name of a device: IB_DEVICE_NAME_MAX less its NUL.
const maxName = 63

// eachAttr calls fn for every attribute of a message.
func eachAttr(b []byte, fn func(*netlink.AttributeDecoder)) error {
	ad, err := netlink.NewAttributeDecoder(b)
	if err != nil {
		return err
	}
	for ad.Next() {
		fn(ad)
	}
	return ad.Err()
}

// validName refuses what cannot be a name of the kernel's and would lead astray
// as an element of a path.
func validName(name string) error {
	if name == "" || name == "." || name == ".." || len(name) > maxName || strings.ContainsAny(name, "/\x00") {
		return fmt.Errorf("%q is not a device name", name)
	}
	return nil
}

// parseDevice reads an answer to GET. Index and name are mandatory; the rest
// depends on the kernel's age.
func parseDevice(b []byte) (Device, error) {
	d := Device{Index: -1}
	var index, ports uint32
	var hasIndex bool
	err := eachAttr(b, func(ad *netlink.AttributeDecoder) {
		switch ad.Type() {
		case abi.RDMA_NLDEV_ATTR_DEV_INDEX:
			index, hasIndex = ad.Uint32(), true
		case abi.RDMA_NLDEV_ATTR_DEV_NAME:
			d.Name = ad.String()
		case abi.RDMA_NLDEV_ATTR_PORT_INDEX:
			ports = ad.Uint32()
		case abi.RDMA_NLDEV_ATTR_NODE_GUID:
			d.NodeGUID = ad.Uint64()
		case abi.RDMA_NLDEV_ATTR_DEV_NODE_TYPE:
			d.NodeType = ad.Uint8()
		case abi.RDMA_NLDEV_ATTR_FW_VERSION:
			d.Firmware = ad.String()
		case abi.RDMA_NLDEV_ATTR_DEV_PROTOCOL:
			d.Protocol = ad.String()
		}
	})
	switch {
	case err != nil:
		return Device{}, fmt.Errorf("parse device: %w", err)
	case !hasIndex || index > math.MaxInt32 || ports > math.MaxInt32:
		return Device{}, fmt.Errorf("parse device: index %d (present: %v) or port count %d makes no sense", index, hasIndex, ports)
	}
	if err := validName(d.Name); err != nil {
		return Device{}, fmt.Errorf("parse device %d: %w", index, err)
	}
	d.Index, d.Ports = int(index), int(ports)
	return d, nil
}

// parsePort reads an answer to PORT_GET: the network interface of the port, ""
// if it has none in this namespace.
func parsePort(b []byte) (netdev string, err error) {
	err = eachAttr(b, func(ad *netlink.AttributeDecoder) {
		if ad.Type() == abi.RDMA_NLDEV_ATTR_NDEV_NAME {
			netdev = ad.String()
		}
	})
	if err == nil && netdev != "" {
		err = validName(netdev)
	}
	if err != nil {
		return "", fmt.Errorf("parse port: %w", err)
	}
	return netdev, nil
}

// parseCharDev reads an answer to GET_CHARDEV. driver is RDMA_DRIVER_UNKNOWN if
// the kernel does not say.
func parseCharDev(b []byte) (cd CharDev, driver uint32, err error) {
	driver = abi.RDMA_DRIVER_UNKNOWN
	var hasDev, hasABI bool
	err = eachAttr(b, func(ad *netlink.AttributeDecoder) {
		switch ad.Type() {
		case abi.RDMA_NLDEV_ATTR_CHARDEV:
			cd.Dev, hasDev = Dev(ad.Uint64()), true
		case abi.RDMA_NLDEV_ATTR_CHARDEV_ABI:
			cd.ABI, hasABI = uint32(ad.Uint64()), true
		case abi.RDMA_NLDEV_ATTR_CHARDEV_NAME:
			cd.SysName = ad.String()
		case abi.RDMA_NLDEV_ATTR_UVERBS_DRIVER_ID:
			driver = ad.Uint32()
		}
	})
	if err == nil && (!hasDev || !hasABI) {
		err = fmt.Errorf("device number (present: %v) or ABI (present: %v) is missing", hasDev, hasABI)
	}
	if err == nil {
		err = validName(cd.SysName)
	}
	if err != nil {
		return CharDev{}, 0, fmt.Errorf("parse character device: %w", err)
	}
	return cd, driver, nil
}

// parseMode reads an answer to SYS_GET.
func parseMode(b []byte) (Mode, error) {
	var m Mode
	var hasNetns bool
	err := eachAttr(b, func(ad *netlink.AttributeDecoder) {
		switch ad.Type() {
		case abi.RDMA_NLDEV_SYS_ATTR_NETNS_MODE:
			m.Exclusive, hasNetns = ad.Uint8() == 0, true
		case abi.RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK:
			m.CopyOnFork = ad.Uint8() != 0
		case abi.RDMA_NLDEV_SYS_ATTR_PRIVILEGED_QKEY_MODE:
			m.PrivilegedQKey = ad.Uint8() != 0
		case abi.RDMA_NLDEV_SYS_ATTR_MONITOR_MODE:
			m.Monitor = ad.Uint8() != 0
		}
	})
	if err == nil && !hasNetns {
		err = fmt.Errorf("network namespace mode is missing")
	}
	if err != nil {
		return Mode{}, fmt.Errorf("parse system: %w", err)
	}
	return m, nil
}
