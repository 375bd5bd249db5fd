//go:build linux

package fakekernel

import "github.com/pureverbs/rdma/abi"

// Types of asynchronous events: enum ib_event_type.
const (
	asyncCQError     = 0
	asyncAccess      = 3 // QP_ACCESS_ERR
	asyncCommEst     = 4
	asyncSQDrained   = 5
	asyncPathMig     = 6
	asyncDeviceFatal = 8
	asyncSRQLimit    = 15
	asyncLastWQE     = 16 // QP_LAST_WQE_REACHED
)

// RaiseQP raises an asynchronous event of a queue pair, named by device and number, and
// reports whether there is such a queue pair. typ is a number of enum ib_event_type: 1 for
// QP_FATAL, 4 for COMM_EST ...
func (k *Kernel) RaiseQP(device string, num, typ uint32) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, d := range k.devices {
		if q := d.qps[num]; d.Name == device && q != nil {
			q.raise(typ)
			return true
		}
	}
	return false
}

// RaisePort raises an asynchronous event of a device's port in every open context of it:
// 9 for PORT_ACTIVE, 10 for PORT_ERR, 18 for GID_CHANGE ...
func (k *Kernel) RaisePort(device string, typ uint32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for f := range k.files {
		if v, ok := f.(*verbsFile); ok && v.dev.Name == device && v.async != nil {
			v.async.push(event{async: abi.IbUverbsAsyncEventDesc{Element: 1, EventType: typ}})
		}
	}
}
