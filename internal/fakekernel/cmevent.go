//go:build linux

package fakekernel

import (
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
)

// Events of the connection manager: enum rdma_cm_event_type.
const (
	EventAddrResolved    = 0
	EventAddrError       = 1
	EventRouteResolved   = 2
	EventRouteError      = 3
	EventConnectRequest  = 4
	EventConnectResponse = 5
	EventConnectError    = 6
	EventUnreachable     = 7
	EventRejected        = 8
	EventEstablished     = 9
	EventDisconnected    = 10
	EventDeviceRemoval   = 11
	EventAddrChange      = 14
	EventTimeWaitExit    = 15
)

// Lengths of private data: what the user may give, and what the peer always sees.
const (
	connectData = 56
	acceptData  = 196
	rejectData  = 148
)

// Reasons of a rejection: enum ib_cm_rej_reason.
const (
	rejectTimeout   = 4
	rejectNoService = 8
	rejectConsumer  = 28
	rejectVendor    = 35
)

// cmEvent waits to be fetched.
type cmEvent struct {
	owner *cmID // on which it counts
	child *cmID // the id of a connection request
	resp  abi.RdmaUcmEventResp
}

// push queues an event of an id; the lock is held. Ids without a uid have none.
func (c *cmID) push(typ uint32, status int32, param abi.RdmaUcmConnParam) {
	if c.dead || c.uid == 0 {
		return
	}
	e := cmEvent{owner: c, resp: abi.RdmaUcmEventResp{Uid: c.uid, Id: c.id, Event: typ, Status: uint32(status)}}
	copy(bytesOf(&e.resp.Param), bytesOf(&param))
	c.file.queue = append(c.file.queue, e)
	c.file.signal()
}

func (f *cmFile) signal() {
	if len(f.queue) == 0 {
		return
	}
	select {
	case f.ready <- struct{}{}:
	default:
	}
}

// getEvent hands the oldest event out. Callers from before the ECE fields have less room.
func (f *cmFile) getEvent(c cmCall) error {
	const oldSize = 324
	if c.out < oldSize {
		return unix.ENOSPC
	}
	in, err := body[abi.RdmaUcmGetEvent](c)
	if err != nil {
		return err
	}
	if len(f.queue) == 0 {
		return unix.EAGAIN
	}
	e := f.queue[0]
	raw := bytesOf(&e.resp)
	if err := copyOut(in.Response, raw[:min(len(raw), c.out)]); err != nil {
		f.signal()
		return err
	}
	e.owner.reported++
	if e.child != nil {
		e.owner.slots++
	}
	f.queue = slices.Delete(f.queue, 0, 1)
	f.signal() // for another waiter
	return nil
}

// private makes private data as a receiver sees it: padded with zeros to n bytes.
func private(param abi.RdmaUcmConnParam, data []byte, n int) abi.RdmaUcmConnParam {
	param.PrivateData = [256]uint8{}
	copy(param.PrivateData[:n], data)
	param.PrivateDataLen = uint8(n)
	return param
}

// CM is the connection manager, for tests that look at it or make trouble.
type CM struct{ k *Kernel }

// CM returns the kernel's connection manager.
func (k *Kernel) CM() CM { return CM{k} }

// CMID describes an id.
type CMID struct {
	ID       uint32
	UID      uint64
	Src, Dst netip.AddrPort
	Listens  bool
}

// IDs lists the ids of all files, in the order of their numbers.
func (m CM) IDs() []CMID {
	m.k.mu.Lock()
	defer m.k.mu.Unlock()
	var list []CMID
	for _, c := range m.k.cm.ids {
		list = append(list, CMID{c.id, c.uid, c.src, c.dst, c.state == cmListen})
	}
	slices.SortFunc(list, func(a, b CMID) int { return int(a.ID) - int(b.ID) })
	return list
}

// Inject queues an event for an id, with a status (a negative errno, or the reason of a
// rejection) and private data as they are given, whatever state the id is in. It reports
// whether there is such an id.
func (m CM) Inject(id, typ uint32, status int32, data []byte) bool {
	m.k.mu.Lock()
	defer m.k.mu.Unlock()
	c := m.k.cm.ids[id]
	if c == nil {
		return false
	}
	c.push(typ, status, private(abi.RdmaUcmConnParam{}, data, len(data)))
	return true
}

// InjectRaw queues any event record on the file of an id. It counts on that id.
func (m CM) InjectRaw(id uint32, resp abi.RdmaUcmEventResp) bool {
	m.k.mu.Lock()
	defer m.k.mu.Unlock()
	c := m.k.cm.ids[id]
	if c == nil {
		return false
	}
	c.file.queue = append(c.file.queue, cmEvent{owner: c, resp: resp})
	c.file.signal()
	return true
}
