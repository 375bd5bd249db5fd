package doctor

import (
	"slices"
)

// Severity says how bad a finding is.
type Severity string

// The severities.
const (
	// Error: RDMA does not work because of it.
	Error Severity = "error"
	// Warning: RDMA works, though worse than it could, or not in all its parts.
	Warning Severity = "warning"
	// Note: it is about a device that is not needed, as another one works or is nearer to it.
	Note Severity = "note"
)

// Code names what is wrong, for programs. The codes do not change from version to version.
type Code string

// The codes, from the kernel upwards. Of two findings the one that stands first here is the
// more basic one, and comes first in a report.
const (
	// NoModule: a kernel module is not loaded.
	NoModule Code = "no-module"
	// NetlinkRefused: RDMA netlink is refused, as seccomp profiles do.
	NetlinkRefused Code = "netlink-refused"
	// NoDevice: the kernel knows no RDMA device.
	NoDevice Code = "no-device"
	// NoVerbs: the device is for the kernel's own use.
	NoVerbs Code = "no-verbs"
	// UnknownDriver: this library does not drive that kind of device.
	UnknownDriver Code = "unknown-driver"
	// DriverABI: the kernel driver's interface has a version that this library does not speak.
	DriverABI Code = "driver-abi"
	// NoNode: the device node is missing.
	NoNode Code = "no-node"
	// WrongNode: what is in the node's place is something else.
	WrongNode Code = "wrong-node"
	// NoPermission: the node is there and may not be opened by this user.
	NoPermission Code = "no-permission"
	// DeviceCgroup: the container's list of devices bars the node.
	DeviceCgroup Code = "device-cgroup"
	// NotOpened: the node cannot be opened or asked for another reason.
	NotOpened Code = "not-opened"
	// ForeignNamespace: the device, or its network interface, is in another network namespace.
	ForeignNamespace Code = "foreign-namespace"
	// PortDown: no port of the device is active.
	PortDown Code = "port-down"
	// NoGID: the device has no address that can be reached from outside of its link.
	NoGID Code = "no-gid"
	// NoRoute: the system has no route to the address.
	NoRoute Code = "no-route"
	// NotRDMA: the way to the address is over an interface without RDMA.
	NotRDMA Code = "not-rdma"
	// NotResolved: the address does not resolve: nobody answers for it.
	NotResolved Code = "not-resolved"
	// NoLoopback: all looks right, and a connection to itself does not come about.
	NoLoopback Code = "no-loopback"
	// Memlock: the limit on locked memory is lower than what is going to be registered.
	Memlock Code = "memlock"
	// NotRegistered: memory cannot be registered for another reason.
	NotRegistered Code = "not-registered"
	// SmallMTU: messages are cut into very small packets.
	SmallMTU Code = "small-mtu"
)

// order is the codes from the most basic one on.
var order = [...]Code{
	NoModule, NetlinkRefused, NoDevice, NoVerbs, UnknownDriver, DriverABI, NoNode, WrongNode, NoPermission, DeviceCgroup,
	NotOpened, ForeignNamespace, PortDown, NoGID, NoRoute, NotRDMA, NotResolved, NoLoopback, Memlock, NotRegistered, SmallMTU,
}

func (c Code) rank() int { return slices.Index(order[:], c) }

// Finding is one thing that is wrong.
type Finding struct {
	Severity Severity `json:"severity"`
	Code     Code     `json:"code"`
	Object   string   `json:"object"` // what it is about: "device rxe0", "rdma_cm", "module rdma_ucm"
	What     string   `json:"what"`   // what is wrong
	Why      string   `json:"why"`    // why it matters
	Fixes    []Fix    `json:"fixes"`  // ways to mend it, the best first; each one is enough
}

// Fix is a way to mend a finding.
type Fix struct {
	Where   string `json:"where"`   // where and as whom to do it: "on the host, as root"
	Command string `json:"command"` // a command of the shell, or a line of a manifest; words in capitals are to be replaced
}

// Check is something that was looked at.
type Check struct {
	Name   string `json:"name"`   // "kernel", "device", "port", "gid", ...
	Object string `json:"object"` // "rxe0", "rxe0 port 1", "" for the system
	OK     bool   `json:"ok"`
	Detail string `json:"detail"` // what was found
}

// Report is the outcome of an examination.
type Report struct {
	Findings []Finding `json:"findings"` // what is wrong, the cause before what follows from it
	Checks   []Check   `json:"checks"`   // all that was looked at, in the order in which it was
}

// Healthy tells whether there is nothing to mend: no finding, or notes only.
func (r *Report) Healthy() bool {
	return !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity != Note })
}

// sort puts errors before warnings before notes, and among them the basic before the others.
func (r *Report) sort() {
	severity := map[Severity]int{Error: 0, Warning: 1, Note: 2}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		if a.Severity != b.Severity {
			return severity[a.Severity] - severity[b.Severity]
		}
		return a.Code.rank() - b.Code.rank()
	})
}
