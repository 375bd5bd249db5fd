package mlx5

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/pureverbs/rdma/internal/provider"
)

// TestResize: what waits is there in the new queue, one position further.
func TestResize(t *testing.T) {
	for _, tt := range []struct{ from, to, before, waiting int }{
		{7, 15, 1, 3}, {15, 7, 1, 3}, {7, 15, 0, 0}, {7, 15, 13, 6}, {7, 3, 9, 2}, {3, 127, 6, 3}, {7, 3, 4, 3},
	} {
		name := fmt.Sprintf("%+v", tt)
		b := open(t)
		q := b.cq(tt.from)
		p := b.qp(rcInit(64), 0x100, q, q)
		n := 0
		complete := func() {
			p.recv(t, uint64(n))
			q.write(&cqe{kind: cqeRecv, q: p, counter: uint16(n)})
			n++
		}
		for range tt.before {
			complete()
			q.take(t)
		}
		for range tt.waiting {
			complete()
		}
		plan, err := q.PlanResize(tt.to)
		if err != nil {
			t.Fatal(err)
		}
		if in := plan.In(); len(in) != 16 || plan.req.CqeSize != 64 || plan.Entries() != uint32(tt.to) {
			t.Errorf("%s: driver's part", name)
		}
		q.write(&cqe{kind: cqeResize, q: p})
		if err := plan.Apply(uint32(tt.to)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		q.mem = q.CQ.mem
		for i := range tt.waiting {
			if wc := q.take(t); wc.ID != uint64(tt.before+i) {
				t.Errorf("%s: got %d, want %d", name, wc.ID, tt.before+i)
			}
		}
		q.none(t)
		for range 2 * tt.to {
			complete()
			if wc := q.take(t); wc.ID != uint64(n-1) {
				t.Fatalf("%s: afterwards: got %d, want %d", name, wc.ID, n-1)
			}
		}
	}
}

// TestResizeTraced: of 8 entries to 16 at position 1, with 3 waiting.
func TestResizeTraced(t *testing.T) {
	b := open(t)
	q := b.cq(7)
	p := b.qp(rcInit(8), 0x100, q, q)
	for i := range 4 {
		p.recv(t, uint64(i))
		q.write(&cqe{kind: cqeRecv, q: p, counter: uint16(i)})
		if i == 0 {
			q.take(t)
		}
	}
	plan, _ := q.PlanResize(15)
	q.write(&cqe{kind: cqeResize, q: p})
	if err := plan.Apply(15); err != nil {
		t.Fatal(err)
	}
	if q.next != 2 || q.record(recvCount) != 2 {
		t.Errorf("position %d, record %d, want 2 and 2", q.next, q.record(recvCount))
	}
	owners := ""
	for i := range 16 {
		owners += fmt.Sprintf("%02x ", q.CQ.mem[i*64+63])
	}
	if want := "f0 f0 20 20 20 f0 f0 f0 f0 f0 f0 f0 f0 f0 f0 f0 "; owners != want {
		t.Errorf("entries:\ngot  %s\nwant %s", owners, want)
	}
}

func TestResizeRefuses(t *testing.T) {
	b := open(t)
	q := b.cq(7)
	p := b.qp(rcInit(8), 0x100, q, q)
	if plan, err := q.PlanResize(5); plan != nil || err != nil {
		t.Errorf("the same size: %v, %v", plan, err)
	}
	if _, err := q.PlanResize(0); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("no completions: %v", err)
	}
	plan, err := q.PlanResize(15)
	if err != nil {
		t.Fatal(err)
	}
	if err := plan.Drop(); err != nil {
		t.Error(err)
	}
	// No last entry; one in a queue that is full; more than fit; another size.
	for i, tt := range []struct {
		waiting int
		last    bool
		to      int
		granted uint32
	}{{2, false, 15, 15}, {4, false, 15, 15}, {3, true, 1, 1}, {0, true, 7, 15}} {
		q := b.cq(3)
		for n := range tt.waiting {
			p.recv(t, 0)
			q.write(&cqe{kind: cqeRecv, q: p, counter: uint16(n)})
		}
		if tt.last {
			q.write(&cqe{kind: cqeResize, q: p})
		}
		plan, err := q.PlanResize(tt.to)
		if err != nil {
			t.Fatal(err)
		}
		if err := plan.Apply(tt.granted); !errors.Is(err, provider.ErrCorrupt) {
			t.Errorf("%d: got %v, want ErrCorrupt", i, err)
		}
		if int(q.ring.mask) != tt.to {
			t.Errorf("%d: still the old queue", i)
		}
		p.rq.reset()
		b.checkMargins()
	}
}
