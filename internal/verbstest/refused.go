//go:build linux

package verbstest

import (
	"errors"
	"syscall"
	"testing"

	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/uverbs"
)

// refused checks that what a device lacks is answered with ErrNotSupported, and that
// everything goes on working.
func (u *Suite) refused(t *testing.T, f feature) {
	t.Helper()
	switch f {
	case byHand, unreliable, datagrams, multicast:
		u.refusedTransport(t, f)
	case immediate:
		u.refusedOp(t, uverbs.SendWR{Opcode: uverbs.OpSendImm})
		u.refusedOp(t, uverbs.SendWR{Opcode: uverbs.OpRDMAWriteImm})
	case atomics:
		u.refusedOp(t, uverbs.SendWR{Opcode: uverbs.OpCompareSwap, SGL: make([]uverbs.SGE, 1)})
		u.refusedOp(t, uverbs.SendWR{Opcode: uverbs.OpFetchAdd, SGL: make([]uverbs.SGE, 1)})
	case atomicWrite:
		u.refusedOp(t, uverbs.SendWR{Opcode: uverbs.OpAtomicWrite, Flags: uverbs.SendInline, Inline: [][]byte{make([]byte, 8)}})
	case flushing:
		u.refusedOp(t, uverbs.SendWR{Opcode: uverbs.OpFlush, Flush: uverbs.FlushGlobal})
	case remoteInvalidate:
		u.refusedOp(t, uverbs.SendWR{Opcode: uverbs.OpSendInvalidate})
	case windows:
		u.refusedOp(t, uverbs.SendWR{Opcode: uverbs.OpBindMW, Bind: &uverbs.MWBind{}})
		h := u.newHost(t, 4096)
		for _, typ := range []uverbs.MWType{uverbs.MWType1, uverbs.MWType2} {
			_, err := h.pd.AllocMW(typ)
			notSupported(t, "allocate window", err)
		}
	case multiRead:
		u.refusedMultiRead(t)
	case partitions:
		h := u.newHost(t, 4096)
		if key, err := h.ctx.QueryPKey(1, 0); err == nil {
			t.Errorf("P_Key 0 is %#x", key)
		}
		if i, err := h.ctx.PKeyIndex(1, 0xffff); err == nil {
			t.Errorf("P_Key 0xffff is at index %d", i)
		}
	case drained:
		u.refusedDrain(t)
	case sharedResize, cqResize, rereg, onDemand:
		u.refusedChange(t, f)
	}
}

func notSupported(t testing.TB, what string, err error) {
	t.Helper()
	var e *uverbs.Error
	if !errors.Is(err, uverbs.ErrNotSupported) || !errors.As(err, &e) || e.Op == "" || e.Object == "" {
		t.Errorf("%s: got %v, want an Error of ErrNotSupported", what, err)
	}
}

// refusedOp: the request is not queued, alone or in company, and the connection is as good
// as before.
func (u *Suite) refusedOp(t *testing.T, wr uverbs.SendWR) {
	t.Helper()
	a, b := u.pair(t, 4096)
	if a.qp.Supports(wr.Opcode) {
		t.Errorf("Supports(%v) is true", wr.Opcode)
	}
	wr.ID, wr.Flags = 666, wr.Flags|uverbs.SendSignaled
	n, err := a.qp.PostSend([]uverbs.SendWR{wr})
	notSupported(t, "post", err)
	if n != 0 {
		t.Errorf("posted %d", n)
	}
	b.recv(t, 2, 0, 8)
	good := uverbs.SendWR{ID: 1, Opcode: uverbs.OpSend, Flags: uverbs.SendSignaled, SGL: []uverbs.SGE{a.mr.SGE(0, 8)}}
	n, err = a.qp.PostSend([]uverbs.SendWR{good, wr, good})
	notSupported(t, "post in the middle", err)
	if n != 1 {
		t.Errorf("posted %d, want the one before", n)
	}
	a.ok(t, 1, uverbs.WCSend)
	b.ok(t, 2, uverbs.WCRecv)
	works(t, a, b)
	a.quiet(t)
	b.quiet(t)
}

