package siw

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pureverbs/rdma/internal/provider"
)

// sqe is a send request as the kernel must find it: its first bytes, as many as count.
func sqe(id uint64, flags uint16, pieces, op uint8, rkey uint32, raddr uint64, sges ...provider.SGE) []byte {
	b := ne.AppendUint64(nil, id)
	b = ne.AppendUint16(b, flags)
	b = append(b, pieces, op)
	b = ne.AppendUint32(b, rkey)
	b = ne.AppendUint64(b, raddr)
	return appendSGL(b, sges)
}

func rqe(id uint64, flags uint16, pieces, op uint8, sges ...provider.SGE) []byte {
	b := ne.AppendUint64(nil, id)
	b = ne.AppendUint16(b, flags)
	b = append(b, pieces, op)
	return appendSGL(ne.AppendUint32(b, 0), sges)
}

func appendSGL(b []byte, sges []provider.SGE) []byte {
	for _, s := range sges {
		b = ne.AppendUint64(b, s.Addr)
		b = ne.AppendUint32(b, s.Length)
		b = ne.AppendUint32(b, s.LKey)
	}
	return b
}

var (
	pieceA = provider.SGE{Addr: 0x1122334455667788, Length: 16, LKey: 0xa0a1a2a3}
	pieceB = provider.SGE{Addr: 0xb0, Length: 32, LKey: 8}
	sixA   = []provider.SGE{pieceA, pieceB, pieceA, pieceB, pieceA, pieceB}
)

// The flags of siw_wqe_flags.
const (
	fValid, fInline, fSignaled, fSolicited, fFence = 1, 2, 4, 8, 16
)

// TestSendLayout: each operation, byte by byte.
func TestSendLayout(t *testing.T) {
	const id = 0x0102030405060708
	tests := []struct {
		name   string
		sigAll bool
		wr     provider.SendWR
		want   []byte
	}{
		{
			"send", false, provider.SendWR{Opcode: provider.OpSend, SGL: []provider.SGE{pieceA, {Addr: 9, LKey: 9}, pieceB}, RKey: 7, RemoteAddr: 7},
			sqe(id, fValid, 2, 3, 0, 0, pieceA, pieceB),
		},
		{
			"send, six pieces, all flags", false,
			provider.SendWR{Opcode: provider.OpSend, SGL: sixA, Flags: provider.SendSignaled | provider.SendSolicited | provider.SendFence},
			sqe(id, fValid|fSignaled|fSolicited|fFence, 6, 3, 0, 0, sixA...),
		},
		{
			"send with invalidate", false,
			provider.SendWR{Opcode: provider.OpSendInvalidate, InvKey: 0x123456ff, SGL: sixA[:1], Flags: provider.SendSolicited},
			sqe(id, fValid|fSolicited, 1, 5, 0x123456ff, 0, pieceA),
		},
		{
			"write", true,
			provider.SendWR{Opcode: provider.OpRDMAWrite, RemoteAddr: 0xfedcba9876543210, RKey: 0x89abcdef, SGL: sixA[:2]},
			sqe(id, fValid|fSignaled, 2, 0, 0x89abcdef, 0xfedcba9876543210, pieceA, pieceB),
		},
		{
			"read", true,
			provider.SendWR{Opcode: provider.OpRDMARead, RemoteAddr: 0x40, RKey: 5, SGL: sixA[:1], Flags: provider.SendSignaled},
			sqe(id, fValid|fSignaled, 1, 1, 5, 0x40, pieceA),
		},
		{ // the kernel stops at a fenced READ
			"fenced read", false,
			provider.SendWR{Opcode: provider.OpRDMARead, RemoteAddr: 0x40, RKey: 5, SGL: sixA[:1], Flags: provider.SendFence | provider.SendSolicited},
			sqe(id, fValid, 1, 1, 5, 0x40, pieceA),
		},
		{ // and one without a piece it would not look at
			"read of nothing", false, provider.SendWR{Opcode: provider.OpRDMARead, RemoteAddr: 0x40, RKey: 5},
			sqe(id, fValid, 1, 1, 5, 0x40, provider.SGE{}),
		},
		{
			"read of nothing, to somewhere", false,
			provider.SendWR{Opcode: provider.OpRDMARead, RemoteAddr: 0x40, RKey: 5, SGL: []provider.SGE{{Addr: 0xc0, LKey: 6}}},
			sqe(id, fValid, 1, 1, 5, 0x40, provider.SGE{Addr: 0xc0, LKey: 6}),
		},
		{
			"write of nothing", false,
			provider.SendWR{Opcode: provider.OpRDMAWrite, RemoteAddr: 0x40, RKey: 5, SGL: []provider.SGE{{Addr: 0xc0, LKey: 6}, {Addr: 1}}},
			sqe(id, fValid, 1, 0, 5, 0x40, provider.SGE{Addr: 0xc0, LKey: 6}),
		},
		{
			"send of nothing, inline", false, provider.SendWR{Opcode: provider.OpSend, Flags: provider.SendInline, Inline: [][]byte{nil}},
			sqe(id, fValid, 1, 3, 0, 0, provider.SGE{}),
		},
		{
			"local invalidate", true, provider.SendWR{Opcode: provider.OpLocalInvalidate, InvKey: 77, Flags: provider.SendFence | provider.SendSolicited},
			sqe(id, fValid|fSignaled|fFence, 1, 10, 77, 0, provider.SGE{}),
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			q, mem, _ := openQP(t, 4, &QPPlan{SigAll: tt.sigAll})
			soil(mem, sqeSize)
			tt.wr.ID = id
			total := uint32(0)
			for _, s := range tt.wr.SGL {
				total += s.Length
			}
			if err := q.Send(&tt.wr, total); err != nil {
				t.Fatal(err)
			}
			if got := flagsOf(mem, sqeSize, 0); got != 0 {
				t.Errorf("flags are %#x before publishing", got)
			}
			q.PublishSend()
			if diff := cmp.Diff(tt.want, mem[:len(tt.want)]); diff != "" {
				t.Error(diff)
			}
			rest := mem[len(tt.want):]
			clean := bytes.Clone(rest)
			soil(mem, sqeSize)
			if !bytes.Equal(rest, clean) {
				t.Error("bytes behind the request, or other slots, were written")
			}
		})
	}
}

