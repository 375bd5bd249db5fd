//go:build linux

package fakekernel

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
)

// TestLegal walks the ways of each type, with what they need, with one bit less and with
// each bit more.
func TestLegal(t *testing.T) {
	ud := uint32(maskCurState | maskQKey)
	uc := uint32(maskCurState | maskAccess | maskAlt | maskMig)
	rc := uc | maskMinRNR
	for _, tt := range []struct {
		typ, from, to  uint8
		need, optional uint32
	}{
		{2, stateReset, stateInit, maskPKey | maskPort | maskAccess, 0},
		{3, stateReset, stateInit, maskPKey | maskPort | maskAccess, 0},
		{4, stateReset, stateInit, maskPKey | maskPort | maskQKey, 0},
		{2, stateInit, stateInit, 0, maskPKey | maskPort | maskAccess},
		{4, stateInit, stateInit, 0, maskPKey | maskPort | maskQKey},
		{2, stateInit, stateRTR, maskAV | maskMTU | maskDest | maskRQPSN | maskMaxDestRD | maskMinRNR, maskAlt | maskAccess | maskPKey},
		{3, stateInit, stateRTR, maskAV | maskMTU | maskDest | maskRQPSN, maskAlt | maskAccess | maskPKey},
		{4, stateInit, stateRTR, 0, maskPKey | maskQKey},
		{2, stateRTR, stateRTS, maskTimeout | maskRetry | maskRNRRetry | maskSQPSN | maskMaxRD, rc},
		{3, stateRTR, stateRTS, maskSQPSN, uc},
		{4, stateRTR, stateRTS, maskSQPSN, ud},
		{2, stateRTS, stateRTS, 0, rc},
		{3, stateRTS, stateRTS, 0, uc},
		{4, stateRTS, stateRTS, 0, ud},
		{2, stateRTS, stateSQD, 0, maskEnSQD},
		{3, stateRTS, stateSQD, 0, maskEnSQD},
		{4, stateRTS, stateSQD, 0, maskEnSQD},
		{2, stateSQD, stateRTS, 0, rc},
		{3, stateSQD, stateRTS, 0, uc},
		{4, stateSQD, stateRTS, 0, ud},
		{3, stateSQD, stateSQD, 0, maskAV | maskAlt | maskAccess | maskPKey | maskMig},
		{4, stateSQD, stateSQD, 0, maskPKey | maskQKey},
		{3, stateSQE, stateRTS, 0, maskCurState | maskAccess},
		{4, stateSQE, stateRTS, 0, ud},
		{2, stateRTS, stateError, 0, 0},
		{2, stateError, stateReset, 0, 0},
		{4, stateReset, stateReset, 0, 0},
	} {
		if !legal(tt.typ, tt.from, tt.to, tt.need|maskState) || !legal(tt.typ, tt.from, tt.to, tt.need|tt.optional) {
			t.Errorf("%+v: not legal with what it needs", tt)
		}
		for bit := uint32(maskCurState); bit < standardBits; bit <<= 1 {
			switch {
			case tt.need&bit != 0 && legal(tt.typ, tt.from, tt.to, tt.need&^bit):
				t.Errorf("%+v: legal without %#x", tt, bit)
			case (tt.need|tt.optional)&bit == 0 && legal(tt.typ, tt.from, tt.to, tt.need|bit):
				t.Errorf("%+v: legal with %#x", tt, bit)
			}
		}
	}
	for _, no := range [][2]uint8{{stateReset, stateRTR}, {stateReset, stateError}, {stateInit, stateRTS}, {stateError, stateInit}, {stateRTR, stateSQD}, {stateRTS, stateRTR}} {
		if legal(2, no[0], no[1], maskState) {
			t.Errorf("from %d to %d is legal", no[0], no[1])
		}
	}
}

