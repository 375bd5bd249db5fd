package rdmacm

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
	"github.com/pureverbs/rdma/uverbs"
)

// Connect asks the peer for a connection. The route has to be resolved and the queue pair to
// be there. The answer comes as EventEstablished, EventRejected, EventUnreachable or
// EventConnectError. A peer that does not answer at all is given up by the kernel after
// about a minute, which cannot be changed: for an earlier end close the id. On iWARP the call
// itself waits for the peer's host, for as long as TCP does, and so does Close meanwhile.
//
// On datagram port spaces the peer is only looked up: EventEstablished has in UD how to send
// to it, and nothing is established; the end of the peer is not reported.
//
// Source: rdma_connect(3).
func (id *ID) Connect(p ConnParam) error {
	return id.do(opConnect, id.RemoteAddr(), func() error {
		if err := id.checkPrivate(opConnect, p.PrivateData); err != nil {
			return err
		}
		if id.state != stateIdle {
			return invalidError("the id is connected or was")
		}
		d, err := id.params(&p)
		if err != nil {
			return err
		}
		id.rnr = p.MinRNRTimer
		in := abi.RdmaUcmConnect{Id: id.kid, ConnParam: p.kernel(d), Ece: id.ece.kernel()}
		// siw makes the TCP connection within the call. The kernel repeats one that a signal has
		// interrupted, and fails: the port is not free yet.
		err = uapi.Uninterrupted(func() error { return id.ch.call(abi.RDMA_USER_CM_CMD_CONNECT, uapi.Bytes(&in)) })
		if err != nil {
			return err
		}
		id.state = stateConnecting
		return nil
	})
}

// Accept answers a connection request. With a queue pair of [ID.CreateQP] it brings that to
// RTS first, so that it is ready when the client is; receives that the client's first
// message needs should be posted before. The client's confirmation comes as
// EventEstablished; do not send before.
//
// On datagram port spaces the answer is the number of the queue pair, which may be one for all
// clients (QPNum of p), and nothing comes back: the id may be closed right away.
//
// A client that gave up meanwhile is the error ErrRequestGone: close the id and go on.
// Source: rdma_accept(3).
func (id *ID) Accept(p ConnParam) error {
	return id.do(opAccept, id.RemoteAddr(), func() error {
		if err := id.checkPrivate(opAccept, p.PrivateData); err != nil {
			return err
		}
		if id.state != stateRequested {
			return invalidError("the id has no connection request to answer")
		}
		d, err := id.params(&p)
		if err != nil {
			return err
		}
		d.resources = min(d.resources, id.offer.ResponderResources)
		d.initiator = min(d.initiator, id.offer.InitiatorDepth)
		id.rnr = p.MinRNRTimer
		return id.accept(&p, d)
	})
}

func (id *ID) accept(p *ConnParam, d depths) error {
	if id.qp != nil && !id.ps.datagrams() {
		if err := id.ready(&d); err != nil {
			return gone(err)
		}
	}
	in := abi.RdmaUcmAccept{Uid: id.uid, Id: id.kid, ConnParam: p.kernel(d), Ece: id.ece.kernel()}
	// Before the call: from the moment the kernel has the uid events can come, and their
	// handling waits for our lock.
	id.state = stateConnecting
	if err := id.ch.call(abi.RDMA_USER_CM_CMD_ACCEPT, uapi.Bytes(&in)); err != nil {
		id.state = stateRequested
		if !id.ps.datagrams() {
			id.qpError() // the first error counts
		}
		return gone(err)
	}
	if id.ps.datagrams() {
		id.state = stateEstablished // the answer is not confirmed
	}
	return nil
}

// gone says ErrRequestGone where the kernel says that its end of the handshake is no more.
func gone(err error) error {
	if handshakeOver(err) {
		return fmt.Errorf("%w: %w", ErrRequestGone, err)
	}
	return err
}

// handshakeOver recognises the kernel's word for a handshake that the other side has ended:
// EINVAL, because the connection manager has left the state that the next step would need, or
// on iWARP ECONNRESET, because the TCP connection is closed. A uverbs error is not that: there
// EINVAL is about the queue pair.
func handshakeOver(err error) bool {
	var below *uverbs.Error
	over := errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ECONNRESET)
	return over && !errors.As(err, &below)
}

