package siw

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/pureverbs/rdma/internal/provider"
)

// TestPlainIsSend: what SendPlain and RecvPlain take they leave as Send, Recv and Publish do, to
// the last byte; what they do not take is as it was.
func TestPlainIsSend(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	request := func(id uint64) provider.SendWR {
		wr := provider.SendWR{
			ID: id, Opcode: []provider.Opcode{provider.OpSend, provider.OpRDMAWrite, provider.OpRDMARead}[rng.IntN(3)],
			Flags: provider.SendFlags(rng.Uint32N(2)) * provider.SendSignaled, RemoteAddr: rng.Uint64(), RKey: rng.Uint32(),
			InvKey: rng.Uint32(), SGL: []provider.SGE{{Addr: rng.Uint64(), Length: 1 + rng.Uint32N(1<<20), LKey: rng.Uint32()}},
		}
		if rng.Uint32N(8) == 0 {
			wr.Opcode = provider.OpSendInvalidate
		}
		return wr
	}
	taken, left, full := 0, 0, 0
	for _, all := range []bool{false, true} {
		a, sqA, rqA := openQP(t, 8, &QPPlan{SigAll: all})
		b, sqB, rqB := openQP(t, 8, &QPPlan{SigAll: all})
		soil(sqA, sqeSize)
		soil(sqB, sqeSize)
		soil(rqA, rqeSize)
		soil(rqB, rqeSize)
		at, end := uint32(0), uint32(0)
		for round := range 2500 {
			sends, recvs := make([]provider.SendWR, 1+rng.IntN(9)), make([]provider.RecvWR, 9)
			for i := range sends {
				sends[i] = request(uint64(round*10 + i))
				recvs[i] = provider.RecvWR{ID: sends[i].ID, SGL: sends[i].SGL}
			}
			n := a.SendPlain(sends, Ops)
			for i := range n {
				if err := b.Send(&sends[i], sends[i].SGL[0].Length); err != nil {
					t.Fatal(err)
				}
				if err := b.Recv(&recvs[i], recvs[i].SGL[0].Length); err != nil {
					t.Fatal(err)
				}
			}
			b.PublishSend()
			b.PublishRecv()
			if got := a.RecvPlain(recvs[:n]); got != n {
				t.Fatalf("took %d receives, want %d", got, n)
			}
			if !bytes.Equal(sqA, sqB) || !bytes.Equal(rqA, rqB) || a.sq.own != b.sq.own || a.sq.given != b.sq.given {
				t.Fatalf("round %d: the queues differ after %d of %d", round, n, len(sends))
			}
			taken += n
			end += uint32(n)
			if n < len(sends) {
				if plain := sends[n].Opcode != provider.OpSendInvalidate; plain && end-at < 8 {
					t.Fatalf("round %d: not taken: %+v", round, sends[n])
				} else if plain {
					full++
				} else {
					left++
				}
			}
			for k := rng.Uint32N(end - at + 1); k > 0; k-- {
				for _, q := range [][]byte{sqA, sqB} {
					consume(q, sqeSize, int(at%8))
				}
				for _, q := range [][]byte{rqA, rqB} {
					consume(q, rqeSize, int(at%8))
				}
				at++
			}
		}
	}
	if taken < 2000 || left < 500 || full < 500 {
		t.Errorf("%d were taken, %d were not plain, %d found no room: the test has lost its point", taken, left, full)
	}
}

// TestNotPlain: nothing is taken that the caller must look at, or that would overtake what is
// not published.
func TestNotPlain(t *testing.T) {
	good := provider.SendWR{Opcode: provider.OpSend, SGL: []provider.SGE{pieceA}}
	for name, spoil := range map[string]func(*provider.SendWR){
		"unknown operation":       func(w *provider.SendWR) { w.Opcode = 32 + provider.OpSend },
		"operation not supported": func(w *provider.SendWR) { w.Opcode = provider.OpRDMARead },
		"local invalidate":        func(w *provider.SendWR) { w.Opcode = provider.OpLocalInvalidate },
		"inline":                  func(w *provider.SendWR) { w.Flags = provider.SendInline },
		"fence":                   func(w *provider.SendWR) { w.Flags = provider.SendFence },
		"unknown flag":            func(w *provider.SendWR) { w.Flags = 16 },
		"Inline without the flag": func(w *provider.SendWR) { w.Inline = [][]byte{} },
		"no piece":                func(w *provider.SendWR) { w.SGL = nil },
		"two pieces":              func(w *provider.SendWR) { w.SGL = append(w.SGL, pieceB) },
		"empty piece":             func(w *provider.SendWR) { w.SGL[0].Length = 0 },
		"2 GiB":                   func(w *provider.SendWR) { w.SGL[0].Length = 1 << 31 },
		"outside":                 func(w *provider.SendWR) { w.SGL[0].Length = 1<<32 - 1 },
	} {
		wr := good
		wr.SGL = []provider.SGE{pieceA}
		spoil(&wr)
		q, _, _ := openQP(t, 4, new(QPPlan))
		if n := q.SendPlain([]provider.SendWR{good, wr, good}, Ops&^(1<<provider.OpRDMARead)); n != 1 || q.sq.own != 1 {
			t.Errorf("%s: took %d, want 1", name, n)
		}
		want := 1
		if len(wr.SGL) == 1 && wr.SGL[0].Length-1 < maxMessage {
			want = 3 // a mistake that receives cannot have
		}
		if n := q.RecvPlain([]provider.RecvWR{{SGL: good.SGL}, {SGL: wr.SGL}, {SGL: good.SGL}}); n != want {
			t.Errorf("%s: took %d receives, want %d", name, n, want)
		}
	}
	q, _, _ := openQP(t, 4, new(QPPlan))
	recv := provider.RecvWR{SGL: good.SGL}
	if q.Send(&good, 16) != nil || q.Recv(&recv, 16) != nil {
		t.Fatal("no room in an empty queue")
	}
	if n, m := q.SendPlain([]provider.SendWR{good}, Ops), q.RecvPlain([]provider.RecvWR{recv}); n != 0 || m != 0 {
		t.Errorf("took %d sends and %d receives behind what is not published", n, m)
	}
	if n := (&QP{sq: q.sq}).RecvPlain([]provider.RecvWR{recv}); n != 0 {
		t.Errorf("took %d receives without a queue", n)
	}
}
