//go:build linux

package fakekernel

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
	"github.com/pureverbs/rdma/internal/uapi"
)

var (
	group4 = [16]byte{10: 0xff, 0xff, 239, 1, 2, 3}
	group6 = [16]byte{0xff, 0x0e, 15: 7}
)

func (q *rawQP) attach(gid [16]byte, lid uint16) error {
	return q.d.invoke(uapi.AttachMcast, bytesOf(&abi.IbUverbsAttachMcast{QpHandle: q.handle, Gid: gid, Mlid: lid}), nil)
}

func (q *rawQP) detach(gid [16]byte, lid uint16) error {
	return q.d.invoke(uapi.DetachMcast, bytesOf(&abi.IbUverbsDetachMcast{QpHandle: q.handle, Gid: gid, Mlid: lid}), nil)
}

func (q *rawQP) destroy() error {
	var r abi.IbUverbsDestroyQpResp
	return cmd(uapi.QPDestroy).Destroy(abi.UVERBS_ATTR_DESTROY_QP_HANDLE, q.handle).
		Out(abi.UVERBS_ATTR_DESTROY_QP_RESP, bytesOf(&r)).Do(q.d.f)
}

func TestMulticastRules(t *testing.T) {
	k := start(t, Options{})
	d := openDev(t, k)
	q := d.ud()
	want(t, "unicast address", q.attach(gidOf(d, 1), 0), unix.EINVAL)
	want(t, "type", d.qp().attach(group4, 0), unix.EINVAL)
	want(t, "detach first", q.detach(group4, 0), unix.EINVAL)
	want(t, "IPv4", q.attach(group4, 0), 0)
	want(t, "twice", q.attach(group4, 0), 0)
	want(t, "other LID", q.attach(group4, 0xc001), 0)
	want(t, "IPv6", q.attach(group6, 0), 0)
	if n := k.Counts().Attached; n != 3 {
		t.Errorf("%d attachments, want 3", n)
	}
	want(t, "destroy", q.destroy(), unix.EBUSY)
	want(t, "detach other LID", q.detach(group4, 5), unix.EINVAL)
	want(t, "detach IPv4", q.detach(group4, 0), 0)
	want(t, "detach what RoCE holds for the same", q.detach(group4, 0xc001), unix.EINVAL)
	want(t, "detach IPv6", q.detach(group6, 0), 0)
	want(t, "destroy after", q.destroy(), 0)

	for range maxGroupMembers {
		must(t, d.ud().attach(group6, 0))
	}
	want(t, "one too many", d.ud().attach(group6, 0), unix.ENOMEM)
	must(t, d.f.Close()) // all leave
	if n := len(k.devices[0].groups); n != 0 {
		t.Errorf("%d groups are left", n)
	}
}

// TestMulticast: a datagram gets to every member, on every device, the sender included. One
// that cannot take it is nothing to the others.
func TestMulticast(t *testing.T) {
	k := start(t, Options{Devices: []Device{{}, {}}})
	d, far := openDev(t, k), openNode(t, k, 1)
	a, otherKey, noRecv, last, remote := d.ud(), d.build(&rawQP{pd: d.pd(), typ: typeUD, qkey: 5}).up(), d.ud(), d.ud(), far.ud()
	outside := d.ud()
	for _, q := range []*rawQP{a, otherKey, noRecv, last, remote} {
		must(t, q.attach(group4, 0))
	}
	for _, q := range []*rawQP{a, otherKey, last, remote, outside} {
		q.recv(7, q.sge(1000, 100))
	}
	_, av := a.d.ah(a.pd, 1, group4, 3)
	wr := a.datagram(av, a, 4)
	wr.Dest.QPN = multicastQPN
	a.send(wr) // not signaled
	for name, q := range map[string]*rawQP{"the sender": a, "the last": last, "the far one": remote} {
		want := provider.WC{ID: 7, Opcode: provider.WCRecv, ByteLen: 44, QPNum: q.num, SrcQP: a.num, Flags: provider.WCGRH}
		if diff := cmp.Diff([]provider.WC{want}, q.cq.poll()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if dst := [4]byte(q.mem[1036:1040]); dst != [4]byte(group4[12:]) || q.mem[1028] != 3 {
			t.Errorf("%s: header %x", name, q.mem[1000:1040])
		}
	}
	for name, q := range map[string]*rawQP{"other key": otherKey, "no receive": noRecv, "not a member": outside} {
		if got := q.cq.poll(); len(got) > 0 {
			t.Errorf("%s got %+v", name, got)
		}
	}
	must(t, last.detach(group4, 0))
	last.recv(8, last.sge(0, 100))
	a.send(wr)
	if got := last.cq.poll(); len(got) > 0 {
		t.Errorf("after leaving: %+v", got)
	}
}
