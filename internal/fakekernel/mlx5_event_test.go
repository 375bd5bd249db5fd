//go:build linux

package fakekernel

import (
	"testing"
	"time"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
)

// armed is a pair whose completions are counted in events.
func armedPair(t *testing.T) (a, b *mlxQP, write func()) {
	a, b = mlx5Pair(t, mlx5Kernel(t, "", MLX5{}), mlxQP{})
	return a, b, func() {
		a.d.t.Helper()
		a.do(mlx5Write, 0, remote(b.mr.addr(0), b.mr.key), a.mr.sge(0, 8))
	}
}

// TestMLX5Arm: an event for one completion each time that the queue was armed.
func TestMLX5Arm(t *testing.T) {
	a, _, write := armedPair(t)
	write()
	if !a.send.quiet() {
		t.Error("an event without arming")
	}
	for i := range 9 { // serial numbers have two bits
		a.send.arm(false)
		if !a.send.quiet() {
			t.Errorf("round %d: an event before the completion", i)
		}
		write()
		if !a.send.event() {
			t.Fatalf("round %d: no event", i)
		}
		write()
		if !a.send.quiet() {
			t.Errorf("round %d: a second event", i)
		}
	}
}

// TestMLX5ArmLate: there is already a newer completion than the user has consumed.
func TestMLX5ArmLate(t *testing.T) {
	a, _, write := armedPair(t)
	write()
	a.send.ci-- // as if it had not been seen
	a.send.arm(false)
	if !a.send.event() {
		t.Error("no event for a completion that is already there")
	}
	a.send.ci++
	a.send.arm(false)
	if !a.send.quiet() {
		t.Error("an event for a completion that was consumed")
	}
}

// TestMLX5ArmStale: a serial number that had its event asks for nothing.
func TestMLX5ArmStale(t *testing.T) {
	a, _, write := armedPair(t)
	a.send.arm(false)
	write()
	if !a.send.event() {
		t.Fatal("no event")
	}
	a.send.sn-- // the user forgot to count
	a.send.arm(false)
	write()
	if !a.send.quiet() {
		t.Error("an event for a serial number that had one")
	}
}

// TestMLX5ArmSolicited: sends do not count, receives do that the sender wants noticed, and
// what fails.
func TestMLX5ArmSolicited(t *testing.T) {
	a, b, _ := armedPair(t)
	send := func(flags byte) {
		b.recvs(b.mr.sge(0, 8))
		a.post(mlx5Send, wqeCompletion|flags, 0, a.mr.sge(0, 8))
		a.send.one()
		b.recv.one()
	}
	b.recv.arm(true)
	send(0)
	if !b.recv.quiet() {
		t.Error("an event for a receive that is not solicited")
	}
	send(wqeSolicited)
	if !b.recv.event() {
		t.Error("no event for a solicited receive")
	}
	b.recv.arm(true)
	b.recvs(nil)
	must(t, b.modify(abi.IbUverbsModifyQp{AttrMask: maskState, QpState: stateError}))
	if !b.recv.event() {
		t.Error("no event for a receive that was flushed")
	}
}

// TestMLX5ArmTwo: two queues that are armed by one register, in a moment.
func TestMLX5ArmTwo(t *testing.T) {
	d := openMLX5(t, mlx5Kernel(t, "", MLX5{}))
	a := (&mlxQP{d: d, send: d.cq(8), recv: d.cq(8)}).create()
	idle := d.cq(8)
	b := d.qp()
	mlx5Connect(t, a, b, 7)
	for range 5 {
		a.send.arm(false)
		a.recv.arm(false)
		a.recvs(a.mr.sge(0, 8))
		b.post(mlx5Send, 0, 0, b.mr.sge(0, 8))
		a.recv.one()
		a.do(mlx5Write, 0, remote(b.mr.addr(0), b.mr.key), a.mr.sge(0, 8))
		if !a.send.event() || !a.recv.event() {
			t.Fatal("an event is missing")
		}
	}
	if !idle.quiet() {
		t.Error("an event of a queue that was never armed")
	}
}

