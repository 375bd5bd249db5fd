package uverbs

import (
	"github.com/pureverbs/rdma/internal/provider"
)

// SendBuilder builds send work requests one after the other, straight into the send queue:
// no slice of requests is made, and inline data can be written where the device reads it.
// All that is built between StartSend and Complete is posted together or not at all.
//
//	b := qp.StartSend()
//	b.Write(1, 0, addr, rkey).SGE(mr.SGE(0, 4096))
//	copy(b.Send(2, uverbs.SendSignaled).InlineRoom(4), "done")
//	n, err := b.Complete()
//
// An operation begins a request; what follows until the next operation belongs to it. The
// first mistake is kept and comes back from Complete. Source: ibv_wr_post(3).
type SendBuilder struct {
	q     *QP
	wr    SendWR
	one   [1]SGE
	room  uint32 // bytes of inline data that are in place already
	begun bool   // wr holds a request that is not encoded yet
	n     int    // requests encoded
	err   error
}

// StartSend begins a batch and takes the send queue: others who post wait until Complete or
// Abort, one of which must follow. It does not allocate.
func (q *QP) StartSend() *SendBuilder {
	q.sqMu.Lock()
	b := &q.builder
	b.q, b.begun, b.n, b.room = q, false, 0, 0
	b.err = q.canSend()
	return b
}

// op encodes the request before and begins the next.
func (b *SendBuilder) op(op Opcode, id uint64, flags SendFlags) *SendBuilder {
	b.flush()
	b.wr = SendWR{ID: id, Opcode: op, Flags: flags &^ SendInline}
	b.begun, b.room = true, 0
	return b
}

func (b *SendBuilder) remote(op Opcode, id uint64, flags SendFlags, addr uint64, rkey uint32) *SendBuilder {
	b.op(op, id, flags)
	b.wr.RemoteAddr, b.wr.RKey = addr, rkey
	return b
}

func (b *SendBuilder) flush() {
	if !b.begun || b.err != nil {
		return
	}
	b.begun = false
	total, err := b.q.checkSend(&b.wr, b.room)
	if err == nil {
		err = b.q.rings.send((*provider.SendWR)(&b.wr), total)
	}
	if err != nil {
		b.err = err
		return
	}
	b.n++
}

// Send is OpSend.
func (b *SendBuilder) Send(id uint64, flags SendFlags) *SendBuilder { return b.op(OpSend, id, flags) }

// SendImm is OpSendImm.
func (b *SendBuilder) SendImm(id uint64, flags SendFlags, imm uint32) *SendBuilder {
	b.op(OpSendImm, id, flags).wr.Imm = imm
	return b
}

// SendInvalidate is OpSendInvalidate: rkey is a key of the peer's.
func (b *SendBuilder) SendInvalidate(id uint64, flags SendFlags, rkey uint32) *SendBuilder {
	b.op(OpSendInvalidate, id, flags).wr.InvKey = rkey
	return b
}

// Write is OpRDMAWrite.
func (b *SendBuilder) Write(id uint64, flags SendFlags, addr uint64, rkey uint32) *SendBuilder {
	return b.remote(OpRDMAWrite, id, flags, addr, rkey)
}

// WriteImm is OpRDMAWriteImm.
func (b *SendBuilder) WriteImm(id uint64, flags SendFlags, addr uint64, rkey, imm uint32) *SendBuilder {
	b.remote(OpRDMAWriteImm, id, flags, addr, rkey).wr.Imm = imm
	return b
}

// Read is OpRDMARead.
func (b *SendBuilder) Read(id uint64, flags SendFlags, addr uint64, rkey uint32) *SendBuilder {
	return b.remote(OpRDMARead, id, flags, addr, rkey)
}

// CompareSwap is OpCompareSwap.
func (b *SendBuilder) CompareSwap(id uint64, flags SendFlags, addr uint64, rkey uint32, compare, swap uint64) *SendBuilder {
	b.remote(OpCompareSwap, id, flags, addr, rkey)
	b.wr.CompareAdd, b.wr.Swap = compare, swap
	return b
}

