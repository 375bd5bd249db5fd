package rdmacm

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
	"github.com/pureverbs/rdma/uverbs"
)

// PortSpace is the name space of the ports of an id.
type PortSpace uint16

// The port spaces. Their ports are not those of TCP or UDP, but for PortSpaceTCP on iWARP,
// which has no other.
const (
	PortSpaceTCP   PortSpace = abi.RDMA_PS_TCP   // reliable connections
	PortSpaceUDP   PortSpace = abi.RDMA_PS_UDP   // datagrams: Connect only looks the peer up
	PortSpaceIPoIB PortSpace = abi.RDMA_PS_IPOIB // datagrams to the multicast groups of IP over InfiniBand
	PortSpaceIB    PortSpace = abi.RDMA_PS_IB    // reliable connections by service id, with addresses of InfiniBand: BindIB, ResolveIB
)

func (ps PortSpace) String() string {
	switch ps {
	case PortSpaceTCP:
		return "TCP"
	case PortSpaceUDP:
		return "UDP"
	case PortSpaceIPoIB:
		return "IPoIB"
	case PortSpaceIB:
		return "IB"
	}
	return fmt.Sprintf("port space %#x", uint16(ps))
}

func (ps PortSpace) valid() bool {
	return ps == PortSpaceTCP || ps == PortSpaceUDP || ps == PortSpaceIPoIB || ps == PortSpaceIB
}

// datagrams tells whether queue pairs in it are unreliable datagram ones: the kernel decides so.
func (ps PortSpace) datagrams() bool { return ps == PortSpaceUDP || ps == PortSpaceIPoIB }

func (ps PortSpace) qpType() uverbs.QPType {
	if ps.datagrams() {
		return uverbs.QPTypeUD
	}
	return uverbs.QPTypeRC
}

// ID is a connection identifier: what a socket is to TCP. It is safe for concurrent use.
//
// The methods that start something (ResolveAddr, ResolveRoute, Connect, Accept) return at
// once; how it went comes as an [Event] of the id's channel.
//
// All methods that can fail do so with net.ErrClosed after Close, with EINVAL where the id is
// not in a state for the call, with ENXIO when its device was removed, and with EACCES after a
// change of credentials, see [NewEventChannel]; other errors are listed. Linux 5.10 can do what
// has no other kernel beside it.
type ID struct {
	ps  PortSpace
	uid uint64 // our number, in the kernel's events
	kid uint32 // the kernel's number, which may be 0

	mu      sync.Mutex
	ch      *EventChannel // changes in Migrate
	closed  bool
	state   state
	listens bool
	dst     netip.AddrPort // what ResolveAddr was given
	local   sockaddr
	remote  sockaddr
	dev     deviceKey
	opened  *openDevice // by Context; counted
	qp      *uverbs.QP
	offer   ConnInfo // of the connection request
	rnr     uint8    // MinRNRTimer for RTR
	groups  []*membership
	ece     ECE // for the peer
	peerECE ECE
}

// NewID makes an id, whose port space decides what it is for. It belongs to the network
// namespace that the calling thread is in at this moment: a goroutine that changed its
// namespace has to be locked to its thread, and the library issues the call on that very
// thread.
//
// Source: rdma_create_id(3).
func (c *EventChannel) NewID(ps PortSpace) (*ID, error) {
	if !ps.valid() {
		return nil, &Error{Op: opCreateID, Err: invalidError(ps.String() + " is none that the kernel knows")}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, &Error{Op: opCreateID, Err: net.ErrClosed}
	}
	id := &ID{ch: c, ps: ps}
	id.mu.Lock() // an event may come in before the kernel's number is noted
	defer id.mu.Unlock()
	id.uid = c.ids.put(id)
	in := abi.RdmaUcmCreateId{Uid: id.uid, Ps: uint16(ps), QpType: uint8(ps.qpType())}
	var out abi.RdmaUcmCreateIdResp
	if err := c.ask(abi.RDMA_USER_CM_CMD_CREATE_ID, uapi.Bytes(&in), 8, uapi.Bytes(&out)); err != nil {
		c.ids.drop(id.uid)
		return nil, c.explain(opCreateID, noAddr, err)
	}
	id.kid = out.Id
	return id, nil
}

