package rxe

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/pureverbs/rdma/internal/provider"
	"github.com/pureverbs/rdma/mmio"
)

// The targets play a kernel that writes what it likes into the shared queues and into its
// responses, and changes its mind between two calls. What must hold all the same: each call
// gives ErrCorrupt, ErrFull or what stands in the ring, and writes nowhere but where it may.

var ne = binary.NativeEndian

// script is what the fuzzer decides, taken one by one; zeros when it is used up.
type script []byte

func (s *script) byte() (b byte) {
	if len(*s) > 0 {
		b, *s = (*s)[0], (*s)[1:]
	}
	return b
}

func (s *script) word() uint32 {
	return uint32(s.byte()) | uint32(s.byte())<<8 | uint32(s.byte())<<16 | uint32(s.byte())<<24
}

func (s *script) bytes(n int) []byte {
	n = min(n, len(*s))
	b := (*s)[:n]
	*s = (*s)[n:]
	return b
}

// maxMapped bounds what a hostile response makes the test allocate.
const maxMapped = 1 << 16

var errNoMapping = errors.New("no such mapping")

// hostile maps queues whose memory begins with what the fuzzer says, with a margin on each
// side that nobody may touch.
type hostile struct {
	t      *testing.T
	images [][]byte // contents of one mapping after the other
	whole  [][]byte
	live   int
}

const margin = 4096

func (h *hostile) mapper(_ int64, length int) (*mmio.Region, error) {
	if length <= 0 || length > maxMapped {
		return nil, errNoMapping
	}
	whole := bytes.Repeat([]byte{0xa5}, margin+length+margin)
	mem := whole[margin : margin+length : margin+length]
	clear(mem)
	if len(h.images) > 0 {
		copy(mem, h.images[0])
		h.images = h.images[1:]
	}
	h.whole = append(h.whole, whole)
	h.live++
	return mmio.NewRegion(mem, func(b []byte) error {
		if &b[0] != &mem[0] || len(b) != len(mem) {
			h.t.Error("another range was unmapped than was mapped")
		}
		h.live--
		return nil
	}), nil
}

// mem is mapping i.
func (h *hostile) mem(i int) []byte { return h.whole[i][margin : len(h.whole[i])-margin] }

// attached judges what came out of Attach.
func (h *hostile) attached(err error, mappings int) bool {
	h.t.Helper()
	if err != nil {
		if !errors.Is(err, provider.ErrCorrupt) && !errors.Is(err, errNoMapping) {
			h.t.Errorf("attach: %v, want ErrCorrupt or the mapper's error", err)
		}
		mappings = 0
	}
	if h.live != mappings {
		h.t.Errorf("attach: %d queues stay mapped (%v), want %d", h.live, err, mappings)
	}
	return err == nil
}

// end checks that all is unmapped and the margins are whole.
func (h *hostile) end(err error) {
	h.t.Helper()
	if err != nil || h.live != 0 {
		h.t.Errorf("close: %v, %d queues stay mapped", err, h.live)
	}
	for i, whole := range h.whole {
		for _, m := range [][]byte{whole[:margin], whole[len(whole)-margin:]} {
			if bytes.Count(m, []byte{0xa5}) != margin {
				h.t.Errorf("mapping %d: memory outside was written", i)
			}
		}
	}
}

// within checks a ring's own bounds.
func within(t *testing.T, r *ring, mem []byte) {
	t.Helper()
	if end := uint64(r.mask) + 1; offSlots+end<<r.shift > uint64(len(mem)) || r.own > r.mask {
		t.Fatalf("index %d of %d slots of %d bytes in a mapping of %d", r.own, end, 1<<r.shift, len(mem))
	}
}

func mminfo(offset uint64, size uint32) []byte {
	b := make([]byte, 16)
	ne.PutUint64(b, offset)
	ne.PutUint32(b[8:], size)
	return b
}

// What the script of FuzzCompletions can do.
const (
	doPoll = iota // a larger number polls for more than one
	doAdvance
	doRelease
	doForget
	doProducer // from here on it is the kernel's turn
	doConsumer
	doHeader
	doSlot
	nDo
)

