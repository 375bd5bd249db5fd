//go:build linux

package fakekernel

import (
	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/mmio"
)

// used is how many entries a ring holds.
func (r *ring) used() uint32 {
	return mmio.Used(mmio.LoadAcquire32(r.producer), mmio.LoadAcquire32(r.consumer), r.mask)
}

// moveTo moves the entries into an empty ring: sw/rxe/rxe_queue.c, resize_finish. The old
// ring looks empty then. Which index of the new one is the kernel's, the caller knows.
func (r *ring) moveTo(to *ring) error {
	n, from := r.used(), mmio.LoadAcquire32(r.consumer)
	if n > to.slots() {
		return unix.EINVAL
	}
	for i := range n {
		copy(to.slot(i), r.slot(from+i))
	}
	mmio.StoreRelease32(to.producer, n)
	mmio.StoreRelease32(r.consumer, mmio.LoadAcquire32(r.producer))
	return nil
}

// resizeCQ gives the user a new queue, which holds what was in the old one.
func (f *verbsFile) resizeCQ(in, resp []byte, u *udata) (int, error) {
	c := load[abi.IbUverbsResizeCq](in)
	q, err := lookup[*cq](f, c.CqHandle)
	if err != nil {
		return 0, err
	}
	entries, err := f.dev.drv.resizeCQ(f, q, c.Cqe, u)
	if err != nil {
		return 0, err
	}
	return copy(resp, bytesOf(&abi.IbUverbsResizeCqResp{Cqe: entries})), nil
}

func (rxeDriver) resizeCQ(f *verbsFile, q *cq, cqe uint32, u *udata) (uint32, error) {
	ring := q.ring.(*compRing)
	if u.room < len(bytesOf(&abi.RxeResizeCqResp{})) || cqe == 0 || cqe > maxCQE || cqe < ring.used() {
		return 0, unix.EINVAL
	}
	r, err := f.newRing(cqe, len(bytesOf(&abi.IbUverbsWc{})))
	if err != nil {
		return 0, err
	}
	r.own = ring.used()
	if err := ring.moveTo(&r); err != nil {
		r.end(f)
		return 0, err
	}
	ring.ring.end(f)
	ring.ring = r
	u.answer(bytesOf(&abi.RxeResizeCqResp{Mi: r.info()}))
	return r.slots(), nil
}
