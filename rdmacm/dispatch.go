package rdmacm

import (
	"fmt"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/uverbs"
)

// state is how far the connection of an id is, as far as the meaning of events depends on
// it. The kernel checks everything else.
type state uint8

const (
	stateIdle        state = iota // resolving, bound, or listening
	stateRequested                // came with a connection request, not answered
	stateConnecting               // Connect or Accept done, not confirmed
	stateEstablished              // EventEstablished was reported
	stateEnded                    // the end was reported: no second report
)

// dispatch finds the id of the kernel's record and lets it do its part. It returns what is
// to be reported, or nil.
func (c *EventChannel) dispatch(r *abi.RdmaUcmEventResp) *Event {
	id, group := c.ids.lookup(r.Uid)
	typ := EventType(r.Event)
	switch {
	case (typ == EventMulticastJoin || typ == EventMulticastError) != (group != nil):
		return nil // the uid is of another kind, or not there any more
	case typ == EventConnectRequest:
		return c.request(id, r)
	case id == nil:
		return nil // closed meanwhile
	}
	ev := newEvent(r, id, group)
	if !id.handle(ev, group) {
		return nil
	}
	return ev
}

// request takes over the id that the kernel made for a connection request. uid names the
// listener. If that is closed meanwhile nobody else will close the new one.
func (c *EventChannel) request(listener *ID, r *abi.RdmaUcmEventResp) *Event {
	if listener == nil || listener.isClosed() {
		c.destroy(r.Id)
		return nil
	}
	id := &ID{ch: c, kid: r.Id, ps: listener.ps, state: stateRequested}
	ev := newEvent(r, id, nil)
	ev.Listener = listener
	id.offer, id.peerECE = ev.Conn, ev.ECE
	id.uid = c.ids.put(id)
	id.refresh()
	return ev
}

// handle does the library's part of an event and tells whether to report it.
func (id *ID) handle(ev *Event, group *membership) bool {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.closed {
		return false
	}
	switch ev.Type {
	case EventAddrResolved, EventRouteResolved, EventServiceResolved:
		id.refresh()
	case EventAddrError:
		if id.ps.datagrams() && id.state >= stateConnecting { // the peer's Q_Key is not the one that we use
			return id.handleFailure(ev)
		}
		ev.fail(opResolve, ev.errno())
	case EventRouteError:
		ev.fail(opRoute, ev.errno())
	case EventServiceError:
		ev.fail(opService, ev.errno())
	case EventConnectResponse:
		return id.handleResponse(ev)
	case EventEstablished:
		return id.handleEstablished(ev)
	case EventConnectError, EventUnreachable, EventRejected:
		return id.handleFailure(ev)
	case EventDisconnected:
		return id.handleDisconnected(ev)
	case EventMulticastJoin, EventMulticastError:
		return id.handleGroup(ev, group)
	case EventDeviceRemoval:
		id.state = stateEnded
		ev.fail(opConn, ErrDeviceRemoved)
	}
	return true
}

// handleResponse completes the active side's handshake: the kernel does not know the queue
// pair, so it is us who bring it to RTS before we confirm. An id without a queue pair leaves
// that to the program.
func (id *ID) handleResponse(ev *Event) bool {
	if id.state != stateConnecting {
		return false
	}
	id.peerECE = ev.ECE
	if id.qp == nil {
		return true
	}
	err := id.ready(nil)
	if err == nil {
		err = id.establish()
	}
	if handshakeOver(err) {
		err = fmt.Errorf("%w during the handshake: %w", ErrDisconnected, err)
	}
	if err != nil {
		id.qpError()
		id.reject(nil, 0)
		id.state = stateEnded
		ev.Type = EventConnectError
		ev.fail(opConnect, err)
		return true
	}
	id.state = stateEstablished
	id.refresh()
	ev.Type = EventEstablished
	return true
}

// handleEstablished: on the active side handleResponse has reported it already.
// A datagram queue pair is ready since it was made.
func (id *ID) handleEstablished(ev *Event) bool {
	if id.state != stateConnecting {
		return false
	}
	if ev.ECE != (ECE{}) {
		id.peerECE = ev.ECE
	}
	if id.qp != nil && !id.iwarp() && id.qp.State() < uverbs.StateRTS {
		return false // there is nothing to send with: who dials has to see the response first
	}
	id.state = stateEstablished
	id.refresh()
	if id.qp != nil && id.iwarp() {
		// The kernel has brought the queue pair to RTS by itself; now it may send.
		id.qp.Modify(&uverbs.QPAttr{State: uverbs.StateRTS}, uverbs.QPAttrState)
	}
	return true
}

// handleDisconnected: on iWARP the kernel has torn the connection down, and the queue pair is
// moved on so that all that is still posted completes. With a status nobody answered our
// disconnect, so the peer may be gone without having heard of it.
func (id *ID) handleDisconnected(ev *Event) bool {
	if id.qp != nil && id.iwarp() {
		id.qp.Modify(&uverbs.QPAttr{State: uverbs.StateError}, uverbs.QPAttrState)
	}
	if ev.Status < 0 {
		ev.fail(opDisc, fmt.Errorf("%w: %w", errNoResponse, ev.errno()))
	}
	return id.end()
}

// handleFailure tells a handshake that failed from a connection that broke. Since 6.0 the
// kernel says "unreachable" on any id, also a connected one, when the link-layer address of
// its peer changes: the queue pair goes on sending to the old one.
func (id *ID) handleFailure(ev *Event) bool {
	established := id.state == stateEstablished
	if !id.end() {
		return false
	}
	switch {
	case established:
		ev.Type = EventDisconnected
		ev.fail(opConn, fmt.Errorf("%w: %w", errPathBroke, ev.errno()))
		return true
	case ev.Type == EventRejected, ev.Type == EventUnreachable && id.ps.datagrams() && ev.Status > 0:
		ev.fail(opConnect, &RejectedError{Reason: ev.Status, PrivateData: ev.PrivateData, Datagram: id.ps.datagrams()})
	case ev.Type == EventUnreachable:
		ev.fail(opConnect, fmt.Errorf("%w: %w", errNoResponse, ev.errno()))
	default:
		ev.fail(opConnect, ev.errno())
	}
	id.qpError()
	return true
}

// end makes sure that the end of a connection is reported once, whatever the kernel says
// how often.
func (id *ID) end() bool {
	first := id.state != stateEnded
	id.state = stateEnded
	return first
}
