package mlx5

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
)

// The piece of the traces of libmlx5.
var traced = provider.SGE{Addr: 0x5555784b7000, Length: 10, LKey: 0x133635}

const tracedWords = " 0000000a 00133635 00005555 784b7000 "

func sgl(pieces ...provider.SGE) []provider.SGE { return pieces }

func sum(sgl []provider.SGE, inline [][]byte) (n uint32) {
	for i := range sgl {
		n += sgl[i].Length
	}
	for i := range inline {
		n += uint32(len(inline[i]))
	}
	return n
}

func (p *qp) post(t testing.TB, wr provider.SendWR) {
	t.Helper()
	if err := p.Send(&wr, sum(wr.SGL, wr.Inline)); err != nil {
		t.Fatalf("%v: %v", wr.Opcode, err)
	}
}

const (
	fSig = provider.SendSignaled
	fSol = provider.SendSolicited
	fFen = provider.SendFence
	fInl = provider.SendInline
)

// TestSendTraced: the same calls as in a trace of libmlx5 44 and 65 leave the same bytes.
func TestSendTraced(t *testing.T) {
	b := open(t)
	q := b.cq(127)
	p := b.qp(&QPInit{Type: rc, Cap: caps(5, 6, 2, 3, 20)}, 0x100, q, q)
	imm := provider.SendWR{
		Opcode: provider.OpSendImm, Flags: fInl, Imm: 0x11223344,
		Inline: [][]byte{{0, 1, 2, 3}, {}, {4, 5, 6, 7, 8, 9}},
	}
	remote := provider.SendWR{RemoteAddr: 0x1122334455667788, RKey: 0xabcdef, SGL: sgl(traced)}
	write, read := remote, remote
	write.Opcode, write.Flags = provider.OpRDMAWrite, fFen
	read.Opcode = provider.OpRDMARead
	tests := []struct {
		wr   provider.SendWR
		want string
		bell int // register half
	}{
		{provider.SendWR{Opcode: provider.OpSend, Flags: fSig, SGL: sgl(traced)}, "0000000a 00010002 00000008 00000000 | " + tracedWords, 0},
		{provider.SendWR{Opcode: provider.OpSend, Flags: fSol}, "0000010a 00010001 00000002 00000000", 0x100},
		{imm, "0000020b 00010002 00000000 11223344 | 8000000a 00010203 04050607 08090000", 0},
		{write, "00000308 00010003 00000080 00000000 | 11223344 55667788 00abcdef 00000000 | " + tracedWords, 0x100},
		{read, "00000410 00010003 00000000 00000000 | 11223344 55667788 00abcdef 00000000 | " + tracedWords, 0},
	}
	page := b.pages[0x21]
	for i, tt := range tests {
		p.post(t, tt.wr)
		if got := p.record(sendCount); got != uint32(i) {
			t.Errorf("request %d: the record says %d before the doorbell", i, got)
		}
		p.PublishSend()
		wantWords(t, tt.wr.Opcode.String(), p.sqm[i*blockSize:], tt.want)
		if got := p.record(sendCount); got != uint32(i+1) {
			t.Errorf("request %d: the record says %d", i, got)
		}
		if got, want := dump(page[0x800+tt.bell:][:8]), tt.want[:17]; got != want {
			t.Errorf("request %d: register half %#x: got %s, want %s", i, tt.bell, got, want)
		}
	}
	wantWords(t, "BlueFlame", page[0x800:], tests[4].want)
	// An empty request is not copied: behind the 8 bytes stands the fenced write's rest.
	wantWords(t, "BlueFlame", page[0x900:], tests[3].want)
}