func (u *Suite) refusedTransport(t *testing.T, f feature) {
	t.Helper()
	h := u.newHost(t, 4096)
	switch f {
	case byHand:
		a := h.make(t, shape{})
		a.init(t)
		notSupported(t, "to RTR", a.qp.Modify(&uverbs.QPAttr{State: uverbs.StateRTR}, uverbs.QPAttrState))
	case unreliable:
		_, err := h.pd.CreateQP(h.complete(t, shape{Type: uverbs.QPTypeUC}))
		notSupported(t, "create UC", err)
	case datagrams:
		_, err := h.pd.CreateQP(h.complete(t, shape{Type: uverbs.QPTypeUD}))
		notSupported(t, "create UD", err)
		_, err = h.pd.CreateAH(&uverbs.AHAttr{IsGlobal: true, PortNum: 1})
		notSupported(t, "create address handle", err)
	case multicast:
		a := h.make(t, shape{})
		notSupported(t, "attach", a.qp.AttachMulticast(group, 0))
		notSupported(t, "detach", a.qp.DetachMulticast(group, 0))
	}
	a, b := u.pair(t, 4096)
	works(t, a, b)
}

func (u *Suite) refusedMultiRead(t *testing.T) {
	t.Helper()
	a, b := u.pair(t, 4096)
	wr := a.remote(uverbs.SendWR{Opcode: uverbs.OpRDMARead, SGL: []uverbs.SGE{a.mr.SGE(0, 8), a.mr.SGE(8, 8)}}, b)
	if n, err := a.qp.PostSend([]uverbs.SendWR{wr}); n != 0 || !errors.Is(err, uverbs.ErrInvalid) {
		t.Errorf("read into two pieces: posted %d, %v; want ErrInvalid", n, err)
	}
	works(t, a, b)
}

// refusedDrain: the answer says why, and the queue pair goes on.
func (u *Suite) refusedDrain(t *testing.T) {
	t.Helper()
	if !u.byHand(t) {
		return // iWARP has states of its own
	}
	a, b := u.pair(t, 4096)
	err := a.qp.Modify(&uverbs.QPAttr{State: uverbs.StateSQD}, uverbs.QPAttrState)
	var e *uverbs.Error
	if !errors.Is(err, syscall.EINVAL) || !errors.As(err, &e) || e.Hint == "" {
		t.Errorf("to SQD: got %v, want EINVAL and why", err)
	}
	works(t, a, b)
}

func (u *Suite) refusedChange(t *testing.T, f feature) {
	t.Helper()
	a, b := u.pair(t, 4096)
	switch f {
	case sharedResize:
		srq, err := a.pd.CreateSRQ(&uverbs.SRQInitAttr{MaxWR: 8, MaxSGE: 1})
		testutil.Must(t, err)
		before := srq.Cap()
		notSupported(t, "resize", srq.Modify(&uverbs.SRQAttr{MaxWR: 64}, uverbs.SRQAttrMaxWR))
		if srq.Cap() != before {
			t.Errorf("the size changed to %+v", srq.Cap())
		}
		closeAll(t, srq)
	case cqResize:
		before := a.cq.Cap()
		notSupported(t, "resize", a.cq.Resize(500))
		if a.cq.Cap() != before {
			t.Errorf("the size changed to %d", a.cq.Cap())
		}
	case rereg:
		lkey := a.mr.LKey()
		notSupported(t, "re-register", a.mr.Reregister(uverbs.ReregAccess, nil, nil, uverbs.AccessLocalWrite))
		if a.mr.LKey() != lkey {
			t.Error("the key changed")
		}
	case onDemand:
		notSupported(t, "advise", a.pd.AdviseMR(uverbs.AdvicePrefetch, true, []uverbs.SGE{a.mr.SGE(0, 8)}))
	}
	works(t, a, b)
}
