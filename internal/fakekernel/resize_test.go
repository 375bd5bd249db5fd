//go:build linux

package fakekernel

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
	"github.com/pureverbs/rdma/internal/provider/rxe"
	"github.com/pureverbs/rdma/internal/uapi"
)

// TestResizeCQ: what was in the queue is in the new one, from the first that was not taken,
// and so is the wish for an event.
func TestResizeCQ(t *testing.T) {
	k := start(t, Options{})
	d := openDev(t, k)
	cq := d.cq(7)
	a, b := d.qpOn(cq), openDev(t, k).qp()
	connect(t, a, b, 7, 7)
	write := func(id uint64) {
		a.send(provider.SendWR{ID: id, Opcode: provider.OpRDMAWrite, Flags: provider.SendSignaled})
	}
	for id := range uint64(4) { // round the end of the ring
		write(id)
		cq.one()
	}
	for id := range uint64(6) {
		write(id)
	}
	cq.one()
	cq.arm(0)
	resize := func(n uint32, plan *rxe.CQPlan) (uint32, error) {
		var r abi.IbUverbsResizeCqResp
		err := uapi.Invoke(d.f, abi.RDMA_DRIVER_RXE, uapi.ResizeCQ, bytesOf(&abi.IbUverbsResizeCq{CqHandle: cq.handle, Cqe: n}), bytesOf(&r), nil, plan.Out())
		return r.Cqe, err
	}
	var plan rxe.CQPlan
	for name, n := range map[string]uint32{"too small": 4, "nothing": 0, "too big": maxCQE + 1} {
		_, err := resize(n, &plan)
		want(t, name, err, unix.EINVAL)
	}
	short := uapi.Invoke(d.f, abi.RDMA_DRIVER_RXE, uapi.ResizeCQ, bytesOf(&abi.IbUverbsResizeCq{CqHandle: cq.handle, Cqe: 9}), make([]byte, 8), nil, make([]byte, 8))
	want(t, "no room for the answer", short, unix.EINVAL)
	n, err := resize(20, &plan)
	must(t, err)
	if n != 31 {
		t.Errorf("20 entries became %d, want 31", n)
	}
	old := cq.q
	cq.q, err = plan.Attach(d.mapper)
	must(t, err)
	must(t, old.Close())
	write(6)
	for i, wc := range cq.poll() {
		if wc.ID != uint64(i+1) {
			t.Errorf("completion %d has id %d, want %d", i, wc.ID, i+1)
		}
	}
	if !cq.event() {
		t.Error("no event for the completion after the change")
	}
	if n := k.Counts().Maps; n != 6 {
		t.Errorf("%d mappings, want 6", n)
	}
}