// FetchAdd is OpFetchAdd.
func (b *SendBuilder) FetchAdd(id uint64, flags SendFlags, addr uint64, rkey uint32, add uint64) *SendBuilder {
	b.remote(OpFetchAdd, id, flags, addr, rkey).wr.CompareAdd = add
	return b
}

// AtomicWrite is OpAtomicWrite; its 8 bytes are inline.
func (b *SendBuilder) AtomicWrite(id uint64, flags SendFlags, addr uint64, rkey uint32) *SendBuilder {
	return b.remote(OpAtomicWrite, id, flags, addr, rkey)
}

// Flush is OpFlush of length bytes at addr; FlushMR as extent means the whole region.
func (b *SendBuilder) Flush(id uint64, flags SendFlags, addr uint64, rkey, length uint32, typ FlushType, extent FlushRange) *SendBuilder {
	b.remote(OpFlush, id, flags, addr, rkey)
	b.wr.Length, b.wr.Flush, b.wr.Range = length, typ, extent
	return b
}

// LocalInvalidate is OpLocalInvalidate.
func (b *SendBuilder) LocalInvalidate(id uint64, flags SendFlags, rkey uint32) *SendBuilder {
	b.op(OpLocalInvalidate, id, flags).wr.InvKey = rkey
	return b
}

// BindMW is OpBindMW; see [MW.Prepare]. bind is read when the next request begins.
func (b *SendBuilder) BindMW(id uint64, flags SendFlags, bind *MWBind) *SendBuilder {
	b.op(OpBindMW, id, flags).wr.Bind = bind
	return b
}

// SGE gives the request one piece of memory.
func (b *SendBuilder) SGE(s SGE) *SendBuilder {
	b.one[0] = s
	b.wr.SGL = b.one[:]
	return b
}

// SGL gives the request several pieces. The slice is read when the next request begins.
func (b *SendBuilder) SGL(s []SGE) *SendBuilder {
	b.wr.SGL = s
	return b
}

// Inline copies data into the request, after what was copied before.
func (b *SendBuilder) Inline(data []byte) *SendBuilder {
	copy(b.InlineRoom(len(data)), data)
	return b
}

// InlineRoom adds n bytes of inline data to the request and returns where to write them: in
// the send queue itself, where the device reads. It is valid until the next request begins.
// After a mistake, or when the queue is full, it is memory that leads nowhere.
func (b *SendBuilder) InlineRoom(n int) []byte {
	b.wr.Flags |= SendInline
	if b.begun && b.err == nil {
		room := b.q.rings.inlineRoom(b.wr.Opcode)
		switch {
		case room == nil:
			b.err = ErrQueueFull
		case n < 0 || n > len(room)-int(b.room):
			b.err = errInlineLength
		default:
			b.room += uint32(n)
			return room[b.room-uint32(n) : b.room : b.room]
		}
	}
	return make([]byte, max(n, 0))
}

// To says where a datagram goes.
func (b *SendBuilder) To(d Dest) *SendBuilder {
	b.wr.Dest = d
	return b
}

// Complete posts the batch with one doorbell and returns how many requests it had. On an
// error nothing is posted.
//
// Errors: those of [QP.PostSend].
func (b *SendBuilder) Complete() (int, error) {
	q := b.q
	b.flush()
	n, err := b.n, b.err
	var rung error
	switch {
	case err != nil:
		q.drop()
		n = 0
	case n > 0:
		rung = q.ring()
	}
	b.clear()
	q.sqMu.Unlock()
	if rung != nil || err != nil {
		return q.posted(n, err, rung)
	}
	return n, nil
}

// drop forgets what was encoded and not published.
func (q *QP) drop() {
	if q.rings.open() {
		q.rings.dropSend()
	}
}

// Abort posts nothing of the batch.
func (b *SendBuilder) Abort() {
	b.q.drop()
	b.clear()
	b.q.sqMu.Unlock()
}

// clear lets go of the caller's memory.
func (b *SendBuilder) clear() {
	b.wr, b.one, b.begun = SendWR{}, [1]SGE{}, false
}
