package rdmacm

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pureverbs/rdma/abi"
)

func TestEventCopiesParameters(t *testing.T) {
	r := &abi.RdmaUcmEventResp{Event: uint32(EventConnectRequest)}
	*r.ParamConn() = abi.RdmaUcmConnParam{
		QpNum: 0x123456, PrivateDataLen: 3, Srq: 1, ResponderResources: 2, InitiatorDepth: 3, FlowControl: 1,
		RetryCount: 5, RnrRetryCount: 6,
	}
	copy(r.ParamConn().PrivateData[:], "abc")
	id := &ID{ps: PortSpaceTCP}
	ev := newEvent(r, id, nil)
	r.ParamConn().PrivateData[0] = 'x'
	want := &Event{
		Type: EventConnectRequest, PrivateData: []byte("abc"),
		Conn: ConnInfo{ResponderResources: 2, InitiatorDepth: 3, FlowControl: true, RetryCount: 5, RNRRetryCount: 6, SRQ: true, QPNum: 0x123456},
	}
	if ev.ID != id {
		t.Errorf("got id %p, want %p", ev.ID, id)
	}
	ev.ID = nil
	if diff := cmp.Diff(want, ev); diff != "" {
		t.Errorf("event (-want +got):\n%s", diff)
	}
	r.Event = uint32(EventAddrResolved)
	if ev := newEvent(r, &ID{ps: PortSpaceTCP}, nil); ev.PrivateData != nil || ev.Conn != (ConnInfo{}) {
		t.Errorf("an event without parameters has %v and %v", ev.PrivateData, ev.Conn)
	}
}

func TestEventNames(t *testing.T) {
	for typ, want := range map[EventType]string{
		EventAddrResolved: "address resolved", EventTimewaitExit: "timewait exit", EventConnectRequest: "connect request",
		EventServiceResolved: "service resolved", EventInternal: "internal", 20: "event 20", 1 << 31: "event 2147483648",
	} {
		if got := typ.String(); got != want {
			t.Errorf("event %d: got %q, want %q", uint32(typ), got, want)
		}
	}
}

// What becomes of each event in each state: what is reported, and the state after it.
func TestEventsInStates(t *testing.T) {
	const nothing = EventType(0xffff)
	states := []state{stateIdle, stateRequested, stateConnecting, stateEstablished, stateEnded}
	for _, tt := range []struct {
		typ    EventType
		status int32
		want   [5]outcome
	}{
		{EventAddrResolved, 0, same(EventAddrResolved, false, states)},
		{EventAddrError, -19, same(EventAddrError, true, states)},
		{EventRouteResolved, 0, same(EventRouteResolved, false, states)},
		{EventRouteError, -110, same(EventRouteError, true, states)},
		{EventConnectResponse, 0, [5]outcome{
			{nothing, false, stateIdle}, {nothing, false, stateRequested}, {EventConnectResponse, false, stateConnecting},
			{nothing, false, stateEstablished}, {nothing, false, stateEnded}}},
		{EventEstablished, 0, [5]outcome{
			{nothing, false, stateIdle}, {nothing, false, stateRequested}, {EventEstablished, false, stateEstablished},
			{nothing, false, stateEstablished}, {nothing, false, stateEnded}}},
		{EventConnectError, -22, [5]outcome{
			{EventConnectError, true, stateEnded}, {EventConnectError, true, stateEnded}, {EventConnectError, true, stateEnded},
			{EventDisconnected, true, stateEnded}, {nothing, false, stateEnded}}},
		{EventUnreachable, -110, [5]outcome{
			{EventUnreachable, true, stateEnded}, {EventUnreachable, true, stateEnded}, {EventUnreachable, true, stateEnded},
			{EventDisconnected, true, stateEnded}, {nothing, false, stateEnded}}},
		{EventRejected, 28, [5]outcome{
			{EventRejected, true, stateEnded}, {EventRejected, true, stateEnded}, {EventRejected, true, stateEnded},
			{EventDisconnected, true, stateEnded}, {nothing, false, stateEnded}}},
		{EventDisconnected, 0, [5]outcome{
			{EventDisconnected, false, stateEnded}, {EventDisconnected, false, stateEnded}, {EventDisconnected, false, stateEnded},
			{EventDisconnected, false, stateEnded}, {nothing, false, stateEnded}}},
		{EventDeviceRemoval, 0, [5]outcome{
			{EventDeviceRemoval, true, stateEnded}, {EventDeviceRemoval, true, stateEnded}, {EventDeviceRemoval, true, stateEnded},
			{EventDeviceRemoval, true, stateEnded}, {EventDeviceRemoval, true, stateEnded}}},
		{EventTimewaitExit, 0, same(EventTimewaitExit, false, states)},
		{EventServiceResolved, 0, same(EventServiceResolved, false, states)},
		{EventServiceError, -2, same(EventServiceError, true, states)},
		{EventUser, 0, same(EventUser, false, states)},
		{EventInternal, -1, same(EventInternal, false, states)},
		{EventAddrChange, 0, same(EventAddrChange, false, states)},
	} {
		for i, from := range states {
			t.Run(fmt.Sprintf("%v in state %d", tt.typ, from), func(t *testing.T) {
				s := newScript(t)
				ch := s.channel(nil)
				id := mustID(t, ch)
				id.state = from
				ev := &Event{Type: tt.typ, ID: id, Status: tt.status}
				got := outcome{report: nothing}
				if id.handle(ev, nil) {
					got.report, got.bad = ev.Type, ev.Err != nil
				}
				got.after = id.state
				if got != tt.want[i] {
					t.Errorf("got %+v, want %+v", got, tt.want[i])
				}
			})
		}
	}
}

