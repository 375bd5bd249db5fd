//go:build linux

package fakekernel

import (
	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
)

const (
	maxSRQSGE = 27
	firstSRQN = 0x2_0001
)

// sharedRing is the shared receive queue of rxe: it raises the event of the limit.
type sharedRing struct {
	recvRing
	s *srq
}

// consume: sw/rxe/rxe_resp.c, get_srq_wqe.
func (r *sharedRing) consume() {
	r.recvRing.consume()
	if r.s.limit > 0 && r.used() < r.s.limit {
		r.s.limit = 0 // the user sets it again if he wants another event
		r.s.raise(asyncSRQLimit)
	}
}

func (rxeDriver) newSRQ(f *verbsFile, s *srq, u *udata) error {
	if u.room < len(bytesOf(&abi.RxeCreateSrqResp{})) || s.maxWR == 0 || s.maxWR > f.dev.limits().srqWR || s.maxSGE > maxSRQSGE {
		return unix.EINVAL
	}
	s.maxSGE = max(s.maxSGE, 1)
	r, err := f.newRing(s.maxWR, s.slotSize())
	if err != nil {
		return err
	}
	if s.depth = r.slots(); f.k.version >= v603 {
		s.maxWR = s.depth
	}
	s.rq = &sharedRing{recvRing{r}, s}
	f.dev.lastSRQN = max(f.dev.lastSRQN+1, firstSRQN)
	u.answer(bytesOf(&abi.RxeCreateSrqResp{Mi: r.info(), SrqNum: f.dev.lastSRQN}))
	return nil
}

func (s *srq) slotSize() int { return recvHead + int(s.maxSGE)*sgeSize }

// modifySRQ wants its own input even if there is nothing in it to use.
func (rxeDriver) modifySRQ(f *verbsFile, s *srq, c *abi.IbUverbsModifySrq, u *udata) error {
	if len(u.in) < len(bytesOf(&abi.RxeModifySrqCmd{})) {
		return unix.EINVAL
	}
	limit := f.dev.limits().srqWR
	switch {
	case c.AttrMask&srqMaxWR != 0 && (c.MaxWr == 0 || c.MaxWr > limit || c.MaxWr < s.limit),
		c.AttrMask&srqLimit != 0 && (c.SrqLimit > limit || c.SrqLimit > s.depth):
		return unix.EINVAL
	}
	if c.AttrMask&srqMaxWR != 0 {
		if err := f.resizeSRQ(s, c.MaxWr, load[abi.RxeModifySrqCmd](u.in).MmapInfoAddr); err != nil {
			return err
		}
	}
	if c.AttrMask&srqLimit != 0 {
		s.limit = c.SrqLimit
	}
	return nil
}

// resizeSRQ answers where the user says that he wants the answer, not where answers are.
func (f *verbsFile) resizeSRQ(s *srq, maxWR uint32, answer uint64) error {
	old := s.rq.(*sharedRing)
	r, err := f.newRing(maxWR, s.slotSize())
	if err != nil {
		return err
	}
	mi := r.info()
	if err = f.mem.out(answer, bytesOf(&mi)); err == nil {
		err = old.moveTo(&r)
	}
	if err != nil {
		r.end(f)
		return err
	}
	old.ring.end(f)
	old.ring, s.depth = r, r.slots()
	return nil
}