// TestFlags: all of them, each alone and together.
func TestFlags(t *testing.T) {
	for _, sigAll := range []bool{false, true} {
		b := open(t)
		q := b.cq(127)
		init := rcInit(64)
		init.SigAll = sigAll
		p := b.qp(init, 0x100, q, q)
		for f := range provider.SendFlags(8) {
			for _, after := range []bool{false, true} {
				if after {
					p.post(t, provider.SendWR{Opcode: provider.OpLocalInvalidate, InvKey: 1})
				}
				at := p.sq.cur
				p.post(t, provider.SendWR{Opcode: provider.OpSend, Flags: f})
				want := uint8(0)
				if f&fFen != 0 {
					want |= 0x80
				} else if after {
					want |= 0x20
				}
				if f&fSig != 0 || sigAll {
					want |= 8
				}
				if f&fSol != 0 {
					want |= 2
				}
				if got := p.sqm[at*blockSize+11]; got != want {
					t.Errorf("flags %d, all signaled %v, after an invalidate %v: got %#x, want %#x", f, sigAll, after, got, want)
				}
			}
		}
	}
}

// TestWindows: binds and invalidations, traced. The mask of the bytes that are left alone is
// the x.
func TestWindows(t *testing.T) {
	b := open(t)
	q := b.cq(127)
	p := b.qp(rcInit(4), 0x103, q, q)
	for i := range p.sqm { // stale bytes, which must stay where libmlx5 leaves them
		p.sqm[i] = soil
	}
	const zero = " 0 0 0 0 "
	const stale = " a5a5a5a5 "
	addr := " 00005555 784b7000 "
	bind := provider.MWBind{Type: 2, Addr: 0x5555784b7000, Length: 0x1000, LKey: 0x133635, MWKey: 0x7700, NewKey: 0x7701, Access: 6}
	p.post(t, provider.SendWR{Opcode: provider.OpBindMW, Flags: fSig, Bind: &bind})
	wantWords(t, "bind", p.sqm, "00000025 0001030c 00000008 00007700 | b0000000 00040000 00000000 203c6041"+zero+zero+
		"00a530a5 00010301 a5a5a5a5 a5a5a5a5 "+addr+"00000000 00001000"+stale+stale+stale+stale+stale+stale+stale+stale+
		"00001000 00133635"+addr+zero+zero+zero)
	p.post(t, provider.SendWR{Opcode: provider.OpSend, SGL: sgl(traced)})
	wantWords(t, "after it", p.sqm[3*blockSize:], "0000030a 00010302 00000020 00000000 | "+tracedWords)
	p.post(t, provider.SendWR{Opcode: provider.OpSend, SGL: sgl(traced)})
	wantWords(t, "and again", p.sqm[4*blockSize:], "0000040a 00010302 00000000 00000000 | "+tracedWords)
	p.post(t, provider.SendWR{Opcode: provider.OpLocalInvalidate, InvKey: 0x7701})
	wantWords(t, "invalidate", p.sqm[5*blockSize:], "00000525 00010308 00000000 00007701 | 98000000 00000000 00000000 20006000"+zero+zero+
		"40a5a5a5 ffffff00 a5a5a5a5 a5a5a5a5 "+stale+stale+stale+stale)
	p.PublishSend()

	one := provider.MWBind{Type: 1, Addr: 0x5555784b7000, Length: 0x40, LKey: 0x133635, MWKey: 0x7700, NewKey: 0x7701, Access: 0x21}
	r := b.qp(rcInit(4), 0x103, q, q)
	r.putBind(r.sq.place(0), &one)
	wantWords(t, "bind of type 1", r.sqm, "x x x x 90000000 00040000 00000000 203c2041"+zero+zero+
		"00000800 ffffff01 00000000 00000000 00000000 00000000 00000000 00000040"+zero+zero+"00000040 00133635"+addr)
	r.post(t, provider.SendWR{Opcode: provider.OpBindMW, Bind: &provider.MWBind{Type: 1, MWKey: 0x7701, NewKey: 0x7702}})
	wantWords(t, "unbind", r.sqm, "00000025 00010308 00000000 00007701 | 90000000 00000000 00000000 20002000"+zero+zero+"40000800 ffffff02")
	r.putBind(r.sq.place(2), &provider.MWBind{Type: 2, NewKey: 0x7703})
	wantWords(t, "unbind of type 2", r.sqm[2*blockSize:], "x x x x 98000000 00000000 00000000 20006000"+zero+zero+"40000000 ffffff03")

	bind.Length = 1<<31 + 1
	if err := r.Send(&provider.SendWR{Opcode: provider.OpBindMW, Bind: &bind}, 0); !errors.Is(err, errWindow) {
		t.Errorf("2 GiB and a byte: %v", err)
	}
	if got := mkeyRights(15); got != 0x78 {
		t.Errorf("all rights are %#x", got)
	}
}

