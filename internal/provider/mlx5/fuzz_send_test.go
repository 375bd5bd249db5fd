package mlx5

import (
	"bytes"
	"errors"
	"testing"

	"github.com/pureverbs/rdma/internal/provider"
)

// script is what the fuzzer decides, taken one by one; zeros when it is used up.
type script []byte

func (s *script) byte() (b byte) {
	if len(*s) > 0 {
		b, *s = (*s)[0], (*s)[1:]
	}
	return b
}

func (s *script) half() uint16 { return uint16(s.byte()) | uint16(s.byte())<<8 }
func (s *script) word() uint32 { return uint32(s.half()) | uint32(s.half())<<16 }
func (s *script) long() uint64 { return uint64(s.word()) | uint64(s.word())<<32 }

func (s *script) bytes(n int) []byte {
	b := make([]byte, n)
	*s = (*s)[copy(b, *s):]
	return b
}

// FuzzSend posts what the fuzzer says, in queues of all types and small sizes, so that all
// kinds of requests meet the ring's end, and reads it back as the device does. Completions
// come in order.
func FuzzSend(f *testing.F) {
	all := make([]byte, 0, 1<<12)
	for i := range 1 << 12 {
		all = append(all, byte(i*7)^byte(i>>4))
	}
	for typ := range byte(3) {
		f.Add(append([]byte{typ, 3, 5, 40}, all...))
		f.Add(append([]byte{typ, 1, 2, 200}, all...))
		f.Add(append([]byte{typ, 7, 30, 0}, all...))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s := script(data[:min(len(data), 1<<13)])
		typ := []uint32{rc, uc, ud}[s.byte()%3]
		b := open(t)
		q := b.cq(127)
		init := &QPInit{Type: typ, Cap: caps(uint32(s.byte()%16)+1, 0, uint32(s.byte()%31), 0, uint32(s.byte()))}
		p := b.qp(init, 0x1234, q, q)
		d := &reader{t: t, p: p, q: q, datagram: typ == ud}
		for len(s) > 0 {
			wr, total, inPlace := d.request(&s)
			if inPlace {
				room := p.InlineRoom(wr.Opcode)
				if room == nil {
					d.complete(&s)
					continue
				}
				copy(room, bytes.Join(wr.Inline, nil))
			}
			given := wr
			if inPlace {
				given.Inline = nil
			}
			switch err := p.Send(&given, total); {
			case errors.Is(err, provider.ErrFull):
				if len(d.open) < int(p.plan.Cap().MaxSendWR) {
					t.Fatalf("full with %d of %d open", len(d.open), p.plan.Cap().MaxSendWR)
				}
				p.PublishSend()
				d.complete(&s)
			case err != nil:
				if wr.Opcode.In(p.ops) && !errors.Is(err, errWindow) {
					t.Fatal(err)
				}
			default:
				d.check(&wr, total)
			}
			switch s.byte() % 4 {
			case 0:
				p.PublishSend()
			case 1:
				p.PublishSend()
				d.complete(&s)
			}
		}
		b.checkMargins()
	})
}

// reader is the device: it reads requests, and completes them in order.
type reader struct {
	t        *testing.T
	p        *qp
	q        *cq
	datagram bool
	at       uint32 // the block of the next request
	fence    uint8
	id       uint64
	open     []sent
}

type sent struct {
	id   uint64
	at   uint32
	code uint8
}

