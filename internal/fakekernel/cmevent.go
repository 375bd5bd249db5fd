//go:build linux

package fakekernel

import (
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
	EventMulticastJoin   = 12
	EventMulticastError  = 13
	EventAddrChange      = 14
	EventTimeWaitExit    = 15
	EventAddrInfo        = 16
	EventAddrInfoError   = 17
	EventUser            = 18
	EventInternal        = 19
)

// Lengths of private data: what the user may give, and what the peer always sees.
const (
	connectData = 56
	acceptData  = 196
	rejectData  = 148
	sidrData    = 180
	sidrReply   = 136
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
	owner *cmID    // on which it counts
	child *cmID    // the id of a connection request
	group *cmGroup // on which it counts as well
	resp  abi.RdmaUcmEventResp
}

// push queues an event of an id; the lock is held. Ids without a uid have none. In that of
// an id for datagrams the private data is elsewhere, and there is nothing else.
func (c *cmID) push(typ uint32, status int32, param abi.RdmaUcmConnParam) {
	if c.datagrams() {
		c.pushUD(typ, status, abi.RdmaUcmUdParam{PrivateData: param.PrivateData, PrivateDataLen: param.PrivateDataLen})
		return
	}
	e := c.event(typ, status)
	copy(bytesOf(&e.resp.Param), bytesOf(&param))
	c.post(e)
}

func (c *cmID) pushUD(typ uint32, status int32, param abi.RdmaUcmUdParam) {
	e := c.event(typ, status)
	copy(bytesOf(&e.resp.Param), bytesOf(&param))
	c.post(e)
}

func (c *cmID) event(typ uint32, status int32) cmEvent {
	return cmEvent{owner: c, resp: abi.RdmaUcmEventResp{Uid: c.uid, Id: c.id, Event: typ, Status: uint32(status)}}
}

// post queues an event. A request is announced also to a listener without a uid.
func (c *cmID) post(e cmEvent) {
	if c.dead || c.uid == 0 && e.child == nil {
		return
	}
	c.file.queue = append(c.file.queue, e)
	c.file.changed()
}

// announce brings the id of a request to its listener.
func (l *cmID) announce(child *cmID, param []byte, ece abi.RdmaUcmEce) {
	l.slots--
	e := l.event(EventConnectRequest, 0)
	e.child, e.resp.Id, e.resp.Ece = child, child.id, ece
	copy(bytesOf(&e.resp.Param), param)
	l.post(e)
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
		f.changed()
		return err
	}
	e.owner.reported++
	if e.group != nil {
		e.group.reported++
	}
	if e.child != nil {
		e.owner.slots++
	}
	f.queue[0] = cmEvent{}
	f.queue = f.queue[1:] // it may be long: nothing is moved
	f.changed()           // for another waiter
	return nil
}

// private makes private data as a receiver sees it: padded with zeros to n bytes.
func private(param abi.RdmaUcmConnParam, data []byte, n int) abi.RdmaUcmConnParam {
	param.PrivateData = [256]uint8{}
	copy(param.PrivateData[:n], data)
	param.PrivateDataLen = uint8(n)
	return param
}
