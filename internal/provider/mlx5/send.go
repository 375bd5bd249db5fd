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
	id     uint64
	number uint32 // of the request, free-running
	blocks uint8
	code   uint8 // the device's opcode
	done   uint8 // of enum provider.WCOpcode
	_      uint8
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

	cur   uint32 // blocks encoded in all, free-running
	fence uint8  // flag of the next request
	last  uint32 // where the last request begins
	units uint32 // of it, 16 bytes each

	// The same as of the last doorbell.
	rungHead  uint32
	rungCur   uint32
	rungFence uint8

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

// ctrlFlags translates flags without a branch.
func ctrlFlags(f provider.SendFlags) uint8 {
	return uint8(f&provider.SendSignaled<<2 | f&provider.SendSolicited>>1 | f&provider.SendFence<<7)
}

// open returns what is known of the request that begins at a position, nil if none that is
// open does.
func (s *sendQueue) open(at uint16) *sendSlot {
	c := &s.credit
	posted := uint16(swapped(mmio.LoadAcquire32(s.record)))
	if at-c.blocks >= posted-c.blocks {
		return nil
	}
	slot := &s.slots[uint32(at)&s.mask]
	if slot.blocks == 0 || int32(slot.number-c.done) < 0 { // a later block, which an older request began at
		return nil
	}
	return slot
}

// finish notes that the open request at a position has completed, and all before it.
func (s *sendQueue) finish(at uint16, slot *sendSlot) {
	s.credit.done = slot.number + 1
	s.credit.blocks = at + uint16(slot.blocks)
}

func (s *sendQueue) reset() {
	s.head, s.seen, s.cur, s.rungHead, s.rungCur = 0, 0, 0, 0, 0
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
	imm, head := uint32(0), uintptr(headControl)
	switch wr.Opcode {
	case provider.OpSend:
	case provider.OpSendImm:
		imm = wr.Imm
	case provider.OpSendInvalidate:
		imm = wr.InvKey
	case provider.OpRDMAWriteImm:
		imm = wr.Imm
		fallthrough
	case provider.OpRDMAWrite, provider.OpRDMARead:
		at.put64(16, wr.RemoteAddr)
		at.put64(24, uint64(wr.RKey)<<32)
		head = headControl + headRemote
	case provider.OpCompareSwap, provider.OpFetchAdd:
		putAtomic(at, wr)
		head = headControl + headRemote + headAtomic
	default:
		return q.sendUMR(at, wr)
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
	q.put(at, wr, imm, units)
	return nil
}

// put ends the encoding of a request of so many units at the next block, at.
func (q *QP) put(at addr, wr *provider.SendWR, imm, units uint32) {
	s := &q.sq
	op := operations[wr.Opcode&15]
	blocks := (units + 3) / 4
	at.put64(0, uint64(s.cur&0xffff)<<40|uint64(op.code)<<32|uint64(q.num<<8|units))
	at.put64(8, uint64(ctrlFlags(wr.Flags)|q.signal|s.fence&^uint8(wr.Flags<<smallFenceShift))<<32|uint64(imm))
	slot := &s.slots[s.cur&s.mask] // field by field: a literal is put together elsewhere first
	slot.id, slot.number, slot.blocks, slot.code, slot.done = wr.ID, s.head, uint8(blocks), op.code, op.done
	s.last, s.units, s.fence = s.cur, units, 0
	s.cur += blocks
	s.head++
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
	s.head, s.cur, s.fence = s.rungHead, s.rungCur, s.rungFence
}

// TakeSends does so, and reports the requests.
func (q *QP) TakeSends(taken func(id uint64)) {
	s := &q.sq
	for i := s.rungCur; i != s.cur; {
		slot := &s.slots[i&s.mask]
		taken(slot.id)
		i += uint32(slot.blocks)
	}
	q.DropSend()
}

// PublishSend shows the encoded send requests to the device, with one doorbell.
func (q *QP) PublishSend() {
	s := &q.sq
	n := s.head - s.rungHead
	if n == 0 {
		return
	}
	s.rungHead, s.rungCur, s.rungFence = s.head, s.cur, s.fence
	if q.reg.shared {
		s.ringShared(q.reg, n == 1)
		return
	}
	s.ringAt(q.reg, n == 1)
}

func (s *sendQueue) ringShared(reg *register, single bool) {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	s.ringAt(reg, single)
}

// ringAt rings the doorbell; a single request that fits is copied into the register, which
// spares the device to fetch it. The record decides how far the device goes, so that of the
// other doorbells only the queue pair's number counts.
func (s *sendQueue) ringAt(reg *register, single bool) {
	count := swapped(s.cur & 0xffff)
	to := reg.addr
	if reg.flip != 0 { // who has one half shares it without a lock
		to = reg.add(reg.half)
		reg.half ^= reg.flip
	}
	last := s.place(s.last)
	size := int(s.units) * pieceSize
	if !single || size > reg.copies || s.units == 1 {
		mmio.Doorbell(s.record, count, to.word64(0), *last.word64(0))
		return
	}
	blocks := (size + blockSize - 1) / blockSize
	from := last.block()
	if s.left(last) < blocks*blockSize {
		from = s.gather(last, blocks)
	}
	mmio.DoorbellCopy(s.record, count, to.block(), from, blocks)
}

// gather copies the last request, which goes on at the ring's beginning, to where its blocks
// are one after the other.
func (s *sendQueue) gather(last addr, blocks int) *[blockSize]byte {
	to := s.straight[:blocks*blockSize]
	n := copy(to, last.bytes(s.left(last)))
	copy(to[n:], s.ring.bytes(len(to)-n))
	return addrOf(to).block()
}
