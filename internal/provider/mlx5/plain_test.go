package mlx5

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
)

// twin is a queue pair in a device of its own.
type twin struct {
	b *bench
	q *cq
	p *qp
}

func newTwin(t *testing.T, init *QPInit, change ...setup) *twin {
	b := open(t, change...)
	q := b.cq(63)
	return &twin{b, q, b.qp(init, 0x77, q, q)}
}

// send posts one after the other; the queue has room.
func (w *twin) send(t *testing.T, wrs []provider.SendWR) {
	t.Helper()
	for i := range wrs {
		if err := w.p.Send(&wrs[i], sum(wrs[i].SGL, wrs[i].Inline)); err != nil {
			t.Fatal(err)
		}
	}
	w.p.PublishSend()
}

// same compares all that the device can see.
func (w *twin) same(t *testing.T, other *twin) {
	t.Helper()
	if !bytes.Equal(w.p.mem, other.p.mem) {
		t.Fatal("the queues, or what is kept of them, differ")
	}
	if got, want := w.p.record(sendCount), other.p.record(sendCount); got != want {
		t.Fatalf("the records differ: %#x and %#x", got, want)
	}
	for n, page := range w.b.pages {
		if !bytes.Equal(page, other.b.pages[n]) {
			t.Fatalf("register page %d differs", n)
		}
	}
}

// TestPostPlainIsSend: what PostPlain takes it leaves as Send and PublishSend do, to the last
// byte; what it does not take is as it was.
func TestPostPlainIsSend(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	piece := func() []provider.SGE {
		return sgl(provider.SGE{Addr: rng.Uint64(), Length: rng.Uint32N(3) * 1000, LKey: rng.Uint32()})
	}
	request := func(id uint64) provider.SendWR {
		wr := provider.SendWR{
			ID: id, Opcode: provider.Opcode(rng.Uint32N(5)), Flags: provider.SendFlags(rng.Uint32N(8)),
			RemoteAddr: rng.Uint64(), RKey: rng.Uint32(), Imm: rng.Uint32(), InvKey: rng.Uint32(),
		}
		switch rng.Uint32N(16) {
		case 0:
			wr.Opcode = provider.OpLocalInvalidate // and the next has a fence
		case 1:
			wr.SGL = append(piece(), piece()...)
		case 2:
			wr.Opcode, wr.SGL = provider.OpFetchAdd, sgl(provider.SGE{Length: 8})
		case 3, 4:
			wr.Opcode, wr.SGL = provider.OpSendInvalidate, piece()
		default:
			wr.SGL = piece()
		}
		if wr.Opcode.In(InlineOps) && rng.Uint32N(2) == 0 {
			wr.Flags, wr.SGL, wr.Inline = wr.Flags|provider.SendInline, nil, [][]byte{make([]byte, rng.Uint32N(101))}
			for i := range wr.Inline[0] {
				wr.Inline[0][i] = byte(rng.Uint32())
			}
		}
		return wr
	}
	taken, left := 0, 0
	for _, blueFlame := range []setup{nil, func(_ *abi.Mlx5IbAllocUcontextResp, o *Options) { o.NoBlueFlame = true }} {
		var change []setup
		if blueFlame != nil {
			change = append(change, blueFlame)
		}
		init := &QPInit{Type: rc, Cap: caps(8, 0, 2, 0, 100)}
		a, b := newTwin(t, init, change...), newTwin(t, init, change...)
		for round := range 5000 {
			wrs := make([]provider.SendWR, 1+rng.IntN(3))
			for i := range wrs {
				wrs[i] = request(uint64(round*10 + i))
			}
			before := a.p.sq.cur
			if a.p.PostPlain(wrs) {
				taken++
			} else {
				left++
				if a.p.sq.cur != before || a.p.record(sendCount) != before&0xffff {
					t.Fatal("not taken, but something happened")
				}
				a.send(t, wrs)
			}
			b.send(t, wrs)
			a.same(t, b)
			for _, w := range []*twin{a, b} {
				w.q.done(w.p, uint16(w.p.sq.cur-uint32(blocksOf(w.p))))
				var wcs [2]provider.WC
				if n, err := w.q.Poll(wcs[:]); n != 1 || err != nil || wcs[0].ID != wrs[len(wrs)-1].ID {
					t.Fatalf("polled %d, %v, request %d; want %d", n, err, wcs[0].ID, wrs[len(wrs)-1].ID)
				}
			}
		}
	}
	if taken < 2000 || left < 1000 {
		t.Errorf("%d were taken and %d were not: the test has lost its point", taken, left)
	}
}

