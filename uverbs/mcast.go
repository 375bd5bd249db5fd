package uverbs

import (
	"net/netip"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
)

// group is a multicast group that a queue pair is attached to.
type group struct {
	gid GID
	lid uint16
}

// MulticastGID is the GID that an IP multicast group has on RoCE v2.
func MulticastGID(addr netip.Addr) GID { return GID(addr.WithZone("").As16()) }

// AttachMulticast makes a datagram queue pair receive what is sent to a multicast group; lid
// counts on InfiniBand only. On Ethernet the host must belong to the group too (a UDP
// socket that joined it does), for frames of other hosts to get this far.
//
// Errors: EINVAL if gid is no multicast group or q no datagram queue pair; ErrNotSupported.
// Source: ibv_attach_mcast(3).
func (q *QP) AttachMulticast(gid GID, lid uint16) error {
	const op = "attach to multicast group"
	if err := q.begin(op); err != nil {
		return err
	}
	defer q.end()
	q.modMu.Lock()
	defer q.modMu.Unlock()
	g := group{gid, lid}
	if _, in := q.groups[g]; in {
		return nil
	}
	if err := q.multicast(uapi.AttachMcast, g); err != nil {
		return wrap(op, q.device, err)
	}
	if q.groups == nil {
		q.groups = make(map[group]struct{})
	}
	q.groups[g] = struct{}{}
	return nil
}

// DetachMulticast undoes AttachMulticast. Errors: EINVAL if q is not attached. Source:
// ibv_detach_mcast(3).
func (q *QP) DetachMulticast(gid GID, lid uint16) error {
	const op = "detach from multicast group"
	if err := q.begin(op); err != nil {
		return err
	}
	defer q.end()
	q.modMu.Lock()
	defer q.modMu.Unlock()
	if err := q.multicast(uapi.DetachMcast, group{gid, lid}); err != nil {
		return wrap(op, q.device, err)
	}
	delete(q.groups, group{gid, lid})
	return nil
}

// leaveAll detaches from all groups: the kernel does not destroy a queue pair that is in one.
func (q *QP) leaveAll() error {
	for g := range q.groups {
		if err := gone(q.multicast(uapi.DetachMcast, g)); err != nil {
			return err
		}
		delete(q.groups, g)
	}
	return nil
}

func (q *QP) multicast(cmd *uapi.WriteCmd, g group) error {
	in := abi.IbUverbsAttachMcast{Gid: g.gid, QpHandle: q.handle, Mlid: g.lid}
	return q.ctx.k.invoke(cmd, uapi.Bytes(&in), nil)
}
