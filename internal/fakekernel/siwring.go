//go:build linux

package fakekernel

import (
	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/mmio"
)

var (
	siwSQESize  = len(bytesOf(&abi.SiwSqe{}))
	siwRQESize  = len(bytesOf(&abi.SiwRqe{}))
	siwCQESize  = len(bytesOf(&abi.SiwCqe{}))
	siwCtrlSize = len(bytesOf(&abi.SiwCqCtrl{}))
)

const siwHead = 8 // offset of the word with the flags, in slots of all three kinds

// siwRing is one queue: slots that belong to the side that the flags in them say. Both sides
// count for themselves.
type siwRing struct {
	*mapping
	n    uint32 // slots, a power of two
	size int    // of a slot
	at   uint32 // free-running: the slot that the kernel is at
}

// newSiwRing makes a queue with tail bytes behind it.
func (f *verbsFile) newSiwRing(n uint32, size, tail int) (r siwRing, err error) {
	r.n, r.size = n, size
	bytes := uint64(n)*uint64(size) + uint64(tail)
	r.mapping = &mapping{exact: true}
	if err := r.alloc(int((bytes + pageSize - 1) / pageSize * pageSize)); err != nil {
		return r, err
	}
	r.offset = f.lowestKey(uint64(len(r.mem)))
	f.unmapped[r.offset] = r.mapping
	if f.k.opts.Spoil != nil {
		f.k.opts.Spoil(r.mem)
	}
	return r, nil
}

// lowestKey finds the first gap in what the file has to map, from 0: every context begins
// anew. core/ib_core_uverbs.c, rdma_user_mmap_entry_insert_range.
func (f *verbsFile) lowestKey(size uint64) (key uint64) {
	for again := true; again; {
		again = false
		avoid := func(m *mapping) {
			if end := m.offset + uint64(len(m.mem)); key < end && m.offset < key+size {
				key, again = end, true
			}
		}
		f.siwMappings(avoid)
	}
	return key
}

// siwMappings calls fn with every queue that there is to map, mapped or not.
func (f *verbsFile) siwMappings(fn func(*mapping)) {
	for _, m := range f.unmapped { // those of an object in the making, too
		fn(m)
	}
	for _, o := range f.objects {
		switch o := o.(type) {
		case *cq:
			fn(o.ring.(*siwCQ).mapping)
		case *srq:
			fn(o.rq.(*siwRQ).mapping)
		case *qp:
			fn(o.siw().mapping)
			if own := o.siw().own; own.slots() > 0 {
				fn(own.mapping)
			}
		}
	}
}

// slot is the memory of the slot where the kernel is.
func (r *siwRing) slot() []byte {
	off := int(r.at%r.n) * r.size
	return r.mem[off : off+r.size : off+r.size]
}

// flags are those of a work request, as the user wrote them last.
func siwFlags(slot []byte) uint16 {
	word := mmio.LoadAcquire32(view[uint32](slot[siwHead:]))
	return *view[uint16](bytesOf(&word))
}

// free gives the slot back to the user, and moves on.
func (r *siwRing) free() {
	head := view[uint32](r.slot()[siwHead:])
	word := mmio.LoadAcquire32(head)
	*view[uint16](bytesOf(&word)) = 0
	mmio.StoreRelease32(head, word)
	r.at++
}

// siwRQ is a receive queue, shared or not.
type siwRQ struct {
	siwRing      // no slots: it is not there
	shared  *srq // nil: it is a queue pair's own
	armed   bool // the limit has not been reached yet
}

func (f *verbsFile) newSiwRQ(n uint32) (*siwRQ, error) {
	if n == 0 {
		return &siwRQ{}, nil
	}
	r, err := f.newSiwRing(n, siwRQESize, 0)
	return &siwRQ{siwRing: r}, err
}

func (r *siwRQ) key() uint64 {
	if r.n == 0 {
		return 0
	}
	return r.offset
}

