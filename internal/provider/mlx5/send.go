package mlx5

import (
	"github.com/pureverbs/rdma/internal/provider"
	"github.com/pureverbs/rdma/mmio"
)

// Flags of a send request, in its control segment.
const (
	ctrlSignal     = 0x08
	ctrlSolicited  = 0x02
	ctrlFence      = 0x80 // after reads and atomics that came before
	ctrlSmallFence = 0x20 // after changes of keys that came before; the other makes up for it

	smallFenceShift = 5 // from SendFence
)

// sendSlot is what this side keeps of a request, under the position of its first block.
type sendSlot struct {
	id   uint64
	note sendNote
}

// sendNote is all else of it in one word, which is one store: the request's number,
// free-running, its operation, and in the low 8 bits its blocks, 0 where nothing is noted.
type sendNote uint64

// noteOp is the part of a note that the operation makes.
func noteOp(code uint8, done provider.WCOpcode) sendNote {
	return sendNote(code)<<8 | sendNote(done)<<16
}

func (n sendNote) with(number, blocks uint32) sendNote {
	return n | sendNote(number)<<32 | sendNote(blocks)
}

func (n sendNote) number() uint32          { return uint32(n >> 32) }
func (n sendNote) done() provider.WCOpcode { return provider.WCOpcode(uint8(n >> 16)) }
func (n sendNote) code() uint8             { return uint8(n >> 8) }
func (n sendNote) blocks() uint8           { return uint8(n) }

// sendMark is a place to go back to.
type sendMark struct {
	head, cur uint32
	fence     uint8
}

// sendQueue is a ring of blocks.
type sendQueue struct {
	window
	ring   addr
	end    addr
	mask   uint32
	slots  []sendSlot // by block
	record *uint32
	inline uint32
	bounce []byte // for inline data where the ring ends

	cur   uint32   // blocks encoded in all, free-running
	fence uint8    // flag of the next request
	fresh uint32   // requests that Send encoded since the last doorbell
	rung  sendMark // as of then, if there are some
	last  addr     // the last of them
	units uint32   // of it, 16 bytes each

	credit credit

	straight [maxBFReg / 2]byte // for requests that are copied, where the ring ends
}

func (s *sendQueue) attach(ring addr, size *sendSize, own, record addr) {
	s.ring, s.end, s.mask = ring, ring.add(uintptr(size.blocks)*blockSize), size.blocks-1
	s.limit, s.inline = size.limit, size.inline
	s.slots = slotsOf[sendSlot](own, size.blocks)
	s.record = record.word32(sendCount)
	s.bounce = make([]byte, size.inline)
}

// place is the block at a position.
func (s *sendQueue) place(cur uint32) addr { return s.ring.add(uintptr(cur&s.mask) << blockShift) }

// ctrlFlags translates flags of requests: SendFence is 1, SendSignaled 2, SendSolicited 4.
var ctrlFlags = [16]uint8{
	1: ctrlFence, 2: ctrlSignal, 3: ctrlFence | ctrlSignal,
	4: ctrlSolicited, 5: ctrlFence | ctrlSolicited, 6: ctrlSignal | ctrlSolicited, 7: ctrlFence | ctrlSignal | ctrlSolicited,
	8: 0, 9: ctrlFence, 10: ctrlSignal, 11: ctrlFence | ctrlSignal,
	12: ctrlSolicited, 13: ctrlFence | ctrlSolicited, 14: ctrlSignal | ctrlSolicited, 15: ctrlFence | ctrlSignal | ctrlSolicited,
}

// posted is how far the device may go. What is kept of a request may be read after it.
func (s *sendQueue) posted() uint16 { return uint16(swapped(mmio.LoadAcquire32(s.record))) }

// isOpen tells whether the request that begins at a position is open; note is what is kept of
// it. A later block of a request has the note of an older one.
func (s *sendQueue) isOpen(at, posted uint16, note sendNote) bool {
	c := &s.credit
	return at-c.blocks < posted-c.blocks && note.blocks() != 0 && int32(note.number()-c.done) >= 0
}

