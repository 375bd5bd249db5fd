//go:build linux

package fakekernel

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
	"github.com/pureverbs/rdma/internal/uapi"
)

const (
	bindAccess = everything | abi.IB_UVERBS_ACCESS_MW_BIND
	zeroBased  = abi.IB_UVERBS_ACCESS_ZERO_BASED
)

func (d *dev) allocMW(pd uint32, typ uint8) (r abi.IbUverbsAllocMwResp, err error) {
	err = d.invoke(uapi.AllocMW, bytesOf(&abi.IbUverbsAllocMw{PdHandle: pd, MwType: typ}), bytesOf(&r))
	return r, err
}

func (d *dev) mw(pd uint32, typ uint8) abi.IbUverbsAllocMwResp {
	d.t.Helper()
	r, err := d.allocMW(pd, typ)
	must(d.t, err)
	return r
}

func (d *dev) deallocMW(handle uint32) error {
	return cmd(uapi.MWDestroy).Destroy(abi.UVERBS_ATTR_DESTROY_MW_HANDLE, handle).Do(d.f)
}

func (d *dev) deregMR(handle uint32) error {
	return cmd(uapi.MRDestroy).Destroy(abi.UVERBS_ATTR_DESTROY_MR_HANDLE, handle).Do(d.f)
}

// bind is a request to bind a window to n bytes of the queue pair's memory. The new key is
// one more than the old.
func (q *rawQP) bind(key uint32, off, n int) provider.SendWR {
	return provider.SendWR{ID: 4, Opcode: provider.OpBindMW, Bind: &provider.MWBind{
		Addr: uapi.Addr(q.mem) + uint64(off), Length: uint64(n), LKey: q.mr.Lkey, MWKey: key, NewKey: key + 1, Access: remoteAccess,
	}}
}

// TestWindow: a window of each type opens memory for a peer, until it is taken back.
func TestWindow(t *testing.T) {
	for _, typ := range []uint8{windowType1, windowType2} {
		k := start(t, Options{})
		a, b := pairOf(t, k, rawQP{access: bindAccess})
		w := b.d.mw(b.pd, typ)
		key := w.Rkey
		read := func(key uint32) provider.WCStatus {
			return a.do(provider.SendWR{Opcode: provider.OpRDMARead, SGL: a.sge(0, 8), RemoteAddr: uapi.Addr(b.mem) + 100, RKey: key}).Status
		}
		if !isWindow(key) || isWindow(b.mr.Rkey) {
			t.Errorf("keys %#x of a window and %#x of a region", key, b.mr.Rkey)
		}
		if wc := b.do(b.bind(key, 100, 8)); wc.Status != provider.WCSuccess || wc.Opcode != provider.WCBindMW {
			t.Fatalf("type %d: bind: %+v", typ, wc)
		}
		key++
		fill(b.mem[100:108], 9)
		if s := read(key); s != provider.WCSuccess || a.mem[0] != 9 {
			t.Errorf("type %d: read: %v", typ, s)
		}
		want(t, "deregister what is bound", b.d.deregMR(b.mr.MrHandle), unix.EINVAL)
		switch typ {
		case windowType1: // binding no bytes unbinds
			wr := b.bind(key, 0, 0)
			if wc := b.do(wr); wc.Status != provider.WCSuccess {
				t.Errorf("unbind: %v", wc.Status)
			}
			key++
		case windowType2:
			wr := provider.SendWR{Opcode: provider.OpLocalInvalidate, InvKey: key}
			if wc := b.do(wr); wc.Status != provider.WCSuccess || wc.Opcode != provider.WCLocalInv {
				t.Errorf("invalidate: %+v", wc)
			}
		}
		if s := read(key); s != provider.WCRemoteAccessError {
			t.Errorf("type %d: read of what was taken back: %v", typ, s)
		}
		want(t, "deregister what is free", b.d.deregMR(b.mr.MrHandle), 0)
		want(t, "domain with a window", cmd(uapi.PDDestroy).Destroy(abi.UVERBS_ATTR_DESTROY_PD_HANDLE, b.pd).Do(b.d.f), unix.EBUSY)
		want(t, "free", b.d.deallocMW(w.MwHandle), 0)
		if n := k.Counts().MWs; n != 0 {
			t.Errorf("%d windows", n)
		}
	}
}

