package rdmacm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"syscall"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
	"github.com/pureverbs/rdma/uverbs"
)

// EventType says what happened: enum rdma_cm_event_type.
type EventType uint32

// The events. The names are those of rdma_get_cm_event(3).
const (
	EventAddrResolved    EventType = 0  // the address leads to a device: go on with ResolveRoute
	EventAddrError       EventType = 1  // it does not
	EventRouteResolved   EventType = 2  // create the queue pair, then Connect
	EventRouteError      EventType = 3  // no path to the address
	EventConnectRequest  EventType = 4  // on a listener: Event.ID is new, answer with Accept or Reject
	EventConnectResponse EventType = 5  // only for ids without a queue pair: the peer accepted, answer with Establish
	EventConnectError    EventType = 6  // connecting failed here
	EventUnreachable     EventType = 7  // the peer does not answer the request for a connection
	EventRejected        EventType = 8  // the peer said no, Event.Err has a *RejectedError
	EventEstablished     EventType = 9  // connected
	EventDisconnected    EventType = 10 // the connection ended; Event.Err is nil if it did so in order
	EventDeviceRemoval   EventType = 11 // the device goes away: close the id and all on that device
	EventMulticastJoin   EventType = 12 // the group is joined; Event.UD says how to send to it
	EventMulticastError  EventType = 13 // it is not, or not any more
	EventAddrChange      EventType = 14 // the address moved to another interface (bonding): reconnect
	EventTimewaitExit    EventType = 15 // no packet of the old connection can arrive any more
	EventServiceResolved EventType = 16 // ResolveService found it: go on with ResolveRoute
	EventServiceError    EventType = 17 // it did not
	EventUser            EventType = 18 // of WriteEvent, for the program
	EventInternal        EventType = 19 // of WriteEvent, for libraries on top
)

var eventNames = [...]string{
	"address resolved", "address error", "route resolved", "route error", "connect request", "connect response",
	"connect error", "unreachable", "rejected", "established", "disconnected", "device removal", "multicast join",
	"multicast error", "address change", "timewait exit", "service resolved", "service error", "user", "internal",
}

func (t EventType) String() string {
	if int(t) < len(eventNames) {
		return eventNames[t]
	}
	return fmt.Sprintf("event %d", uint32(t))
}

// Event is one event of a connection. It is a copy and has been acknowledged: nothing has to
// be given back, and closing the id it names never waits for it.
type Event struct {
	Type EventType
	// ID is the id that it happened to. For EventConnectRequest it is a new id, which
	// the receiver of the event has to close in the end.
	ID *ID
	// Listener is the id that the request came in on; nil for other events.
	Listener *ID
	// Status is as the kernel gave it: 0, a negative errno, or a positive reject reason.
	Status int32
	// Err is nil for good news. Else it is an *Error that says what failed.
	Err error
	// PrivateData is what the peer's program sent along. On InfiniBand and RoCE it is
	// padded with zeros to the transport's maximum (see the package's documentation), so
	// its length says nothing; nil where the message carries none.
	PrivateData []byte
	// Conn is what the peer offers, or what was agreed, seen from this side.
	Conn ConnInfo
	// UD is the way to send datagrams to the peer (EventEstablished on datagram port spaces)
	// or to the group (EventMulticastJoin).
	UD UDInfo
	// Context is what [ID.JoinMulticast] was given, for the events of that group.
	Context any
	// ECE are the enhanced connection options that the peer asks for or agreed to.
	ECE ECE
	// Arg is what [ID.WriteEvent] was given.
	Arg uint64
}

// UDInfo says where datagrams go: [uverbs.PD.CreateAH] takes AH, and [uverbs.AH.Dest] of that
// the other two.
type UDInfo struct {
	AH    uverbs.AHAttr
	QPNum uint32 // of the peer
	QKey  uint32 // that it wants to see
}

// ConnInfo are the parameters that come with an event of a connection.
type ConnInfo struct {
	ResponderResources uint8 // RDMA READs and atomics that the peer may have in flight to us
	InitiatorDepth     uint8 // and we to the peer
	FlowControl        bool
	RetryCount         uint8 // only with EventConnectRequest
	RNRRetryCount      uint8
	SRQ                bool // the peer receives from a shared receive queue
	QPNum              uint32
}

// newEvent copies the kernel's record about an id, or about its membership in a group. Which
// arm of the parameters counts depends on the port space.
func newEvent(r *abi.RdmaUcmEventResp, id *ID, m *membership) *Event {
	ev := &Event{
		Type: EventType(r.Event), ID: id, Status: int32(r.Status),
		ECE: ECE{VendorID: r.Ece.VendorId, Options: r.Ece.AttrMod},
	}
	datagrams := id.ps.datagrams()
	switch ev.Type {
	case EventMulticastJoin:
		ev.copyUD(r.ParamUd())
		ev.PrivateData, ev.Context = nil, m.context
	case EventMulticastError:
		ev.Context = m.context
	case EventUser, EventInternal:
		arg := *r.ParamArg32() // a number in the machine's order, at an address that is not aligned for it
		ev.Arg = binary.NativeEndian.Uint64(uapi.Bytes(&arg))
	case EventConnectRequest, EventEstablished, EventUnreachable, EventConnectResponse, EventRejected, EventDisconnected:
		switch {
		case datagrams:
			ev.copyUD(r.ParamUd())
		case ev.Type != EventUnreachable:
			ev.copyConn(r.ParamConn())
		}
	}
	return ev
}

func (ev *Event) copyConn(p *abi.RdmaUcmConnParam) {
	ev.Conn = ConnInfo{
		ResponderResources: p.ResponderResources, InitiatorDepth: p.InitiatorDepth, FlowControl: p.FlowControl != 0,
		RetryCount: p.RetryCount, RNRRetryCount: p.RnrRetryCount, SRQ: p.Srq != 0, QPNum: p.QpNum,
	}
	ev.copyPrivate(p.PrivateData[:p.PrivateDataLen])
}

// copyUD: where to send to is there with good news only.
func (ev *Event) copyUD(p *abi.RdmaUcmUdParam) {
	ev.copyPrivate(p.PrivateData[:p.PrivateDataLen])
	if ev.Type != EventEstablished && ev.Type != EventMulticastJoin {
		return
	}
	attr, _ := uverbs.QPAttrFromKernel(&abi.IbUverbsQpAttr{AhAttr: p.AhAttr})
	ev.UD = UDInfo{AH: attr.AH, QPNum: p.QpNum, QKey: p.Qkey}
}

func (ev *Event) copyPrivate(b []byte) {
	if len(b) > 0 {
		ev.PrivateData = bytes.Clone(b)
	}
}

// fail says in Err what the event reports about its id.
func (ev *Event) fail(op string, cause error) {
	ch := ev.ID.ch
	if ch.hintLater {
		ev.Err = wrap(op, ev.ID.peer(), cause)
		return
	}
	ev.Err = ch.explain(op, ev.ID.peer(), cause)
}

// errno is the negative errno that Status holds.
func (ev *Event) errno() error {
	if ev.Status >= 0 {
		return fmt.Errorf("status %d", ev.Status)
	}
	return syscall.Errno(-ev.Status)
}
