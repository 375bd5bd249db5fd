package mlx5

import (
	"github.com/pureverbs/rdma/internal/provider"
	"github.com/pureverbs/rdma/mmio"
)

// endKey as key of a piece says that there are no more.
const endKey = 0x100

// putPieces writes the pieces that hold something, and after them, if there may be more, one
// that says that there are none. One of no bytes would count as 2 GiB.
func putPieces(seg addr, sgl []provider.SGE, most uint32) {
	n := uint32(0)
	for i := range sgl {
		if s := &sgl[i]; s.Length > 0 {
			seg.put64(0, uint64(s.Length)<<32|uint64(s.LKey))
			seg.put64(8, s.Addr)
			seg = seg.add(pieceSize)
			n++
		}
	}
	if n < most {
		seg.put64(0, endKey)
		seg.put64(8, 0)
	}
}

// recvQueue is a ring of slots of equal size.
type recvQueue struct {
	window
	ring   addr
	mask   uint32
	shift  uint32
	pieces uint32
	ids    []uint64 // by slot
	record *uint32
	credit credit
}

func (r *recvQueue) attach(ring addr, size *recvSize, own, record addr) {
	r.ring, r.mask, r.shift, r.pieces, r.limit = ring, size.slots-1, size.shift, size.pieces, size.slots
	r.ids = slotsOf[uint64](own, size.slots)
	r.record = record.word32(recvCount)
}

func (r *recvQueue) put(wr *provider.RecvWR) error {
	if r.full(&r.credit) {
		return provider.ErrFull
	}
	i := r.head & r.mask
	putPieces(r.ring.add(uintptr(i)<<r.shift), wr.SGL, r.pieces)
	r.ids[i] = wr.ID
	r.head++
	return nil
}

// finish returns the number of the receive that the device says has completed. It must be the
// oldest that is open: the device takes them in order.
func (r *recvQueue) finish(at uint16) (id uint64, ok bool) {
	c := &r.credit
	posted := uint16(swapped(mmio.LoadAcquire32(r.record)))
	i := uint32(at) & r.mask
	if uint16(c.done) == posted || r.limit == 0 || i != c.done&r.mask {
		return 0, false
	}
	c.done++
	return r.ids[i], true
}

func (r *recvQueue) reset() {
	r.head, r.seen = 0, 0
	r.credit.reset()
}
