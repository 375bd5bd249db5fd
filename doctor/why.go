package doctor

// why says why each of them matters.
func (c Code) why() string {
	return map[Code]string{
		NoModule: "RDMA is a part of the kernel that comes in modules, and a container cannot load any",
		NetlinkRefused: "RDMA netlink is how the kernel tells of its devices; without it only /sys is left, which has to be " +
			"mounted, tells less of network namespaces, and does not make the kernel load what is missing",
		NoDevice:         "without a device there is nothing to send with: it comes with an adapter's driver, or is made in software on any network interface",
		NoVerbs:          "programs reach a device through a node of ib_uverbs, and this driver has none",
		UnknownDriver:    "each kind of device has queues of its own layout, which a library has to know to use it",
		DriverABI:        "library and driver share memory; if they disagree on its layout, data would be lost or corrupted",
		NoNode:           "a program reaches the kernel's RDMA through this node only; a container has the nodes that it was given",
		WrongNode:        "what answers at this path is another device",
		NoPermission:     "a program needs to read and write the node; the kernel makes it for everybody, so something has changed that",
		DeviceCgroup:     "the node is there, but the container's list of allowed devices has not got it: a bind mount alone does not allow a device",
		NotOpened:        "a device that cannot be opened cannot be used",
		ForeignNamespace: "addresses lead to a device by its network interface: without one here, nothing can be listened on or connected to",
		PortDown:         "a port that is not active sends and receives nothing",
		NoGID:            "a GID is what a packet is addressed with, and comes from an IP address of the device's interface",
		NoRoute:          "a connection begins with the routing table, as with any other protocol",
		NotRDMA:          "a connection goes through the device of the interface that the routing table leads to, and this one has none",
		NotResolved:      "the kernel has to know the peer's link-layer address before it can connect",
		NoLoopback:       "what cannot reach itself reaches nobody; the device or its driver is stuck, or something filters its packets",
		Memlock: "registered memory is pinned, and the kernel refuses to pin more than the limit with ENOMEM, " +
			"unless the process has CAP_IPC_LOCK in the first user namespace",
		NotRegistered: "data can be sent from and received into registered memory only",
		SmallMTU:      "the smaller the packets, the more of the time goes into their headers",
	}[c]
}
