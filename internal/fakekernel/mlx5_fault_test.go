//go:build linux

package fakekernel

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pureverbs/rdma/abi"
)

// TestMLX5Faults: what both sides see of a request that fails, by syndrome, and which
// asynchronous event there is. -1: none, 0xff: nothing completes.
func TestMLX5Faults(t *testing.T) {
	bad := func(q *mlxQP) []byte { return dataSegment(8, q.mr.key^0x700, q.mr.addr(0)) }
	end := 1 << 16
	const none, nothing = -1, 0xff
	for _, tt := range []struct {
		name         string
		do           func(a, b *mlxQP)
		send, recv   byte // syndromes; nothing: no completion
		event        int  // of the responder
		state        uint8
		receiverLost bool // its queue pair is in error, too
	}{
		{"local key", func(a, b *mlxQP) { a.post(mlx5Send, 0, 0, bad(a)) }, 0x04, nothing, none, stateError, false},
		{"local range", func(a, b *mlxQP) { a.post(mlx5Send, 0, 0, a.mr.sge(end-4, 8)) }, 0x04, nothing, none, stateError, false},
		{"piece of no length", func(a, b *mlxQP) { a.post(mlx5Send, 0, 0, a.mr.sge(0, 0)) }, 0x01, nothing, none, stateError, false},
		{"unknown opcode", func(a, b *mlxQP) { a.post(0x33, 0, 0, a.mr.sge(0, 8)) }, 0x02, nothing, none, stateError, false},
		{"another's number", func(a, b *mlxQP) {
			i := a.queue(mlx5Send, 0, 0, a.mr.sge(0, 8))
			a.sq[6]++
			a.ring(i)
		}, 0x02, nothing, none, stateError, false},
		{"another index", func(a, b *mlxQP) {
			i := a.queue(mlx5Send, 0, 0, a.mr.sge(0, 8))
			a.sq[2]++
			a.ring(i)
		}, 0x02, nothing, none, stateError, false},
		{"longer than the ring", func(a, b *mlxQP) {
			i := a.queue(mlx5Send, 0, 0, a.mr.sge(0, 8))
			a.sq[7] = 0
			a.ring(i)
		}, 0x02, nothing, none, stateError, false},
		{"inline bytes that are not there", func(a, b *mlxQP) { a.post(mlx5Send, 0, 0, dataSegment(inlineBit|13, 0, 0)) }, 0x02, nothing, none, stateError, false},
		{"remote key", func(a, b *mlxQP) { a.post(mlx5Write, 0, 0, remote(b.mr.addr(0), b.mr.key^0x700), a.mr.sge(0, 8)) }, 0x13, nothing, asyncAccess, stateError, true},
		{"remote range", func(a, b *mlxQP) { a.post(mlx5Read, 0, 0, remote(b.mr.addr(end-4), b.mr.key), a.mr.sge(0, 8)) }, 0x13, nothing, asyncAccess, stateError, true},
		{"atomic that is not aligned", func(a, b *mlxQP) {
			a.post(mlx5Add, 0, 0, remote(b.mr.addr(4), b.mr.key), make([]byte, 16), a.mr.sge(0, 8))
		}, 0x12, nothing, asyncQPRequest, stateError, true},
		{"write with immediate, remote key", func(a, b *mlxQP) {
			b.recvs(nil)
			a.post(mlx5WriteImm, 0, 0, remote(b.mr.addr(0), 0x123400), a.mr.sge(0, 8))
		}, 0x13, 0x05, asyncAccess, stateError, true},
		{"receive too short", func(a, b *mlxQP) {
			b.recvs(b.mr.sge(0, 7))
			a.post(mlx5Send, 0, 0, a.mr.sge(0, 8))
		}, 0x12, 0x01, none, stateError, true},
		{"receive's key", func(a, b *mlxQP) {
			b.recvs(bad(b))
			a.post(mlx5Send, 0, 0, a.mr.sge(0, 8))
		}, 0x14, 0x04, none, stateError, true},
		{"invalidate what is no window", func(a, b *mlxQP) {
			b.recvs(b.mr.sge(0, 8))
			a.post(mlx5SendInv, 0, b.mr.key, a.mr.sge(0, 8))
		}, 0x13, 0x11, none, stateError, true},
		{"nobody there", func(a, b *mlxQP) {
			b.modify(abi.IbUverbsModifyQp{AttrMask: maskState, QpState: stateReset})
			a.post(mlx5Send, 0, 0, a.mr.sge(0, 8))
		}, 0x15, nothing, none, stateError, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, b := mlx5Pair(t, mlx5Kernel(t, "", MLX5{}), mlxQP{})
			tt.do(a, b)
			e := a.send.one()
			wantCQE(t, "send", e, cqeRequestError, 0, tt.send)
			if tt.recv != nothing {
				wantCQE(t, "receive", b.recv.one(), cqeResponseError, 0, tt.recv)
			} else {
				b.recv.none("receive")
			}
			wait := time.Second
			if tt.event == none {
				wait = 5 * time.Millisecond
			}
			if got := b.d.asyncEvent(wait); got != tt.event {
				t.Errorf("event %d, want %d", got, tt.event)
			}
			if got := a.state(); got != tt.state {
				t.Errorf("state %d, want %d", got, tt.state)
			}
			if got := b.state() == stateError; got != tt.receiverLost {
				t.Errorf("receiver in error: %v, want %v", got, tt.receiverLost)
			}
		})
	}
}

