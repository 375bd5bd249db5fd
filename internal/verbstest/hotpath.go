//go:build linux

package verbstest

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/uverbs"
)

// batch is how many requests a batch has.
const batch = 16

// HotPath returns one step of each operation of the data path, to be measured. Requests are
// literals at the call, as programs write them. The queue pair is its own peer's only user,
// and a write of nothing needs no receive there.
func (u *Suite) HotPath(t testing.TB) map[string]func() {
	steps := u.hotSteps(t, false)
	for name, step := range u.hotSteps(t, true) {
		steps[name+" single-goroutine"] = step
	}
	return steps
}

func (u *Suite) hotSteps(t testing.TB, single bool) map[string]func() {
	attr := uverbs.CQInitAttr{CQE: 256, SingleGoroutine: single}
	ha, hb := u.newHostWith(t, 4096, u.access(t), attr), u.newHostWith(t, 4096, u.access(t), attr)
	s := shape{SingleGoroutine: single}
	a, b := u.link(t, ha, hb, s, s)
	wcs := make([]uverbs.WC, batch)
	check := func(n int, err error) {
		if err != nil && !errors.Is(err, uverbs.ErrQueueFull) {
			t.Fatal(n, err)
		}
	}
	wrs := make([]uverbs.SendWR, batch)
	for i := range wrs {
		wrs[i] = uverbs.SendWR{ID: uint64(i), Opcode: uverbs.OpRDMAWrite}
	}
	wrs[batch-1].Flags = uverbs.SendSignaled
	inline := make([]byte, 16)
	done := func() { // at least one: that of this step, or of one before
		n, err := a.cq.Poll(wcs)
		for n == 0 && err == nil {
			runtime.Gosched() // a device of the fake kernel may be a goroutine
			n, err = a.cq.Poll(wcs)
		}
		check(n, err)
	}
	return map[string]func(){
		"PostSend and Poll": func() {
			check(a.qp.PostSend([]uverbs.SendWR{{ID: 1, Opcode: uverbs.OpRDMAWrite, Flags: uverbs.SendSignaled}}))
			done()
		},
		"PostSend inline and Poll": func() {
			check(a.qp.PostSend([]uverbs.SendWR{{
				ID: 1, Opcode: uverbs.OpRDMAWrite, Flags: uverbs.SendSignaled | uverbs.SendInline, Inline: [][]byte{inline},
				RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(),
			}}))
			done()
		},
		"PostSend of 16 and Poll": func() {
			check(a.qp.PostSend(wrs))
			done()
		},
		"Builder of 16 and Poll": func() {
			bd := a.qp.StartSend()
			for i := range uint64(batch) {
				bd.Write(i, uverbs.SendFlags(i/(batch-1))*uverbs.SendSignaled, 0, 0)
			}
			check(bd.Complete())
			done()
		},
		"Builder with InlineRoom and Poll": func() {
			bd := a.qp.StartSend()
			copy(bd.Write(1, uverbs.SendSignaled, b.mr.Addr(), b.mr.RKey()).InlineRoom(16), inline)
			check(bd.Complete())
			done()
		},
		"PostRecv": func() { // full after a while, which is the same work but the last store
			check(b.qp.PostRecv([]uverbs.RecvWR{{ID: 1, SGL: []uverbs.SGE{b.mr.SGE(0, 64)}}}))
		},
		"Poll of nothing": func() { check(b.cq.Poll(wcs)) },
		"Cursor of nothing": func() {
			cur := b.cq.Start()
			cur.Next()
			check(0, cur.End())
		},
		"Arm": func() { check(0, b.cq.Arm(false)) },
	}
}

// Benchmark measures the hot path.
func (u *Suite) Benchmark(b *testing.B) {
	for name, step := range u.HotPath(b) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				step()
			}
		})
	}
}

// NoAllocs is the promise of the hot path.
func (u *Suite) NoAllocs(t *testing.T) {
	testutil.NoLeaks(t)
	for name, step := range u.HotPath(t) {
		if n := leastAllocs(step); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// leastAllocs is what a step allocates every time: the count is of the whole process, whose
// runtime allocates for itself now and then, and a device that is behind leaves the queues full,
// which is an error and may allocate.
func leastAllocs(step func()) float64 {
	least := testing.AllocsPerRun(10, step)
	for range 20 {
		if least == 0 {
			break
		}
		time.Sleep(5 * time.Millisecond)
		least = min(least, testing.AllocsPerRun(10, step))
	}
	return least
}
