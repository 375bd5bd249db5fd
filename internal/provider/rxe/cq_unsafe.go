package rxe

import (
	"unsafe"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
	"github.com/pureverbs/rdma/mmio"
)

// dead in the status of a completion marks one whose queue pair is gone. The kernel writes
// completions and never reads them, so the mark may stand in the shared slot.
const dead = 1 << 31

// CQPlan is the driver's part of creating a completion queue.
type CQPlan struct{ resp abi.RxeCreateCqResp }

// Out is the memory for the driver's response.
func (p *CQPlan) Out() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&p.resp)), unsafe.Sizeof(p.resp))
}

// Attach maps the queue that the kernel made, for a resized queue the new one.
func (p *CQPlan) Attach(m provider.Mapper) (*CQ, error) {
	r, err := attach(m, &p.resp.Mi, int(unsafe.Sizeof(abi.IbUverbsWc{})))
	if err != nil {
		return nil, err
	}
	r.resume(r.consumer)
	return &CQ{ring: r}, nil
}

func attach(m provider.Mapper, mi *abi.Mminfo, slotSize int) (*ring, error) {
	region, err := m(int64(mi.Offset), int(mi.Size))
	if err != nil {
		return nil, err
	}
	r, err := newRing(region, slotSize)
	if err != nil {
		region.Close()
	}
	return r, err
}

// CQ is the consumer's side of a completion queue. The caller serialises.
type CQ struct {
	ring *ring
	cur  *abi.IbUverbsWc // what Advance moved to
}

// Empty tells whether there is nothing for Poll to look at. It is small enough to be inlined: a
// program that polls mostly finds nothing.
func (q *CQ) Empty() bool { return mmio.LoadAcquire32(q.ring.producer) == q.ring.own }

// Poll decodes the oldest completions, up to len(wcs), into wcs, gives their slots back to the
// kernel and returns how many, and whether one of them is no success.
//
// It is one loop with everything in it that most completions need: calls cost more than the
// rest.
func (q *CQ) Poll(wcs []provider.WC) (_ int, failed bool, err error) {
	r := q.ring
	own, prod := r.own, mmio.LoadAcquire32(r.producer)
	slots, shift, mask := r.slots, r.shift&31, r.mask
	if prod > mask {
		return 0, false, provider.ErrCorrupt
	}
	n, status := uint(0), provider.WCSuccess
	for own != prod && n < uint(len(wcs)) {
		e := (*abi.IbUverbsWc)(unsafe.Add(slots, uintptr(own)<<shift))
		if e.QpNum == 0 { // see Advance
			err = provider.ErrCorrupt
			break
		}
		if own = mmio.Next(own, mask); e.Status == dead {
			continue
		}
		wc := &wcs[n]
		load(wc, e)
		status |= wc.Status
		if wc.Flags&^provider.WCGRH == 0 {
			wc.Imm, wc.InvKey = 0, 0
		} else {
			decode(wc)
		}
		n++
	}
	if own != r.own {
		r.own = own
		r.release()
	}
	return int(n), status != provider.WCSuccess, err
}

// Advance moves to the oldest completion; false if there is none. ID, Status and Decode read
// it, until Release.
func (q *CQ) Advance() (bool, error) {
	r := q.ring
	for n := uint32(0); n <= r.mask; n++ { // once round, whatever is done to the index meanwhile
		prod := mmio.LoadAcquire32(r.producer)
		if prod > r.mask {
			return false, provider.ErrCorrupt
		}
		at := r.own
		if prod == at {
			return false, nil
		}
		e := (*abi.IbUverbsWc)(r.slot(at))
		if e.QpNum == 0 { // is the kernel's own: these are zeros, as of a device that is gone
			return false, provider.ErrCorrupt
		}
		if r.own = mmio.Next(at, r.mask); e.Status != dead {
			q.cur = e
			return true, nil
		}
		if r.shown == at { // else Release does it, with those before
			r.release()
		}
	}
	return false, nil
}

// ID is the work request's number.
func (q *CQ) ID() uint64 { return q.cur.WrId }

// Status says how the work request ended.
func (q *CQ) Status() provider.WCStatus { return provider.WCStatus(q.cur.Status) }

// Decode reads all of the completion.
func (q *CQ) Decode(wc *provider.WC) {
	load(wc, q.cur)
	decode(wc)
}

// image is what a completion looks like in the ring, and the first bytes of provider.WC too:
// the fields are the same, up to what stands in ex.
type image struct {
	_ [unsafe.Sizeof(abi.IbUverbsWc{})]byte
}

var (
	_ [unsafe.Offsetof(provider.WC{}.PathBits) - unsafe.Offsetof(abi.IbUverbsWc{}.DlidPathBits)]byte
	_ [unsafe.Offsetof(abi.IbUverbsWc{}.DlidPathBits) - unsafe.Offsetof(provider.WC{}.PathBits)]byte
	_ [unsafe.Offsetof(provider.WC{}.InvKey) - unsafe.Sizeof(image{})]byte
)

func load(wc *provider.WC, e *abi.IbUverbsWc) {
	*(*image)(unsafe.Pointer(wc)) = *(*image)(unsafe.Pointer(e))
}

// decode translates the flags of what was loaded, and says what ex is, which stands where Imm
// belongs.
func decode(wc *provider.WC) {
	ex := wc.Imm
	wc.Flags, wc.Imm, wc.InvKey = flags(uint32(wc.Flags)), 0, 0
	switch {
	case wc.Flags&provider.WCWithImm != 0:
		wc.Imm = (*abi.BE32)(unsafe.Pointer(&ex)).Get()
	case wc.Flags&provider.WCWithInv != 0:
		wc.InvKey = ex
	}
}

// flags translates: the driver hands out the kernel's own bits (enum ib_wc_flags), in which
// "invalidated" and "checksum is right" have each other's place in verbs.
func flags(raw uint32) provider.WCFlags {
	const invalidated, checksum = 1 << 2, 1 << 3
	return provider.WCFlags(raw&^(invalidated|checksum) | raw&invalidated<<1 | raw&checksum>>1)
}

// Release gives the slots of all completions that Next returned back to the kernel.
func (q *CQ) Release() { q.ring.release() }

// Forget marks the completions of a queue pair that is gone: they are never returned, so
// that a new queue pair of the same number cannot be credited with them.
func (q *CQ) Forget(qpNum uint32) {
	r := q.ring
	end := mmio.LoadAcquire32(r.producer) & r.mask
	for i := r.own; i != end; i = mmio.Next(i, r.mask) {
		if e := (*abi.IbUverbsWc)(r.slot(i)); e.QpNum == qpNum {
			e.Status = dead
		}
	}
}

// Close unmaps the queue.
func (q *CQ) Close() error { return q.ring.close() }
