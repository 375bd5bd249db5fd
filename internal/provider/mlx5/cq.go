package mlx5

import (
	"fmt"
	"math/bits"
	"sync/atomic"
	"syscall"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
	"github.com/pureverbs/rdma/mmio"
)

const (
	maxCQE   = 1 << 22 // entries of a queue: log_max_cq_sz of all devices
	notOwned = cqeInvalid << 4
	counter  = 1<<24 - 1 // what the device keeps of a completion queue's position
)

// CQPlan is the driver's part of creating a completion queue.
type CQPlan struct {
	queueMem
	entries uint32
	arm     addr
	uar     uint32
	req     abi.Mlx5IbCreateCq
	resp    abi.Mlx5IbCreateCqResp
}

// PlanCQ makes the memory of a completion queue for at least entries completions. Either
// Attach or Drop must follow.
func (c *Context) PlanCQ(entries int) (*CQPlan, error) {
	n, err := roundCQ(entries)
	if err != nil {
		return nil, err
	}
	p := &CQPlan{entries: n}
	if p.arm, p.uar, err = c.armPlace(); err != nil {
		return nil, err
	}
	if p.queueMem, err = c.alloc(int(n) * cqeSize); err != nil {
		return nil, err
	}
	disown(p.mem)
	return p, nil
}

// roundCQ is the size of a queue for so many completions. The device keeps one entry.
func roundCQ(entries int) (uint32, error) {
	if entries < 1 || entries >= maxCQE {
		return 0, fmt.Errorf("%w: %d completions", syscall.EINVAL, entries)
	}
	return 1 << bits.Len32(uint32(entries)), nil
}

// disown marks all entries as not written yet.
func disown(mem []byte) {
	for i := offOwner; i < len(mem); i += cqeSize {
		mem[i] = notOwned
	}
}

// cqUARIndex says that the number of a UAR is given: enum mlx5_ib_create_cq_flags.
const cqUARIndex = 2

// In is the driver's input.
func (p *CQPlan) In() []byte {
	p.req = abi.Mlx5IbCreateCq{BufAddr: addrOf(p.mem).number(), DbAddr: p.rec.number(), CqeSize: cqeSize}
	if uar, far := p.UAR(); uar != 0 && !far {
		p.req.Flags, p.req.UarPageIndex = cqUARIndex, uint16(uar)
	}
	return bytesOf(&p.req)
}

// UAR is the number of the UAR where the queue is armed. One that does not fit In must be
// sent as attribute CREATE_CQ_UAR_INDEX, which kernels from 6.12 on have.
func (p *CQPlan) UAR() (number uint32, far bool) { return p.uar, p.uar > 1<<16-1 }

// Out is the memory for the driver's response.
func (p *CQPlan) Out() []byte { return bytesOf(&p.resp) }

// Entries is how many completions the kernel is to be asked for.
func (p *CQPlan) Entries() uint32 { return p.entries - 1 }

// Drop frees the memory: the kernel made no queue.
func (p *CQPlan) Drop() error { return p.free() }

// Attach makes the queue; granted is how many completions the kernel says. On an error the
// plan stays: destroy the kernel's queue, then Drop.
func (p *CQPlan) Attach(granted uint32) (*CQ, error) {
	if granted != p.entries-1 {
		return nil, fmt.Errorf("%w: %d completions for a queue of %d", provider.ErrCorrupt, granted, p.entries)
	}
	q := &CQ{queueMem: p.queueMem, register: p.arm, num: p.resp.Cqn & lowQPN}
	q.sender.init(p.ctx.byUIdx)
	q.use(p.mem, p.entries)
	return q, nil
}

// cqRing is a ring of completion entries.
type cqRing struct {
	base addr
	mask uint32
	log  uint32 // of the number of entries
}

func (r *cqRing) entry(i uint32) addr { return r.base.add(uintptr(i&r.mask) * cqeSize) }

// round is the owner bit of an entry that the device has written at position i.
func (r *cqRing) round(i uint32) uint8 { return uint8(i >> (r.log & 31) & 1) }

// tailOf is what the last bytes of an entry say.
func tailOf(e addr) tail { return tail(swapped(mmio.LoadAcquire32(e.word32(offCounter)))) }

// written tells whether the device has written the entry at position i.
func (r *cqRing) written(i uint32, t tail) bool {
	return t.owner() == r.round(i) && t.kind() != cqeInvalid
}

// CQ is the consumer's side of a completion queue. The caller serialises, except Event.
type CQ struct {
	queueMem
	register addr // where it is armed
	num      uint32
	events   atomic.Uint32

	ring   cqRing
	next   uint32  // free-running position of the next entry
	round  uint8   // its owner bit when the device has written it
	off    uintptr // where it is in the ring
	sender sender
	owed   *credit // of the queue whose receives the last completions were

	cur    addr // the entry that Advance moved to
	id     uint64
	qpn    uint32
	status provider.WCStatus
	kind   uint8
	done   provider.WCOpcode // of a request
}

// use takes a ring of n entries.
func (q *CQ) use(mem []byte, n uint32) {
	q.mem, q.ring = mem, cqRing{addrOf(mem), n - 1, uint32(bits.TrailingZeros32(n))}
	q.seek(q.next)
}

// Num is the queue's number on the device.
func (q *CQ) Num() uint32 { return q.num }

// Next decodes the oldest completion into wc; false if there is none. The entry stays with
// this side until Release.
func (q *CQ) Next(wc *provider.WC) (bool, error) {
	ok, err := q.Advance()
	if ok {
		q.Decode(wc)
	}
	return ok, err
}