// TestWindowEnds: with the window goes what it opened, and what it held.
func TestWindowEnds(t *testing.T) {
	a, b := pairOf(t, start(t, Options{}), rawQP{access: bindAccess})
	w := b.d.mw(b.pd, windowType2)
	b.do(b.bind(w.Rkey, 0, 8))
	must(t, b.d.deallocMW(w.MwHandle))
	wr := provider.SendWR{Opcode: provider.OpRDMAWrite, SGL: a.sge(0, 8), RemoteAddr: uapi.Addr(b.mem), RKey: w.Rkey + 1}
	if wc := a.do(wr); wc.Status != provider.WCRemoteAccessError {
		t.Errorf("write: %v", wc.Status)
	}
	must(t, b.d.deregMR(b.mr.MrHandle))
	must(t, b.d.f.Close())
}

// TestWindowAcross: a window of type 1 can be bound to a region of another context, whose
// end is not held up by that.
func TestWindowAcross(t *testing.T) {
	a, b := pairOf(t, start(t, Options{}), rawQP{access: bindAccess})
	wr := b.bind(b.d.mw(b.pd, windowType1).Rkey, 0, 8)
	wr.Bind.LKey, wr.Bind.Addr = a.mr.Lkey, uapi.Addr(a.mem)
	if wc := b.do(wr); wc.Status != provider.WCSuccess {
		t.Errorf("bind: %v", wc.Status)
	}
	must(t, a.d.f.Close())
	must(t, b.d.f.Close())
}

// TestWindowRules: what rxe does not bind.
func TestWindowRules(t *testing.T) {
	for _, tt := range []struct {
		name string
		typ  uint8
		edit func(b *rawQP, wr *provider.SendWR)
	}{
		{"wrong window key", 2, func(_ *rawQP, wr *provider.SendWR) { wr.Bind.MWKey += 0x10 }},
		{"no such window", 2, func(_ *rawQP, wr *provider.SendWR) { wr.Bind.MWKey += 0x1000 }},
		{"wrong region key", 2, func(_ *rawQP, wr *provider.SendWR) { wr.Bind.LKey++ }},
		{"no such region", 1, func(_ *rawQP, wr *provider.SendWR) { wr.Bind.LKey += 0x1000 }},
		{"type 1 from 0", 1, func(_ *rawQP, wr *provider.SendWR) { wr.Bind.Access |= zeroBased }},
		{"type 2 of nothing", 2, func(_ *rawQP, wr *provider.SendWR) { wr.Bind.Length = 0 }},
		{"type 2 of another domain", 2, func(b *rawQP, wr *provider.SendWR) { wr.Bind.MWKey = b.d.mw(b.d.pd(), windowType2).Rkey }},
		{"type 2 twice", 2, func(b *rawQP, wr *provider.SendWR) {
			b.do(*wr)
			bind := *wr.Bind
			bind.MWKey++
			wr.Bind = &bind
		}},
		{"before the region", 1, func(_ *rawQP, wr *provider.SendWR) { wr.Bind.Addr -= 1 << 20 }},
		{"beyond the region", 1, func(_ *rawQP, wr *provider.SendWR) { wr.Bind.Length = 1<<16 + 1 }},
		{"from 0, longer than the region", 2, func(_ *rawQP, wr *provider.SendWR) {
			wr.Bind.Access |= zeroBased
			wr.Bind.Length = 1<<16 + 1
		}},
		{"region without binding", 1, func(b *rawQP, wr *provider.SendWR) {
			r, err := b.d.regMR(b.pd, b.mem, everything)
			must(b.d.t, err)
			wr.Bind.LKey = r.Lkey
		}},
		{"writable window, region that is not", 1, func(b *rawQP, wr *provider.SendWR) {
			r, err := b.d.regMR(b.pd, b.mem, abi.IB_UVERBS_ACCESS_MW_BIND)
			must(b.d.t, err)
			wr.Bind.LKey = r.Lkey
		}},
	} {
		_, b := pairOf(t, start(t, Options{}), rawQP{access: bindAccess})
		wr := b.bind(b.d.mw(b.pd, tt.typ).Rkey, 0, 64)
		tt.edit(b, &wr)
		if wc := b.do(wr); wc.Status != provider.WCBindError || b.state() != stateError {
			t.Errorf("%s: %v, state %d", tt.name, wc.Status, b.state())
		}
	}
}

