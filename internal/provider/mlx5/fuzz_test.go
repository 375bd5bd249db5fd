package mlx5

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
)

// What the script of FuzzCompletions can do.
const (
	doNext = iota
	doRelease
	doSend
	doRecv
	doSRQ
	doPurge
	doArm
	doResize
	doGood // from here on it is the device's turn
	doEntry
	doByte
	doPoll
	nDo
)

// FuzzCompletions plays a device that writes what it likes into the completion queue. Next
// must give ErrCorrupt, or a completion of what is open, each once.
func FuzzCompletions(f *testing.F) {
	f.Add([]byte{doSend, doRecv, doSRQ, doGood, 0, doGood, 1, doGood, 2, doNext, doNext, doNext, doRelease, doNext})
	f.Add([]byte{doSend, doSend, doGood, 0, doPurge, 0, doNext, doArm, doResize, 40, doSend, doGood, 0, doNext})
	f.Add([]byte{doRecv, doGood, 1, doByte, 60, 9, doNext, doPurge, 1, doResize, 1, doNext, doEntry, 1, 2, 3, 4, 5, doNext})
	f.Add([]byte{doSend, doSend, doGood, 0, doPoll, 0, doGood, 0, doByte, 61, 3, doPoll, 1, doGood, 0, doPurge, 0, doPoll, 2})
	f.Add([]byte{doSRQ, doSRQ, doGood, 2, doByte, 61, 3, doNext, doGood, 2, doNext, doPurge, 2, doSRQ, doSRQ, doSRQ})
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, version := range []uint8{1, 0} {
			fuzzCompletions(t, data[:min(len(data), 1<<11)], version)
		}
	})
}

type hostile struct {
	t    *testing.T
	b    *bench
	q    *cq
	ps   [3]*qp
	srq  *srq
	open map[uint64]bool // numbers of what is posted and not completed
	id   uint64
}

func fuzzCompletions(t *testing.T, s script, version uint8) {
	b := open(t, func(r *abi.Mlx5IbAllocUcontextResp, _ *Options) { r.CqeVersion = version })
	h := &hostile{t: t, b: b, q: b.cq(7), srq: b.srq(t, 3, 1), open: make(map[uint64]bool)}
	h.ps[0] = b.qp(rcInit(4), 0x100, h.q, h.q)
	h.ps[1] = b.qp(rcInit(4), 0x101, h.q, h.q)
	h.ps[2] = b.qp(&QPInit{Type: rc, Cap: caps(1, 0, 1, 0, 0), SRQ: h.srq.SRQ}, 0x102, h.q, h.q)
	for len(s) > 0 {
		h.do(&s)
	}
	b.checkMargins()
}

func (h *hostile) do(s *script) {
	q := h.q
	switch s.byte() % nDo {
	case doNext:
		h.next()
	case doRelease:
		q.Release()
	case doSend:
		h.id++
		if err := h.ps[0].Send(&provider.SendWR{ID: h.id, Opcode: provider.OpSend}, 0); err == nil {
			h.open[h.id] = true
		}
		h.ps[0].PublishSend()
	case doRecv:
		h.id++
		if h.ps[1].Recv(&provider.RecvWR{ID: h.id}, 0) == nil {
			h.open[h.id] = true
		}
		h.ps[1].PublishRecv()
	case doSRQ:
		h.id++
		if h.srq.Recv(&provider.RecvWR{ID: h.id}, 0) == nil {
			h.open[h.id] = true
		}
		h.srq.PublishRecv()
	case doPurge:
		q.Purge(h.ps[s.byte()%3].QP)
	case doArm:
		q.Arm(false)
	case doResize:
		h.resize(int(s.byte()) + 1)
	case doGood:
		h.good(s.byte() % 3)
	case doEntry:
		n := q.next % (q.ring.mask + 1)
		copy(q.CQ.mem[n*cqeSize:], s.bytes(cqeSize))
	case doPoll:
		h.poll(int(s.byte()%3) + 1)
	case doByte:
		n := q.next % (q.ring.mask + 1)
		q.CQ.mem[n*cqeSize+uint32(s.byte()%cqeSize)] = s.byte()
	}
}

// good writes a completion at the position that is read next, as it should be.
func (h *hostile) good(which uint8) {
	q, p := h.q, h.ps[which]
	c := cqe{kind: cqeRecv, q: p}
	switch which {
	case 0:
		c.kind, c.code, c.counter = cqeRequester, opSend, p.sq.credit.blocks
	case 1:
		c.counter = uint16(p.rq.credit.done)
	case 2:
		c.counter = uint16(h.id % 4)
	}
	e := q.CQ.mem[q.next%(q.ring.mask+1)*cqeSize:][:cqeSize]
	c.encode(e)
	e[offOwner] = c.kind<<4 | q.ring.round(q.next)
}