// TestDatagram: traced.
func TestDatagram(t *testing.T) {
	b := open(t)
	q := b.cq(127)
	p := b.qp(&QPInit{Type: ud, Cap: caps(4, 4, 1, 1, 0)}, 0x101, q, q)
	var av provider.AV
	FillAV(&av, &Way{
		Ethernet: true, UDP: true, Global: true, DGID: [16]byte{0: 0xfe, 15: 9}, HopLimit: 64, TrafficClass: 0x61,
		FlowLabel: 0x51234, SL: 3, StaticRate: 16, DMAC: [6]byte{2, 0, 0, 0, 0, 1},
	})
	p.post(t, provider.SendWR{
		Opcode: provider.OpSend, Flags: fSig, SGL: sgl(traced), Dest: provider.Dest{AV: &av, QPN: 0x456, QKey: 0x11111111},
	})
	wantWords(t, "datagram", p.sqm, "0000000a 00010105 00000008 00000000 | 11111111 00000000 80000456 f600d220 |"+
		"00000000 02000000 00016140 00051234 | fe000000 00000000 00000000 00000009 |"+tracedWords)
	if err := p.Send(&provider.SendWR{Opcode: provider.OpRDMAWrite}, 0); !errors.Is(err, errOpcode) {
		t.Errorf("a WRITE by datagram: %v", err)
	}
}

// TestWay: InfiniBand, rates and ports.
func TestWay(t *testing.T) {
	var av provider.AV
	fill := func(w Way) []byte {
		for i := range av.Raw {
			av.Raw[i] = soil
		}
		FillAV(&av, &w)
		return av.Raw[:headWay]
	}
	wantWords(t, "local", fill(Way{DLID: 0x1234, SL: 9, PathBits: 0x85, StaticRate: 5}), "0 0 80000000 a9051234 0 0 0 0 0 0 0 0")
	wantWords(t, "global", fill(Way{DLID: 1, Global: true, SGIDIndex: 2, FlowLabel: 0xff00003, TrafficClass: 4, HopLimit: 5, DGID: [16]byte{1}}),
		"0 0 80000000 00000001 0 0 00000405 40200003 01000000 0 0 0")
	wantWords(t, "version 1", fill(Way{Ethernet: true, SL: 11, StaticRate: 22, FlowLabel: 7}), "0 0 80000000 06000000 0 0 0 7 0 0 0 0")
	rates := ""
	for r := range uint8(24) {
		rates += string("0123456789abcdef"[fill(Way{StaticRate: r})[wayRate]>>4])
	}
	if want := "00789abcdefbdf09f0" + "09d0000"; rates[:24] != want[:24] {
		t.Errorf("rates:\ngot  %s\nwant %s", rates, want)
	}
	seen := make(map[uint16]bool)
	for range 32 {
		port := be.Uint16(fill(Way{Ethernet: true, UDP: true})[wayLID:])
		if port < 0xc000 {
			t.Fatalf("UDP port %#x", port)
		}
		seen[port] = true
	}
	if len(seen) < 16 {
		t.Error("UDP ports are not spread")
	}
}