// TestRefused: operations that the kernel cannot do, or would stop at, do not get there.
func TestRefused(t *testing.T) {
	bad := map[string]struct {
		wr    provider.SendWR
		total uint32
		want  error
	}{
		"inline with invalidate": {provider.SendWR{Opcode: provider.OpSendInvalidate, Flags: provider.SendInline, Inline: [][]byte{{1}}}, 1, errInline},
		"inline read":            {provider.SendWR{Opcode: provider.OpRDMARead, Flags: provider.SendInline, Inline: [][]byte{{1}}}, 1, errInline},
		"2 GiB":                  {provider.SendWR{Opcode: provider.OpSend}, 1 << 31, errMessage},
	}
	for op := provider.Opcode(0); op < 40; op++ {
		if op >= 32 || Ops>>op&1 == 0 {
			bad[op.String()] = struct {
				wr    provider.SendWR
				total uint32
				want  error
			}{provider.SendWR{Opcode: op}, 0, errOpcode}
		}
	}
	if len(bad) != 3+40-5 {
		t.Errorf("%d operations are refused", len(bad)-3)
	}
	for name, tt := range bad {
		q, mem, _ := openQP(t, 4, new(QPPlan))
		if err := q.Send(&tt.wr, tt.total); !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v", name, err, tt.want)
		}
		q.PublishSend()
		if got := flagsOf(mem, sqeSize, 0); got != 0 {
			t.Errorf("%s: was published, flags %#x", name, got)
		}
	}
}

func TestInline(t *testing.T) {
	long := bytes.Repeat([]byte("0123456789abcdef"), 5) // all of the room
	for _, tt := range []struct {
		op     provider.Opcode
		code   uint8
		pieces [][]byte
		want   string
	}{
		{provider.OpSend, 3, [][]byte{[]byte("abc"), nil, []byte("de")}, "abcde"},
		{provider.OpRDMAWrite, 0, [][]byte{long[:79], long[79:]}, string(long)},
	} {
		q, mem, _ := openQP(t, 4, new(QPPlan))
		soil(mem, sqeSize)
		wr := provider.SendWR{ID: 3, Opcode: tt.op, Flags: provider.SendInline, Inline: tt.pieces}
		if err := q.Send(&wr, uint32(len(tt.want))); err != nil {
			t.Fatal(err)
		}
		q.PublishSend()
		want := sqe(3, fValid|fInline, 1, tt.code, 0, 0, provider.SGE{Length: uint32(len(tt.want))})
		want = append(want, tt.want...) // from byte 40 on
		if diff := cmp.Diff(want, mem[:len(want)]); diff != "" {
			t.Error(diff)
		}
		for i, c := range mem[len(want):] {
			if off := (len(want) + i) % sqeSize; c != 0xee && off != 8 && off != 9 {
				t.Fatalf("byte %d behind the inline data was written", i)
			}
		}
	}
}

