//go:build linux

package fakekernel

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pureverbs/rdma/abi"
)

// TestMLX5SendGolden: one SEND, and every byte of both completions.
func TestMLX5SendGolden(t *testing.T) {
	a, b := mlx5Pair(t, mlx5Kernel(t, "", MLX5{}), mlxQP{})
	b.recvs(b.mr.sge(0, 100))
	copy(a.mr.mem, "hello, device")
	i := a.queue(mlx5Send, wqeCompletion|wqeSolicited, 0, a.mr.sge(0, 13))
	golden(t, "request", a.sq[:32], `0000000a 00001102 0000000a 00000000 | 0000000d 0000019d ????????????????`)
	a.blueFlame(i)
	golden(t, "send", a.send.one(), `
		00000000 00000000 00000000 00000000 | 00000000 00000000 00000000 00000000 |
		00000000 00000000 00000000 00000000 | ???????? ???????? 0a000011 00000000`)
	golden(t, "receive", b.recv.one(), `
		00000000 00000000 00000000 00000000 | 00000000 00000000 00000000 00000000 |
		00000100 00000000 00000000 0000000d | ???????? ???????? 00000012 00000020`)
	if got := string(b.mr.mem[:13]); got != "hello, device" {
		t.Errorf("received %q", got)
	}
}

// TestMLX5Operations: what the operations of RC do, and how they complete.
func TestMLX5Operations(t *testing.T) {
	for _, version := range []string{"5.10", "6.1", "6.12", "7.2"} {
		t.Run(version, func(t *testing.T) { testOperations(t, mlx5Kernel(t, version, MLX5{})) })
	}
}

func testOperations(t *testing.T, k *Kernel) {
	a, b := mlx5Pair(t, k, mlxQP{})
	there := remote(b.mr.addr(1024), b.mr.key)
	copy(a.mr.mem, "0123456789")

	e := a.do(mlx5Write, 0, there, a.mr.sge(0, 4), a.mr.sge(6, 4))
	wantCQE(t, "write", e, cqeRequest, 0, 0)
	if e.sop() != mlx5Write || e.qpn() != a.num || e.index() != a.uidx {
		t.Errorf("write: opcode %#x of %#x (%#x), want %#x %#x (%#x)", e.sop(), e.qpn(), e.index(), mlx5Write, a.num, a.uidx)
	}
	b.recvs(nil)
	wantCQE(t, "write with immediate", a.do(mlx5WriteImm, 0xfeedbeef, remote(b.mr.addr(1032), b.mr.key), inlineData("inline")), cqeRequest, 1, 0)
	e = b.recv.one()
	wantCQE(t, "its receive", e, cqeRecvWriteImm, 0, 0)
	if e.imm() != 0xfeedbeef || e.bytes() != 6 || e.index() != b.uidx {
		t.Errorf("write with immediate: %#x, %d bytes, index %#x", e.imm(), e.bytes(), e.index())
	}
	if got := string(b.mr.mem[1024:1038]); got != "01236789inline" {
		t.Errorf("written %q", got)
	}

	e = a.do(mlx5Read, 0, there, a.mr.sge(100, 3), a.mr.sge(200, 5))
	wantCQE(t, "read", e, cqeRequest, 2, 0)
	if got := string(a.mr.mem[100:103]) + string(a.mr.mem[200:205]); got != "01236789" || e.bytes() != 8 {
		t.Errorf("read %q, %d bytes", got, e.bytes())
	}

	b.recvs(b.mr.sge(0, 2), append(b.mr.sge(8, 2), b.mr.sge(16, 30)...))
	wantCQE(t, "send with immediate", a.do(mlx5SendImm, 7, a.mr.sge(0, 1)), cqeRequest, 3, 0)
	e = b.recv.one()
	wantCQE(t, "its receive", e, cqeRecvSendImm, 1, 0)
	if e.imm() != 7 || e.bytes() != 1 {
		t.Errorf("send with immediate: %#x, %d bytes", e.imm(), e.bytes())
	}
	wantCQE(t, "inline send", a.do(mlx5Send, 0, inlineData("scattered")), cqeRequest, 4, 0)
	wantCQE(t, "its receive", b.recv.one(), cqeRecvSend, 2, 0)
	if got := string(b.mr.mem[8:10]) + string(b.mr.mem[16:23]); got != "scattered" {
		t.Errorf("scattered %q", got)
	}
	b.recvs(nil)
	wantCQE(t, "empty send", a.do(mlx5Send, 0), cqeRequest, 5, 0)
	wantCQE(t, "its receive", b.recv.one(), cqeRecvSend, 3, 0)
	wantCQE(t, "nothing", a.do(mlx5Nop, 0), cqeRequest, 6, 0)
}

// TestMLX5Atomics: operands are big-endian in the request, results as the CPU has them.
func TestMLX5Atomics(t *testing.T) {
	a, b := mlx5Pair(t, mlx5Kernel(t, "", MLX5{}), mlxQP{})
	word, old := view[uint64](b.mr.mem[64:]), view[uint64](a.mr.mem)
	there, operands := remote(b.mr.addr(64), b.mr.key), make([]byte, 16)
	*word = 40
	be.PutUint64(operands, 2)
	e := a.do(mlx5Add, 0, there, operands, a.mr.sge(0, 8))
	if *word != 42 || *old != 40 || e.bytes() != 8 || e.sop() != mlx5Add {
		t.Errorf("fetch and add: %d, brought %d, %d bytes, opcode %#x", *word, *old, e.bytes(), e.sop())
	}
	be.PutUint64(operands, 1<<40)
	be.PutUint64(operands[8:], 42)
	a.do(mlx5Swap, 0, there, operands, a.mr.sge(0, 8))
	if *word != 1<<40 || *old != 42 {
		t.Errorf("compare and swap: %#x, brought %d", *word, *old)
	}
	a.do(mlx5Swap, 0, there, operands, a.mr.sge(0, 8))
	if *word != 1<<40 || *old != 1<<40 {
		t.Errorf("compare and swap of another value: %#x, brought %#x", *word, *old)
	}
}