// The same for datagrams, where it differs: the request has one answer, and then there is
// nothing but bad news.
func TestDatagramEventsInStates(t *testing.T) {
	const nothing = EventType(0xffff)
	states := []state{stateIdle, stateRequested, stateConnecting, stateEstablished, stateEnded}
	for _, tt := range []struct {
		typ    EventType
		status int32
		want   [5]outcome
	}{
		{EventEstablished, 0, [5]outcome{
			{nothing, false, stateIdle}, {nothing, false, stateRequested}, {EventEstablished, false, stateEstablished},
			{nothing, false, stateEstablished}, {nothing, false, stateEnded}}},
		{EventUnreachable, 2, [5]outcome{
			{EventUnreachable, true, stateEnded}, {EventUnreachable, true, stateEnded}, {EventUnreachable, true, stateEnded},
			{EventDisconnected, true, stateEnded}, {nothing, false, stateEnded}}},
		{EventAddrError, -22, [5]outcome{
			{EventAddrError, true, stateIdle}, {EventAddrError, true, stateRequested}, {EventAddrError, true, stateEnded},
			{EventDisconnected, true, stateEnded}, {nothing, false, stateEnded}}},
		{EventDeviceRemoval, 0, [5]outcome{
			{EventDeviceRemoval, true, stateEnded}, {EventDeviceRemoval, true, stateEnded}, {EventDeviceRemoval, true, stateEnded},
			{EventDeviceRemoval, true, stateEnded}, {EventDeviceRemoval, true, stateEnded}}},
	} {
		for i, from := range states {
			s := newScript(t)
			id := mustUD(t, s, s.channel(nil))
			id.state = from
			ev := &Event{Type: tt.typ, ID: id, Status: tt.status}
			got := outcome{report: nothing}
			if id.handle(ev, nil) {
				got.report, got.bad = ev.Type, ev.Err != nil
			}
			got.after = id.state
			if got != tt.want[i] {
				t.Errorf("%v in state %d: got %+v, want %+v", tt.typ, from, got, tt.want[i])
			}
		}
	}
}

// outcome is what becomes of an event.
type outcome struct {
	report EventType
	bad    bool // the report carries an error
	after  state
}

// same is the outcome of an event that changes no state.
func same(typ EventType, bad bool, states []state) (all [5]outcome) {
	for i, s := range states {
		all[i] = outcome{typ, bad, s}
	}
	return all
}