// TestWindowAccess: who gets through a window, and to what.
func TestWindowAccess(t *testing.T) {
	for _, tt := range []struct {
		name string
		typ  uint8
		edit func(w *provider.MWBind, wr *provider.SendWR)
		want provider.WCStatus
	}{
		{"inside", 2, func(*provider.MWBind, *provider.SendWR) {}, provider.WCSuccess},
		{"beyond the window, in the region", 1, func(_ *provider.MWBind, wr *provider.SendWR) { wr.RemoteAddr += 64 }, provider.WCSuccess},
		{"beyond the region", 1, func(_ *provider.MWBind, wr *provider.SendWR) { wr.RemoteAddr += 1 << 16 }, provider.WCRemoteAccessError},
		{"old key", 1, func(_ *provider.MWBind, wr *provider.SendWR) { wr.RKey-- }, provider.WCRemoteAccessError},
		{"access", 1, func(w *provider.MWBind, _ *provider.SendWR) { w.Access = abi.IB_UVERBS_ACCESS_REMOTE_READ }, provider.WCRemoteAccessError},
		{"from 0", 2, func(w *provider.MWBind, wr *provider.SendWR) {
			w.Access |= zeroBased
			wr.RemoteAddr = 3
		}, provider.WCSuccess},
	} {
		a, b := pairOf(t, start(t, Options{}), rawQP{access: bindAccess})
		bind := b.bind(b.d.mw(b.pd, tt.typ).Rkey, 64, 64)
		wr := provider.SendWR{Opcode: provider.OpRDMAWrite, SGL: a.sge(0, 8), RemoteAddr: uapi.Addr(b.mem) + 67, RKey: bind.Bind.NewKey}
		tt.edit(bind.Bind, &wr)
		a.mem[0] = 77
		if wc := b.do(bind); wc.Status != provider.WCSuccess {
			t.Errorf("%s: bind: %v", tt.name, wc.Status)
		}
		if wc := a.do(wr); wc.Status != tt.want {
			t.Errorf("%s: got %v, want %v", tt.name, wc.Status, tt.want)
		}
		if at := 67; tt.name == "from 0" && b.mem[at] != 77 || tt.name == "inside" && b.mem[at] != 77 {
			t.Errorf("%s: written elsewhere", tt.name)
		}
	}
	// A window of type 2 is for the queue pair that bound it alone.
	d, e := openDev(t, start(t, Options{})), (*dev)(nil)
	e = openDev(t, d.k)
	pd := d.pd()
	b, other := d.build(&rawQP{pd: pd, access: bindAccess}), d.build(&rawQP{pd: pd, access: bindAccess})
	a, c := e.qp(), e.qp()
	connect(t, a, b, 7, 7)
	connect(t, c, other, 7, 7)
	w := d.mw(pd, windowType2)
	b.do(b.bind(w.Rkey, 0, 8))
	wr := provider.SendWR{Opcode: provider.OpRDMAWrite, SGL: c.sge(0, 8), RemoteAddr: uapi.Addr(b.mem), RKey: w.Rkey + 1}
	if wc := c.do(wr); wc.Status != provider.WCRemoteAccessError {
		t.Errorf("by another queue pair: %v", wc.Status)
	}
}

