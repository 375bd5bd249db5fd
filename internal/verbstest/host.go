//go:build linux

package verbstest

import (
	"context"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/uverbs"
)

// host is an open device and what queue pairs on it stand on.
type host struct {
	u   *Suite
	ctx *uverbs.Context
	pd  *uverbs.PD
	ch  *uverbs.CompChannel
	cq  *uverbs.CQ
	mr  *uverbs.MR
}

const fullAccess = uverbs.AccessLocalWrite | uverbs.AccessRemoteWrite | uverbs.AccessRemoteRead

// access is all that peers may be given on the device.
func (u *Suite) access(t testing.TB) uverbs.AccessFlags {
	a := fullAccess
	if u.has(t, atomics) {
		a |= uverbs.AccessRemoteAtomic
	}
	if u.has(t, windows) {
		a |= uverbs.AccessMWBind
	}
	return a
}

// newHost opens the device, with size bytes of memory for everyone, and a completion queue
// for 256 completions.
func (u *Suite) newHost(t testing.TB, size int) *host {
	t.Helper()
	return u.newHostWith(t, size, u.access(t), uverbs.CQInitAttr{CQE: 256})
}

func (u *Suite) newHostWith(t testing.TB, size int, access uverbs.AccessFlags, attr uverbs.CQInitAttr) *host {
	t.Helper()
	h := &host{u: u}
	var err error
	h.ctx, err = u.Device(t).Open()
	testutil.Must(t, err)
	t.Cleanup(func() { h.close(t) })
	h.pd, err = h.ctx.AllocPD()
	testutil.Must(t, err)
	h.ch, err = u.channel(h.ctx)
	testutil.Must(t, err)
	attr.Channel = h.ch
	h.cq, err = h.ctx.CreateCQAttr(&attr)
	testutil.Must(t, err)
	h.mr, err = h.pd.AllocMR(size, access)
	testutil.Must(t, err)
	return h
}

type closer interface{ Close() error }

// close closes what there is. Queue pairs are gone by now.
func (h *host) close(t testing.TB) {
	var all []closer
	if h.mr != nil {
		all = append(all, h.mr)
	}
	if h.cq != nil {
		all = append(all, h.cq)
	}
	if h.ch != nil {
		all = append(all, h.ch)
	}
	if h.pd != nil {
		all = append(all, h.pd)
	}
	closeAll(t, append(all, h.ctx)...)
}

func closeAll(t testing.TB, all ...closer) {
	t.Helper()
	for _, c := range all {
		if err := c.Close(); err != nil {
			t.Errorf("close %v: %v", c, err)
		}
	}
}

// extraCQ is one more completion queue, which lives as long as the test.
func (h *host) extraCQ(t testing.TB, attr uverbs.CQInitAttr) *uverbs.CQ {
	t.Helper()
	cq, err := h.ctx.CreateCQAttr(&attr)
	testutil.Must(t, err)
	t.Cleanup(func() { closeAll(t, cq) })
	return cq
}

// region is one more memory region, which lives as long as the test.
func (h *host) region(t testing.TB, size int, access uverbs.AccessFlags) *uverbs.MR {
	t.Helper()
	mr, err := h.pd.AllocMR(size, access)
	testutil.Must(t, err)
	t.Cleanup(func() { closeAll(t, mr) })
	return mr
}

// patience is how long a test waits for what has to come.
const patience = 30 * time.Second

// next waits for one completion of a queue, by polling where it has no channel.
func next(t testing.TB, cq *uverbs.CQ) uverbs.WC {
	t.Helper()
	var wcs [1]uverbs.WC
	deadline := time.Now().Add(patience)
	for {
		n, err := cq.Poll(wcs[:])
		testutil.Must(t, err)
		if n > 0 {
			return wcs[0]
		}
		if time.Now().After(deadline) {
			t.Fatal("no completion came")
		}
		runtime.Gosched()
	}
}

// next waits for one completion, parked.
func (h *host) next(t testing.TB) uverbs.WC {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var wcs [1]uverbs.WC
	_, err := h.cq.Wait(ctx, wcs[:])
	testutil.Must(t, err)
	return wcs[0]
}

// ok waits for the success of a work request.
func (h *host) ok(t testing.TB, id uint64, op uverbs.WCOpcode) uverbs.WC {
	t.Helper()
	return expect(t, h.next(t), id, op)
}

func expect(t testing.TB, wc uverbs.WC, id uint64, op uverbs.WCOpcode) uverbs.WC {
	t.Helper()
	testutil.Must(t, wc.Err())
	if wc.ID != id || wc.Opcode != op {
		t.Fatalf("got completion %+v, want id %d, %v", wc, id, op)
	}
	return wc
}

// failsThere waits for the failure of a work request at the peer. A driver whose responder
// keeps silent about bad requests (rxe of 5.10) lets the requester try in vain.
func (h *host) failsThere(t testing.TB, id uint64, statuses ...uverbs.WCStatus) {
	t.Helper()
	if !h.u.has(t, tellsErrors) {
		statuses = append(statuses, uverbs.WCRetryExceeded)
	}
	if wc := h.next(t); wc.ID != id || !slices.Contains(statuses, wc.Status) {
		t.Fatalf("got completion %+v, want id %d, %v", wc, id, statuses)
	}
}

// quiet checks that no completion is there.
func (h *host) quiet(t testing.TB) {
	t.Helper()
	var wcs [4]uverbs.WC
	if n, err := h.cq.Poll(wcs[:]); n != 0 || err != nil {
		t.Errorf("%d completions that nobody expects, first %+v; %v", n, wcs[0], err)
	}
}