// TestModifyValues: what the values are checked for, beside the masks.
func TestModifyValues(t *testing.T) {
	d := openDev(t, start(t, Options{}))
	q := d.build(&rawQP{pd: d.pd(), typ: typeUD})
	init := abi.IbUverbsModifyQp{AttrMask: maskState | datagramBits, QpState: stateInit, PortNum: 1}
	edit := func(f func(a *abi.IbUverbsModifyQp)) error { a := init; f(&a); return q.modify(a) }
	want(t, "privileged key", edit(func(a *abi.IbUverbsModifyQp) { a.Qkey = 1 << 31 }), unix.EPERM)
	want(t, "port", edit(func(a *abi.IbUverbsModifyQp) { a.PortNum = 3 }), unix.EINVAL)
	want(t, "access flags", edit(func(a *abi.IbUverbsModifyQp) { a.AttrMask |= maskAccess }), unix.EINVAL)
	want(t, "good", edit(func(a *abi.IbUverbsModifyQp) { a.Qkey = 77 }), 0)
	r := q.query()
	if r.Qkey != 77 || r.QpState != stateInit {
		t.Errorf("query: %+v", r)
	}
	rc := d.qp()
	must(t, rc.toInit())
	must(t, rc.toRTR(rc, 0))
	must(t, rc.modify(abi.IbUverbsModifyQp{
		AttrMask: maskState | maskSQPSN | maskTimeout | maskRetry | maskRNRRetry | maskMaxRD, QpState: stateRTS, MaxRdAtomic: 5,
	}))
	if r := rc.query(); r.MaxRdAtomic != 8 {
		t.Errorf("5 READs at once became %d, want 8", r.MaxRdAtomic)
	}
}

// TestDrain: SQD lets what has begun end, tells so, and RTS takes a doorbell to go on.
func TestDrain(t *testing.T) {
	for name, delay := range map[string]time.Duration{"waiting": 0, "acknowledged late": 100 * time.Millisecond} {
		k := start(t, Options{AckDelay: delay})
		a, b := openDev(t, k).qp(), openDev(t, k).qp()
		b.rnr = 14 // 1.28 ms
		connect(t, a, b, 7, 7)
		to := func(state uint8) error { return a.modify(abi.IbUverbsModifyQp{AttrMask: maskState, QpState: state}) }
		if delay > 0 {
			b.recv(1, b.sge(0, 8))
		}
		a.send(provider.SendWR{ID: 1, Opcode: provider.OpSend, Flags: provider.SendSignaled}) // no receive, or no answer yet
		must(t, to(stateSQD))
		a.queue(provider.SendWR{ID: 2, Opcode: provider.OpSend, Flags: provider.SendSignaled})
		if r := a.query(); r.SqDraining != 1 || r.QpState != stateSQD {
			t.Errorf("%s: state %d, draining %d", name, r.QpState, r.SqDraining)
		}
		want(t, "to RTS while it drains", to(stateRTS), unix.EINVAL)
		a.d.wantAsync(name)
		b.recv(2, b.sge(0, 8))
		if wc := a.cq.one(); wc.ID != 1 || wc.Status != provider.WCSuccess {
			t.Errorf("%s: %+v", name, wc)
		}
		time.Sleep(time.Millisecond)
		a.d.wantAsync(name, [2]uint64{0xbeef, asyncSQDrained})
		if r := a.query(); r.SqDraining != 0 {
			t.Errorf("%s: still draining", name)
		}
		b.recv(3, b.sge(0, 8))
		must(t, to(stateRTS))
		if got := a.cq.poll(); len(got) > 0 {
			t.Errorf("%s: carried out without a doorbell: %+v", name, got)
		}
		must(t, a.bell.Ring())
		if wc := a.cq.one(); wc.ID != 2 || wc.Status != provider.WCSuccess {
			t.Errorf("%s: %+v", name, wc)
		}
	}
}

// TestQPTypes: the types that there are, and what is said of the others.
func TestQPTypes(t *testing.T) {
	d := openDev(t, start(t, Options{}))
	base := rawQP{d: d, pd: d.pd(), cq: d.cq(4)}
	for _, tt := range []struct {
		name       string
		typ, flags uint64
		want       unix.Errno
	}{
		{"RC", 2, 0, 0},
		{"UC", 3, 0, 0},
		{"UD", 4, 0, 0},
		{"all signaled", 2, abi.IB_UVERBS_QP_CREATE_SQ_SIG_ALL, 0},
		{"raw packets", 8, 0, unix.EOPNOTSUPP},
		{"XRC initiator", 9, 0, unix.EOPNOTSUPP},
		{"XRC target", 10, 0, unix.EINVAL},
		{"the driver's own", 255, 0, unix.EOPNOTSUPP},
		{"no type", 7, 0, unix.EINVAL},
		{"RC without loopback", 2, abi.IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK, unix.EINVAL},
		{"UD without loopback", 4, abi.IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK, unix.EOPNOTSUPP},
	} {
		q := base
		q.typ = tt.typ
		c := createQP(&q, &abi.IbUverbsQpCap{MaxSendWr: 1}, make([]byte, 32)).Flags(abi.UVERBS_ATTR_CREATE_QP_FLAGS, tt.flags)
		want(t, tt.name, c.Do(d.f), tt.want)
	}
}
