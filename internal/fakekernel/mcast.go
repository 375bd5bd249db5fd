//go:build linux

package fakekernel

import (
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
)

// What a device can have of multicast groups: sw/rxe/rxe_param.h.
const (
	maxGroups       = 8192
	maxGroupMembers = 56
	maxAllMembers   = maxGroups * maxGroupMembers
)

// membership is one attachment of a queue pair, as the core keeps it.
type membership struct {
	gid [16]byte
	lid uint16
}

// mcastGID is rdma_is_multicast_addr.
func mcastGID(gid [16]byte) bool { return netip.AddrFrom16(gid).Unmap().IsMulticast() }

func (f *verbsFile) attachMcast(in []byte) error {
	c := load[abi.IbUverbsAttachMcast](in)
	q, err := lookup[*qp](f, c.QpHandle)
	if err != nil {
		return err
	}
	m := membership{c.Gid, c.Mlid}
	if slices.Contains(q.groups, m) {
		return nil
	}
	if !mcastGID(m.gid) || q.typ != abi.IB_UVERBS_QPT_UD {
		return unix.EINVAL
	}
	if err := f.dev.join(m.gid, q); err != nil {
		return err
	}
	q.groups = append(q.groups, m)
	return nil
}

// join is rxe_attach_mcast. A queue pair is in a group once, also if the core lists it with
// two LIDs, which RoCE ignores.
func (d *device) join(gid [16]byte, q *qp) error {
	members := d.groups[gid]
	total := 0
	for _, m := range d.groups {
		total += len(m)
	}
	switch {
	case slices.Contains(members, q):
		return nil
	case members == nil && len(d.groups) == maxGroups, len(members) == maxGroupMembers, total == maxAllMembers:
		return unix.ENOMEM
	}
	d.groups[gid] = append(members, q)
	return nil
}

func (f *verbsFile) detachMcast(in []byte) error {
	c := load[abi.IbUverbsDetachMcast](in)
	q, err := lookup[*qp](f, c.QpHandle)
	if err != nil {
		return err
	}
	i := slices.Index(q.groups, membership{c.Gid, c.Mlid})
	if i < 0 {
		return unix.EINVAL
	}
	q.groups = slices.Delete(q.groups, i, i+1)
	return f.dev.leave(c.Gid, q)
}

func (d *device) leave(gid [16]byte, q *qp) error {
	i := slices.Index(d.groups[gid], q)
	if i < 0 {
		return unix.EINVAL
	}
	d.groups[gid] = slices.Delete(d.groups[gid], i, i+1)
	if len(d.groups[gid]) == 0 {
		delete(d.groups, gid)
	}
	return nil
}

// leaveAll is the end of a queue pair with its context.
func (q *qp) leaveAll() {
	for _, m := range q.groups {
		q.f.dev.leave(m.gid, q)
	}
	q.groups = nil
}

// multicast delivers a datagram to all members on all devices, those of the sender's own
// included. That a member cannot take it is nothing to the others.
func (k *Kernel) multicast(q *qp, w *work, to *way) {
	if w.to.RemoteQpn != multicastQPN {
		return
	}
	gid := to.dst.As16()
	for _, d := range k.devices {
		if d.dead {
			continue
		}
		for _, p := range slices.Clone(d.groups[gid]) {
			k.receiveDatagram(p, q, w, to)
		}
	}
}