// TestAtomics: traced. A FETCH AND ADD leaves the place of its second operand alone.
func TestAtomics(t *testing.T) {
	b := open(t)
	q := b.cq(127)
	p := b.qp(rcInit(4), 0x103, q, q)
	for i := range p.sqm {
		p.sqm[i] = soil
	}
	eight := provider.SGE{Addr: traced.Addr, Length: 8, LKey: traced.LKey}
	p.post(t, provider.SendWR{Opcode: provider.OpFetchAdd, SGL: sgl(eight), RemoteAddr: 0x1000, RKey: 5, CompareAdd: 0x42, Flags: fSig})
	wantWords(t, "fetch and add", p.sqm, "00000012 00010304 00000008 00000000 | 00000000 00001000 00000005 00000000 | 00000000 00000042 a5a5a5a5 a5a5a5a5 | 00000008 00133635 00005555 784b7000")
	p.post(t, provider.SendWR{Opcode: provider.OpCompareSwap, SGL: sgl(eight), RemoteAddr: 0x1000, RKey: 5, CompareAdd: 0x42, Swap: 0x99, Flags: fSig})
	wantWords(t, "compare and swap", p.sqm[64:], "00000111 00010304 00000008 00000000 | 00000000 00001000 00000005 00000000 | 00000000 00000099 00000000 00000042 | 00000008 00133635 00005555 784b7000")
}

// TestDoorbells: what is rung, where, with how many requests at a time.
func TestDoorbells(t *testing.T) {
	send := provider.SendWR{Opcode: provider.OpSend, SGL: sgl(traced)}
	large := provider.SendWR{Opcode: provider.OpSend, Flags: fInl, Inline: [][]byte{make([]byte, 236)}} // 256 bytes in all
	larger := provider.SendWR{Opcode: provider.OpSend, Flags: fInl, Inline: [][]byte{make([]byte, 237)}}
	tests := map[string]struct {
		wrs    []provider.SendWR
		copied int // bytes
		quiet  bool
	}{
		"one":             {[]provider.SendWR{send}, 64, false},
		"empty":           {[]provider.SendWR{{Opcode: provider.OpSend, Flags: fSig}}, 8, false},
		"two":             {[]provider.SendWR{send, send}, 8, false},
		"four blocks":     {[]provider.SendWR{large}, 256, false},
		"too large":       {[]provider.SendWR{larger}, 8, false},
		"no BlueFlame":    {[]provider.SendWR{send}, 8, true},
		"two, no BlueFl.": {[]provider.SendWR{send, large}, 8, true},
	}
	for name, tt := range tests {
		b := open(t, func(_ *abi.Mlx5IbAllocUcontextResp, o *Options) { o.NoBlueFlame = tt.quiet })
		q := b.cq(127)
		p := b.qp(&QPInit{Type: rc, Cap: caps(8, 1, 1, 1, 250)}, 0x100, q, q)
		page := b.pages[p.reg.uar]
		clear(page)
		first := uint32(0)
		for _, wr := range tt.wrs {
			first = p.sq.cur
			p.post(t, wr)
		}
		p.PublishSend()
		want := make([]byte, pageSize)
		copy(want[0x800:], p.sqm[first*blockSize:][:tt.copied])
		if !bytes.Equal(page, want) {
			t.Errorf("%s: the register's page is not as it should be", name)
		}
		if got := p.record(sendCount); got != p.sq.cur {
			t.Errorf("%s: the record says %d, want %d", name, got, p.sq.cur)
		}
		clear(page)
		p.PublishSend() // of nothing
		if !bytes.Equal(page, make([]byte, pageSize)) {
			t.Errorf("%s: a doorbell for nothing", name)
		}
	}
}