// TestSharedRegister: who shares a register waits for it.
func TestSharedRegister(t *testing.T) {
	w := newTwin(t, rcInit(4))
	reg := &register{addr: w.p.reg.addr, shared: true}
	w.p.reg = reg
	reg.mu.Lock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.p.PostPlain([]provider.SendWR{{Opcode: provider.OpSend, SGL: sgl(provider.SGE{Length: 1})}})
	}()
	select {
	case <-done:
		t.Error("the doorbell was rung beside another")
	case <-time.After(20 * time.Millisecond):
	}
	reg.mu.Unlock()
	<-done
}

// blocksOf is how many blocks the last request has.
func blocksOf(p *qp) uint8 {
	for n := uint32(1); ; n++ {
		if i := (p.sq.cur - n) & p.sq.mask; p.sq.slots[i].note.number() == p.sq.head-1 {
			if b := p.sq.slots[i].note.blocks(); uint32(b) == n {
				return b
			}
		}
	}
}

// TestPostPlainLeaves lists what is not for PostPlain, of which some is not for Send either.
func TestPostPlainLeaves(t *testing.T) {
	one := sgl(provider.SGE{Addr: 1, Length: 1, LKey: 1})
	good := provider.SendWR{Opcode: provider.OpSend, SGL: one}
	with := func(change func(*provider.SendWR)) []provider.SendWR {
		wr := good
		change(&wr)
		return []provider.SendWR{good, wr}
	}
	inline := func(op provider.Opcode, sgl []provider.SGE, data ...[]byte) []provider.SendWR {
		return []provider.SendWR{{Opcode: op, Flags: provider.SendInline, SGL: sgl, Inline: data}}
	}
	for name, wrs := range map[string][]provider.SendWR{
		"none":               {},
		"an unknown flag":    with(func(wr *provider.SendWR) { wr.Flags = 1 << 4 }),
		"unknown operation":  with(func(wr *provider.SendWR) { wr.Opcode = 200 }),
		"an atomic":          with(func(wr *provider.SendWR) { wr.Opcode = provider.OpFetchAdd }),
		"a bind":             with(func(wr *provider.SendWR) { wr.Opcode = provider.OpBindMW }),
		"no piece":           with(func(wr *provider.SendWR) { wr.SGL = nil }),
		"two pieces":         with(func(wr *provider.SendWR) { wr.SGL = append(one, one...) }),
		"no bytes":           with(func(wr *provider.SendWR) { wr.SGL = sgl(provider.SGE{}) }),
		"more than 2 GiB":    with(func(wr *provider.SendWR) { wr.SGL = sgl(provider.SGE{Length: 1<<31 + 1}) }),
		"outside its region": with(func(wr *provider.SendWR) { wr.SGL = sgl(provider.SGE{Length: 1<<32 - 1}) }),
		"data and no flag":   with(func(wr *provider.SendWR) { wr.Inline = [][]byte{{1}} }),
		"mixed":              with(func(wr *provider.SendWR) { *wr = inline(provider.OpSend, nil, []byte{1})[0] }),
		"inline, a piece":    inline(provider.OpSend, one, []byte{1}),
		"inline, no slice":   inline(provider.OpSend, nil),
		"inline, two slices": inline(provider.OpSend, nil, []byte{1}, []byte{2}),
		"inline, no bytes":   inline(provider.OpSend, nil, nil),
		"inline, too long":   inline(provider.OpSend, nil, make([]byte, 61)),
		"inline read":        inline(provider.OpRDMARead, nil, []byte{1}),
		"more than fit":      {good, good, good, good, good},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTwin(t, rcInit(4))
			if w.p.PostPlain(wrs) || w.p.sq.cur != 0 || w.p.sq.head != 0 || w.p.record(sendCount) != 0 {
				t.Errorf("taken, or something happened: position %d, record %d", w.p.sq.cur, w.p.record(sendCount))
			}
			if !w.p.PostPlain([]provider.SendWR{good}) {
				t.Error("a good one is not taken afterwards")
			}
		})
	}
	t.Run("behind what is not shown", func(t *testing.T) {
		w := newTwin(t, rcInit(4))
		w.p.post(t, good)
		if w.p.PostPlain([]provider.SendWR{good}) {
			t.Error("taken")
		}
	})
	for name, init := range map[string]*QPInit{
		"datagrams":           {Type: ud, Cap: caps(4, 0, 1, 0, 0)},
		"made for no piece":   {Type: rc, Cap: caps(4, 0, 0, 0, 0)},
		"without a queue":     {Type: rc, Cap: caps(0, 0, 1, 0, 0)},
		"UC reads, see below": {Type: uc, Cap: caps(4, 0, 1, 0, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			wr := good
			if init.Type == uc {
				wr.Opcode = provider.OpRDMARead
			}
			if newTwin(t, init).p.PostPlain([]provider.SendWR{wr}) {
				t.Error("taken")
			}
		})
	}
}