func (h *hostile) next() {
	var wc provider.WC
	ok, err := h.q.Next(&wc)
	switch {
	case err != nil:
		if ok || !errors.Is(err, provider.ErrCorrupt) {
			h.t.Fatalf("got %v, %v", ok, err)
		}
	case ok:
		if !h.open[wc.ID] {
			h.t.Fatalf("request %d completes, which is not open", wc.ID)
		}
		delete(h.open, wc.ID)
	}
}

// poll is next for several; the first one that is corrupt stays.
func (h *hostile) poll(most int) {
	wcs := make([]provider.WC, most)
	n, err := h.q.Poll(wcs)
	if err != nil && !errors.Is(err, provider.ErrCorrupt) {
		h.t.Fatal(err)
	}
	for _, wc := range wcs[:n] {
		if !h.open[wc.ID] {
			h.t.Fatalf("request %d completes, which is not open", wc.ID)
		}
		delete(h.open, wc.ID)
	}
	var again [1]provider.WC
	if n, _ := h.q.Poll(again[:]); err != nil && n != 0 {
		h.t.Fatal("a completion after an error")
	}
}

func (h *hostile) resize(entries int) {
	plan, err := h.q.PlanResize(entries)
	if err != nil {
		h.t.Fatal(err)
	}
	if plan == nil {
		return
	}
	if err := plan.Apply(plan.Entries()); err != nil && !errors.Is(err, provider.ErrCorrupt) {
		h.t.Fatal(err)
	}
	h.q.mem = h.q.CQ.mem
}

// FuzzSRQ posts into a shared queue and completes what the fuzzer says, from several
// completion queues. Slots are handed out at most once, and links lead to slots.
func FuzzSRQ(f *testing.F) {
	f.Add(uint8(3), []byte{0, 0, 0, 0, 1, 0, 0, 1, 1, 0, 0, 0, 1, 9, 9, 0})
	f.Add(uint8(127), bytes.Repeat([]byte{0, 0, 1, 0, 0, 0, 1, 1, 0}, 60))
	f.Add(uint8(1), []byte{0, 1, 0, 0, 0, 1, 1, 0, 0, 1, 0, 0})
	f.Fuzz(func(t *testing.T, size uint8, calls []byte) {
		b := open(t)
		s := b.srq(t, uint32(size)+1, 1)
		open := make(map[uint16]uint64)
		id := uint64(0)
		for c := script(calls[:min(len(calls), 1<<12)]); len(c) > 0; {
			if c.byte()&1 == 0 {
				id++
				at := uint16(s.head)
				full := s.head == s.last
				err := s.Recv(&provider.RecvWR{ID: id}, 0)
				switch {
				case err != nil:
					if len(open) != int(s.plan.MaxWR()) {
						t.Fatalf("%v with %d of %d open", err, len(open), s.plan.MaxWR())
					}
				default:
					if old, ok := open[at]; ok {
						t.Fatalf("slot %d goes to %d, but is %d's (list was used up: %v)", at, id, old, full)
					}
					open[at] = id
				}
				s.PublishRecv()
				continue
			}
			at := c.half()
			got, ok := s.finish(at)
			want, isOpen := open[at]
			if ok != isOpen || ok && got != want {
				t.Fatalf("slot %d: got %d, %v, want %d, %v", at, got, ok, want, isOpen)
			}
			delete(open, at)
		}
		for i := range s.slots {
			if link := be.Uint16(s.mem[int(i)<<s.shift+2:]); uint32(link) >= s.slots {
				t.Fatalf("slot %d leads to %d", i, link)
			}
		}
		b.checkMargins()
	})
}

// TestConcurrentSRQ: completion queues give slots back while others are posted.
func TestConcurrentSRQ(t *testing.T) {
	b := open(t)
	s := b.srq(t, 63, 1)
	slots := make(chan uint16, 64)
	done := make(chan map[uint64]int)
	for range 2 {
		go func() {
			seen := make(map[uint64]int)
			for at := range slots {
				if id, ok := s.finish(at); ok {
					seen[id]++
				}
			}
			done <- seen
		}()
	}
	const total = 20000
	for id := uint64(0); id < total; {
		at := uint16(s.head)
		if s.head == s.last {
			if !s.harvest() {
				continue
			}
		}
		if err := s.Recv(&provider.RecvWR{ID: id}, 0); err != nil {
			t.Fatal(err)
		}
		slots <- at
		id++
	}
	close(slots)
	got, second := <-done, <-done
	for id, n := range second {
		got[id] += n
	}
	want := make(map[uint64]int)
	for id := range uint64(total) {
		want[id] = 1
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("receives completed: %s", diff)
	}
}
