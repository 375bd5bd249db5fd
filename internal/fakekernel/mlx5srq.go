//go:build linux

package fakekernel

import (
	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
)

// newSRQ: mlx5_ib_create_srq. A limit that comes with the request is forgotten.
func (mlx5Driver) newSRQ(f *verbsFile, s *srq, u *udata) error {
	if s.maxWR >= mlx5MaxSRQWR || s.maxSGE > mlx5MaxRecvSGE {
		return unix.EINVAL
	}
	req, err := f.loadSRQ(u.in)
	if err != nil {
		return err
	}
	r := &mlx5SRQ{
		s: s, base: req.BufAddr, record: req.DbAddr, count: roundUp(s.maxWR + 1),
		stride: max(32, roundUp(segment+segment*s.maxSGE)),
	}
	if r.pin, err = f.pinRing(r.base, uint64(r.count)*uint64(r.stride), false); err != nil {
		return err
	}
	if !f.offsetFits(r.base) {
		err = unix.EINVAL
	} else {
		err = f.mlx.pinRecord(r.record)
	}
	if err != nil {
		f.unpin(r.pin)
		return err
	}
	f.dev.hw.lastSRQ++
	r.num = f.dev.hw.lastSRQ
	s.rq, s.maxWR, s.depth, s.limit = r, r.count-1, r.count-1, 0
	u.respond(f.dev, bytesOf(&abi.Mlx5IbCreateSrqResp{Srqn: r.num}))
	return nil
}

// loadSRQ: create_srq_user. Older kernels copied what there was, and failed where there was
// nothing.
func (f *verbsFile) loadSRQ(in []byte) (abi.Mlx5IbCreateSrq, error) {
	const least = 20 // up to the flags
	req := load[abi.Mlx5IbCreateSrq](in)
	robust := f.dev.robust()
	switch {
	case robust && len(in) < least:
		return req, unix.EINVAL
	case len(in) == 0:
		return req, unix.EFAULT
	case robust && zeroTail(in, len(bytesOf(&req))) != nil:
		return req, unix.EOPNOTSUPP
	case req.Reserved0 != 0 || req.Reserved1 != 0, zeroTail(in, len(bytesOf(&req))) != nil:
		return req, unix.EINVAL
	}
	return req, nil
}

// modifySRQ: mlx5_ib_modify_srq. The size stays.
func (mlx5Driver) modifySRQ(_ *verbsFile, s *srq, c *abi.IbUverbsModifySrq, _ *udata) error {
	switch {
	case c.AttrMask&srqMaxWR != 0:
		return unix.EINVAL
	case c.AttrMask&srqLimit == 0:
		return nil
	case c.SrqLimit > s.depth:
		return unix.EINVAL
	}
	s.limit = c.SrqLimit
	s.rq.(*mlx5SRQ).checkLimit()
	return nil
}
