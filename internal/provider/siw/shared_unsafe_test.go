package siw

import (
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/pureverbs/rdma/internal/provider"
)

func wordAt(mem []byte, off int) *uint32 { return (*uint32)(unsafe.Pointer(&mem[off])) }

// TestShared: another goroutine plays the kernel; with -race, the detector sees that each
// side touches a slot only while it is its own.
func TestShared(t *testing.T) {
	const total = 6000
	q, sq, _ := openQP(t, 8, new(QPPlan))
	cq, mem := openCQ(t, 4) // so small that the kernel waits for it
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range total {
			e := sq[i%8*sqeSize:]
			for headFlags(bigEndian, atomic.LoadUint32(wordAt(e, 8)))&1 == 0 {
				runtime.Gosched()
			}
			c := cqe{id: ne.Uint64(e), opcode: e[11], bytes: ne.Uint32(e[32:]), qp: 17}
			word := atomic.LoadUint32(wordAt(e, 8))
			atomic.StoreUint32(wordAt(e, 8), freeHead(bigEndian, word))
			d := mem[i%4*cqeSize:][:cqeSize]
			for atomic.LoadUint32(wordAt(d, 8)) != 0 {
				runtime.Gosched()
			}
			ne.PutUint64(d, c.id)
			ne.PutUint32(d[12:], c.bytes)
			ne.PutUint64(d[24:], c.qp)
			atomic.StoreUint32(wordAt(d, 8), ne.Uint32([]byte{1, 0, 0, 0}))
		}
	}()
	posted, polled := uint64(0), uint64(0)
	var wcs [3]provider.WC
	plain := false
	for polled < total {
		for posted < total {
			wr := provider.SendWR{ID: posted, Opcode: provider.OpRDMAWrite, SGL: []provider.SGE{{Length: uint32(posted) + 1}}}
			if !plain || q.SendPlain([]provider.SendWR{wr}, Ops) == 0 { // or there is no room, or some are not published
				if err := q.Send(&wr, 1); errors.Is(err, provider.ErrFull) {
					break
				} else if err != nil {
					t.Fatal(err)
				}
			}
			if posted++; posted%5 == 0 {
				plain = !plain
			}
		}
		q.PublishSend()
		n, _, err := cq.Poll(wcs[:])
		if err != nil {
			t.Fatal(err)
		}
		for _, wc := range wcs[:n] {
			if wc.ID != polled || wc.ByteLen != uint32(polled)+1 || wc.QPNum != 17 {
				t.Fatalf("completion %d is %+v", polled, wc)
			}
			polled++
		}
		runtime.Gosched()
	}
	<-done
}

// TestNoAllocations: the hot path leaves the heap alone.
func TestNoAllocations(t *testing.T) {
	q, sq, rq := openQP(t, 4, new(QPPlan))
	cq, mem := openCQ(t, 4)
	i := 0
	if n := testing.AllocsPerRun(100, func() {
		if err := hot(q, cq, sq, rq, mem, i); err != nil {
			t.Fatal(err)
		}
		i++
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// hot posts and completes one request of each kind in slot i.
func hot(q *QP, cq *CQ, sq, rq, mem []byte, i int) error {
	send := provider.SendWR{Opcode: provider.OpSend, SGL: []provider.SGE{pieceA, pieceB}}
	if err := q.Send(&send, 48); err != nil {
		return err
	}
	q.PublishSend()
	recv := provider.RecvWR{SGL: []provider.SGE{pieceA}}
	if err := q.Recv(&recv, 16); err != nil {
		return err
	}
	q.PublishRecv()
	consume(sq, sqeSize, i%4)
	consume(rq, rqeSize, i%4)
	putCQE(mem, i%4, cqe{flags: 1, qp: 1})
	cq.Arm(false)
	var wcs [2]provider.WC
	if n, _, err := cq.Poll(wcs[:]); n != 1 || err != nil {
		return errors.Join(errors.New("no completion"), err)
	}
	return nil
}

func BenchmarkSendPublish(b *testing.B) {
	q, sq, _ := openQP(b, 128, &QPPlan{SigAll: true})
	wr := provider.SendWR{ID: 1, Opcode: provider.OpRDMAWrite, RemoteAddr: 1, RKey: 2, SGL: []provider.SGE{pieceA}}
	heads := make([]*uint32, 128)
	for i := range heads {
		heads[i] = wordAt(sq, i*sqeSize+8)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if err := q.Send(&wr, 16); err != nil {
			b.Fatal(err)
		}
		q.PublishSend()
		*heads[i%128] = 0
	}
}

func BenchmarkRecvPublish(b *testing.B) {
	q, _, rq := openQP(b, 128, new(QPPlan))
	wr := provider.RecvWR{ID: 1, SGL: []provider.SGE{pieceA}}
	heads := make([]*uint32, 128)
	for i := range heads {
		heads[i] = wordAt(rq, i*rqeSize+8)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if err := q.Recv(&wr, 16); err != nil {
			b.Fatal(err)
		}
		q.PublishRecv()
		*heads[i%128] = 0
	}
}

func BenchmarkPoll(b *testing.B) {
	q, mem := openCQ(b, 128)
	heads := make([]*uint32, 128)
	for i := range heads {
		putCQE(mem, i, cqe{id: 7, flags: 1, opcode: 8, bytes: 9, qp: 17})
		heads[i] = wordAt(mem, i*cqeSize+8)
	}
	word := *heads[0]
	var wcs [1]provider.WC
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if n, _, err := q.Poll(wcs[:]); n != 1 || err != nil {
			b.Fatal(n, err)
		}
		*heads[i%128] = word
	}
}
