package rdmacm

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"syscall"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
	"github.com/pureverbs/rdma/uverbs"
)

// JoinFlags says how to be in a multicast group.
type JoinFlags uint16

// The ways. JoinSendOnly needs a subnet manager that knows it; on Ethernet nothing is needed.
const (
	JoinFull     JoinFlags = abi.RDMA_MC_JOIN_FLAG_FULLMEMBER          // send and receive
	JoinSendOnly JoinFlags = abi.RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER // send, without receiving
)

// MulticastQPNum is the queue pair number that datagrams to a multicast group carry.
const MulticastQPNum = 0xffffff

// membership is the place of an id in a multicast group: an object of the kernel that has a
// uid of its own. It is under the id's lock.
type membership struct {
	id       *ID
	uid      uint64
	kid      uint32
	addr     netip.Addr
	flags    JoinFlags
	context  any
	gid      uverbs.GID
	lid      uint16
	attached bool // the queue pair receives what is sent to the group
}

// JoinMulticast joins a multicast group: an IPv4 address of 224.0.0.0/4, or IPv6 of ff00::/8.
// The id needs PortSpaceUDP or PortSpaceIPoIB and a device, by Bind or ResolveAddr. The
// answer comes as EventMulticastJoin, whose UD has what to send with, or EventMulticastError;
// context comes along with both.
//
// With JoinFull the queue pair that [ID.CreateQP] made before the event receives what is sent
// to the group; other queue pairs attach themselves, by [uverbs.QP.AttachMulticast] with the
// GID of UD.AH. Each datagram begins with [uverbs.GRHSize] bytes of header.
//
// Errors: ErrInvalid, for one if the id is in the group already; ErrNotSupported on iWARP, and
// for IPv6 on RoCE v2, for which the kernel has no code. Source: rdma_join_multicast(3).
func (id *ID) JoinMulticast(group netip.Addr, flags JoinFlags, context any) error {
	return id.do(opJoin, netip.AddrPortFrom(group, 0), func() error {
		group = group.Unmap()
		switch {
		case !id.ps.datagrams():
			return invalidError("multicast is for the port spaces UDP and IPoIB")
		case !group.IsMulticast():
			return invalidError("that is no multicast address")
		case flags > JoinSendOnly:
			return invalidError("the flags are none")
		case id.group(group) != nil:
			return invalidError("the id is in the group already")
		case id.dev.port == 0:
			return invalidError("the id has no device yet")
		}
		return id.join(&membership{id: id, addr: group, flags: flags, context: context})
	})
}

func (id *ID) join(m *membership) error {
	in := abi.RdmaUcmJoinMcast{Id: id.kid, JoinFlags: uint16(m.flags)}
	var err error
	if in.AddrSize, err = putSockaddr(&in.Addr, netip.AddrPortFrom(m.addr, 0)); err != nil {
		return err
	}
	m.uid = id.ch.ids.putGroup(m)
	in.Uid = m.uid
	var out abi.RdmaUcmCreateIdResp
	if err := id.ch.ask(abi.RDMA_USER_CM_CMD_JOIN_MCAST, uapi.Bytes(&in), 0, uapi.Bytes(&out)); err != nil {
		id.ch.ids.drop(m.uid)
		return joinError(err)
	}
	m.kid = out.Id
	id.groups = append(id.groups, m)
	return nil
}

// errnoNotSupp is ENOTSUPP, which is the kernel's own and should not get here.
const errnoNotSupp = syscall.Errno(524)

func joinError(err error) error {
	switch {
	case errors.Is(err, errnoNotSupp):
		return notSupported("multicast groups of IPv6 on RoCE v2")
	case errors.Is(err, syscall.ENOSYS):
		return notSupported("multicast groups on this device")
	}
	return err
}

// group finds a membership by address. The caller has the lock.
func (id *ID) group(addr netip.Addr) *membership {
	for _, m := range id.groups {
		if m.addr == addr {
			return m
		}
	}
	return nil
}

// LeaveMulticast leaves a group, or gives the attempt to join it up. Events of it that were
// not received are dropped. [ID.Close] leaves all groups.
//
// Errors: ErrInvalid if the id is not in the group. Source: rdma_leave_multicast(3).
func (id *ID) LeaveMulticast(group netip.Addr) error {
	return id.do(opLeave, netip.AddrPortFrom(group, 0), func() error {
		m := id.group(group.Unmap())
		if m == nil {
			return invalidError("the id is not in the group")
		}
		var errs []error
		if m.attached {
			m.attached = false
			errs = append(errs, unlessClosed(id.qp.DetachMulticast(m.gid, m.lid)))
		}
		in := abi.RdmaUcmDestroyId{Id: m.kid}
		var out abi.RdmaUcmDestroyIdResp
		err := id.ch.ask(abi.RDMA_USER_CM_CMD_LEAVE_MCAST, uapi.Bytes(&in), 0, uapi.Bytes(&out))
		if err != nil && !errors.Is(err, syscall.ENXIO) { // went with the device
			return joined(err, errors.Join(errs...))
		}
		id.ch.ids.drop(m.uid)
		id.groups = slices.DeleteFunc(id.groups, func(o *membership) bool { return o == m })
		return errors.Join(errs...)
	})
}

// unlessClosed passes over that a queue pair is closed: it is in no group any more.
func unlessClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// handleGroup attaches the queue pair to the group that was joined.
func (id *ID) handleGroup(ev *Event, m *membership) bool {
	if !slices.Contains(id.groups, m) {
		return false // left meanwhile
	}
	if ev.Type == EventMulticastError {
		ev.fail(opJoin, ev.errno())
		return true
	}
	m.gid, m.lid = ev.UD.AH.DGID, ev.UD.AH.DLID
	if id.qp == nil || m.flags == JoinSendOnly || m.attached {
		return true
	}
	if err := id.qp.AttachMulticast(m.gid, m.lid); err != nil {
		ev.Type = EventMulticastError
		ev.fail(opJoin, err)
		return true
	}
	m.attached = true
	return true
}