// TestBlueFlameAround: a request that goes on at the ring's beginning is copied in order.
func TestBlueFlameAround(t *testing.T) {
	b := open(t)
	q := b.cq(127)
	p := b.qp(&QPInit{Type: rc, Cap: caps(1, 1, 1, 1, 160)}, 0x100, q, q) // 8 blocks
	data := make([]byte, 160)
	for i := range data {
		data[i] = byte(i + 1)
	}
	page := b.pages[p.reg.uar]
	for i := range 9 {
		at := p.sq.cur
		clear(page)
		p.post(t, provider.SendWR{Opcode: provider.OpSend, Flags: fInl | fSig, Inline: [][]byte{data}})
		p.PublishSend()
		half := page[0x800+i%2*0x100:][:256]
		want := []byte{}
		for k := range uint32(3) {
			want = append(want, p.sqm[(at+k)%8*blockSize:][:blockSize]...)
		}
		if !bytes.Equal(half[:192], want) || !bytes.Equal(half[192:], make([]byte, 64)) {
			t.Fatalf("request at block %d: got\n%s\nwant\n%s", at, dump(half), dump(want))
		}
		if !bytes.Equal(half[20:180], data) {
			t.Fatalf("request at block %d: the data is not in order", at)
		}
		q.done(p, uint16(at))
		q.take(t)
	}
}

// TestDropAndTake: what was encoded and not shown is as if it had not been.
func TestDropAndTake(t *testing.T) {
	b := open(t)
	q := b.cq(127)
	p := b.qp(rcInit(4), 0x100, q, q)
	p.post(t, provider.SendWR{ID: 1, Opcode: provider.OpLocalInvalidate})
	p.PublishSend()
	for _, take := range []bool{false, true} {
		p.post(t, provider.SendWR{ID: 2, Opcode: provider.OpLocalInvalidate})
		p.post(t, provider.SendWR{ID: 3, Opcode: provider.OpSend})
		var got []uint64
		if take {
			p.TakeSends(func(id uint64) { got = append(got, id) })
			if diff := cmp.Diff([]uint64{2, 3}, got); diff != "" {
				t.Error(diff)
			}
		} else {
			p.DropSend()
		}
		p.PublishSend()
		if got := p.record(sendCount); got != 2 {
			t.Errorf("the record says %d", got)
		}
	}
	p.post(t, provider.SendWR{ID: 4, Opcode: provider.OpSend})
	wantWords(t, "the next", p.sqm[2*blockSize:], "0000020a 00010001 00000020 00000000")
}

// TestFull: the queue takes as many requests as were promised, and one more for each that has
// completed, also by the completion of a later one.
func TestFull(t *testing.T) {
	b := open(t)
	q := b.cq(127)
	p := b.qp(rcInit(5), 0x100, q, q)
	limit := p.plan.Cap().MaxSendWR
	n := func() (n uint32) {
		for p.Send(&provider.SendWR{Opcode: provider.OpSend}, 0) == nil {
			n++
		}
		p.PublishSend()
		return n
	}
	if got := n(); got != limit {
		t.Fatalf("%d requests, want %d", got, limit)
	}
	if p.InlineRoom(provider.OpSend) != nil {
		t.Error("room in a full queue")
	}
	q.done(p, 2)
	var wc provider.WC
	if ok, err := q.Next(&wc); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if got := n(); got != 0 {
		t.Errorf("%d requests before the completion is released", got)
	}
	q.Release()
	if got := n(); got != 3 {
		t.Errorf("%d requests after the third completed, want 3", got)
	}
}

// TestUARsAreShared: queue pairs that share a register use its halves in turn.
func TestUARsAreShared(t *testing.T) {
	b := open(t)
	q := b.cq(1023)
	var ps []*qp
	for i := range uint32(17) {
		ps = append(ps, b.qp(rcInit(2), 0x100+i, q, q))
	}
	a, z := ps[4], ps[16]
	if a.reg != z.reg || !a.reg.shared {
		t.Fatal("the fifth and the seventeenth do not share a register")
	}
	page := b.pages[a.reg.uar]
	for i, p := range []*qp{a, z, a, z} {
		p.post(t, provider.SendWR{Opcode: provider.OpSend})
		p.PublishSend()
		if got := be.Uint32(page[0x800+i%2*0x100+4:]) >> 8; got != p.num {
			t.Errorf("doorbell %d is of queue pair %#x, want %#x", i, got, p.num)
		}
	}
}

