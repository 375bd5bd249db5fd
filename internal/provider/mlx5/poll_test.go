package mlx5

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
)

// TestPollIsNext: the same completions, of requests of all kinds and of two queue pairs, by
// Poll and one by one. Then the entries are back with the device, and the room with the poster.
func TestPollIsNext(t *testing.T) {
	for _, version := range []uint8{0, 1} {
		polled, one := pollMix(t, version, true), pollMix(t, version, false)
		if diff := cmp.Diff(one, polled); diff != "" || len(one) != 2*2*8 {
			t.Errorf("version %d: %d completions; (-one by one +polled)\n%s", version, len(one), diff)
		}
	}
}

func pollMix(t *testing.T, version uint8, poll bool) (got []provider.WC) {
	b := open(t, func(r *abi.Mlx5IbAllocUcontextResp, _ *Options) { r.CqeVersion = version })
	q := b.cq(31)
	ps := []*qp{b.qp(rcInit(16), 0x100, q, q), b.qp(rcInit(16), 0x101, q, q)}
	for round := range uint16(2) {
		for _, p := range ps {
			for op := provider.Opcode(0); op <= provider.OpFetchAdd; op++ {
				at := uint16(p.sq.cur)
				p.post(t, provider.SendWR{ID: uint64(round)<<8 | uint64(op), Opcode: op, SGL: sgl(provider.SGE{Length: 8})})
				p.PublishSend()
				q.done(p, at)
			}
		}
		for _, p := range ps {
			p.recv(t, 99)
			q.write(&cqe{kind: cqeRecvImm, q: p, counter: round, bytes: 9, imm: 7})
		}
		for n := -1; n != 0; {
			wcs := slices.Repeat([]provider.WC{{ByteLen: 1, Imm: 2, SrcQP: 3, Flags: 4, SLID: 5, InvKey: 6}}, 5)
			var err error
			if n, err = take(q, wcs, poll); err != nil {
				t.Fatal(err)
			}
			got = append(got, wcs[:n]...)
		}
	}
	if got := q.record(recvCount); got != q.prod {
		t.Errorf("the record says %d, want %d", got, q.prod)
	}
	for _, p := range ps {
		if done := p.sq.credit.shown; done != p.sq.head {
			t.Errorf("the poster knows of %d of %d requests", done, p.sq.head)
		}
	}
	return got
}

// take takes completions one way or the other.
func take(q *cq, wcs []provider.WC, poll bool) (n int, err error) {
	if poll {
		return q.Poll(wcs)
	}
	for n < len(wcs) {
		var ok bool
		if ok, err = q.Next(&wcs[n]); !ok {
			break
		}
		n++
	}
	q.Release()
	return n, err
}

// TestPollCorrupt: entries that cannot be, after one that is as it should be, which Poll gives
// back; they stay.
func TestPollCorrupt(t *testing.T) {
	for name, spoil := range map[string]func(b *bench, q *cq, p *qp, e []byte){
		"no such user index": func(_ *bench, _ *cq, _ *qp, e []byte) { be.PutUint32(e[32:], 5) },
		"another number":     func(_ *bench, _ *cq, _ *qp, e []byte) { e[59]++ },
		"not shown": func(_ *bench, q *cq, p *qp, e []byte) {
			p.post(q.t, provider.SendWR{Opcode: provider.OpSend})
			e[61] = 5
		},
		"far away":          func(_ *bench, _ *cq, _ *qp, e []byte) { be.PutUint16(e[60:], 0x8001) },
		"inside a request":  func(_ *bench, _ *cq, _ *qp, e []byte) { e[61] = 3 },
		"another operation": func(_ *bench, _ *cq, _ *qp, e []byte) { e[56] = opRead },
		"data in the entry": func(_ *bench, _ *cq, _ *qp, e []byte) { e[63] |= 4 },
		"twice":             func(_ *bench, _ *cq, _ *qp, e []byte) { e[61] = 0 },
		"parted from":       func(_ *bench, q *cq, p *qp, _ []byte) { q.Forget(p.QP); q.done(p, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t)
			q := b.cq(7)
			p := b.qp(rcInit(8), 0x100, q, q)
			for id := range uint64(4) {
				op := provider.OpSend
				if id == 2 {
					op = provider.OpLocalInvalidate
				}
				p.post(t, provider.SendWR{ID: id, Opcode: op})
			}
			p.PublishSend()
			q.done(p, 0)
			var wcs [8]provider.WC
			if n, err := q.Poll(wcs[:]); n != 1 || err != nil {
				t.Fatalf("polled %d, %v; want 1", n, err)
			}
			q.done(p, 1)
			spoil(b, q, p, q.mem[cqeSize:])
			done := p.sq.credit.done
			for range 3 {
				if n, err := q.Poll(wcs[:]); n != 0 || !errors.Is(err, provider.ErrCorrupt) {
					t.Fatalf("polled %d, %v; want ErrCorrupt", n, err)
				}
			}
			if p.sq.credit.done != done || q.record(recvCount) > 2 {
				t.Error("a request is taken for complete")
			}
		})
	}
}

// TestForgetBeforeRelease: what is known of a queue pair's requests is told when the completion
// queue parts from it, and not after.
func TestForgetBeforeRelease(t *testing.T) {
	b := open(t)
	q := b.cq(7)
	p := b.qp(rcInit(8), 0x100, q, q)
	p.post(t, provider.SendWR{Opcode: provider.OpSend})
	p.PublishSend()
	q.done(p, 0)
	if ok, err := q.Advance(); !ok || err != nil {
		t.Fatal(ok, err)
	}
	q.Forget(p.QP)
	q.Release()
	if p.sq.credit.shown != 1 {
		t.Errorf("the poster knows of %d requests, want 1", p.sq.credit.shown)
	}
}
