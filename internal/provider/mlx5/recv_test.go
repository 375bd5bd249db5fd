package mlx5

import (
	"encoding/hex"
	"errors"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
)

// TestRecvTraced: the same calls as in a trace of libmlx5 leave the same bytes.
func TestRecvTraced(t *testing.T) {
	b := open(t)
	q := b.cq(127)
	p := b.qp(&QPInit{Type: rc, Cap: caps(5, 6, 2, 3, 20)}, 0x100, q, q)
	far := provider.SGE{Addr: traced.Addr + 0x80, Length: 20, LKey: traced.LKey}
	empty := provider.SGE{Addr: traced.Addr + 0x40, LKey: traced.LKey}
	p.recv(t, 1)
	p.recv(t, 2, traced)
	p.recv(t, 3, traced, empty)
	p.recv(t, 4, empty, traced, far)
	p.recv(t, 5, traced, traced, far, far)
	const end = " 00000000 00000100 00000000 00000000"
	const farWords = " 00000014 00133635 00005555 784b7080 "
	for i, want := range []string{end, tracedWords + end, tracedWords + end, tracedWords + farWords + end, tracedWords + tracedWords + farWords + farWords} {
		wantWords(t, "receive", p.rqm[64*i:], want)
	}
	if got := p.record(recvCount); got != 5 {
		t.Errorf("the record says %d", got)
	}
	for range 3 {
		p.recv(t, 0)
	}
	if err := p.Recv(&provider.RecvWR{}, 0); !errors.Is(err, provider.ErrFull) {
		t.Errorf("the ninth of eight: %v", err)
	}
}

// TestRecvCorrupt: receives complete in order, and only those that are posted.
func TestRecvCorrupt(t *testing.T) {
	for name, counter := range map[string]uint16{"later": 1, "not posted": 2} {
		b := open(t)
		q := b.cq(7)
		p := b.qp(rcInit(4), 0x100, q, q)
		p.recv(t, 1)
		p.recv(t, 2)
		q.write(&cqe{kind: cqeRecv, q: p, counter: counter})
		var wc provider.WC
		if ok, err := q.Next(&wc); ok || !errors.Is(err, provider.ErrCorrupt) {
			t.Errorf("%s: got %v, %v", name, ok, err)
		}
	}
	b := open(t)
	q := b.cq(7)
	p := b.qp(&QPInit{Type: rc, Cap: caps(1, 0, 1, 0, 0)}, 0x100, q, q)
	if p.HasRecv() {
		t.Error("a receive queue of no slots")
	}
	if err := p.Recv(&provider.RecvWR{}, 0); !errors.Is(err, provider.ErrFull) {
		t.Errorf("a receive into nothing: %v", err)
	}
	p.rec.put32(recvCount, 1)
	q.write(&cqe{kind: cqeRecv, q: p})
	var wc provider.WC
	if ok, err := q.Next(&wc); ok || !errors.Is(err, provider.ErrCorrupt) {
		t.Errorf("a receive from nothing: %v, %v", ok, err)
	}
}

// srq is a shared receive queue and the device's end of it.
type srq struct {
	*SRQ
	plan *SRQPlan
	mem  []byte
	at   uint16 // the slot that the device takes next
}

func (b *bench) srq(t testing.TB, maxWR, maxSGE uint32) *srq {
	t.Helper()
	p, err := b.ctx.PlanSRQ(maxWR, maxSGE)
	if err != nil {
		t.Fatal(err)
	}
	p.resp.Srqn = 0x80
	s, err := p.Attach(p.MaxWR())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return &srq{s, p, s.mem, 0}
}

func (s *srq) post(t testing.TB, id uint64, pieces ...provider.SGE) {
	t.Helper()
	if err := s.Recv(&provider.RecvWR{ID: id, SGL: pieces}, 0); err != nil {
		t.Fatal(err)
	}
	s.PublishRecv()
}

// consume is the device: it takes a slot and goes on by its link.
func (s *srq) consume() uint16 {
	at := s.at
	s.at = be.Uint16(s.mem[int(at)<<s.shift+2:])
	return at
}

