// Package discover finds the RDMA devices of the kernel, the device nodes that
// lead to them and, for each that cannot be used, the reason in words.
//
// It asks RDMA netlink (NETLINK_RDMA, client NLDEV) and, where netlink is missing
// or refused, reads sysfs. A device is told from another by its index; its name
// is a label that may change at any time. The node of a device is what the
// kernel calls it, never derived from name or index, and is checked to be the
// character device that the kernel means.
//
// Nothing here opens a device node: an open node of an unused device would keep
// the administrator from deleting that device. Nothing here needs a privilege
// but [System.AddLink] and [System.DelLink].
//
// What the kernel shows depends on the network namespace of the calling thread.
// A goroutine that changed its namespace has to stay locked to its thread.
//
// Debugging: the environment variable NLDEBUG=level=1 makes the netlink library
// print every message.
package discover