// TestMLX5FaultGolden: every byte of a bad completion.
func TestMLX5FaultGolden(t *testing.T) {
	a, b := mlx5Pair(t, mlx5Kernel(t, "", MLX5{}), mlxQP{})
	a.do(mlx5Nop, 0)
	golden(t, "bad write", a.do(mlx5Write, 0, remote(b.mr.addr(0), 1), a.mr.sge(0, 8)), `
		00000000 00000000 00000000 00000000 | 00000000 00000000 00000000 00000000 |
		00000000 00000000 00000000 00000000 | 00000000 00008813 08000011 000100d0`)
}

// counters are the next n completions, which have all the same opcode and syndrome.
func counters(t *testing.T, c *mlxCQ, n int, opcode, syndrome byte) (got []uint16) {
	t.Helper()
	for range n {
		e := c.one()
		if e.opcode() != opcode || e.syndrome() != syndrome {
			t.Errorf("opcode %d syndrome %#x, want %d %#x", e.opcode(), e.syndrome(), opcode, syndrome)
		}
		got = append(got, e.counter())
	}
	return got
}

// TestMLX5Flush: in error everything that is posted completes, signaled or not, and so does
// what is posted later.
func TestMLX5Flush(t *testing.T) {
	a, b := mlx5Pair(t, mlx5Kernel(t, "", MLX5{}), mlxQP{})
	a.recvs(a.mr.sge(0, 8), nil)
	a.queue(mlx5Write, 0, 0, remote(b.mr.addr(0), b.mr.key), a.mr.sge(0, 8), a.mr.sge(0, 8), a.mr.sge(0, 8)) // two blocks
	must(t, a.modify(abi.IbUverbsModifyQp{AttrMask: maskState, QpState: stateError}))
	if d := cmp.Diff([]uint16{0, 1}, counters(t, a.recv, 2, cqeResponseError, 5)); d != "" {
		t.Errorf("receives (-want +got):\n%s", d)
	}
	a.ring(a.queue(mlx5Send, 0, 0, a.mr.sge(0, 8)))
	if d := cmp.Diff([]uint16{0, 2}, counters(t, a.send, 2, cqeRequestError, 5)); d != "" {
		t.Errorf("sends (-want +got):\n%s", d)
	}
	a.recvs(nil) // without a doorbell
	if d := cmp.Diff([]uint16{2}, counters(t, a.recv, 1, cqeResponseError, 5)); d != "" {
		t.Errorf("later receives (-want +got):\n%s", d)
	}
	must(t, a.modify(abi.IbUverbsModifyQp{AttrMask: maskState, QpState: stateReset}))
	clear(a.rec)
	a.cur, a.head = 0, 0
	b2 := b.d.qp()
	mlx5Connect(t, a, b2, 7)
	wantCQE(t, "after reset", a.do(mlx5Write, 0, remote(b2.mr.addr(0), b2.mr.key), a.mr.sge(0, 8)), cqeRequest, 0, 0)
}

// TestMLX5NotReady: a receive that comes late, and one that never comes.
func TestMLX5NotReady(t *testing.T) {
	k := mlx5Kernel(t, "", MLX5{})
	a, b := mlx5Pair(t, k, mlxQP{})
	a.post(mlx5Send, wqeCompletion, 0, a.mr.sge(0, 8))
	a.send.none("before there is a receive")
	b.recvs(b.mr.sge(0, 8))
	wantCQE(t, "send", a.send.one(), cqeRequest, 0, 0)
	wantCQE(t, "receive", b.recv.one(), cqeRecvSend, 0, 0)

	c, d := a.d.qp(), b.d.qp()
	mlx5Connect(t, c, d, 1)
	c.post(mlx5Send, 0, 0, c.mr.sge(0, 8))
	wantCQE(t, "no receive", c.send.one(), cqeRequestError, 0, 0x16)
}

// TestMLX5Overrun: a completion for which there is no room breaks the queue and all who
// complete to it.
func TestMLX5Overrun(t *testing.T) {
	d := openMLX5(t, mlx5Kernel(t, "", MLX5{}))
	small := d.cq(4)
	a, b := (&mlxQP{d: d, send: small, recv: d.cq(64)}).create(), d.qp()
	mlx5Connect(t, a, b, 7)
	for range 4 {
		a.post(mlx5Write, wqeCompletion, 0, remote(b.mr.addr(0), b.mr.key), a.mr.sge(0, 8))
	}
	for range 4 {
		for _, ok := small.take(); !ok; _, ok = small.take() {
			time.Sleep(20 * time.Microsecond)
		}
	}
	if got := d.asyncEvent(3 * time.Millisecond); got != -1 {
		t.Errorf("event %d of a queue that is full", got)
	}
	a.post(mlx5Write, wqeCompletion, 0, remote(b.mr.addr(0), b.mr.key), a.mr.sge(0, 8))
	if got := d.asyncEvent(time.Second); got != asyncCQError {
		t.Errorf("event %d, want %d", got, asyncCQError)
	}
	for range 100 {
		if a.state() == stateError {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if got := a.state(); got != stateError {
		t.Errorf("state %d, want %d", got, stateError)
	}
	if got := d.asyncEvent(3 * time.Millisecond); got != -1 {
		t.Errorf("another event: %d", got)
	}
}

// TestMLX5OverrunAvoided: entries that were consumed make room.
func TestMLX5OverrunAvoided(t *testing.T) {
	d := openMLX5(t, mlx5Kernel(t, "", MLX5{}))
	small := d.cq(2)
	a, b := (&mlxQP{d: d, send: small, recv: d.cq(64)}).create(), d.qp()
	mlx5Connect(t, a, b, 7)
	for i := range uint16(10) {
		wantCQE(t, "write", a.do(mlx5Write, 0, remote(b.mr.addr(0), b.mr.key), a.mr.sge(0, 8)), cqeRequest, i, 0)
	}
}
