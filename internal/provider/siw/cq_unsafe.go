package siw

import (
	"fmt"
	"unsafe"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
	"github.com/pureverbs/rdma/mmio"
)

// dead as number of the queue pair marks a completion whose queue pair is gone. The kernel
// never reads the number of a mapped queue's completions, and its own have 32 bits. Status
// and opcode must not be made up: it looks them up in tables when the queue is destroyed.
const dead = 1 << 63

// CQPlan is the driver's part of creating a completion queue.
type CQPlan struct{ resp abi.SiwUrespCreateCq }

// Out is the memory for the driver's response.
func (p *CQPlan) Out() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&p.resp)), unsafe.Sizeof(p.resp))
}

// Attach maps the queue that the kernel made.
func (p *CQPlan) Attach(m provider.Mapper) (*CQ, error) {
	r, err := attach(m, p.resp.CqKey, p.resp.NumCqe, unsafe.Sizeof(abi.SiwCqe{}), unsafe.Sizeof(abi.SiwCqCtrl{}))
	if err != nil {
		return nil, err
	}
	ctrl := (*abi.SiwCqCtrl)(unsafe.Add(r.slots, uintptr(p.resp.NumCqe)*r.size))
	return &CQ{ring: *r, notify: &ctrl.Flags}, nil
}

// CQ is the consumer's side of a completion queue. The caller serialises.
type CQ struct {
	ring
	notify *uint32
	cur    *abi.SiwCqe // what Advance moved to
	word   uint32      // of it, the one with the flags
}

// Empty tells whether there is nothing for Poll to look at. It is small enough to be inlined: a
// program that polls mostly finds nothing.
func (q *CQ) Empty() bool {
	flags, _, _ := splitDone(bigEndian, mmio.LoadAcquire32(q.head(q.own)))
	return flags == 0 && q.own == q.given
}

// Poll decodes the oldest completions, up to len(wcs), into wcs, gives their slots back to the
// kernel and returns how many, and whether one of them is no success.
//
// It is one loop with everything in it that most completions need: calls cost more than the
// rest.
func (q *CQ) Poll(wcs []provider.WC) (n int, failed bool, err error) {
	if q.given != q.own {
		q.Release()
	}
	own, mask, status, odd := q.own, q.mask, provider.WCSuccess, uint8(0)
	for end := own + mask + 1; n < len(wcs) && own != end; { // once round, see Advance
		e := (*abi.SiwCqe)(unsafe.Add(q.slots, uintptr(own&mask)*unsafe.Sizeof(abi.SiwCqe{})))
		head := (*uint32)(unsafe.Add(unsafe.Pointer(e), offHead))
		word := mmio.LoadAcquire32(head)
		flags, op, raw := splitDone(bigEndian, word)
		if flags&valid == 0 {
			odd = flags
			break
		}
		own++
		if *e.QpId() != dead {
			wc := &wcs[n]
			load(wc, e, op)
			if flags != valid || raw != abi.SIW_WC_SUCCESS || op == abi.SIW_OP_INVAL_STAG {
				decode(wc, e, word)
				status |= wc.Status
			}
			n++
		}
		mmio.Publish32(head, freeDone(bigEndian, word))
	}
	q.own, q.given = own, own
	return n, status != provider.WCSuccess, strange(odd)
}

// Advance moves to the oldest completion; false if there is none. ID, Status and Decode read
// it, until Release.
func (q *CQ) Advance() (bool, error) {
	for n := uint32(0); n <= q.mask && !q.spent(); n++ { // once round, whatever is done to the flags meanwhile
		word := mmio.LoadAcquire32(q.head(q.own))
		flags, _, _ := splitDone(bigEndian, word)
		if flags&valid == 0 {
			return false, strange(flags)
		}
		e := (*abi.SiwCqe)(q.slot(q.own))
		if q.own++; *e.QpId() != dead {
			q.cur, q.word = e, word
			return true, nil
		}
		if q.given == q.own-1 { // else Release does it, with those before
			q.Release()
		}
	}
	return false, nil
}

// strange says that a slot is neither free nor a completion: the kernel would wait for ever
// that it becomes free.
func strange(flags uint8) error {
	if flags == 0 {
		return nil
	}
	return fmt.Errorf("%w: completion with flags %#x", provider.ErrCorrupt, flags)
}

// ID is the work request's number.
func (q *CQ) ID() uint64 { return q.cur.Id }

// Status says how the work request ended.
func (q *CQ) Status() provider.WCStatus {
	_, _, raw := splitDone(bigEndian, q.word)
	s, _ := status(raw)
	return s
}

// Decode reads all of the completion.
func (q *CQ) Decode(wc *provider.WC) {
	_, op, _ := splitDone(bigEndian, q.word)
	load(wc, q.cur, op)
	decode(wc, q.cur, q.word)
}

// load reads what all completions have.
func load(wc *provider.WC, e *abi.SiwCqe, op uint8) {
	*wc = provider.WC{}
	wc.ID, wc.Opcode, wc.ByteLen, wc.QPNum = e.Id, opcode(op), e.Bytes, uint32(*e.QpId())
}

// decode reads what only some have.
func decode(wc *provider.WC, e *abi.SiwCqe, word uint32) {
	flags, op, raw := splitDone(bigEndian, word)
	wc.Status, wc.VendorErr = status(raw)
	if op == abi.SIW_OP_INVAL_STAG { // the kernel leaves an earlier request's length there
		wc.ByteLen = 0
	}
	if flags&abi.SIW_WQE_REM_INVAL != 0 {
		wc.Flags, wc.InvKey = provider.WCWithInv, *e.InvalStag()
	}
}

// Release gives the slots of all completions that Advance moved to, or past, back to the
// kernel.
func (q *CQ) Release() {
	for ; q.given != q.own; q.given++ {
		head := q.head(q.given)
		mmio.Publish32(head, freeDone(bigEndian, mmio.LoadAcquire32(head)))
	}
}

// Forget marks the completions of a queue pair that is gone: they are never returned, so
// that a new queue pair of the same number cannot be credited with them.
func (q *CQ) Forget(qpNum uint32) {
	for i := q.own; i-q.given <= q.mask; i++ {
		if flags, _, _ := splitDone(bigEndian, mmio.LoadAcquire32(q.head(i))); flags&valid == 0 {
			return
		}
		if e := (*abi.SiwCqe)(q.slot(i)); *e.QpId() == uint64(qpNum) {
			*e.QpId() = dead
		}
	}
}

// Arm asks for an event at the next completion. It orders the request before the poll that
// must follow, as the kernel orders a completion before its look at the request.
//
// Solicited events only cannot be had: the kernel forgets, when it completes a receive, that
// the sender asked for one, and the waiter would sleep for ever. An event too many does no
// harm.
func (q *CQ) Arm(_ bool) {
	mmio.StoreRelease32(q.notify, abi.SIW_NOTIFY_SOLICITED|abi.SIW_NOTIFY_NEXT_COMPLETION)
}

// Close unmaps the queue.
func (q *CQ) Close() error { return q.close() }