// FuzzCompletions compares the decoder with a plain reading of the same memory. The kernel
// changes indices, slots and header between the calls.
func FuzzCompletions(f *testing.F) {
	good := queue(6, 7)
	for i := range 5 {
		putCQE(good, i, uint64(i), uint32(i%2), uint32(20+i%2), uint32(i))
	}
	ne.PutUint32(good[offProducer:], 5)
	ne.PutUint32(good[offConsumer:], 1)
	lone := queue(6, 0)
	gone := bytes.Clone(good)
	for i := range 8 {
		putCQE(gone, i, uint64(i), dead, 20, 0)
	}
	f.Add(good, uint32(len(good)), []byte{doForget, 20, 0, 0, 0, doPoll, doPoll, doRelease, doAdvance, doAdvance})
	f.Add(good, uint32(len(good)), []byte{doPoll, doProducer, 9, 0, 0, 0, doPoll, doProducer, 0, 0, 0, 0, doPoll, doPoll, doPoll, doPoll, doPoll})
	f.Add(good, uint32(len(good)), []byte{doHeader, 30, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, doPoll, doConsumer, 0xff, 0xff, 0xff, 0xff, doForget, 1, 2, 3, 4, doRelease})
	f.Add(lone, uint32(len(lone)), []byte{doPoll, doProducer, 1, 0, 0, 0, doPoll, doForget})
	f.Add(gone, uint32(len(gone)), []byte{doPoll, doPoll, doProducer, 4, 0, 0, 0, doPoll, doRelease})
	lost := bytes.Clone(good)
	ne.PutUint32(lost[offConsumer:], 1<<32-2)
	f.Add(lost, uint32(len(lost)), []byte{doPoll, doPoll, doForget, 21, 0, 0, 0, doRelease, doPoll})
	f.Add(good, uint32(len(good)), []byte{doPoll + 3*nDo, doForget, 20, 0, 0, 0, doAdvance, doPoll + nDo, doPoll + nDo})
	f.Add(good, uint32(offSlots), []byte{})
	f.Add([]byte{}, uint32(1<<31), []byte{})
	f.Fuzz(func(t *testing.T, image []byte, size uint32, calls []byte) {
		h := &hostile{t: t, images: [][]byte{image}}
		var plan CQPlan
		copy(plan.Out(), mminfo(uint64(size)<<12, size))
		q, err := plan.Attach(h.mapper)
		if !h.attached(err, 1) {
			return
		}
		p := &plainCQ{t: t, q: q, mem: h.mem(0), shift: q.ring.shift, mask: q.ring.mask, own: q.ring.own}
		p.given = p.own
		for s := script(calls[:min(len(calls), 1<<10)]); len(s) > 0; {
			within(t, q.ring, p.mem)
			p.do(&s)
		}
		h.end(q.Close())
	})
}

// plainCQ reads the queue of q by the book, with Go's own checks of each bound.
type plainCQ struct {
	t          *testing.T
	q          *CQ
	mem        []byte
	shift      uint32
	mask       uint32
	own, given uint32
}

func (p *plainCQ) slot(i uint32) []byte { return p.mem[offSlots+int(i)<<p.shift:][:1<<p.shift] }

func (p *plainCQ) do(s *script) {
	switch b := s.byte(); b % nDo {
	case doPoll:
		p.poll(1 + int(b/nDo)%4)
	case doAdvance:
		p.next(func(wc *provider.WC) (bool, error) {
			ok, err := p.q.Advance()
			if ok {
				p.q.Decode(wc)
				if p.q.ID() != wc.ID || p.q.Status() != wc.Status {
					p.t.Errorf("completion %d, %v decodes as %d, %v", p.q.ID(), p.q.Status(), wc.ID, wc.Status)
				}
			}
			return ok, err
		})
	case doRelease:
		p.q.Release()
		p.given = p.own
		p.release()
	case doForget:
		p.forget(s.word())
	case doProducer:
		ne.PutUint32(p.mem[offProducer:], s.word())
	case doConsumer:
		ne.PutUint32(p.mem[offConsumer:], s.word())
	case doHeader:
		copy(p.mem[:8], s.bytes(8))
	case doSlot:
		copy(p.slot(s.word()&p.mask), s.bytes(48))
	}
}

// release: what was read goes back, and nothing else changes.
func (p *plainCQ) release() {
	p.t.Helper()
	if got := ne.Uint32(p.mem[offConsumer:]); got != p.given {
		p.t.Errorf("consumer index is %d, want %d", got, p.given)
	}
}