func TestSRQSizes(t *testing.T) {
	b := open(t)
	for _, tt := range []struct{ wr, sge, gotWR, gotSGE, size uint32 }{
		{1, 1, 1, 1, 32}, {3, 2, 3, 3, 64}, {7, 1, 7, 1, 32}, {16, 3, 31, 3, 64}, {100, 1, 127, 1, 32}, {100, 0, 127, 1, 32},
		{16383, 1, 16383, 1, 32}, {16384, 1, 32767, 1, 32}, {32767, 1, 32767, 1, 32}, {1, 32, 1, 32, 1024}, {1, 31, 1, 31, 512},
	} {
		p, err := b.ctx.PlanSRQ(tt.wr, tt.sge)
		if err != nil {
			t.Errorf("%+v: %v", tt, err)
			continue
		}
		if p.MaxWR() != tt.gotWR || p.MaxSGE() != tt.gotSGE || 1<<p.shift != tt.size {
			t.Errorf("%+v: got %d requests of %d pieces, 2^%d bytes", tt, p.MaxWR(), p.MaxSGE(), p.shift)
		}
		if len(p.mem) != b.ctx.pages(int(tt.gotWR+1)*int(tt.size)) {
			t.Errorf("%+v: %d bytes", tt, len(p.mem))
		}
		if _, err := p.Attach(tt.gotWR + 1); !errors.Is(err, provider.ErrCorrupt) {
			t.Errorf("another size granted: %v", err)
		}
		p.Drop()
	}
	for _, tt := range [][2]uint32{{0, 1}, {32768, 1}, {1<<32 - 1, 1}, {1, 33}, {1, 1<<32 - 1}} {
		if _, err := b.ctx.PlanSRQ(tt[0], tt[1]); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%v: got %v, want EINVAL", tt, err)
		}
	}
}

// TestSRQ: links, requests and records as traced of libmlx5, less its second list.
func TestSRQ(t *testing.T) {
	b := open(t)
	s := b.srq(t, 3, 2)
	if !bigEndian {
		in := s.plan.In()
		if got := hex.EncodeToString(in[16:]); got != "00000000000000000000000000000000" || len(in) != 32 || len(s.plan.Out()) != 8 {
			t.Errorf("driver's part: %s", got)
		}
	}
	const none = " 0 0 0 0 "
	const end = " 00000000 00000100 00000000 00000000 "
	wantWords(t, "fresh", s.mem, "00000001 0 0 0"+none+none+none+"00000002 0 0 0"+none+none+none+"00000003 0 0 0"+none+none+none+none)
	s.post(t, 0xa0)
	s.post(t, 0xa1, traced)
	s.post(t, 0xa2, traced, provider.SGE{Addr: 1, LKey: 2})
	wantWords(t, "posted", s.mem, "00000001 0 0 0"+end+none+none+"00000002 0 0 0"+tracedWords+end+none+
		"00000003 0 0 0"+tracedWords+end+none+none)
	if got := s.record(recvCount); got != 3 {
		t.Errorf("the record says %d", got)
	}
	if err := s.Recv(&provider.RecvWR{}, 0); !errors.Is(err, provider.ErrFull) {
		t.Errorf("the fourth of three: %v", err)
	}

	q := b.cq(127)
	p := b.qp(&QPInit{Type: rc, Cap: caps(1, 1, 1, 1, 0), SRQ: s.SRQ}, 0x100, q, q)
	if p.HasRecv() || p.plan.Cap().MaxRecvWR != 0 {
		t.Error("it has a receive queue of its own too")
	}
	for _, slot := range []uint16{1, 0} { // in any order
		q.write(&cqe{kind: cqeRecv, q: p, counter: slot, bytes: 9})
		if wc := q.take(t); wc.ID != 0xa0+uint64(slot) || wc.ByteLen != 9 {
			t.Errorf("slot %d: got %#x, %d bytes", slot, wc.ID, wc.ByteLen)
		}
	}
	s.post(t, 0xb0, traced)
	s.post(t, 0xb1)
	if err := s.Recv(&provider.RecvWR{}, 0); !errors.Is(err, provider.ErrFull) {
		t.Errorf("one more: %v", err)
	}
	var got []uint16
	for range 5 {
		got = append(got, s.consume())
	}
	if diff := cmp.Diff([]uint16{0, 1, 2, 3, 0}, got); diff != "" {
		t.Errorf("the device's way: %s", diff)
	}
	for _, counter := range []uint16{1, 4, 65535} { // free, outside, far outside
		q.write(&cqe{kind: cqeRecv, q: p, counter: counter})
		var wc provider.WC
		if ok, err := q.Next(&wc); ok || !errors.Is(err, provider.ErrCorrupt) {
			t.Errorf("slot %d: %v, %v", counter, ok, err)
		}
		q.prod--
	}
	// The slots of removed completions come back.
	q.write(&cqe{kind: cqeRecvFailed, q: p, counter: 2})
	q.Forget(p.QP)
	s.post(t, 0xc0)
}

