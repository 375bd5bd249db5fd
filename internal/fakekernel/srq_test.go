//go:build linux

package fakekernel

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
	"github.com/pureverbs/rdma/internal/provider/rxe"
	"github.com/pureverbs/rdma/internal/uapi"
)

// TestSRQAnswers: what may be asked for, and what rxe of different ages answers.
func TestSRQAnswers(t *testing.T) {
	for kernel, wants := range map[string]uint32{"6.1": 10, "6.12": 15} {
		d := openDev(t, start(t, Options{Kernel: kernel}))
		s := d.srq(d.pd(), 10)
		if s.maxWR != wants || s.maxSGE != 2 {
			t.Errorf("%s: 10 requests of 2 pieces became %d of %d, want %d", kernel, s.maxWR, s.maxSGE, wants)
		}
		if got := s.query(); got.MaxWr != 15 || got.MaxSge != 2 || got.SrqLimit != 0 {
			t.Errorf("%s: query: %+v", kernel, got)
		}
	}
	d := openDev(t, start(t, Options{}))
	pd := d.pd()
	for _, tt := range []struct {
		name    string
		wr, sge uint32
		out     int
		want    unix.Errno
	}{
		{"no piece", 1, 0, 24, 0},
		{"nothing", 0, 1, 24, unix.EINVAL},
		{"too much", 1<<20 + 1, 1, 24, unix.EINVAL},
		{"too many pieces", 1, 28, 24, unix.EINVAL},
		{"no room for the answer", 1, 1, 16, unix.EINVAL},
	} {
		s := new(rawSRQ)
		want(t, tt.name, createSRQ(s, pd, tt.wr, tt.sge, 0, make([]byte, tt.out)).Do(d.f), tt.want)
		if tt.want == 0 && s.maxSGE != 1 {
			t.Errorf("%s: %d pieces, want 1", tt.name, s.maxSGE)
		}
	}
}

// TestSRQShared: two queue pairs take from one queue, in order. It ends after them, and an
// error of one of them is nothing to it.
func TestSRQShared(t *testing.T) {
	for kernel, lastWQE := range map[string][][2]uint64{"6.1": nil, "6.12": {{0xbeef, asyncLastWQE}}} {
		k := start(t, Options{Kernel: kernel})
		d, e := openDev(t, k), openDev(t, k)
		pd := d.pd()
		s := d.srq(pd, 8)
		b1, b2 := d.build(&rawQP{pd: pd, shared: s}), d.build(&rawQP{pd: pd, shared: s})
		a1, a2 := e.qp(), e.qp()
		connect(t, a1, b1, 7, 7)
		connect(t, a2, b2, 7, 7)
		if b1.q.HasRecv() || b1.cap.MaxRecvWR != 16 {
			t.Errorf("a receive queue is there, of %d", b1.cap.MaxRecvWR)
		}
		for i := range 4 {
			s.recv(uint64(i), b1.sge(0, 64))
		}
		for i, a := range []*rawQP{a1, a2, a1} {
			if wc := a.do(provider.SendWR{Opcode: provider.OpSend, SGL: a.sge(0, 8)}); wc.Status != provider.WCSuccess && a == a1 {
				t.Errorf("send %d: %v", i, wc.Status)
			}
		}
		var ids []uint64
		for _, wc := range append(b1.cq.poll(), b2.cq.poll()...) {
			ids = append(ids, wc.ID)
		}
		if diff := cmp.Diff([]uint64{0, 2, 1}, ids); diff != "" {
			t.Errorf("requests taken (-want +got):\n%s", diff)
		}
		end := func() error {
			var r abi.IbUverbsDestroySrqResp
			return cmd(uapi.SRQDestroy).Destroy(abi.UVERBS_ATTR_DESTROY_SRQ_HANDLE, s.handle).
				Out(abi.UVERBS_ATTR_DESTROY_SRQ_RESP, bytesOf(&r)).Do(d.f)
		}
		want(t, "destroy while in use", end(), unix.EBUSY)
		must(t, b1.modify(abi.IbUverbsModifyQp{AttrMask: maskState, QpState: stateError}))
		if got := b1.cq.poll(); len(got) > 0 {
			t.Errorf("flushed: %+v", got)
		}
		d.wantAsync(kernel, lastWQE...)
		must(t, b1.destroy())
		must(t, b2.destroy())
		want(t, "destroy", end(), 0)
		if n := k.Counts().SRQs; n != 0 {
			t.Errorf("%d shared receive queues", n)
		}
	}
}

// TestSRQLimit: the event comes once, when fewer requests than the limit are left.
func TestSRQLimit(t *testing.T) {
	k := start(t, Options{})
	d := openDev(t, k)
	pd := d.pd()
	s := d.srq(pd, 8)
	b, a := d.build(&rawQP{pd: pd, shared: s}), openDev(t, k).qp()
	connect(t, a, b, 7, 7)
	for i := range 6 {
		s.recv(uint64(i), b.sge(0, 64))
	}
	hit := func() { a.do(provider.SendWR{Opcode: provider.OpSend}) }
	want(t, "without driver input", s.modify(srqLimit, 0, 4, nil), unix.EINVAL)
	want(t, "limit over the size", s.modify(srqLimit, 0, 16, make([]byte, 8)), unix.EINVAL)
	want(t, "limit", s.modify(srqLimit, 0, 4, make([]byte, 8)), 0)
	if got := s.query(); got.SrqLimit != 4 {
		t.Errorf("query: %+v", got)
	}
	hit()
	hit()
	d.wantAsync("4 left")
	hit()
	d.wantAsync("3 left", [2]uint64{0x5e9, asyncSRQLimit})
	hit()
	d.wantAsync("2 left, not armed again")
	if got := s.query(); got.SrqLimit != 0 {
		t.Errorf("query: %+v", got)
	}
}

// TestSRQResize: what was posted is in the new queue.
func TestSRQResize(t *testing.T) {
	k := start(t, Options{})
	d := openDev(t, k)
	pd := d.pd()
	s := d.srq(pd, 8)
	b, a := d.build(&rawQP{pd: pd, shared: s}), openDev(t, k).qp()
	connect(t, a, b, 7, 7)
	for i := range 9 {
		s.recv(uint64(i), b.sge(i*64, 64))
		if i < 3 {
			a.do(provider.SendWR{Opcode: provider.OpSend})
		}
	}
	room := make([]byte, 16)
	plan := rxe.NewResizePlan(room, address(t, room))
	must(t, s.modify(srqLimit, 0, 2, plan.In()))
	want(t, "too small for what is there", s.modify(srqMaxWR, 3, 0, plan.In()), unix.EINVAL)
	want(t, "under the limit", s.modify(srqMaxWR, 1, 0, plan.In()), unix.EINVAL)
	want(t, "nothing", s.modify(srqMaxWR, 0, 0, plan.In()), unix.EINVAL)
	want(t, "bad address", s.modify(srqMaxWR, 100, 0, make([]byte, 8)), unix.EFAULT)
	must(t, s.modify(srqMaxWR, 100, 0, plan.In()))
	old := s.q
	var err error
	s.q, err = plan.Attach(d.mapper, s.maxSGE)
	must(t, err)
	must(t, old.Close())
	if got := s.query(); got.MaxWr != 127 {
		t.Errorf("query: %+v", got)
	}
	s.recv(9, b.sge(0, 64))
	for range 7 {
		a.do(provider.SendWR{Opcode: provider.OpSend})
	}
	for i, wc := range b.cq.poll() {
		if wc.ID != uint64(i) || wc.Status != provider.WCSuccess {
			t.Errorf("completion %d: %+v", i, wc)
		}
	}
}
