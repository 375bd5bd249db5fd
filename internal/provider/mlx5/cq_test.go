package mlx5

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
)

// take polls one completion and gives it back.
func (q *cq) take(t testing.TB) provider.WC {
	t.Helper()
	var wc provider.WC
	if ok, err := q.Next(&wc); !ok || err != nil {
		t.Fatalf("no completion: %v, %v", ok, err)
	}
	if q.ID() != wc.ID || q.Status() != wc.Status {
		t.Errorf("completion %d, %v decodes as %d, %v", q.ID(), q.Status(), wc.ID, wc.Status)
	}
	q.Release()
	return wc
}

func (q *cq) none(t testing.TB) {
	t.Helper()
	var wc provider.WC
	if ok, err := q.Next(&wc); ok || err != nil {
		t.Fatalf("a completion out of nothing: %+v, %v", wc, err)
	}
}

func (p *qp) recv(t testing.TB, id uint64, pieces ...provider.SGE) {
	t.Helper()
	if err := p.Recv(&provider.RecvWR{ID: id, SGL: pieces}, 0); err != nil {
		t.Fatal(err)
	}
	p.PublishRecv()
}

func TestCQSizes(t *testing.T) {
	b := open(t)
	b.uars(false)
	for ask, want := range map[int]uint32{1: 1, 2: 3, 3: 3, 4: 7, 100: 127, 127: 127, 128: 255, 1 << 21: 1<<22 - 1} {
		p, err := b.ctx.PlanCQ(ask)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Entries(); got != want || len(p.mem) != b.ctx.pages(64*(int(want)+1)) {
			t.Errorf("%d completions: got %d in %d bytes, want %d", ask, got, len(p.mem), want)
		}
		if _, err := p.Attach(want + 1); !errors.Is(err, provider.ErrCorrupt) {
			t.Errorf("another size granted: %v", err)
		}
		p.Drop()
	}
	for _, ask := range []int{-1, 0, 1 << 22, math.MaxInt} {
		if _, err := b.ctx.PlanCQ(ask); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%d completions: %v, want EINVAL", ask, err)
		}
	}
	b.fail = true
	if _, err := b.ctx.PlanCQ(1); !errors.Is(err, errNoMemory) {
		t.Errorf("no memory: %v", err)
	}
}

func TestCQIn(t *testing.T) {
	if bigEndian {
		t.Skip("the golden bytes are of a little-endian host")
	}
	b := open(t)
	b.uars(false)
	p, err := b.ctx.PlanCQ(100)
	if err != nil {
		t.Fatal(err)
	}
	in := p.In()
	if got, want := hex.EncodeToString(in[16:]), "40000000000002002000000000000000"; got != want || len(p.Out()) != 8 {
		t.Errorf("got %s, want %s", got, want)
	}
	if p.req.BufAddr != addrOf(p.mem).number() || p.req.DbAddr != p.rec.number() {
		t.Error("addresses")
	}
	for i := 63; i < len(p.mem); i += 64 {
		if p.mem[i] != 0xf0 {
			t.Fatalf("entry %d begins as %#x", i/64, p.mem[i])
		}
	}
	p.uar = 1 << 16
	p.In()
	if n, far := p.UAR(); n != 1<<16 || !far || p.req.Flags != 0 {
		t.Error("the number of a UAR does not fit, but was put there")
	}
	p.Drop()
}

