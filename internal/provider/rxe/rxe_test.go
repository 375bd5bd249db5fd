package rxe

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pureverbs/rdma/internal/provider"
	"github.com/pureverbs/rdma/mmio"
)

// queue returns the bytes of an empty queue as the kernel makes it.
func queue(log2, mask uint32) []byte {
	mem := make([]byte, offSlots+int(mask+1)<<log2)
	binary.NativeEndian.PutUint32(mem[offLog2Slot:], log2)
	binary.NativeEndian.PutUint32(mem[offMask:], mask)
	return mem
}

func openRing(t *testing.T, mem []byte, slot int) *ring {
	t.Helper()
	r, err := newRing(mmio.NewRegion(mem, func([]byte) error { return nil }), slot)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// words reads 32-bit words at byte offsets of a slot.
func words(b []byte, offs ...int) []uint32 {
	out := make([]uint32, len(offs))
	for i, off := range offs {
		out[i] = binary.NativeEndian.Uint32(b[off:])
	}
	return out
}

func TestSendLayout(t *testing.T) {
	mem := queue(9, 3)
	q := &QP{sq: openRing(t, mem, 208)}
	slot := mem[offSlots : offSlots+512]
	for i := range slot {
		slot[i] = 0xee // what an earlier request left
	}
	wr := provider.SendWR{
		ID: 0x1122334455667788, Opcode: provider.OpRDMAWriteImm, Flags: provider.SendSignaled | provider.SendSolicited,
		SGL: []provider.SGE{{Addr: 0xa0, Length: 16, LKey: 7}, {}, {Addr: 0xb0, Length: 32, LKey: 8}},
		Imm: 0x01020304, RemoteAddr: 0xdeadbeef00, RKey: 9,
	}
	if err := q.Send(&wr, 48); err != nil {
		t.Fatal(err)
	}
	if got := binary.NativeEndian.Uint64(slot); got != wr.ID {
		t.Errorf("wr_id is %#x", got)
	}
	if got := slot[20:24]; !bytes.Equal(got, []byte{1, 2, 3, 4}) {
		t.Errorf("immediate data is %x, want network order", got)
	}
	if got := binary.NativeEndian.Uint64(slot[24:]); got != wr.RemoteAddr {
		t.Errorf("remote address is %#x", got)
	}
	if got := binary.NativeEndian.Uint64(slot[152:]); got != wr.RemoteAddr {
		t.Errorf("iova is %#x", got)
	}
	// opcode, flags, rkey, status, state, length, resid, cur_sge, num_sge, sge_offset, and the second piece's length, lkey
	want := []uint32{1, 6, 9, 0, 0, 48, 48, 0, 2, 0, 32, 8}
	if diff := cmp.Diff(want, words(slot, 12, 16, 32, 144, 148, 184, 188, 192, 196, 200, 232, 236)); diff != "" {
		t.Error(diff)
	}
	if got := words(mem, offProducer)[0]; got != 0 {
		t.Errorf("producer is %d before publishing", got)
	}
	q.PublishSend()
	if got := words(mem, offProducer)[0]; got != 1 {
		t.Errorf("producer is %d after publishing", got)
	}
}

func TestInlineLayoutAndCanary(t *testing.T) {
	mem := queue(9, 3)
	q := &QP{sq: openRing(t, mem, 208+64)}
	for i := range mem[offSlots:] {
		mem[offSlots+i] = 0xcc
	}
	wr := provider.SendWR{Opcode: provider.OpSend, Flags: provider.SendInline, Inline: [][]byte{[]byte("abc"), nil, []byte("de")}}
	if err := q.Send(&wr, 5); err != nil {
		t.Fatal(err)
	}
	slot := mem[offSlots:]
	if got := string(slot[208:213]); got != "abcde" {
		t.Errorf("inline data is %q", got)
	}
	if diff := cmp.Diff([]uint32{5, 5, 0}, words(slot, 184, 188, 196)); diff != "" {
		t.Error(diff)
	}
	for i, c := range slot[213:] {
		if c != 0xcc {
			t.Fatalf("byte %d behind the inline data was written", i)
		}
	}
}

func TestQueueFull(t *testing.T) {
	mem := queue(9, 3)
	q := &QP{sq: openRing(t, mem, 208)}
	wr := provider.SendWR{Opcode: provider.OpSend}
	for i := range 3 {
		if err := q.Send(&wr, 0); err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
	}
	before := bytes.Clone(mem)
	if err := q.Send(&wr, 0); !errors.Is(err, provider.ErrFull) {
		t.Errorf("got %v, want a full queue", err)
	}
	if !bytes.Equal(before, mem) {
		t.Error("a refused request changed the queue")
	}
	binary.NativeEndian.PutUint32(mem[offConsumer:], 2)
	for i := range 2 {
		if err := q.Send(&wr, 0); err != nil {
			t.Errorf("request %d after two were consumed: %v", i, err)
		}
	}
}

// TestNoEntries: a queue that was made for no request at all takes none.
func TestNoEntries(t *testing.T) {
	q := &QP{sq: openRing(t, queue(9, 0), 208)}
	if err := q.Send(&provider.SendWR{}, 0); !errors.Is(err, provider.ErrFull) {
		t.Errorf("got %v, want a full queue", err)
	}
}

func putCQE(mem []byte, i int, id uint64, status, qpn, flags uint32) {
	e := mem[offSlots+i*64:]
	binary.NativeEndian.PutUint64(e, id)
	binary.NativeEndian.PutUint32(e[8:], status)
	binary.NativeEndian.PutUint32(e[12:], 128)
	binary.NativeEndian.PutUint32(e[20:], 77)
	binary.BigEndian.PutUint32(e[24:], 0x0a0b0c0d)
	binary.NativeEndian.PutUint32(e[28:], qpn)
	binary.NativeEndian.PutUint32(e[32:], 55)
	binary.NativeEndian.PutUint32(e[36:], flags)
}

// poll polls for one.
func poll(q *CQ, wc *provider.WC) (bool, error) {
	wcs := []provider.WC{*wc}
	n, _, err := q.Poll(wcs)
	*wc = wcs[0]
	return n == 1, err
}

// TestRW36Flags: flags are bits; a device may set more than one expects. Invalidation is bit 2
// in the kernel's completions, bit 3 in those of verbs.
func TestRW36Flags(t *testing.T) {
	const imm = 0x0a0b0c0d
	for flags, want := range map[uint32]provider.WC{
		0: {}, 1: {Flags: 1}, 2: {Flags: 2, Imm: imm}, 3: {Flags: 3, Imm: imm}, 0x12: {Flags: 0x12, Imm: imm},
		4: {Flags: provider.WCWithInv, InvKey: binary.NativeEndian.Uint32([]byte{0x0a, 0x0b, 0x0c, 0x0d})},
	} {
		mem := queue(6, 3)
		q := &CQ{ring: openRing(t, mem, 48)}
		putCQE(mem, 0, 42, 0, 17, flags)
		binary.NativeEndian.PutUint32(mem[offProducer:], 1)
		wc := provider.WC{ID: 9, Status: 9, Opcode: 9, VendorErr: 9, Imm: 9, Flags: 9, PKeyIndex: 9, SLID: 9, SL: 9, PathBits: 9, InvKey: 9}
		if ok, err := poll(q, &wc); !ok || err != nil {
			t.Fatalf("no completion: %v", err)
		}
		want.ID, want.Opcode, want.ByteLen, want.QPNum, want.SrcQP = 42, provider.WCRecv, 77, 17, 55
		if diff := cmp.Diff(want, wc); diff != "" {
			t.Errorf("flags %#x: %s", flags, diff)
		}
		if got := words(mem, offConsumer)[0]; got != 1 {
			t.Errorf("consumer is %d", got)
		}
	}
}

// TestRW44Forget: completions of a dead queue pair are skipped, all others stay in order.
func TestRW44Forget(t *testing.T) {
	mem := queue(6, 7)
	q := &CQ{ring: openRing(t, mem, 48)}
	for i := range 6 {
		putCQE(mem, i, uint64(i), 0, uint32(20+i%2), 0)
	}
	binary.NativeEndian.PutUint32(mem[offProducer:], 6)
	q.Forget(20)
	var got []uint64
	var wc provider.WC
	for {
		ok, err := poll(q, &wc)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		got = append(got, wc.ID)
	}
	if diff := cmp.Diff([]uint64{1, 3, 5}, got); diff != "" {
		t.Error(diff)
	}
}

func TestCorruptProducer(t *testing.T) {
	mem := queue(6, 3)
	q := &CQ{ring: openRing(t, mem, 48)}
	for i := range 4 {
		putCQE(mem, i, 1, 0, 17, 0)
	}
	binary.NativeEndian.PutUint32(mem[offProducer:], 4)
	if _, err := poll(q, new(provider.WC)); !errors.Is(err, provider.ErrCorrupt) {
		t.Errorf("got %v, want ErrCorrupt", err)
	}
}

// FuzzRing: no header makes a ring reach beyond its mapping.
func FuzzRing(f *testing.F) {
	f.Add(uint32(6), uint32(3), uint32(1), uint32(0), 640)
	f.Add(uint32(31), uint32(0xffffffff), uint32(9), uint32(9), 4096)
	f.Add(uint32(9), uint32(0x7fffffff), uint32(1), uint32(2), 100)
	f.Fuzz(func(t *testing.T, log2, mask, prod, cons uint32, size int) {
		if size < 0 || size > 1<<16 {
			return
		}
		mem := make([]byte, size)
		for off, v := range map[int]uint32{offLog2Slot: log2, offMask: mask, offProducer: prod, offConsumer: cons} {
			if off+4 <= size {
				binary.NativeEndian.PutUint32(mem[off:], v)
			}
		}
		r, err := newRing(mmio.NewRegion(mem, func([]byte) error { return nil }), 48)
		if err != nil {
			return
		}
		q := &CQ{ring: r}
		var wc provider.WC
		for range 64 {
			if ok, err := poll(q, &wc); !ok || err != nil {
				break
			}
		}
		q.Release()
		r.own = 0
		qp := &QP{sq: r}
		for range 64 {
			if 1<<r.shift < 224 || qp.Send(&provider.SendWR{SGL: []provider.SGE{{Length: 1}}}, 1) != nil {
				break
			}
		}
	})
}
