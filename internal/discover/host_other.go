//go:build !linux

package discover

import "github.com/pureverbs/rdma/internal/uapi"

// Host returns the system that the program runs on: all its methods that need
// the kernel return uapi.ErrNotLinux.
func Host() *System {
	return &System{
		Opener:  uapi.Host(),
		Netlink: func() (Transport, error) { return nil, uapi.ErrNotLinux },
		Network: hostNetwork{},
	}
}