// Close destroys the id and the queue pair that [ID.CreateQP] made, and leaves its multicast
// groups. A connection ends with that, and the peer is told. A device that [ID.Context]
// opened is closed with its last id. Events of the id that were not received are dropped;
// connection requests among them are rejected. The kernel may block until its own handlers
// are through, and on iWARP until it returns from a Connect; never until the program has
// looked at an event.
//
// Closing again does nothing. Source: rdma_destroy_id(3), rdma_destroy_qp(3).
func (id *ID) Close() error {
	id.mu.Lock()
	if id.closed {
		id.mu.Unlock()
		return nil
	}
	id.closed = true
	ch, qp, opened, groups := id.ch, id.qp, id.opened, id.groups
	id.mu.Unlock()

	// Without the lock, so that the channel's reader is not held up. The uid stays taken
	// until the kernel has forgotten it.
	var errs []error
	if qp != nil {
		errs = append(errs, qp.Close())
	}
	if err := ch.destroy(id.kid); err != nil && !errors.Is(err, net.ErrClosed) {
		errs = append(errs, err)
	}
	for _, m := range groups {
		ch.ids.drop(m.uid)
	}
	ch.ids.drop(id.uid)
	opened.release()
	return ch.explain("close id", noAddr, errors.Join(errs...))
}

// Channel returns the event channel of the id.
func (id *ID) Channel() *EventChannel {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.ch
}

// PortSpace returns the port space of the id.
func (id *ID) PortSpace() PortSpace { return id.ps }

// QP returns the queue pair that CreateQP made, or nil.
func (id *ID) QP() *uverbs.QP {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.qp
}

// LocalAddr returns the address of this end, the zero AddrPort while there is none. A zone
// is given by the name that the interface has in the calling thread's network namespace,
// else by number.
func (id *ID) LocalAddr() netip.AddrPort {
	id.mu.Lock()
	s := id.local
	id.mu.Unlock()
	return s.withZone()
}

// RemoteAddr returns the address of the peer, the zero AddrPort while there is none.
func (id *ID) RemoteAddr() netip.AddrPort {
	id.mu.Lock()
	s := id.remote
	id.mu.Unlock()
	return s.withZone()
}

// PortNum returns the port of the device, from 1; 0 while the id has no device.
func (id *ID) PortNum() int {
	id.mu.Lock()
	defer id.mu.Unlock()
	return int(id.dev.port)
}

func (id *ID) isClosed() bool {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.closed
}

// peer is the address that errors name. The caller has the lock.
func (id *ID) peer() netip.AddrPort {
	if id.remote.addr.IsValid() {
		return id.remote.addr
	}
	return id.dst
}

// do runs an operation of the id under its lock.
func (id *ID) do(op string, addr netip.AddrPort, run func() error) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.closed {
		return wrap(op, addr, net.ErrClosed)
	}
	return id.ch.explain(op, addr, run())
}

// refresh asks the kernel for addresses and device, which change as the id moves on. It has
// no error to report: what cannot be told stays as it was. The caller has the lock, or the
// only reference.
func (id *ID) refresh() {
	in := abi.RdmaUcmQuery{Id: id.kid, Option: abi.RDMA_USER_CM_QUERY_ADDR}
	out := abi.RdmaUcmQueryAddrResp{IbdevIndex: noIndex} // older kernels leave it alone
	if err := id.ch.ask(abi.RDMA_USER_CM_CMD_QUERY, uapi.Bytes(&in), 0, uapi.Bytes(&out)); err != nil {
		return
	}
	id.local, id.remote = getSockaddr(&out.SrcAddr), getSockaddr(&out.DstAddr)
	if id.remote.addr.Addr().IsUnspecified() { // there is no peer
		id.remote = sockaddr{}
	}
	if out.PortNum != 0 {
		id.dev = deviceKey{guid: abi.BE64(out.NodeGuid).Get(), index: out.IbdevIndex, port: out.PortNum}
	}
}