// TestWrap begins each kind of request at each block of a ring, so that each of its segments
// comes to be at the ring's end.
func TestWrap(t *testing.T) {
	pieces := make([]provider.SGE, 20)
	for i := range pieces {
		pieces[i] = provider.SGE{Addr: uint64(i+1) << 40, Length: uint32(i%3) + 1, LKey: uint32(i)}
	}
	data := make([]byte, 300)
	for i := range data {
		data[i] = byte(i + 1)
	}
	kinds := map[string]provider.SendWR{
		"pieces":        {Opcode: provider.OpSend, SGL: pieces},
		"remote pieces": {Opcode: provider.OpRDMAWriteImm, SGL: pieces, RemoteAddr: 1, RKey: 2, Imm: 3},
		"atomic":        {Opcode: provider.OpCompareSwap, SGL: pieces[1:2], Swap: 1, CompareAdd: 2},
		"inline":        {Opcode: provider.OpSend, Flags: fInl, Inline: [][]byte{data}},
		"inline pieces": {Opcode: provider.OpRDMAWrite, Flags: fInl, Inline: [][]byte{data[:1], data[1:80], data[80:80], data[80:]}},
		"short inline":  {Opcode: provider.OpSend, Flags: fInl, Inline: [][]byte{data[:60]}},
		"bind":          {Opcode: provider.OpBindMW, Bind: &provider.MWBind{Type: 2, Addr: 1, Length: 2, LKey: 3, MWKey: 4, NewKey: 5}},
		"invalidate":    {Opcode: provider.OpLocalInvalidate, InvKey: 9},
	}
	for _, typ := range []uint32{rc, ud} {
		b := open(t)
		q := b.cq(127)
		p := b.qp(&QPInit{Type: typ, Cap: caps(2, 1, 20, 1, 300)}, 0x1234, q, q)
		for name, wr := range kinds {
			if typ == ud {
				av := new(provider.AV)
				copy(av.Raw[:], data)
				wr.Dest = provider.Dest{AV: av, QPN: 7, QKey: 8}
			}
			if !wr.Opcode.In(p.ops) {
				continue
			}
			for start := range p.plan.send.blocks {
				for _, inPlace := range []bool{false, true} {
					s := &p.sq
					s.reset()
					s.cur, s.fence = start, 0
					for i := range p.sqm {
						p.sqm[i] = soil
					}
					given := wr
					if inPlace && wr.Flags&fInl != 0 {
						copy(p.InlineRoom(wr.Opcode), bytes.Join(wr.Inline, nil))
						given.Inline = nil
					}
					if err := p.Send(&given, sum(wr.SGL, wr.Inline)); err != nil {
						t.Fatal(err)
					}
					d := &reader{t: t, p: p, q: q, datagram: typ == ud, at: start}
					d.check(&wr, sum(wr.SGL, wr.Inline))
					if used := int(d.at - start); bytes.Count(around(p.sqm, d.at, len(p.sqm)/64-used), []byte{soil}) < len(p.sqm)-64*used {
						t.Errorf("%s at block %d: other blocks were written", name, start)
					}
				}
			}
		}
		b.checkMargins()
	}
}

// around is n blocks of a ring from one on.
func around(ring []byte, from uint32, n int) (b []byte) {
	for i := range n {
		at := (int(from) + i) * blockSize % len(ring)
		b = append(b, ring[at:at+blockSize]...)
	}
	return b
}

// TestCloseGivesBack: the register, the user index and the record of a queue pair go to the
// next one.
func TestCloseGivesBack(t *testing.T) {
	b := open(t)
	q := b.cq(127)
	p := b.qp(rcInit(2), 0x100, q, q)
	b.qp(rcInit(2), 0x101, q, q)
	reg, rec := p.reg, p.rec.number()
	q.Forget(p.QP)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	again := b.qp(rcInit(2), 0x102, q, q)
	if again.reg != reg || again.key != 0 || again.rec.number() != rec {
		t.Errorf("register %s, user index %d", place(b, again.reg), again.key)
	}
	q.Forget(nil)
}