// TestSendInvalidate: the receiver learns which key is of no use any more.
func TestSendInvalidate(t *testing.T) {
	for _, typ := range []uint8{windowType2, windowType1} {
		a, b := pairOf(t, start(t, Options{}), rawQP{access: bindAccess})
		w := b.d.mw(b.pd, typ)
		b.do(b.bind(w.Rkey, 0, 8))
		b.recv(9, b.sge(100, 8))
		wc := a.do(provider.SendWR{Opcode: provider.OpSendInvalidate, SGL: a.sge(0, 8), InvKey: w.Rkey + 1})
		if wc.Status != provider.WCSuccess || wc.Opcode != provider.WCSend {
			t.Errorf("type %d: sender: %+v", typ, wc)
		}
		got := b.next()
		switch typ {
		case windowType2:
			if got.Status != provider.WCSuccess || got.Flags != provider.WCGRH|provider.WCWithInv || got.InvKey != w.Rkey+1 {
				t.Errorf("receiver: %+v", got)
			}
			must(t, b.d.deregMR(b.mr.MrHandle))
		case windowType1: // cannot be invalidated; the sender does not hear of it
			if got.Status != provider.WCRemoteInvalidRequest || b.state() != stateError {
				t.Errorf("receiver: %+v, state %d", got, b.state())
			}
		}
	}
}

// TestInvalidateRefused: what cannot be invalidated.
func TestInvalidateRefused(t *testing.T) {
	for name, key := range map[string]func(q *rawQP) uint32{
		"a region":        func(q *rawQP) uint32 { return q.mr.Rkey },
		"a free window":   func(q *rawQP) uint32 { return q.d.mw(q.pd, windowType2).Rkey },
		"type 1":          func(q *rawQP) uint32 { return q.d.mw(q.pd, windowType1).Rkey },
		"no such window":  func(*rawQP) uint32 { return minMWIndex<<8 + 0x5000 },
		"an older key of": func(q *rawQP) uint32 { w := q.d.mw(q.pd, windowType2).Rkey; q.do(q.bind(w, 0, 8)); return w },
	} {
		_, b := pairOf(t, start(t, Options{}), rawQP{access: bindAccess})
		if wc := b.do(provider.SendWR{Opcode: provider.OpLocalInvalidate, InvKey: key(b)}); wc.Status != provider.WCLocalQPOperationError {
			t.Errorf("%s: %v", name, wc.Status)
		}
	}
}

// TestWindowsCame in 5.14.
func TestWindowsCame(t *testing.T) {
	d := openDev(t, start(t, Options{Kernel: "5.10"}))
	_, err := d.allocMW(d.pd(), windowType1)
	want(t, "allocate", err, unix.EOPNOTSUPP)
	want(t, "free", d.deallocMW(0), unix.EPROTONOSUPPORT)
	_, q := pairOf(t, d.k, rawQP{access: bindAccess})
	if wc := q.do(q.bind(0, 0, 8)); wc.Status != provider.WCLocalQPOperationError {
		t.Errorf("bind: %v", wc.Status)
	}
	a, b := pair(t, d.k)
	if wc := b.do(provider.SendWR{Opcode: provider.OpLocalInvalidate, InvKey: b.mr.Rkey}); wc.Status != provider.WCSuccess {
		t.Errorf("invalidate a region: %v", wc.Status)
	}
	if wc := a.do(provider.SendWR{Opcode: provider.OpRDMAWrite, SGL: a.sge(0, 8), RemoteAddr: uapi.Addr(b.mem), RKey: b.mr.Rkey}); wc.Status != provider.WCRemoteAccessError {
		t.Errorf("write to it: %v", wc.Status)
	}
	d = openDev(t, start(t, Options{}))
	_, err = d.allocMW(d.pd(), 3)
	want(t, "type", err, unix.EINVAL)
	_, err = d.allocMW(99, windowType1)
	want(t, "domain", err, unix.ENOENT)
}