// TestMLX5Wrap: requests go on at the beginning of the ring: data, inline bytes, and the
// counters of 16 bits.
func TestMLX5Wrap(t *testing.T) {
	a, b := mlx5Pair(t, mlx5Kernel(t, "", MLX5{}), mlxQP{sqCount: 4})
	there := remote(b.mr.addr(0), b.mr.key)
	long := "this is more than what fits into one block, and so it has to go on in the next one, or at the start"
	for i := range 20 {
		clear(b.mr.mem[:128])
		copy(a.mr.mem, long)
		if i%2 == 0 {
			a.do(mlx5Write, 0, there, a.mr.sge(0, 10), a.mr.sge(10, 20), a.mr.sge(30, 40), a.mr.sge(70, len(long)-70))
		} else {
			a.do(mlx5Write, 0, there, inlineData(long))
		}
		if got := string(b.mr.mem[:len(long)]); got != long {
			t.Fatalf("request %d: %q", i, got)
		}
	}
}

// TestMLX5CounterWrap: indices of blocks have 16 bits.
func TestMLX5CounterWrap(t *testing.T) {
	k := mlx5Kernel(t, "", MLX5{})
	a, b := mlx5Pair(t, k, mlxQP{})
	k.mu.Lock() // as if that many had been posted
	qpOf(k, a.num).mlx5().at, a.cur = 0xfffe, 0xfffe
	qpOf(k, b.num).mlx5().rq.head, b.head = 0xffff, 0xffff
	k.mu.Unlock()
	for i := range uint16(4) {
		b.recvs(b.mr.sge(0, 8))
		wantCQE(t, "send", a.do(mlx5Send, 0, a.mr.sge(0, 8)), cqeRequest, 0xfffe+i, 0)
		wantCQE(t, "receive", b.recv.one(), cqeRecvSend, 0xffff+i, 0)
	}
}

func qpOf(k *Kernel, num uint32) *qp { return k.devices[0].qps[num] }

// TestMLX5Unsignaled: what is not signaled does not complete, unless all is.
func TestMLX5Unsignaled(t *testing.T) {
	for _, sigAll := range []bool{false, true} {
		a, b := mlx5Pair(t, mlx5Kernel(t, "", MLX5{}), mlxQP{sigAll: sigAll})
		b.recvs(b.mr.sge(0, 8), b.mr.sge(0, 8), b.mr.sge(0, 8))
		a.queue(mlx5Send, 0, 0, a.mr.sge(0, 8))
		a.queue(mlx5Send, 0, 0, a.mr.sge(0, 8))
		a.ring(a.queue(mlx5Send, wqeCompletion, 0, a.mr.sge(0, 8)))
		var got []uint16
		for len(got) == 0 || got[len(got)-1] != 2 {
			got = append(got, a.send.one().counter())
		}
		want := []uint16{2}
		if sigAll {
			want = []uint16{0, 1, 2}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("signal all %v: completions (-want +got):\n%s", sigAll, d)
		}
	}
}

// TestMLX5Rings: the ring of completions goes round, and who owns an entry with it.
func TestMLX5Rings(t *testing.T) {
	k := mlx5Kernel(t, "", MLX5{})
	d := openMLX5(t, k)
	c := d.cq(4)
	a, b := (&mlxQP{d: d, send: c, recv: d.cq(4)}).create(), d.qp()
	mlx5Connect(t, a, b, 7)
	for i := range uint16(20) {
		b.recvs(b.mr.sge(0, 8))
		wantCQE(t, "send", a.do(mlx5Send, 0, a.mr.sge(0, 8)), cqeRequest, i, 0)
		wantCQE(t, "receive", b.recv.one(), cqeRecvSend, i, 0)
	}
}

// TestMLX5TwoDevices: queue pairs of two devices, one of them as of an old kernel, with
// large completions on one side.
func TestMLX5TwoDevices(t *testing.T) {
	k := start(t, Options{Devices: []Device{
		{Driver: abi.RDMA_DRIVER_MLX5},
		{Driver: abi.RDMA_DRIVER_MLX5, MLX5: MLX5{StaticUARs: true, CQEVersion0: true}},
	}})
	d, e := openMLX5Node(t, k, 0), openMLX5Node(t, k, 1)
	large := &mlxCQ{d: e, n: 8, size: 128}
	large.create()
	a, b := d.qp(), (&mlxQP{d: e, send: large}).create()
	mlx5Connect(t, a, b, 7)
	for i := range uint16(12) {
		b.recvs(b.mr.sge(0, 8))
		a.do(mlx5Send, 0, a.mr.sge(0, 8))
		r := b.recv.one()
		wantCQE(t, "receive", r, cqeRecvSend, i, 0)
		if r.index() != 0 || r.qpn() != b.num {
			t.Errorf("completion of version 0: index %#x, number %#x, want 0 and %#x", r.index(), r.qpn(), b.num)
		}
		a.recvs(a.mr.sge(0, 8))
		wantCQE(t, "answer", b.do(mlx5Send, 0, b.mr.sge(0, 8)), cqeRequest, i, 0)
		a.recv.one()
	}
}