// TestRequester: each kind of request, as it completes.
func TestRequester(t *testing.T) {
	b := open(t)
	q := b.cq(127)
	p := b.qp(rcInit(64), 0x100, q, q)
	eight := sgl(provider.SGE{Addr: 1, Length: 8, LKey: 2})
	tests := []struct {
		wr   provider.SendWR
		want provider.WC
	}{
		{provider.SendWR{Opcode: provider.OpSend}, provider.WC{Opcode: provider.WCSend}},
		{provider.SendWR{Opcode: provider.OpSendImm}, provider.WC{Opcode: provider.WCSend, Flags: provider.WCWithImm}},
		{provider.SendWR{Opcode: provider.OpSendInvalidate}, provider.WC{Opcode: provider.WCSend}},
		{provider.SendWR{Opcode: provider.OpRDMAWrite}, provider.WC{Opcode: provider.WCRDMAWrite}},
		{provider.SendWR{Opcode: provider.OpRDMAWriteImm}, provider.WC{Opcode: provider.WCRDMAWrite, Flags: provider.WCWithImm}},
		{provider.SendWR{Opcode: provider.OpRDMARead, SGL: eight}, provider.WC{Opcode: provider.WCRDMARead, ByteLen: 77}},
		{provider.SendWR{Opcode: provider.OpCompareSwap, SGL: eight}, provider.WC{Opcode: provider.WCCompareSwap, ByteLen: 8}},
		{provider.SendWR{Opcode: provider.OpFetchAdd, SGL: eight}, provider.WC{Opcode: provider.WCFetchAdd, ByteLen: 8}},
		{provider.SendWR{Opcode: provider.OpBindMW, Bind: &provider.MWBind{Length: 1}}, provider.WC{Opcode: provider.WCBindMW}},
		{provider.SendWR{Opcode: provider.OpLocalInvalidate}, provider.WC{Opcode: provider.WCLocalInv}},
	}
	for i, tt := range tests {
		at := uint16(p.sq.cur)
		tt.wr.ID = uint64(i) + 1<<40
		p.post(t, tt.wr)
		p.PublishSend()
		q.none(t)
		code := p.sqm[int(at)*blockSize+3]
		q.write(&cqe{kind: cqeRequester, q: p, counter: at, code: code, bytes: 77, imm: 5, source: 6})
		tt.want.ID, tt.want.QPNum = tt.wr.ID, 0x100
		if diff := cmp.Diff(tt.want, q.take(t)); diff != "" {
			t.Errorf("%v: (-want +got)\n%s", tt.wr.Opcode, diff)
		}
		if got := q.record(recvCount); got != uint32(i+1) {
			t.Errorf("the record says %d, want %d", got, i+1)
		}
	}
}

// TestResponder: each kind of receive.
func TestResponder(t *testing.T) {
	b := open(t)
	q := b.cq(127)
	p := b.qp(rcInit(8), 0x100, q, q)
	tests := []struct {
		kind   uint8
		source uint32
		imm    uint32
		want   provider.WC
	}{
		{cqeRecv, 0x10000456, 0x9999, provider.WC{Opcode: provider.WCRecv, SrcQP: 0x456, Flags: provider.WCGRH, PKeyIndex: 0x9999}},
		{cqeRecvImm, 0x0b000457, 0x11223344, provider.WC{Opcode: provider.WCRecv, SrcQP: 0x457, SL: 11, Flags: provider.WCWithImm, Imm: 0x11223344}},
		{cqeRecvInv, 0x30000000, 0x777, provider.WC{Opcode: provider.WCRecv, Flags: provider.WCWithInv | provider.WCGRH, InvKey: 0x777}},
		{cqeRecvWrite, 0xc0ffffff, 8, provider.WC{Opcode: provider.WCRecvRDMAWriteI, SrcQP: 0xffffff, Flags: provider.WCWithImm, Imm: 8}},
	}
	for i, tt := range tests {
		p.recv(t, uint64(i+100))
		q.write(&cqe{kind: tt.kind, q: p, counter: uint16(i), bytes: 12, source: tt.source, imm: tt.imm})
		e := q.mem[(q.prod-1)*64:]
		e[17], e[22], e[23] = 0x85, 0x12, 0x34
		tt.want.ID, tt.want.QPNum, tt.want.ByteLen, tt.want.SLID, tt.want.PathBits = uint64(i+100), 0x100, 12, 0x1234, 5
		if diff := cmp.Diff(tt.want, q.take(t)); diff != "" {
			t.Errorf("kind %d: (-want +got)\n%s", tt.kind, diff)
		}
	}
}

