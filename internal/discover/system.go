package discover

import (
	"path/filepath"

	"github.com/mdlayher/netlink"

	"github.com/pureverbs/rdma/internal/uapi"
)

// Transport is a socket of RDMA netlink. Execute sends one request and returns
// all messages of its answer; an answer that is an errno is an error.
type Transport interface {
	Execute(netlink.Message) ([]netlink.Message, error)
	Close() error
}

var _ Transport = (*netlink.Conn)(nil)

// System is the system whose devices are looked for: [Host], or a fake one. Its
// methods may be called from several goroutines.
type System struct {
	// Root is put before the paths of /sys and /proc; "" stands for the real
	// ones. Device nodes are named without it: the Opener decides where they are.
	Root string
	// Opener looks at device nodes. Only its Stat is called.
	Opener uapi.Opener
	// Netlink opens a socket, which is closed before the calling method returns.
	Netlink func() (Transport, error)
	// Network is the network namespace of the calling thread, nil where nothing is
	// known of it. Only those read it who explain what is wrong.
	Network Network
}

// path returns a path of /sys or /proc, under the root.
func (s *System) path(elem ...string) string {
	return filepath.Join(append([]string{s.Root, "/"}, elem...)...)
}

// CharDev is a character device of the kernel and the node that leads to it.
type CharDev struct {
	SysName string // the kernel's name for it: "uverbs0", "rdma_cm"
	Node    string // path of the node: "/dev/infiniband/uverbs0"
	Dev     Dev    // its device number
	ABI     uint32 // version of the driver's interface (uverbs), of the command set (rdma_cm)
	Reason  error  // why the node cannot be used, an *Error; nil if it can
}

// Device is an RDMA device as the kernel lists it.
type Device struct {
	Index    int    // the kernel's number for it, never used twice; -1 where only sysfs could be read
	Name     string // a label, which may change at any time
	NodeGUID uint64 // in host order
	Ports    int    // number of ports; they count from 1
	NodeType uint8  // abi.RDMA_NODE_IB_CA, abi.RDMA_NODE_RNIC, ...
	Firmware string // version of the firmware, "" if there is none
	Protocol string // "ib", "roce", "iw", "opa", "usnic", "" if unknown
	Driver   uint32 // abi.RDMA_DRIVER_RXE, ...; abi.RDMA_DRIVER_UNKNOWN if it cannot be told

	// NetDevs are the network interfaces that carry the device's ports and GIDs
	// and are in the network namespace of the calling thread.
	NetDevs []string
	// NetReason says that a device that needs an interface has none in this
	// namespace: addresses do not resolve to it and queue pairs do not connect.
	// It is an *Error of kind ErrNoInterface, or nil. The device opens all the
	// same.
	NetReason error

	CharDev // the uverbs node; its Reason is nil if the device can be opened
}

// needsNetDev tells whether the device is reached through a network interface.
func (d *Device) needsNetDev() bool {
	return d.Protocol == "roce" || d.Protocol == "iw" || d.Protocol == "usnic"
}