// TestInlineRoom: data that is written in place goes out as it is.
func TestInlineRoom(t *testing.T) {
	q, mem, _ := openQP(t, 2, new(QPPlan))
	for i := range 2 {
		room := q.InlineRoom()
		if len(room) != 80 || cap(room) != 80 {
			t.Fatalf("room for %d bytes, want 80", len(room))
		}
		copy(room, "in place")
		if err := q.Send(&provider.SendWR{Opcode: provider.OpSend, Flags: provider.SendInline}, 8); err != nil {
			t.Fatal(err)
		}
		if got := string(mem[i*sqeSize+40:][:8]); got != "in place" {
			t.Errorf("request %d carries %q", i, got)
		}
		if got := ne.Uint32(mem[i*sqeSize+32:]); got != 8 {
			t.Errorf("request %d carries %d bytes", i, got)
		}
	}
	if room := q.InlineRoom(); room != nil {
		t.Errorf("a full queue has room for %d bytes", len(room))
	}
}

// TestFull: a slot is free when the kernel has taken the request, and not a request earlier.
func TestFull(t *testing.T) {
	q, mem, _ := openQP(t, 4, new(QPPlan))
	post := func(id uint64) error {
		return q.Send(&provider.SendWR{ID: id, Opcode: provider.OpSend}, 0)
	}
	for id := range uint64(4) {
		if err := post(id); err != nil {
			t.Fatalf("request %d: %v", id, err)
		}
	}
	if err := post(9); !errors.Is(err, provider.ErrFull) {
		t.Errorf("4 slots encoded: got %v, want a full queue", err)
	}
	q.PublishSend()
	before := bytes.Clone(mem)
	if err := post(9); !errors.Is(err, provider.ErrFull) {
		t.Errorf("4 slots published: got %v, want a full queue", err)
	}
	if !bytes.Equal(before, mem) {
		t.Error("a refused request changed the queue")
	}
	consume(mem, sqeSize, 0)
	if err := post(4); err != nil {
		t.Errorf("after one was taken: %v", err)
	}
	if err := post(5); !errors.Is(err, provider.ErrFull) {
		t.Errorf("got %v, want a full queue", err)
	}
}

// TestLaps: the kernel finds the requests in order, also where the counters overflow.
func TestLaps(t *testing.T) {
	q, mem, _ := openQP(t, 4, new(QPPlan))
	q.sq.own, q.sq.given = 1<<32-6, 1<<32-6
	next, get := uint64(0), 2
	for lap := range 5 {
		for range 3 {
			if err := q.Send(&provider.SendWR{ID: next, Opcode: provider.OpSend}, 0); err != nil {
				t.Fatal(err)
			}
			next++
		}
		q.PublishSend()
		for i := range uint64(3) {
			if got := flagsOf(mem, sqeSize, get%4); got != fValid {
				t.Fatalf("lap %d: flags %#x", lap, got)
			}
			if id := consume(mem, sqeSize, get%4); id != next-3+i {
				t.Errorf("lap %d: request %d, want %d", lap, id, next-3+i)
			}
			get++
		}
		if got := flagsOf(mem, sqeSize, get%4); got != 0 {
			t.Fatalf("lap %d: one request too many, flags %#x", lap, got)
		}
	}
}

// TestDrop: what is dropped leaves no trace, and its slots are the next to be used.
func TestDrop(t *testing.T) {
	q, mem, _ := openQP(t, 4, new(QPPlan))
	send := func(id uint64) {
		t.Helper()
		if err := q.Send(&provider.SendWR{ID: id, Opcode: provider.OpSend}, 0); err != nil {
			t.Fatal(err)
		}
	}
	send(1)
	q.PublishSend()
	send(2)
	send(3)
	q.DropSend()
	q.PublishSend()
	send(4)
	q.PublishSend()
	var got []uint64
	for i := range 4 {
		if flagsOf(mem, sqeSize, i) != 0 {
			got = append(got, ne.Uint64(mem[i*sqeSize:]))
		}
	}
	if diff := cmp.Diff([]uint64{1, 4}, got); diff != "" {
		t.Error(diff)
	}
	if ne.Uint64(mem[sqeSize:]) != 4 {
		t.Error("the dropped slot was left out")
	}
}

// TestTakeSends: what the kernel left lying comes back, oldest first, and the queue goes on
// where the kernel will.
func TestTakeSends(t *testing.T) {
	for start := range uint32(8) {
		for taken := range 5 { // by the kernel
			testTake(t, start-4, taken) // the first laps come from below 0
		}
	}
}

