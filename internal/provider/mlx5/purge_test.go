package mlx5

import (
	"bytes"
	"errors"
	"testing"

	"github.com/pureverbs/rdma/internal/provider"
)

// TestPurge: the example of a trace: of 6:A 7:B 8:A 9:B, B goes.
func TestPurge(t *testing.T) {
	b := open(t)
	q := b.cq(15)
	pa, pb := b.qp(rcInit(16), 0x100, q, q), b.qp(rcInit(16), 0x101, q, q)
	next := map[*qp]uint16{}
	complete := func(p *qp) {
		p.recv(t, uint64(p.num)<<8|uint64(next[p]))
		q.write(&cqe{kind: cqeRecv, q: p, counter: next[p]})
		next[p]++
	}
	for range 6 {
		complete(pa)
		q.take(t)
	}
	complete(pa)
	complete(pb)
	complete(pa)
	complete(pb)
	old := bytes.Clone(q.mem)
	q.Forget(pb.QP)
	if q.next != 8 || q.record(recvCount) != 8 {
		t.Errorf("position %d, record %d, want 8", q.next, q.record(recvCount))
	}
	if !bytes.Equal(old[:8*64], q.mem[:8*64]) {
		t.Error("entries that are given back were written")
	}
	for _, id := range []uint64{0x10006, 0x10007} {
		if wc := q.take(t); wc.ID != id {
			t.Errorf("got %#x, want %#x", wc.ID, id)
		}
	}
	q.none(t)
	q.write(&cqe{kind: cqeRecv, q: pb, counter: 0})
	pb.recv(t, 9)
	var wc provider.WC
	if ok, err := q.Next(&wc); ok || !errors.Is(err, provider.ErrCorrupt) {
		t.Errorf("a completion of a queue pair that is forgotten: %v, %v", ok, err)
	}
}

// TestPurgeRounds: all mixes of two queue pairs' completions, with each place where the
// owner bit changes.
func TestPurgeRounds(t *testing.T) {
	for mix := range 1 << 4 {
		for start := range uint32(9) {
			b := open(t)
			q := b.cq(3)
			q.seek(start)
			q.prod = start
			if start >= 4 { // what earlier rounds left
				for i := 63; i < 4*64; i += 64 {
					q.mem[i] = cqeRecv<<4 | uint8((start/4-1)&1)
				}
				for i := range start % 4 {
					q.mem[i*64+63] ^= 1
				}
			}
			pa, pb := b.qp(rcInit(16), 0x100, q, q), b.qp(rcInit(16), 0x101, q, q)
			var want []uint64
			for i := range 4 {
				p := pa
				if mix>>i&1 != 0 {
					p = pb
				}
				id := uint64(i)
				p.recv(t, id)
				q.write(&cqe{kind: cqeRecv, q: p, counter: uint16(p.rq.head - 1)})
				if p == pa {
					want = append(want, id)
				}
			}
			q.Purge(pb.QP)
			for _, id := range want {
				if wc := q.take(t); wc.ID != id || wc.QPNum != 0x100 {
					t.Fatalf("mix %04b from %d: got %d of %#x, want %d", mix, start, wc.ID, wc.QPNum, id)
				}
			}
			q.none(t)
			if got := q.record(recvCount); got != start+4 && (mix != 0 || len(want) > 0) {
				t.Fatalf("mix %04b from %d: record %d, want %d", mix, start, got, start+4)
			}
		}
	}
}

// TestReset: after RESET the queue pair begins anew.
func TestReset(t *testing.T) {
	b := open(t)
	q := b.cq(127)
	p := b.qp(rcInit(4), 0x100, q, q)
	for range 3 {
		for i := range 2 {
			p.post(t, provider.SendWR{ID: uint64(i), Opcode: provider.OpSend})
			p.recv(t, uint64(10+i))
		}
		p.PublishSend()
		q.done(p, 0)
		q.write(&cqe{kind: cqeRecv, q: p})
		q.take(t)
		q.take(t)
		q.done(p, 1)
		q.write(&cqe{kind: cqeRecv, q: p, counter: 1})
		q.Purge(p.QP)
		p.Reset()
		if p.record(sendCount) != 0 || p.record(recvCount) != 0 {
			t.Error("the records are not zero")
		}
		q.none(t)
		var wc provider.WC
		q.done(p, 0) // of a request from before
		if ok, err := q.Next(&wc); ok || !errors.Is(err, provider.ErrCorrupt) {
			t.Fatalf("a completion from before: %v, %v", ok, err)
		}
		q.prod--
		q.mem[q.prod*64+63] = notOwned
	}
	p.post(t, provider.SendWR{ID: 5, Opcode: provider.OpLocalInvalidate})
	p.PublishSend()
	wantWords(t, "first request", p.sqm, "00000025 00010008 00000000 00000000")
	q.done(p, 0)
	if wc := q.take(t); wc.ID != 5 {
		t.Errorf("got %d", wc.ID)
	}
	p.post(t, provider.SendWR{Opcode: provider.OpLocalInvalidate})
	p.PublishSend()
	q.write(&cqe{kind: cqeRequester, q: p, counter: 3, code: opUMR})
	q.corrupt(t, "the second block of a request")
}

// TestStaleBlocks: a block inside a request is not taken for the request that began there a
// round before, or before the reset.
func TestStaleBlocks(t *testing.T) {
	for _, reset := range []bool{false, true} {
		b := open(t)
		q := b.cq(127)
		p := b.qp(rcInit(4), 0x100, q, q)
		rounds := 16
		if reset {
			rounds = 2
		}
		for i := range rounds {
			p.post(t, provider.SendWR{Opcode: provider.OpSend})
			p.PublishSend()
			q.done(p, uint16(i))
			q.take(t)
		}
		first := uint16(16)
		if reset {
			first = 0
			p.Reset()
		}
		p.post(t, provider.SendWR{Opcode: provider.OpLocalInvalidate})
		p.PublishSend()
		q.write(&cqe{kind: cqeRequester, q: p, counter: first + 1, code: opSend})
		q.corrupt(t, "a block inside a request")
	}
}

func (q *cq) corrupt(t *testing.T, what string) {
	t.Helper()
	var wc provider.WC
	if ok, err := q.Next(&wc); ok || !errors.Is(err, provider.ErrCorrupt) {
		t.Errorf("%s: got %v, %v, want ErrCorrupt", what, ok, err)
	}
}