// request makes one up that the core would let pass.
func (d *reader) request(s *script) (wr provider.SendWR, total uint32, inPlace bool) {
	d.id++
	wr = provider.SendWR{ID: d.id, Opcode: provider.Opcode(s.byte() % 10), Flags: provider.SendFlags(s.byte() % 8)}
	wr.RemoteAddr, wr.RKey, wr.Imm, wr.InvKey = s.long(), s.word(), s.word(), s.word()
	cap := d.p.plan.Cap()
	kind := s.byte()
	switch {
	case wr.Opcode.IsAtomic():
		wr.CompareAdd, wr.Swap = s.long(), s.long()
		wr.SGL = sgl(provider.SGE{Addr: s.long(), Length: 8, LKey: s.word()})
	case wr.Opcode == provider.OpBindMW:
		wr.Bind = &provider.MWBind{Type: s.byte()%2 + 1, Addr: s.long(), Length: uint64(s.word()), LKey: s.word(), MWKey: s.word(), NewKey: s.word(), Access: s.word()}
	case wr.Opcode == provider.OpLocalInvalidate:
	case wr.Opcode.In(InlineOps) && kind&1 != 0:
		wr.Flags |= provider.SendInline
		for left := cap.MaxInline; ; {
			n := min(uint32(s.byte()), left)
			wr.Inline = append(wr.Inline, s.bytes(int(n)))
			if left -= n; s.byte()&1 == 0 {
				break
			}
		}
		inPlace = kind&2 != 0
	default:
		for range min(uint32(s.byte()%32), cap.MaxSendSGE) {
			wr.SGL = append(wr.SGL, provider.SGE{Addr: s.long(), Length: uint32(s.byte() % 4), LKey: s.word()})
		}
	}
	if d.datagram {
		av := new(provider.AV)
		copy(av.Raw[12:], s.bytes(36))
		wr.Dest = provider.Dest{AV: av, QPN: s.word() & lowQPN, QKey: s.word()}
	}
	return wr, sum(wr.SGL, wr.Inline), inPlace
}

// unit is 16 bytes of the request, on at the ring's beginning.
func (d *reader) unit(i uint32) []byte {
	mem := d.p.sqm
	at := (int(d.at)*blockSize + int(i)*16) % len(mem)
	return mem[at:][:16]
}

// check reads the last request back and compares it with what was asked for.
func (d *reader) check(wr *provider.SendWR, total uint32) {
	t := d.t
	t.Helper()
	ctrl := d.unit(0)
	code, units := operations[wr.Opcode].note.code(), uint32(ctrl[7]&63)
	wantFence := d.fence
	if wr.Flags&fFen != 0 {
		wantFence = 0x80
	}
	d.fence = 0
	want := be.AppendUint32(nil, d.at&0xffff<<8|uint32(code))
	want = be.AppendUint32(want, 0x1234<<8|units)
	want = be.AppendUint32(want, uint32(wantFence|uint8(wr.Flags&fSig)<<2|uint8(wr.Flags&fSol)>>1))
	next := uint32(1)
	imm := uint32(0)
	switch wr.Opcode {
	case provider.OpSendImm, provider.OpRDMAWriteImm:
		imm = wr.Imm
	case provider.OpSendInvalidate, provider.OpLocalInvalidate:
		imm = wr.InvKey
	case provider.OpBindMW:
		imm = wr.Bind.MWKey
	}
	if want = be.AppendUint32(want, imm); !bytes.Equal(want, ctrl) {
		t.Fatalf("%v: got %x, want %x", wr.Opcode, ctrl, want)
	}
	expect := func(what string, want []byte) {
		t.Helper()
		if got := d.unit(next)[:len(want)]; !bytes.Equal(got, want) {
			t.Fatalf("%v: unit %d, %s: got %x, want %x", wr.Opcode, next, what, got, want)
		}
		next++
	}
	switch wr.Opcode {
	case provider.OpRDMAWrite, provider.OpRDMAWriteImm, provider.OpRDMARead, provider.OpCompareSwap, provider.OpFetchAdd:
		expect("remote", be.AppendUint64(be.AppendUint64(nil, wr.RemoteAddr), uint64(wr.RKey)<<32))
		if wr.Opcode == provider.OpCompareSwap {
			expect("operands", be.AppendUint64(be.AppendUint64(nil, wr.Swap), wr.CompareAdd))
		}
		if wr.Opcode == provider.OpFetchAdd {
			expect("operand", be.AppendUint64(nil, wr.CompareAdd))
		}
	case provider.OpBindMW:
		d.fence = 0x20
		d.checkBind(wr.Bind, expect)
		next = units
	case provider.OpLocalInvalidate:
		d.fence = 0x20
		expect("control", be.AppendUint64(be.AppendUint64(nil, 0x98<<56), 0x20006000))
		if m := d.unit(4); m[0] != 0x40 || be.Uint32(m[4:]) != 0xffffff00 {
			t.Fatalf("invalidate: key context %x", m)
		}
		next = 8
	}
	if d.datagram {
		raw := wr.Dest.AV.Raw
		expect("way", append(be.AppendUint32(be.AppendUint64(nil, uint64(wr.Dest.QKey)<<32), wr.Dest.QPN|1<<31), raw[12:16]...))
		expect("way", raw[16:32])
		expect("way", raw[32:48])
	}
	if wr.Flags&fInl != 0 {
		d.checkInline(bytes.Join(wr.Inline, nil), &next)
	} else {
		for _, e := range wr.SGL {
			if e.Length > 0 {
				expect("piece", be.AppendUint64(be.AppendUint32(be.AppendUint32(nil, e.Length), e.LKey), e.Addr))
			}
		}
	}
	if next != units {
		t.Fatalf("%v: %d units, want %d", wr.Opcode, units, next)
	}
	d.open = append(d.open, sent{wr.ID, d.at, code})
	d.at += (units + 3) / 4
}