// poll: as many as there are, and all that was passed goes back.
func (p *plainCQ) poll(room int) {
	p.t.Helper()
	before, own := bytes.Clone(p.mem), p.own
	wcs := make([]provider.WC, room)
	n, failed, err := p.q.Poll(wcs)
	want, wantFailed, wantErr := 0, false, error(nil)
	for want < room {
		slot, _, err := p.expect()
		if wantErr = err; slot == nil {
			break
		}
		if want < n {
			p.compare(&wcs[want], slot)
		}
		wantFailed = wantFailed || ne.Uint32(slot[8:]) != 0
		want++
	}
	if n != want || failed != wantFailed || !errors.Is(err, wantErr) {
		p.t.Fatalf("polled %d, %v, %v; want %d, %v, %v", n, failed, err, want, wantFailed, wantErr)
	}
	if p.own != own {
		p.given = p.own
		p.release()
		copy(before[offConsumer:], p.mem[offConsumer:offConsumer+4])
	}
	if !bytes.Equal(before, p.mem) {
		p.t.Error("polling wrote to the slots")
	}
}

func (p *plainCQ) next(next func(*provider.WC) (bool, error)) {
	p.t.Helper()
	before := bytes.Clone(p.mem)
	var wc provider.WC
	ok, err := next(&wc)
	want, freed, wantErr := p.expect()
	if ok != (want != nil) || !errors.Is(err, wantErr) {
		p.t.Fatalf("got a completion: %v, %v; want %v, %v", ok, err, want != nil, wantErr)
	}
	if ok {
		p.compare(&wc, want)
	}
	if freed { // completions of the dead go back by themselves
		p.release()
		copy(before[offConsumer:], p.mem[offConsumer:offConsumer+4])
	}
	if !bytes.Equal(before, p.mem) {
		p.t.Error("reading wrote to the ring")
	}
}

// expect is the slot that comes next, and whether others were given back on the way.
func (p *plainCQ) expect() (slot []byte, freed bool, err error) {
	prod := ne.Uint32(p.mem[offProducer:])
	if prod > p.mask {
		return nil, false, provider.ErrCorrupt
	}
	for p.own != prod {
		slot = p.slot(p.own)
		if ne.Uint32(slot[28:]) == 0 {
			return nil, freed, provider.ErrCorrupt
		}
		held := p.given != p.own
		p.own = (p.own + 1) & p.mask
		if ne.Uint32(slot[8:]) != dead {
			return slot, freed, nil
		}
		if !held {
			p.given, freed = p.own, true
		}
	}
	return nil, freed, nil
}

func (p *plainCQ) compare(wc *provider.WC, e []byte) {
	p.t.Helper()
	flags := ne.Uint32(e[36:])
	want := provider.WC{
		ID: ne.Uint64(e), Status: provider.WCStatus(ne.Uint32(e[8:])), Opcode: provider.WCOpcode(ne.Uint32(e[12:])),
		VendorErr: ne.Uint32(e[16:]), ByteLen: ne.Uint32(e[20:]), QPNum: ne.Uint32(e[28:]), SrcQP: ne.Uint32(e[32:]),
		Flags: provider.WCFlags(flags&^12 | flags&4<<1 | flags&8>>1), PKeyIndex: ne.Uint16(e[40:]), SLID: ne.Uint16(e[42:]), SL: e[44], PathBits: e[45],
	}
	switch {
	case flags&2 != 0:
		want.Imm = binary.BigEndian.Uint32(e[24:])
	case flags&4 != 0: // the kernel's bit of an invalidation
		want.InvKey = ne.Uint32(e[24:])
	}
	if *wc != want {
		p.t.Errorf("got %+v\nwant %+v", *wc, want)
	}
	_, _ = wc.Status.String(), wc.Opcode.String()
}

// forget: only completions between the indices are marked, and only those of that queue pair.
func (p *plainCQ) forget(qpNum uint32) {
	want := bytes.Clone(p.mem)
	end := ne.Uint32(p.mem[offProducer:]) & p.mask
	for i := p.own; i != end; i = (i + 1) & p.mask {
		if e := want[offSlots+int(i)<<p.shift:]; ne.Uint32(e[28:]) == qpNum {
			ne.PutUint32(e[8:], dead)
		}
	}
	p.q.Forget(qpNum)
	if !bytes.Equal(want, p.mem) {
		p.t.Errorf("forgetting queue pair %d wrote elsewhere", qpNum)
	}
}