// TestMLX5EventsReported: the answer to DESTROY counts events that were read.
func TestMLX5EventsReported(t *testing.T) {
	d := openMLX5(t, mlx5Kernel(t, "", MLX5{}))
	c := d.cq(8)
	a, b := (&mlxQP{d: d, send: c, recv: d.cq(8)}).create(), d.qp()
	mlx5Connect(t, a, b, 7)
	for range 3 {
		c.arm(false)
		a.do(mlx5Write, 0, remote(b.mr.addr(0), b.mr.key), a.mr.sge(0, 8))
		if !c.event() {
			t.Fatal("no event")
		}
	}
	var qr abi.IbUverbsDestroyQpResp
	must(t, mlx5cmd(uapi.QPDestroy).Destroy(abi.UVERBS_ATTR_DESTROY_QP_HANDLE, a.handle).
		Out(abi.UVERBS_ATTR_DESTROY_QP_RESP, bytesOf(&qr)).Do(d.f))
	var cr abi.IbUverbsDestroyCqResp
	must(t, mlx5cmd(uapi.CQDestroy).Destroy(abi.UVERBS_ATTR_DESTROY_CQ_HANDLE, c.handle).
		Out(abi.UVERBS_ATTR_DESTROY_CQ_RESP, bytesOf(&cr)).Do(d.f))
	if cr.CompEventsReported != 3 {
		t.Errorf("%d events reported, want 3", cr.CompEventsReported)
	}
}

// TestMLX5Resize: the device says in the old ring where it stops, and goes on in the new one.
func TestMLX5Resize(t *testing.T) {
	for _, version := range []string{"6.1", "7.2"} {
		d := openMLX5(t, mlx5Kernel(t, version, MLX5{}))
		c := d.cq(8)
		a, b := (&mlxQP{d: d, send: c, recv: d.cq(8)}).create(), d.qp()
		mlx5Connect(t, a, b, 7)
		write := func() uint16 {
			return a.post(mlx5Write, wqeCompletion, 0, remote(b.mr.addr(0), b.mr.key), a.mr.sge(0, 8))
		}
		write()
		c.one()
		write()
		write()
		waitFor(t, func() bool { return c.buf[2*64+63]>>4 == 0 })
		buf := cqBuffer(t, 16, 64)
		told, err := c.resize(15, buf, 64)
		must(t, err)
		if told != 15 {
			t.Errorf("%d entries, want 15", told)
		}
		for i := range 2 {
			if e, ok := c.take(); !ok || e.opcode() != cqeRequest {
				t.Fatalf("entry %d of the old ring is not there", i)
			}
		}
		if e, ok := c.take(); !ok || e.opcode() != cqeResize {
			t.Fatal("the old ring has no end")
		}
		c.release()
		c.buf, c.n = buf, 16
		for i := range uint16(20) {
			wantCQE(t, "new ring", a.do(mlx5Write, 0, remote(b.mr.addr(0), b.mr.key), a.mr.sge(0, 8)), cqeRequest, 3+i, 0)
		}
	}
}

func (c *mlxCQ) resize(cqe uint32, buf []byte, size uint16) (uint32, error) {
	in := abi.IbUverbsResizeCq{CqHandle: c.handle, Cqe: cqe}
	hw := abi.Mlx5IbResizeCq{BufAddr: uapi.Addr(buf), CqeSize: size}
	var r abi.IbUverbsResizeCqResp
	err := c.d.invoke(uapi.ResizeCQ, bytesOf(&in), bytesOf(&r), bytesOf(&hw), nil)
	return r.Cqe, err
}

// waitFor waits until something is so.
func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	for range 5000 {
		if ok() {
			return
		}
		time.Sleep(100 * time.Microsecond)
	}
	t.Fatal("it never came to pass")
}