func TestRW46UnreachableAfterEstablished(t *testing.T) {
	s := newScript(t)
	ch := s.channel(nil)
	id, other := mustID(t, ch), mustID(t, ch)
	id.state = stateConnecting
	other.state = stateConnecting
	s.put(id.kid, EventEstablished, 0)
	s.put(other.kid, EventEstablished, 0)
	s.put(id.kid, EventUnreachable, -110)
	s.put(id.kid, EventUnreachable, -110)
	s.put(id.kid, EventDisconnected, 0)
	s.put(id.kid, EventTimewaitExit, 0)
	var got []string
	for range 4 {
		ev := next(t, ch)
		got = append(got, fmt.Sprintf("%d %v", ev.ID.kid, ev.Type))
		if ev.Type == EventDisconnected {
			if !errors.Is(ev.Err, syscall.ETIMEDOUT) || !strings.Contains(ev.Err.Error(), "path to the peer broke") || ev.Status != -110 {
				t.Errorf("got error %v and status %d, want that the path broke, ETIMEDOUT and -110", ev.Err, ev.Status)
			}
		}
	}
	want := []string{"0 established", "1 established", "0 disconnected", "0 timewait exit"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	quiet(t, ch)
	if other.state != stateEstablished {
		t.Error("the other connection is affected")
	}
}

func TestEventErrors(t *testing.T) {
	s := newScript(t)
	ch := s.channel(scriptTree("  eth0: 1 2\n"))
	dst := netip.MustParseAddrPort("10.9.9.9:7174")
	for _, tt := range []struct {
		typ    EventType
		status int32
		is     error
		words  string
	}{
		{EventAddrError, -19, syscall.ENODEV, "resolve address 10.9.9.9:7174: no such device (the address does not belong to an RDMA interface, or that interface is down; there is rxe0 on eth0)"},
		{EventAddrError, -110, syscall.ETIMEDOUT, "nobody answered ARP"},
		{EventRouteError, -22, syscall.EINVAL, "resolve route 10.9.9.9:7174: invalid argument"},
		{EventUnreachable, -110, syscall.ETIMEDOUT, "connect 10.9.9.9:7174: the peer does not answer: connection timed out"},
		{EventRejected, 8, syscall.ECONNREFUSED, "connect 10.9.9.9:7174: connection rejected: nobody listens on that port (reason 8)"},
		{EventRejected, 10, syscall.ECONNREFUSED, "stale connection"},
		{EventRejected, 28, syscall.ECONNREFUSED, "the peer's program said no (reason 28)"},
		{EventRejected, 34, syscall.ECONNREFUSED, "connection rejected: reason 34"},
		{EventRejected, 1000, syscall.ECONNREFUSED, "connection rejected: reason 1000"},
		{EventRejected, -111, syscall.ECONNREFUSED, "connection rejected: connection refused"},
		{EventConnectError, -71, syscall.EPROTO, "connect 10.9.9.9:7174: protocol error"},
		{EventConnectError, 3, nil, "connect 10.9.9.9:7174: status 3"},
		{EventDeviceRemoval, 0, ErrDeviceRemoved, "connection 10.9.9.9:7174: RDMA device was removed"},
	} {
		id := mustID(t, ch)
		id.dst = dst
		s.put(id.kid, tt.typ, tt.status)
		ev := next(t, ch)
		if ev.Err == nil || !strings.Contains(ev.Err.Error(), tt.words) {
			t.Errorf("%v %d: got error %v, want it to say %q", tt.typ, tt.status, ev.Err, tt.words)
		}
		if tt.is != nil && !errors.Is(ev.Err, tt.is) {
			t.Errorf("%v %d: got error %v, want one that is %v", tt.typ, tt.status, ev.Err, tt.is)
		}
		var e *Error
		if errors.As(ev.Err, &e) && e.Timeout() != (tt.status == -110) {
			t.Errorf("%v %d: Timeout() is %v", tt.typ, tt.status, e.Timeout())
		}
	}
}

func TestRejectedPrivateData(t *testing.T) {
	s := newScript(t)
	ch := s.channel(nil)
	id := mustID(t, ch)
	s.put(id.kid, EventRejected, 28, 'n', 'o', 0, 0)
	var r *RejectedError
	if ev := next(t, ch); !errors.As(ev.Err, &r) || r.Reason != RejectConsumer || string(r.PrivateData) != "no\x00\x00" {
		t.Errorf("got %v with %+v, want reason 28 and the private data", ev.Err, r)
	}
}