// FuzzQueuePair attaches to whatever a create response says, and then posts as much as was
// granted while the kernel plays with the indices. Each post stays in its own slot.
func FuzzQueuePair(f *testing.F) {
	sq, rq := queue(9, 3), queue(7, 3)
	resp := append(mminfo(4096, uint32(len(rq))), mminfo(8192, uint32(len(sq)))...)
	f.Add(resp, rq, sq, uint32(4), uint32(64), uint32(2), []byte{0, 0, 1, 2, 3, 0, 1, 5, 1, 0, 0, 0, 0, 0, 4})
	f.Add(resp, sq, rq, uint32(1<<28), uint32(0), uint32(1), []byte{0})
	f.Add(resp, rq, sq, uint32(1), uint32(0), uint32(1), []byte{0x80, 0, 0x80, 1, 0x80, 2, 0x80, 3, 0x84, 0x84, 0x84, 0x84, 4, 5})
	f.Add(resp, rq, sq, uint32(0), uint32(1<<31), uint32(1<<28), []byte{0, 1})
	f.Add(append(make([]byte, 16), resp[16:]...), sq, rq, uint32(1), uint32(0), uint32(0), []byte{0, 4})
	f.Add(bytes.Repeat([]byte{0xff}, 32), sq, rq, uint32(1), uint32(16), uint32(1), []byte{0})
	f.Fuzz(func(t *testing.T, resp, first, second []byte, sendSGE, inline, recvSGE uint32, calls []byte) {
		h := &hostile{t: t, images: [][]byte{first, second}}
		plan := QPPlan{Datagram: len(calls)%2 == 1}
		copy(plan.Out(), resp)
		q, err := plan.Attach(h.mapper, provider.QPCap{MaxSendSGE: sendSGE, MaxInline: inline, MaxRecvSGE: recvSGE})
		mappings := 1
		if plan.resp.RqMi.Size != 0 {
			mappings = 2
		}
		if !h.attached(err, mappings) {
			return
		}
		p := &poster{t: t, h: h, q: q, sendSGE: sendSGE, inline: inline, recvSGE: recvSGE}
		for s := script(calls[:min(len(calls), 256)]); len(s) > 0; {
			p.do(&s)
		}
		h.end(q.Close())
	})
}

// poster posts to a queue pair whose first mapping is its send queue.
type poster struct {
	t                        *testing.T
	h                        *hostile
	q                        *QP
	sendSGE, inline, recvSGE uint32
}

var way provider.AV

func (p *poster) do(s *script) {
	b := s.byte()
	switch plain := b&0x80 != 0; b % 8 {
	case 0:
		wr := provider.SendWR{
			ID: 7, Opcode: provider.Opcode(s.byte() % 16), SGL: pieces(p.sendSGE), Imm: 1, RemoteAddr: 2, RKey: 3,
			InvKey: 4, Dest: provider.Dest{AV: &way}, Bind: new(provider.MWBind),
		}
		if plain && p.sendSGE > 0 {
			wr.Opcode, wr.SGL = wr.Opcode%4, pieces(1)
			p.post(p.q.sq, 0, func() error { return taken(p.q.SendPlain([]provider.SendWR{wr}, provider.AllOps)) })
			break
		}
		p.post(p.q.sq, 0, func() error { return p.q.Send(&wr, 0) })
	case 1: // the core bounds the bytes by what was granted
		n := min(p.inline, maxMapped)
		wr := provider.SendWR{Flags: provider.SendInline, Inline: [][]byte{make([]byte, n/2), make([]byte, n-n/2)}, Dest: provider.Dest{AV: &way}}
		p.post(p.q.sq, 0, func() error { return p.q.Send(&wr, n) })
	case 2:
		p.room()
	case 3:
		p.q.DropSend()
	case 4:
		if p.q.HasRecv() {
			wr := provider.RecvWR{ID: 9, SGL: pieces(p.recvSGE)}
			if plain && p.recvSGE > 0 {
				p.post(p.q.rq, 1, func() error { return p.recvPlain(provider.RecvWR{ID: 9, SGL: pieces(1)}) })
				break
			}
			p.post(p.q.rq, 1, func() error { return p.q.Recv(&wr, 0) })
			p.q.PublishRecv()
		}
	case 5:
		p.q.PublishSend()
		if got := ne.Uint32(p.h.mem(0)[offProducer:]); got != p.q.sq.own {
			p.t.Errorf("producer is %d, want %d", got, p.q.sq.own)
		}
	case 6:
		mem := p.h.mem(int(s.byte()) % len(p.h.whole))
		ne.PutUint32(mem[offConsumer:], s.word())
		ne.PutUint32(mem[offProducer:], s.word())
	case 7:
		copy(p.h.mem(int(s.byte()) % len(p.h.whole))[:8], s.bytes(8))
	}
}

