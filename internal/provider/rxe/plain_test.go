package rxe

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/pureverbs/rdma/internal/provider"
)

// soiled returns the bytes of an empty queue whose slots were used before.
func soiled(log2, mask uint32) []byte {
	mem := queue(log2, mask)
	for i := range mem[offSlots:] {
		mem[offSlots+i] = 0xee
	}
	return mem
}

// TestSendPlainIsSend: what SendPlain takes it leaves as Send does, to the last byte; what it
// does not take is as it was.
func TestSendPlainIsSend(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	request := func(id uint64) provider.SendWR {
		wr := provider.SendWR{
			ID: id, Opcode: provider.Opcode(rng.Uint32N(7)), Flags: provider.SendFlags(rng.Uint32N(8)),
			RemoteAddr: rng.Uint64(), RKey: rng.Uint32(), Imm: rng.Uint32(), InvKey: rng.Uint32(),
			CompareAdd: rng.Uint64(), Swap: rng.Uint64(),
			SGL: []provider.SGE{{Addr: rng.Uint64(), Length: 1 + rng.Uint32N(1<<20), LKey: rng.Uint32()}},
		}
		switch {
		case wr.Opcode.IsAtomic():
			wr.SGL[0].Length = 8
		case rng.Uint32N(8) == 0:
			wr.Opcode = provider.OpSendInvalidate
		case rng.Uint32N(8) == 0:
			wr.SGL = append(wr.SGL, wr.SGL[0])
		}
		return wr
	}
	mems := [2][]byte{soiled(8, 7), soiled(8, 7)}
	a, b := &QP{sq: openRing(t, mems[0], 240)}, &QP{sq: openRing(t, mems[1], 240)}
	taken, left, full := 0, 0, 0
	for round := range 5000 {
		wrs := make([]provider.SendWR, 1+rng.IntN(9))
		for i := range wrs {
			wrs[i] = request(uint64(round*10 + i))
		}
		room := a.sq.free()
		n := a.SendPlain(wrs, provider.AllOps)
		for i := range n {
			if err := b.Send(&wrs[i], wrs[i].SGL[0].Length); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(mems[0], mems[1]) || a.sq.own != b.sq.own {
			t.Fatalf("round %d: the queues differ after %d of %d", round, n, len(wrs))
		}
		taken += n
		if n < len(wrs) {
			if plain := len(wrs[n].SGL) == 1 && wrs[n].Opcode != provider.OpSendInvalidate; plain && n < room {
				t.Fatalf("round %d: not taken: %+v", round, wrs[n])
			} else if plain {
				full++
			} else {
				left++
			}
		}
		a.PublishSend()
		b.PublishSend()
		done := (words(mems[0], offConsumer)[0] + rng.Uint32N(8-uint32(a.sq.free()))) & 7
		for _, mem := range mems {
			binary.NativeEndian.PutUint32(mem[offConsumer:], done)
		}
	}
	if taken < 2000 || left < 500 || full < 500 {
		t.Errorf("%d were taken, %d were not plain, %d found no room: the test has lost its point", taken, left, full)
	}
}

// TestNotPlain: nothing is taken that the caller must look at.
func TestNotPlain(t *testing.T) {
	piece := provider.SGE{Addr: 1, Length: 8, LKey: 2}
	good := provider.SendWR{Opcode: provider.OpSend, SGL: []provider.SGE{piece}}
	for name, spoil := range map[string]func(*provider.SendWR){
		"unknown operation":       func(w *provider.SendWR) { w.Opcode = 32 + provider.OpSend },
		"operation not supported": func(w *provider.SendWR) { w.Opcode = provider.OpRDMARead },
		"memory window":           func(w *provider.SendWR) { w.Opcode = provider.OpBindMW },
		"flush":                   func(w *provider.SendWR) { w.Opcode = provider.OpFlush },
		"inline":                  func(w *provider.SendWR) { w.Flags = provider.SendInline },
		"unknown flag":            func(w *provider.SendWR) { w.Flags = 16 },
		"Inline without the flag": func(w *provider.SendWR) { w.Inline = [][]byte{} },
		"no piece":                func(w *provider.SendWR) { w.SGL = nil },
		"two pieces":              func(w *provider.SendWR) { w.SGL = append(w.SGL, piece) },
		"empty piece":             func(w *provider.SendWR) { w.SGL[0].Length = 0 },
		"too long":                func(w *provider.SendWR) { w.SGL[0].Length = 1<<31 + 1 },
		"outside":                 func(w *provider.SendWR) { w.SGL[0].Length = 1<<32 - 1 },
		"atomic of 16 bytes":      func(w *provider.SendWR) { w.Opcode, w.SGL[0].Length = provider.OpFetchAdd, 16 },
	} {
		wr := good
		wr.SGL = []provider.SGE{piece}
		spoil(&wr)
		q := &QP{sq: openRing(t, queue(8, 7), 240), rq: openRing(t, queue(8, 7), 56)}
		if n := q.SendPlain([]provider.SendWR{good, wr, good}, provider.AllOps&^(1<<provider.OpRDMARead)); n != 1 || q.sq.own != 1 {
			t.Errorf("%s: took %d, want 1", name, n)
		}
		want := 1
		if len(wr.SGL) == 1 && wr.SGL[0].Length-1 < 1<<31 {
			want = 3 // a mistake that receives cannot have
		}
		recvs := []provider.RecvWR{{SGL: good.SGL}, {SGL: wr.SGL}, {SGL: good.SGL}}
		if n := q.RecvPlain(recvs); n != want || q.rq.own != uint32(want) {
			t.Errorf("%s: took %d receives, want %d", name, n, want)
		}
	}
}

// TestRecvPlainIsRecv: what RecvPlain takes it leaves as Recv and PublishRecv do.
func TestRecvPlainIsRecv(t *testing.T) {
	mems := [3][]byte{soiled(6, 7), soiled(6, 7), soiled(6, 7)}
	a, b, c := &QP{rq: openRing(t, mems[0], 56)}, &QP{rq: openRing(t, mems[1], 56)}, &SRQ{openRing(t, mems[2], 56)}
	wrs := make([]provider.RecvWR, 9)
	for i := range wrs {
		wrs[i] = provider.RecvWR{ID: uint64(i) << 40, SGL: []provider.SGE{{Addr: 1 << 50, Length: uint32(i + 1), LKey: 7}}}
	}
	for _, want := range []int{3, 4, 0, 5} { // of seven places
		if want == 5 {
			for _, mem := range mems {
				binary.NativeEndian.PutUint32(mem[offConsumer:], 5)
			}
		}
		part := wrs
		if want == 3 {
			part = wrs[:3]
		}
		if n := a.RecvPlain(part); n != want {
			t.Errorf("took %d, want %d", n, want)
		}
		if n := c.RecvPlain(part); n != want {
			t.Errorf("the shared queue took %d, want %d", n, want)
		}
		for i := range want {
			if err := b.Recv(&part[i], uint32(i+1)); err != nil {
				t.Fatal(err)
			}
		}
		b.PublishRecv()
		if !bytes.Equal(mems[0], mems[1]) || !bytes.Equal(mems[2], mems[1]) {
			t.Fatal("the queues differ")
		}
	}
	binary.NativeEndian.PutUint32(mems[1][offConsumer:], 0)
	if err := b.Recv(&wrs[0], 1); err != nil {
		t.Fatal(err)
	}
	if n := b.RecvPlain(wrs[:1]); n != 0 {
		t.Errorf("took %d behind what was not shown yet", n)
	}
	if n := new(QP).RecvPlain(wrs); n != 0 {
		t.Errorf("took %d receives without a queue", n)
	}
}
