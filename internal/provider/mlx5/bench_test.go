package mlx5

import (
	"errors"
	"slices"
	"testing"

	"github.com/pureverbs/rdma/internal/provider"
)

var errNoMemory = errors.New("no memory")

// The benchmarks post and poll as the core does, less its locks and checks. The device costs
// what the test spends on it: the entry that it writes for the last request.

func benchPost(b *testing.B, wr provider.SendWR, chain int) {
	dev := open(b)
	q := dev.cq(256)
	p := dev.qp(rcInit(64), 0x100, q, q)
	wcs := make([]provider.WC, 1)
	wrs := slices.Repeat([]provider.SendWR{wr}, chain)
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		if !p.PostPlain(wrs) {
			b.Fatal("not plain")
		}
		if n += chain; n >= 32 {
			q.done(p, uint16(p.sq.cur-uint32(blocksOf(p))))
			if n, err := q.Poll(wcs); n != 1 || err != nil {
				b.Fatal(n, err)
			}
			n = 0
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*chain), "ns/request")
}

var benchSGL = []provider.SGE{{Addr: 0x1000, Length: 64, LKey: 7}}

func BenchmarkPostSend(b *testing.B) {
	benchPost(b, provider.SendWR{Opcode: provider.OpSend, SGL: benchSGL}, 1)
}

func BenchmarkPostWrite(b *testing.B) {
	benchPost(b, provider.SendWR{Opcode: provider.OpRDMAWrite, SGL: benchSGL, RemoteAddr: 1, RKey: 2}, 1)
}

func BenchmarkPostChain16(b *testing.B) {
	benchPost(b, provider.SendWR{Opcode: provider.OpSend, SGL: benchSGL}, 16)
}

func BenchmarkPostInline(b *testing.B) {
	benchPost(b, provider.SendWR{Opcode: provider.OpSend, Flags: provider.SendInline, Inline: [][]byte{make([]byte, 32)}}, 1)
}

func BenchmarkPostRecv(b *testing.B) {
	dev := open(b)
	q := dev.cq(256)
	p := dev.qp(rcInit(64), 0x100, q, q)
	wr := &provider.RecvWR{SGL: benchSGL}
	for b.Loop() {
		if err := p.Recv(wr, 64); err != nil {
			b.Fatal(err)
		}
		p.PublishRecv()
		p.rq.credit.done++
		if p.rq.credit.done%32 == 0 {
			p.rq.credit.show()
		}
	}
}

// benchPoll polls entries that the device wrote before, n with each Release. The request that
// they complete is made open again behind the consumer's back.
func benchPoll(b *testing.B, batch int) {
	dev := open(b)
	q := dev.cq(1023)
	p := dev.qp(rcInit(64), 0x100, q, q)
	wr := &provider.SendWR{Opcode: provider.OpSend, SGL: benchSGL}
	for range batch {
		if err := p.Send(wr, 64); err != nil {
			b.Fatal(err)
		}
	}
	p.PublishSend()
	var wcs [16]provider.WC
	b.ReportAllocs()
	for b.Loop() {
		for i := range batch {
			q.done(p, uint16(i))
		}
		if n, err := q.Poll(wcs[:batch]); n != batch || err != nil {
			b.Fatal(n, err)
		}
		p.sq.credit.done, p.sq.credit.blocks = 0, 0
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch), "ns/completion")
}

func BenchmarkPoll1(b *testing.B)  { benchPoll(b, 1) }
func BenchmarkPoll16(b *testing.B) { benchPoll(b, 16) }

// BenchmarkDevice is what of them is the device.
func BenchmarkDevice(b *testing.B) {
	dev := open(b)
	q := dev.cq(1023)
	p := dev.qp(rcInit(64), 0x100, q, q)
	for b.Loop() {
		q.done(p, 0)
	}
}

func BenchmarkPollEmpty(b *testing.B) {
	q := open(b).cq(255)
	for b.Loop() {
		if !q.Empty() {
			b.Fatal("not empty")
		}
	}
}