// TestSRQRounds plays the device for long: whatever the order in which it completes, each
// receive completes once, with its number, and the device's way never meets a slot that was
// not posted.
func TestSRQRounds(t *testing.T) {
	for _, slots := range []uint32{1, 3, 63, 127, 200} {
		b := open(t)
		s := b.srq(t, slots, 1)
		s.counter = 1<<32 - 100
		s.rec.put32(0, s.counter)
		taken := s.counter
		q := b.cq(1023)
		p := b.qp(&QPInit{Type: rc, Cap: caps(1, 1, 1, 1, 0), SRQ: s.SRQ}, 0x100, q, q)
		random := uint32(1)
		id, open := uint64(0), make(map[uint64]bool)
		var device []uint16
		for range 3000 {
			for random = random*1664525 + 1013904223; random>>28 > 3; random = random*1664525 + 1013904223 {
				if err := s.Recv(&provider.RecvWR{ID: id, SGL: sgl(provider.SGE{Addr: id, Length: 1})}, 1); err != nil {
					if !errors.Is(err, provider.ErrFull) || len(open) != int(s.plan.MaxWR()) {
						t.Fatalf("%v with %d of %d open", err, len(open), s.plan.MaxWR())
					}
					break
				}
				open[id] = true
				id++
			}
			s.PublishRecv()
			for ; taken != s.record(recvCount); taken++ {
				device = append(device, s.consume())
			}
			for len(device) > 0 && random>>27&7 != 0 {
				random = random*1664525 + 1013904223
				i := int(random>>16) % len(device)
				slot := device[i]
				device = append(device[:i], device[i+1:]...)
				want := be.Uint64(s.mem[int(slot)<<s.shift+24:])
				q.write(&cqe{kind: cqeRecv, q: p, counter: slot})
				if wc := q.take(t); wc.ID != want || !open[wc.ID] {
					t.Fatalf("slot %d: got %d, open %v, want %d", slot, wc.ID, open[wc.ID], want)
				}
				delete(open, want)
			}
		}
		if id < 1000 {
			t.Errorf("only %d receives in all", id)
		}
		b.checkMargins()
	}
}

// TestSRQSlots: a slot that has room for more pieces than are promised ends with the mark
// that there are no more, for the device reads all of it.
func TestSRQSlots(t *testing.T) {
	b := open(t)
	s := b.srq(t, 1, 32)
	pieces := make([]provider.SGE, 32)
	for i := range pieces {
		pieces[i] = provider.SGE{Addr: uint64(i), Length: 1, LKey: 2}
	}
	for i := range s.mem[16:1024] {
		s.mem[16+i] = soil
	}
	s.post(t, 1, pieces...)
	wantWords(t, "after the last piece", s.mem[16+31*16:], "00000001 00000002 00000000 0000001f | 00000000 00000100 00000000 00000000 | a5a5a5a5")
}

func TestSRQTooLarge(t *testing.T) {
	b := open(t, func(r *abi.Mlx5IbAllocUcontextResp, _ *Options) { r.MaxSrqRecvWr = 1 << 20 })
	if p, err := b.ctx.PlanSRQ(65535, 1); err != nil {
		t.Error(err)
	} else {
		p.Drop()
	}
	if _, err := b.ctx.PlanSRQ(65536, 1); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("slots that 16 bits do not count: %v", err)
	}
	b.fail = true
	if _, err := b.ctx.PlanSRQ(1, 1); !errors.Is(err, errNoMemory) {
		t.Errorf("no memory: %v", err)
	}
}