// slots is how many requests the queue holds; a pair that shares one has none.
func (r *siwRQ) slots() uint32 {
	if r == nil {
		return 0
	}
	return r.n
}

func (r *siwRQ) end(f *verbsFile) {
	if r.n > 0 {
		r.mapping.end(f)
	}
}

// peek and consume: the core has nothing to do with the queue.
func (r *siwRQ) peek(*recvWork) bool { return false }
func (r *siwRQ) consume()            {}

// take takes the oldest receive request: the slot is the user's again. False if there is
// none. sw/siw/siw_qp_rx.c, siw_rqe_get.
func (r *siwRQ) take(w *recvWork) bool {
	if r.n == 0 || siwFlags(r.slot()) != abi.SIW_WQE_VALID {
		return false
	}
	e := *view[abi.SiwRqe](r.slot())
	if e.NumSge > siwMaxSGE {
		return false
	}
	w.id = e.Id
	w.loadSiw(e.NumSge, &e.Sge)
	r.free()
	r.checkLimit()
	return true
}

// checkLimit looks at the slot that will be the last when the limit is reached. The request
// that was just taken still counts.
func (r *siwRQ) checkLimit() {
	if !r.armed {
		return
	}
	ahead := siwRing{mapping: r.mapping, n: r.n, size: r.size, at: r.at - 1 + r.shared.limit}
	if siwFlags(ahead.slot())&abi.SIW_WQE_VALID == 0 {
		r.armed = false
		r.shared.raise(asyncSRQLimit)
	}
}

// loadSiw copies a scatter/gather list. Of the pieces without a byte siw knows nothing but
// that they are there.
func (p *pieces) loadSiw(num uint8, list *[siwMaxSGE]abi.SiwSge) {
	p.num = 0
	for _, e := range list[:min(num, siwMaxSGE)] {
		if e.Length > 0 {
			p.list[p.num] = abi.RxeSge{Addr: e.Laddr, Length: e.Length, Lkey: e.Lkey}
			p.num++
		}
	}
}

// siwCQ is a completion queue. In a completion stand siw's own numbers for operation and
// status, not those of ib_uverbs.
type siwCQ struct{ siwRing }

// post adds a completion: sw/siw/siw_qp.c, siw_sqe_complete and siw_rqe_complete.
func (c *siwCQ) post(wc *abi.IbUverbsWc) bool {
	slot := c.slot()
	head := view[uint32](slot[siwHead:])
	if word := mmio.LoadAcquire32(head); bytesOf(&word)[0] != 0 {
		return false
	}
	e := abi.SiwCqe{Id: wc.WrId, Flags: abi.SIW_WQE_VALID, Opcode: uint8(wc.Opcode), Status: uint16(wc.Status), Bytes: wc.ByteLen}
	*e.QpId() = uint64(wc.QpNum)
	raw := bytesOf(&e)
	copy(slot[:siwHead], raw)
	copy(slot[siwHead+4:], raw[siwHead+4:])
	mmio.StoreRelease32(head, *view[uint32](raw[siwHead:]))
	c.at++
	return true
}

// arm is the command, which siw does not have.
func (c *siwCQ) arm(bool) error { return nil }

// fires: the user arms in the memory behind the queue, and whoever makes the event disarms.
// The completion was stored before this looks, as the user looks for completions after
// arming.
func (c *siwCQ) fires(solicited bool) bool {
	ctrl := view[abi.SiwCqCtrl](c.mem[int(c.n)*c.size:])
	wish := mmio.LoadAcquire32(&ctrl.Flags)
	if wish&abi.SIW_NOTIFY_NEXT_COMPLETION != 0 || wish&abi.SIW_NOTIFY_SOLICITED != 0 && solicited {
		mmio.StoreRelease32(&ctrl.Flags, abi.SIW_NOTIFY_NOT)
		return true
	}
	return false
}