// finish notes that the open request at a position has completed, and all before it.
func (s *sendQueue) finish(at uint16, note sendNote) {
	s.credit.done = note.number() + 1
	s.credit.blocks = at + uint16(note.blocks())
}

func (s *sendQueue) reset() {
	s.head, s.seen, s.cur, s.fresh = 0, 0, 0, 0
	clear(s.slots)
	s.credit.reset()
}

// Send encodes one work request; total is the length of its pieces. The device sees it after
// PublishSend. The queue is full when as many requests are open as it was made for: the room
// of one comes back when a completion is polled and released that covers it, its own or a
// later one's.
func (q *QP) Send(wr *provider.SendWR, total uint32) error {
	s := &q.sq
	if s.full(&s.credit) {
		return provider.ErrFull
	}
	if !wr.Opcode.In(q.ops) {
		return errOpcode
	}
	at := s.place(s.cur)
	op := &operations[wr.Opcode&15]
	var head uintptr
	switch wr.Opcode {
	case provider.OpCompareSwap, provider.OpFetchAdd:
		putAtomic(at, wr)
		head = headControl + headRemote + headAtomic
	case provider.OpLocalInvalidate, provider.OpBindMW:
		return q.sendUMR(at, wr)
	default:
		head = op.putRemote(at, wr)
	}
	if q.datagram {
		putWay(at, &wr.Dest)
		head = headControl + headWay
	}
	units := uint32(head / pieceSize)
	switch {
	case wr.Flags&provider.SendInline != 0:
		units += s.putInline(at, head, wr.Inline, total)
	case len(wr.SGL) == 1 && total > 0 && head < blockSize: // most are so
		e, seg := &wr.SGL[0], at.add(head)
		seg.put64(0, uint64(total)<<32|uint64(e.LKey))
		seg.put64(8, e.Addr)
		units++
	default:
		units += s.putPieces(at.add(head), wr.SGL)
	}
	q.put(at, wr, op.word(wr), units)
	return nil
}

// put ends the encoding of a request of so many units at the next block, at.
func (q *QP) put(at addr, wr *provider.SendWR, imm, units uint32) {
	s := &q.sq
	if s.fresh == 0 {
		s.rung = sendMark{s.head, s.cur, s.fence}
	}
	fence := s.fence &^ uint8(wr.Flags<<smallFenceShift)
	op, blocks := &operations[wr.Opcode&15], (units+3)/4
	q.control(at, s.cur, op.note.code(), units, wr.Flags, fence, imm)
	s.keep(s.cur, wr.ID, op.note.with(s.head, blocks))
	s.last, s.units, s.fence = at, units, 0
	s.cur += blocks
	s.head++
	s.fresh++
}

// control writes the control segment of the request at the block of position cur.
func (q *QP) control(at addr, cur uint32, code uint8, units uint32, flags provider.SendFlags, fence uint8, imm uint32) {
	at.put64(0, uint64(cur&0xffff)<<40|uint64(code)<<32|uint64(q.num<<8|units))
	at.put64(8, uint64(ctrlFlags[flags&15]|q.signal|fence)<<32|uint64(imm))
}

// keep keeps what this side must know of a request. It is one store each: a literal would be
// put together elsewhere first.
func (s *sendQueue) keep(cur uint32, id uint64, note sendNote) {
	slot := &s.slots[cur&s.mask]
	slot.id, slot.note = id, note
}

// word is the last word of the control segment.
func (o *operation) word(wr *provider.SendWR) uint32 { return wr.Imm&o.imm | wr.InvKey&o.key }

