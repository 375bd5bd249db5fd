package discover

import (
	"github.com/mdlayher/netlink"

	"github.com/pureverbs/rdma/internal/uapi"
)

// netlinkRDMA is NETLINK_RDMA of linux/netlink.h.
const netlinkRDMA = 20

// Host returns the system that the program runs on.
func Host() *System {
	return &System{Opener: uapi.Host(), Netlink: dial, Network: hostNetwork{}}
}

// dial opens a socket in the network namespace of the calling thread. The kernel
// loads ib_core for it if it can.
func dial() (Transport, error) {
	c, err := netlink.Dial(netlinkRDMA, nil)
	if err != nil {
		return nil, err
	}
	return c, nil
}