// TestSyndromes: all 256, on both sides.
func TestSyndromes(t *testing.T) {
	want := map[uint8]provider.WCStatus{
		1: 1, 2: 2, 4: 4, 5: 5, 6: 6, 0x10: 7, 0x11: 8, 0x12: 9, 0x13: 10, 0x14: 11, 0x15: 12, 0x16: 13, 0x22: 16,
	}
	b := open(t)
	q := b.cq(1023)
	p := b.qp(rcInit(4), 0x100, q, q)
	for i := range 256 {
		status, ok := want[uint8(i)]
		if !ok {
			status = provider.WCGeneralError
		}
		at := uint16(p.sq.cur)
		p.post(t, provider.SendWR{ID: 1, Opcode: provider.OpRDMARead})
		p.PublishSend()
		p.recv(t, 2)
		q.write(&cqe{kind: cqeSendFailed, q: p, counter: at, code: 0x55, syndrome: uint8(i), vendor: 0x88, bytes: 1, imm: 2})
		q.write(&cqe{kind: cqeRecvFailed, q: p, counter: uint16(i), syndrome: uint8(i), vendor: 0x99, source: 3})
		for _, wc := range []provider.WC{
			{ID: 1, Status: status, Opcode: provider.WCRDMARead, VendorErr: 0x88, QPNum: 0x100},
			{ID: 2, Status: status, Opcode: provider.WCRecv, VendorErr: 0x99, QPNum: 0x100},
		} {
			if diff := cmp.Diff(wc, q.take(t)); diff != "" {
				t.Fatalf("syndrome %#x: (-want +got)\n%s", i, diff)
			}
		}
	}
}

// TestCounters: many rounds of the queues, past the ends of all counters: 16 bits of blocks
// and receives, 24 and 32 of completions.
func TestCounters(t *testing.T) {
	b := open(t)
	q := b.cq(3)
	p := b.qp(rcInit(4), 0x100, q, q)
	near := func(q *cq) { // a state that the queues come to after 2^32 completions
		q.seek(1<<32 - 8)
		q.prod = 1<<32 - 8
		disown(q.mem)
		for i := range q.mem {
			if i%64 == 63 {
				q.mem[i] |= 0 // rounds before had the other owner bit: invalid covers it
			}
		}
	}
	near(q)
	p.sq.head, p.sq.seen = 1<<32-5, 1<<32-5
	p.sq.credit.done = 1<<32 - 5
	p.sq.credit.shown = 1<<32 - 5
	for i := range uint64(1<<16 + 100) {
		at := uint16(p.sq.cur)
		p.post(t, provider.SendWR{ID: i, Opcode: provider.OpSend})
		p.PublishSend()
		if got := p.record(sendCount); got != uint32(at+1) {
			t.Fatalf("round %d: the record says %#x, want %#x", i, got, at+1)
		}
		q.done(p, at)
		p.recv(t, i+1<<32)
		if got := p.record(recvCount); got != uint32(uint16(i+1)) {
			t.Fatalf("round %d: the record says %#x of receives", i, got)
		}
		q.write(&cqe{kind: cqeRecv, q: p, counter: uint16(i)})
		for _, id := range []uint64{i, i + 1<<32} {
			if wc := q.take(t); wc.ID != id {
				t.Fatalf("round %d: got %#x, want %#x", i, wc.ID, id)
			}
		}
		q.none(t)
		if got, want := q.record(recvCount), q.prod&(1<<24-1); got != want {
			t.Fatalf("round %d: the record says %#x of completions, want %#x", i, got, want)
		}
	}
}

// TestArm: traced.
func TestArm(t *testing.T) {
	b := open(t)
	q := b.cq(127)
	bell := b.pages[0x20][0x20:0x28]
	for i, tt := range []struct {
		solicited, event bool
		want             string
	}{
		{false, false, "00000000 00000040"},
		{true, false, "01000000 00000040"},
		{false, true, "10000000 00000040"},
		{true, true, "21000000 00000040"},
		{false, true, "30000000 00000040"},
		{false, true, "00000000 00000040"},
	} {
		if tt.event {
			q.Event()
		}
		q.Arm(tt.solicited)
		if got := dump(bell); got != tt.want {
			t.Errorf("%d: got %s, want %s", i, got, tt.want)
		}
		if got := fmt.Sprintf("%08x", q.record(sendCount)); got != tt.want[:8] {
			t.Errorf("%d: the record says %s", i, got)
		}
	}
	q.seek(1<<24 + 5)
	q.Arm(false)
	if got := dump(bell); got != "00000005 00000040" {
		t.Errorf("position: got %s", got)
	}
}