// Reject turns a connection request down; the client gets a [RejectedError] with private as
// its PrivateData. A request whose client has gone is rejected with success. The id has to
// be closed all the same. Source: rdma_reject(3).
func (id *ID) Reject(private []byte) error {
	return id.turnDown(private, 0)
}

// turnDown rejects for a reason; 0 stands for the program's.
func (id *ID) turnDown(private []byte, reason uint8) error {
	return id.do(opReject, id.RemoteAddr(), func() error {
		if err := id.checkPrivate(opReject, private); err != nil {
			return err
		}
		if id.state != stateRequested {
			return invalidError("the id has no connection request to answer")
		}
		id.state = stateEnded
		if err := id.reject(private, reason); err != nil && !handshakeOver(err) {
			return err
		}
		return nil
	})
}

func (id *ID) reject(private []byte, reason uint8) error {
	in := abi.RdmaUcmReject{Id: id.kid, PrivateDataLen: uint8(len(private)), Reason: reason}
	copy(in.PrivateData[:], private)
	return id.ch.call(abi.RDMA_USER_CM_CMD_REJECT, uapi.Bytes(&in))
}

// Establish confirms a connection on the active side, for an id without a queue pair of
// [ID.CreateQP], in answer to EventConnectResponse: when the program has brought its own
// queue pair to RTS. Source: rdma_establish(3).
func (id *ID) Establish() error {
	return id.do("establish", id.RemoteAddr(), func() error {
		if id.state == stateEnded { // and was reported so, once
			return invalidError("the connection has ended")
		}
		if err := id.establish(); err != nil {
			return err
		}
		id.state = stateEstablished
		id.refresh()
		return nil
	})
}

// establish is an ACCEPT that is not valid: it sends the confirmation.
func (id *ID) establish() error {
	in := abi.RdmaUcmAccept{Id: id.kid}
	return id.ch.call(abi.RDMA_USER_CM_CMD_ACCEPT, uapi.Bytes(&in))
}

// Disconnect ends the connection: the queue pair goes to ERR, where everything posted is
// flushed, and the peer gets EventDisconnected, which it has to answer by Disconnect or
// Close. EventDisconnected comes here as well, when it has or when it never did. To answer
// EventDisconnected call Disconnect, or just Close. Source: rdma_disconnect(3).
func (id *ID) Disconnect() error {
	return id.do(opDisc, id.RemoteAddr(), func() error {
		if err := id.qpError(); err != nil {
			return err
		}
		in := abi.RdmaUcmDisconnect{Id: id.kid}
		return id.ch.call(abi.RDMA_USER_CM_CMD_DISCONNECT, uapi.Bytes(&in))
	})
}

// Notify passes an event of the queue pair on to the connection manager, which has a use for
// [uverbs.EventCommEstablished] alone: see NotifyEstablished.
//
// Errors: ErrInvalid for any other event. [uverbs.EventPathMigrated] is one that the kernel
// would take: it then sends by the alternate path, which it does not check to be there, and
// since 5.14 counts one path twice. No id of rdma_cm can ask for such a path, and without one
// the kernel hangs. Source: rdma_notify(3).
func (id *ID) Notify(ev uverbs.AsyncEventType) error {
	return id.do("notify", noAddr, func() error {
		if ev != uverbs.EventCommEstablished {
			return invalidError(fmt.Sprintf("the connection manager has no use for event %q", ev))
		}
		in := abi.RdmaUcmNotify{Id: id.kid, Event: uint32(ev)}
		return id.ch.call(abi.RDMA_USER_CM_CMD_NOTIFY, uapi.Bytes(&in))
	})
}

// NotifyEstablished tells the connection manager that a message came in although the
// client's confirmation did not, which the device reports as
// [uverbs.EventCommEstablished]; EventEstablished follows. Without it the confirmation is
// repeated after some seconds. Accept leaves the queue pair in RTS, where most devices do
// not raise that event, so few programs need this. Source: rdma_notify(3).
func (id *ID) NotifyEstablished() error { return id.Notify(uverbs.EventCommEstablished) }