func (d *reader) checkBind(b *provider.MWBind, expect func(string, []byte)) {
	units := uint32(8)
	if b.Length > 0 {
		units = 12
		if got := be.Uint64(d.unit(5)[8:]); got != b.Length {
			d.t.Fatalf("bind: %d bytes, want %d", got, b.Length)
		}
		if want := be.AppendUint64(be.AppendUint32(be.AppendUint32(nil, uint32(b.Length)), b.LKey), b.Addr); !bytes.Equal(d.unit(8), want) {
			d.t.Fatalf("bind: translation %x, want %x", d.unit(8), want)
		}
	}
	flags, window := uint8(0x90), uint32(0xffffff00)
	switch {
	case b.Type == 2 && b.Length > 0:
		flags, window = 0xb0, 0x1234<<8
	case b.Type == 2:
		flags = 0x98
	}
	if got, key := d.unit(1)[0], be.Uint32(d.unit(4)[4:]); got != flags || key&^0xff != window {
		d.t.Fatalf("bind of type %d: flags %#x, queue pair %#x", b.Type, got, key)
	}
	if got := d.unit(4)[7]; got != uint8(b.NewKey) || uint32(d.unit(0)[7]) != units {
		d.t.Fatalf("bind: key %x, %d units", got, d.unit(0)[7])
	}
}

func (d *reader) checkInline(data []byte, next *uint32) {
	if len(data) == 0 {
		return
	}
	var got []byte
	for range (len(data) + 4 + 15) / 16 {
		got = append(got, d.unit(*next)...)
		*next++
	}
	if want := append(be.AppendUint32(nil, uint32(len(data))|1<<31), data...); !bytes.Equal(got[:len(want)], want) {
		d.t.Fatalf("inline: got %x, want %x", got, want)
	}
}

// complete completes some of what was shown, in order, by the completion of the last.
func (d *reader) complete(s *script) {
	if len(d.open) == 0 {
		return
	}
	n := int(s.byte()) % len(d.open)
	last := d.open[n]
	shown := uint16(d.p.record(sendCount)) - uint16(last.at)
	if shown == 0 || shown > 1<<15 {
		return // not shown yet
	}
	d.q.write(&cqe{kind: cqeRequester, q: d.p, counter: uint16(last.at), code: last.code})
	if wc := d.q.take(d.t); wc.ID != last.id {
		d.t.Fatalf("got %d, want %d", wc.ID, last.id)
	}
	d.open = d.open[n+1:]
}