func testTake(t *testing.T, start uint32, taken int) {
	q, mem, _ := openQP(t, 4, new(QPPlan))
	q.sq.own, q.sq.given = start, start
	slot := func(i int) int { return int((start + uint32(i)) % 4) }
	send := func(id uint64) {
		t.Helper()
		if err := q.Send(&provider.SendWR{ID: id, Opcode: provider.OpSend, SGL: sixA[:2]}, 48); err != nil {
			t.Fatal(err)
		}
	}
	var want, got []uint64
	for i := range 4 {
		send(uint64(10 + i))
		if i >= taken {
			want = append(want, uint64(10+i))
		}
	}
	q.PublishSend()
	for i := range taken {
		consume(mem, sqeSize, slot(i))
	}
	if taken > 0 {
		send(99)
	}
	q.TakeSends(func(id uint64) { got = append(got, id) })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("start %d, %d taken: %s", start, taken, diff)
	}
	q.PublishSend() // what was not published is dropped
	for i := range 4 {
		if head := mem[slot(i)*sqeSize+8:][:4]; !bytes.Equal(head, []byte{0, 0, 2, 3}) {
			t.Errorf("start %d, %d taken: flags, pieces and opcode of request %d became %v", start, taken, i, head)
		}
	}
	send(20)
	q.PublishSend()
	if id := consume(mem, sqeSize, slot(taken)); id != 20 {
		t.Errorf("start %d, %d taken: the kernel finds request %d next, want 20", start, taken, id)
	}
	q.TakeSends(func(id uint64) { t.Errorf("start %d, %d taken: %d came back twice", start, taken, id) })
}

func TestRecvLayout(t *testing.T) {
	k := new(kernel)
	plan := new(SRQPlan)
	answer(plan.Out(), 4, 0, 0, 0)
	srq, err := plan.Attach(k.mapper, 6)
	if err != nil {
		t.Fatal(err)
	}
	qp, _, mem := openQP(t, 4, new(QPPlan))
	for name, q := range map[string]struct {
		mem     []byte
		recv    func(*provider.RecvWR, uint32) error
		publish func()
	}{
		"QP":  {mem, qp.Recv, qp.PublishRecv},
		"SRQ": {k.mem[0][:4*rqeSize], srq.Recv, srq.PublishRecv},
	} {
		soil(q.mem, rqeSize)
		wrs := []provider.RecvWR{
			{ID: 1, SGL: sixA},
			{ID: 2, SGL: []provider.SGE{{Addr: 1, LKey: 1}, pieceA, {}}},
			{ID: 3},
			{ID: 4, SGL: sixA[1:2]},
		}
		want := [][]byte{
			rqe(1, fValid, 6, 8, sixA...),
			rqe(2, fValid, 1, 8, pieceA),
			rqe(3, fValid, 1, 8, provider.SGE{}),
			rqe(4, fValid, 1, 8, pieceB),
		}
		for i := range wrs {
			if err := q.recv(&wrs[i], 1); err != nil {
				t.Fatal(err)
			}
			if got := flagsOf(q.mem, rqeSize, i); got != 0 {
				t.Errorf("%s: flags are %#x before publishing", name, got)
			}
		}
		q.publish()
		for i, w := range want {
			slot := q.mem[i*rqeSize : (i+1)*rqeSize]
			if diff := cmp.Diff(w, slot[:len(w)]); diff != "" {
				t.Errorf("%s, request %d: %s", name, i, diff)
			}
			for _, c := range slot[len(w):] {
				if c != 0xee {
					t.Fatalf("%s, request %d: bytes behind it were written", name, i)
				}
			}
		}
		if err := q.recv(&wrs[0], 1); !errors.Is(err, provider.ErrFull) {
			t.Errorf("%s: got %v, want a full queue", name, err)
		}
		consume(q.mem, rqeSize, 0)
		if err := q.recv(&wrs[0], 1); err != nil {
			t.Errorf("%s: after one was taken: %v", name, err)
		}
	}
}

func TestTakeRecvs(t *testing.T) {
	q, _, mem := openQP(t, 4, new(QPPlan))
	for id := range uint64(3) {
		if err := q.Recv(&provider.RecvWR{ID: id}, 0); err != nil {
			t.Fatal(err)
		}
	}
	q.PublishRecv()
	consume(mem, rqeSize, 0)
	var got []uint64
	q.TakeRecvs(func(id uint64) { got = append(got, id) })
	if diff := cmp.Diff([]uint64{1, 2}, got); diff != "" {
		t.Error(diff)
	}
	plan := new(QPPlan)
	answer(plan.Out(), 17, 4, 0, 0, 0, 0, 0, 0)
	none, err := plan.Attach(new(kernel).mapper, full)
	if err != nil {
		t.Fatal(err)
	}
	none.TakeRecvs(func(id uint64) { t.Errorf("request %d of a queue that is not there", id) })
}