// putRemote writes where the memory of the peer's is, if the operation names some, and returns
// what then comes before the data.
func (o *operation) putRemote(at addr, wr *provider.SendWR) uintptr {
	if !o.remote {
		return headControl
	}
	at.put64(16, wr.RemoteAddr)
	at.put64(24, uint64(wr.RKey)<<32)
	return headControl + headRemote
}

// putAtomic leaves the second operand of a FETCH AND ADD as it is, as the device does.
func putAtomic(at addr, wr *provider.SendWR) {
	at.put64(16, wr.RemoteAddr)
	at.put64(24, uint64(wr.RKey)<<32)
	if wr.Opcode == provider.OpFetchAdd {
		at.put64(32, wr.CompareAdd)
		return
	}
	at.put64(32, wr.Swap)
	at.put64(40, wr.CompareAdd)
}

// putPieces writes the pieces that hold something and returns how many.
func (s *sendQueue) putPieces(seg addr, sgl []provider.SGE) (n uint32) {
	for i := range sgl {
		e := &sgl[i]
		if e.Length == 0 {
			continue
		}
		if seg == s.end {
			seg = s.ring
		}
		seg.put64(0, uint64(e.Length)<<32|uint64(e.LKey))
		seg.put64(8, e.Addr)
		seg = seg.add(pieceSize)
		n++
	}
	return n
}

// DropSend forgets what was encoded since the last PublishSend.
func (q *QP) DropSend() {
	s := &q.sq
	if s.fresh > 0 {
		s.head, s.cur, s.fence, s.fresh = s.rung.head, s.rung.cur, s.rung.fence, 0
	}
}

// TakeSends does so, and reports the requests.
func (q *QP) TakeSends(taken func(id uint64)) {
	s := &q.sq
	for i, n := s.rung.cur, s.fresh; n > 0; n-- {
		slot := &s.slots[i&s.mask]
		taken(slot.id)
		i += uint32(slot.note.blocks())
	}
	q.DropSend()
}

// PublishSend shows the encoded send requests to the device, with one doorbell.
func (q *QP) PublishSend() {
	if s := &q.sq; s.fresh > 0 {
		q.ring(s.last, s.units, s.fresh == 1, false)
		s.fresh = 0
	}
}

// ring rings the doorbell for what ends with a request of so many units, and returns true. If
// one request is all and fits, it is copied into the register, which spares the device to fetch
// it. The record decides how far the device goes, so that of the other doorbells only the queue
// pair's number counts. alone tells that nobody else can be in the register meanwhile.
func (q *QP) ring(last addr, units uint32, single, alone bool) bool {
	s, reg := &q.sq, q.reg
	if reg.shared && !alone {
		return q.ringShared(last, units, single)
	}
	to := reg.addr
	if reg.flip != 0 { // who has one half shares it without a lock
		to = to.add(reg.half)
		reg.half ^= reg.flip
	}
	count, size := swapped(s.cur&0xffff), int(units)*pieceSize
	if !single || size > reg.copies || units == 1 {
		mmio.Doorbell(s.record, count, to.word64(0), *last.word64(0))
		return true
	}
	blocks := (size + blockSize - 1) / blockSize
	if s.left(last) >= blocks*blockSize {
		mmio.DoorbellCopy(s.record, count, to.block(), last.block(), blocks)
		return true
	}
	mmio.DoorbellCopy(s.record, count, to.block(), s.gather(last, blocks), blocks)
	return true
}

func (q *QP) ringShared(last addr, units uint32, single bool) bool {
	q.reg.mu.Lock()
	defer q.reg.mu.Unlock()
	return q.ring(last, units, single, true)
}

// gather copies the last request, which goes on at the ring's beginning, to where its blocks
// are one after the other.
//
//go:noinline
func (s *sendQueue) gather(last addr, blocks int) *[blockSize]byte {
	to := s.straight[:blocks*blockSize]
	n := copy(to, last.bytes(s.left(last)))
	copy(to[n:], s.ring.bytes(len(to)-n))
	return addrOf(to).block()
}