// TestVersion0: completions name queue pairs by number.
func TestVersion0(t *testing.T) {
	b := open(t, func(r *abi.Mlx5IbAllocUcontextResp, _ *Options) { r.CqeVersion = 0 })
	q := b.cq(127)
	p := b.qp(rcInit(4), 0x100, q, q)
	other := b.qp(rcInit(4), 0x101, q, q)
	s := b.srq(t, 3, 1)
	shared := b.qp(&QPInit{Type: rc, Cap: caps(1, 0, 1, 0, 0), SRQ: s.SRQ}, 0x102, q, q)
	for i, x := range []*qp{other, p} {
		x.post(t, provider.SendWR{ID: uint64(i), Opcode: provider.OpSend})
		x.PublishSend()
		x.recv(t, uint64(i+10))
		q.done(x, 0)
		q.write(&cqe{kind: cqeRecv, q: x})
		for _, id := range []uint64{uint64(i), uint64(i + 10)} {
			if wc := q.take(t); wc.ID != id || wc.QPNum != x.num {
				t.Errorf("got %d of %#x, want %d of %#x", wc.ID, wc.QPNum, id, x.num)
			}
		}
	}
	s.post(t, 20)
	q.write(&cqe{kind: cqeRecv, q: shared})
	if wc := q.take(t); wc.ID != 20 {
		t.Errorf("shared receive: got %d", wc.ID)
	}
	q.write(&cqe{kind: cqeRecv, q: p, counter: 1})
	p.recv(t, 7)
	q.Purge(p.QP)
	q.none(t)
}

// TestCorrupt: entries that cannot be. They stay, and nothing changes.
func TestCorrupt(t *testing.T) {
	tests := map[string]func(b *bench, q *cq, p *qp, e []byte){
		"no such user index": func(_ *bench, _ *cq, _ *qp, e []byte) { be.PutUint32(e[32:], 5) },
		"another number":     func(_ *bench, _ *cq, _ *qp, e []byte) { e[59]++ },
		"not posted":         func(_ *bench, _ *cq, _ *qp, e []byte) { e[61] = 5 },
		"not shown": func(_ *bench, q *cq, p *qp, e []byte) {
			p.post(q.t, provider.SendWR{Opcode: provider.OpSend})
			e[61] = 4
		},
		"far away":          func(_ *bench, _ *cq, _ *qp, e []byte) { be.PutUint16(e[60:], 0x8001) },
		"inside a request":  func(_ *bench, _ *cq, _ *qp, e []byte) { e[61] = 2 },
		"failed, inside":    func(_ *bench, _ *cq, _ *qp, e []byte) { e[61], e[63] = 2, cqeSendFailed<<4 },
		"another operation": func(_ *bench, _ *cq, _ *qp, e []byte) { e[56] = opRead },
		"data in the entry": func(_ *bench, _ *cq, _ *qp, e []byte) { e[63] |= 4 },
		"compressed":        func(_ *bench, _ *cq, _ *qp, e []byte) { e[63] |= 12 },
		"resized":           func(_ *bench, _ *cq, _ *qp, e []byte) { e[63] = cqeResize << 4 },
		"kind 6":            func(_ *bench, _ *cq, _ *qp, e []byte) { e[63] = 6 << 4 },
		"kind 12":           func(_ *bench, _ *cq, _ *qp, e []byte) { e[63] = 12 << 4 },
		"receive":           func(_ *bench, _ *cq, _ *qp, e []byte) { e[63] = cqeRecv << 4 },
		"failed receive":    func(_ *bench, _ *cq, _ *qp, e []byte) { e[63] = cqeRecvFailed << 4 },
		"of another queue": func(b *bench, _ *cq, p *qp, _ []byte) {
			p.sendCQ.Store(b.cq(3).CQ)
		},
		"twice": func(_ *bench, q *cq, p *qp, e []byte) {
			copy(q.mem[cqeSize:], e[:cqeSize])
			q.take(q.t)
		},
	}
	for name, spoil := range tests {
		t.Run(name, func(t *testing.T) {
			b := open(t)
			q := b.cq(7)
			p := b.qp(rcInit(4), 0x100, q, q)
			p.post(t, provider.SendWR{ID: 1, Opcode: provider.OpSend})
			p.post(t, provider.SendWR{ID: 2, Opcode: provider.OpLocalInvalidate})
			p.post(t, provider.SendWR{ID: 3, Opcode: provider.OpSend})
			p.PublishSend()
			q.done(p, 0)
			spoil(b, q, p, q.mem)
			done := p.sq.credit.done
			for range 3 {
				var wc provider.WC
				if ok, err := q.Next(&wc); ok || !errors.Is(err, provider.ErrCorrupt) {
					t.Fatalf("got %v, %v, want ErrCorrupt", ok, err)
				}
			}
			if p.sq.credit.done != done {
				t.Error("a request is taken for complete")
			}
		})
	}
}