// taken is what happened to the one plain request.
func taken(n int) error {
	if n == 0 {
		return provider.ErrFull
	}
	return nil
}

// recvPlain posts, and takes back what it has shown, as those do that only encode.
func (p *poster) recvPlain(wr provider.RecvWR) error {
	index := p.h.mem(1)[offProducer:][:4]
	before := ne.Uint32(index)
	n := p.q.RecvPlain([]provider.RecvWR{wr})
	if got := ne.Uint32(index); got != p.q.rq.own {
		p.t.Errorf("producer is %d, want %d", got, p.q.rq.own)
	}
	ne.PutUint32(index, before)
	return taken(n)
}

// pieces are as many as a caller may give.
func pieces(granted uint32) []provider.SGE {
	sgl := make([]provider.SGE, min(granted, maxMapped/16))
	for i := range sgl {
		sgl[i] = provider.SGE{Addr: 1, Length: 2, LKey: 3}
	}
	return sgl
}

// post checks that what is posted stays in its slot.
func (p *poster) post(r *ring, mapping int, post func() error) {
	p.t.Helper()
	mem := p.h.mem(mapping)
	within(p.t, r, mem)
	before, at := bytes.Clone(mem), r.own
	err := post()
	within(p.t, r, mem)
	from := offSlots + int(at)<<r.shift
	switch {
	case errors.Is(err, provider.ErrFull):
		from = len(mem)
		if (at+1)&r.mask != ne.Uint32(mem[offConsumer:])&r.mask {
			p.t.Error("the queue is called full and is not")
		}
	case err != nil:
		p.t.Errorf("post: %v", err)
	}
	to := min(from+1<<r.shift, len(mem))
	if !bytes.Equal(before[:from], mem[:from]) || !bytes.Equal(before[to:], mem[to:]) {
		p.t.Errorf("a request in slot %d wrote outside of it", at)
	}
}

// room checks that the place for inline data is in the next slot.
func (p *poster) room() {
	r := p.q.sq
	p.post(r, 0, func() error {
		room := p.q.InlineRoom()
		if room == nil {
			return provider.ErrFull
		}
		if len(room) != int(p.inline) {
			p.t.Errorf("room for %d bytes, granted were %d", len(room), p.inline)
		}
		for i := range room {
			room[i] = 0x77
		}
		return nil
	})
}

// FuzzSharedReceiveQueue does the same for shared receive queues, made and resized.
func FuzzSharedReceiveQueue(f *testing.F) {
	image := queue(7, 3)
	f.Add(mminfo(4096, uint32(len(image))), image, uint32(2), []byte{1, 1, 1, 1, 0, 2, 0, 0, 0, 1})
	f.Add(mminfo(0, 1<<31), image, uint32(2), []byte{1})
	f.Add(mminfo(0, 500), image, uint32(1<<28), []byte{1})
	f.Add([]byte{1, 2, 3}, image, uint32(0), []byte{})
	f.Fuzz(func(t *testing.T, resp, image []byte, maxSGE uint32, calls []byte) {
		h := &hostile{t: t, images: [][]byte{image, image}}
		var plan SRQPlan
		copy(plan.Out(), resp)
		q, err := plan.Attach(h.mapper, maxSGE)
		if !h.attached(err, 1) {
			return
		}
		wr := provider.RecvWR{ID: 9, SGL: pieces(maxSGE)}
		p := &poster{t: t, h: h}
		for s := script(calls[:min(len(calls), 256)]); len(s) > 0; {
			if s.byte()%2 == 0 {
				ne.PutUint32(h.mem(0)[offConsumer:], s.word())
				continue
			}
			p.post(q.rq, 0, func() error { return q.Recv(&wr, 0) })
			q.PublishRecv()
			if n := q.Posted(); n > q.rq.mask {
				t.Errorf("%d of %d requests are posted", n, q.rq.mask)
			}
		}
		bigger, err := NewResizePlan(resp, 0).Attach(h.mapper, maxSGE)
		if err == nil {
			err = bigger.Close()
		}
		if err != nil && !errors.Is(err, provider.ErrCorrupt) {
			t.Errorf("resize: %v", err)
		}
		h.end(q.Close())
	})
}