// Advance moves to the oldest completion; false if there is none. ID, Status and Decode read
// it, until Release. An entry that is no completion stays where it is: from there on there is
// nothing to be had.
func (q *CQ) Advance() (bool, error) {
	e := q.head()
	t := tailOf(e)
	if t.owner() != q.round || t.kind() == cqeInvalid {
		return false, nil
	}
	// The device has written the entry before its owner bit. One fence for a batch would not
	// do where there is one at all: each entry has a bit of its own.
	mmio.OrderReads()
	if t.format() != 0 {
		return false, provider.ErrCorrupt
	}
	qpn := e.get32(offQP) & lowQPN
	qp := q.find(e, qpn)
	if qp == nil {
		return false, provider.ErrCorrupt
	}
	ok := false
	switch kind := t.kind(); kind {
	case cqeRequester, cqeSendFailed:
		ok = q.takeSend(qp, e, kind)
	case cqeRecvWrite, cqeRecv, cqeRecvImm, cqeRecvInv, cqeRecvFailed:
		ok = q.takeRecv(qp, e, kind)
	}
	if !ok {
		return false, provider.ErrCorrupt
	}
	q.cur, q.qpn = e, qpn
	q.seek(q.next + 1)
	return true, nil
}

// find returns the queue pair of an entry, nil if there is none.
func (q *CQ) find(e addr, qpn uint32) *QP {
	if !q.ctx.byUIdx {
		return q.ctx.qps.get(qpn)
	}
	qp := q.ctx.qps.get(e.get32(offIndex) & lowQPN)
	if qp == nil || qp.num != qpn {
		return nil
	}
	return qp
}

// takeSend looks the completed request up and notes that it is, with those before it.
func (q *CQ) takeSend(qp *QP, e addr, kind uint32) bool {
	if qp.sendCQ.Load() != q {
		return false
	}
	s := &qp.sq
	at := e.get16(offCounter)
	posted := s.posted()
	slot := &s.slots[uint32(at)&s.mask]
	note := slot.note
	if !s.isOpen(at, posted, note) {
		return false
	}
	result := provider.WCSuccess
	if kind == cqeSendFailed {
		result = status(e.get8(offSyndrome))
	} else if e.get8(offQP) != note.code() {
		return false
	}
	q.sender.is(qp)
	q.id, q.done, q.kind, q.status = slot.id, note.done(), uint8(kind), result
	s.finish(at, note)
	return true
}

// takeRecv does it for a receive.
func (q *CQ) takeRecv(qp *QP, e addr, kind uint32) (ok bool) {
	if qp.recvCQ.Load() != q {
		return false
	}
	at := e.get16(offCounter)
	if qp.srq != nil {
		if q.id, ok = qp.srq.finish(at); !ok {
			return false
		}
	} else {
		if q.id, ok = qp.rq.finish(at); !ok {
			return false
		}
		q.owe(&qp.rq.credit)
	}
	q.kind, q.status = uint8(kind), provider.WCSuccess
	if kind == cqeRecvFailed {
		q.status = status(e.get8(offSyndrome))
	}
	return true
}

// owe remembers whose receives have completed. The poster is told in Release, or when another
// queue's complete; that of requests likewise, see sender.
func (q *CQ) owe(c *credit) {
	if q.owed != c {
		q.settle()
		q.owed = c
	}
}

func (q *CQ) settle() {
	q.sender.settle()
	if q.owed != nil {
		q.owed.show()
		q.owed = nil
	}
}

// ID is the work request's number.
func (q *CQ) ID() uint64 { return q.id }

// Status says how the work request ended.
func (q *CQ) Status() provider.WCStatus { return q.status }

// Decode reads all of the completion.
func (q *CQ) Decode(wc *provider.WC) {
	*wc = provider.WC{}
	wc.ID, wc.Status, wc.QPNum = q.id, q.status, q.qpn
	switch kind := uint32(q.kind); kind {
	case cqeRequester:
		wc.Opcode = q.done
		decodeSend(wc, q.cur, q.cur.get8(offQP))
	case cqeSendFailed:
		wc.Opcode, wc.VendorErr = q.done, uint32(q.cur.get8(offVendor))
	case cqeRecvFailed:
		wc.Opcode, wc.VendorErr = provider.WCRecv, uint32(q.cur.get8(offVendor))
	default:
		decodeReceive(wc, q.cur, kind)
	}
}

// Release gives the entries of all completions that Advance moved to back to the device, and
// the room of their requests to those who post.
func (q *CQ) Release() {
	q.settle()
	q.giveBack()
}

// giveBack is the part of Release for the device.
func (q *CQ) giveBack() { mmio.StoreRecord(q.rec.word32(recvCount), swapped(q.next&counter)) }

// How a completion queue is armed, in its word of the record.
const (
	armSolicited = 1 << 24
	armShift     = 28
	armMask      = 3
)

// Arm asks for an event at the next completion, or with solicitedOnly at the next one that
// the peer asked for or that failed. The device compares positions: for a completion that
// was not released yet the event comes at once.
func (q *CQ) Arm(solicitedOnly bool) {
	word := q.events.Load()&armMask<<armShift | q.next&counter
	if solicitedOnly {
		word |= armSolicited
	}
	mmio.Doorbell(q.rec.word32(sendCount), swapped(word), q.register.word64(0), swapped64(uint64(word)<<32|uint64(q.num)))
}

// Event notes that an event came, which must be known to arm again.
func (q *CQ) Event() { q.events.Add(1) }

// Close frees the memory. The kernel's queue is destroyed before.
func (q *CQ) Close() error { return q.free() }
