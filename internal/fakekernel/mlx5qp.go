//go:build linux

package fakekernel

import (
	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
)

// mlx5QP is what mlx5 keeps of a queue pair, whose send queue it is (mlx5sq.go). Both
// queues are one buffer of the user, receives first.
type mlx5QP struct {
	q        *qp
	index    uint32 // the user's own number for it
	uar      *mlx5UAR
	register int    // that the kernel chose; -1: the user named the page
	record   uint64 // of both queues: what is posted to each, receives first
	buffer   mlx5Pin
	rq       mlx5RQ
	mlx5SQ
}

// mlx5 returns mlx5's part of a queue pair of mlx5, nil for another.
func (q *qp) mlx5() *mlx5QP {
	s, _ := q.sq.(*mlx5QP)
	return s
}

// The flags of a queue pair that this device knows, and those that it drops because it
// cannot write data into completions.
const (
	mlx5QPFlags = abi.MLX5_QP_FLAG_SIGNATURE | abi.MLX5_QP_FLAG_BFREG_INDEX | abi.MLX5_QP_FLAG_UAR_PAGE_INDEX
	mlx5Scatter = abi.MLX5_QP_FLAG_SCATTER_CQE | abi.MLX5_QP_FLAG_ALLOW_SCATTER_CQE
)

// newQP: mlx5_ib_create_qp, create_user_qp.
func (mlx5Driver) newQP(f *verbsFile, q *qp, u *udata) error {
	switch q.typ {
	case abi.IB_UVERBS_QPT_RC, abi.IB_UVERBS_QPT_UC, abi.IB_UVERBS_QPT_UD:
	default:
		return unix.EOPNOTSUPP
	}
	req, err := f.loadQP(u.in)
	if err != nil {
		return err
	}
	hasRQ := q.srq == nil && q.cap.MaxRecvWr > 0
	if err := q.checkSizes(&req, hasRQ); err != nil {
		return err
	}
	s := &mlx5QP{q: q, index: req.Uidx, register: -1, record: req.DbAddr}
	if err := s.findUAR(f.mlx, &req); err != nil {
		return err
	}
	if err := s.layOut(f, &req); err != nil {
		return err
	}
	if err := f.mlx.pinRecord(s.record); err != nil {
		f.unpin(s.buffer)
		return err
	}
	s.attach(f, hasRQ)
	answer := abi.Mlx5IbCreateQpResp{BfregIndex: noRegister}
	if s.register >= 0 {
		answer.BfregIndex = told(uint32(s.register))
	}
	u.respond(f.dev, bytesOf(&answer))
	return nil
}

// noRegister is the answer to who named the page of registers himself.
const noRegister = 1 << 31

// attach makes the queues known.
func (s *mlx5QP) attach(f *verbsFile, hasRQ bool) {
	q := s.q
	s.uar.qps = append(s.uar.qps, s)
	if s.register >= 0 {
		f.mlx.users[s.register]++
	}
	switch {
	case q.srq != nil:
		q.rq = q.srq.rq
	default:
		q.rq = &s.rq
	}
	if !hasRQ {
		q.cap.MaxRecvWr, q.cap.MaxRecvSge = 0, 0
	}
	q.sq = s
}

// loadQP reads the user's part and checks what can be checked of it alone.
func (f *verbsFile) loadQP(in []byte) (req abi.Mlx5IbCreateQp, err error) {
	const least, used = 48, 54 // up to the ECE options, up to the reserved tail
	req = load[abi.Mlx5IbCreateQp](in)
	switch {
	case len(in) < least, zeroTail(in, used) != nil:
		return req, unix.EINVAL
	case req.Flags&^(mlx5QPFlags|mlx5Scatter) != 0:
		return req, unix.EINVAL
	case f.mlx.version == 0 && req.Uidx != noUserIndex, req.Uidx > noUserIndex, f.mlx.version == 1 && req.Uidx == noUserIndex:
		return req, unix.EINVAL
	}
	return req, nil
}

// checkSizes: set_rq_size and set_user_buf_size. What only the firmware would refuse, a
// receive queue that is no power of two, is refused here.
func (q *qp) checkSizes(req *abi.Mlx5IbCreateQp, hasRQ bool) error {
	signature := req.Flags & abi.MLX5_QP_FLAG_SIGNATURE
	count, shift := req.RqWqeCount, req.RqWqeShift
	switch {
	case q.cap.MaxRecvWr > mlx5MaxWR,
		!hasRQ && (count != 0 || shift != 0),
		hasRQ && (shift > 30 || 1<<shift/16 < max(signature, 1)),
		hasRQ && (count == 0 || uint64(count)<<shift > 1<<31),
		req.SqWqeCount > mlx5MaxWR,
		req.Flags&abi.MLX5_QP_FLAG_UAR_PAGE_INDEX != 0 && req.Flags&abi.MLX5_QP_FLAG_BFREG_INDEX != 0,
		!isPowerOfTwo(req.SqWqeCount) || !isPowerOfTwo(count):
		return unix.EINVAL
	}
	return nil
}

// isPowerOfTwo admits 0.
func isPowerOfTwo(n uint32) bool { return n&(n-1) == 0 }

// findUAR finds the registers: named by the user, or chosen by the kernel.
func (s *mlx5QP) findUAR(c *mlx5Context, req *abi.Mlx5IbCreateQp) error {
	perPage := 2 * c.f.dev.hw.uarsPerPage()
	switch {
	case req.Flags&abi.MLX5_QP_FLAG_UAR_PAGE_INDEX != 0:
		s.uar = c.uar(req.BfregIndex)
	case c.dynamic:
		return unix.EINVAL
	case req.Flags&abi.MLX5_QP_FLAG_BFREG_INDEX != 0:
		s.uar = c.late[req.BfregIndex/perPage]
	default:
		s.register = int(c.chooseRegister())
		s.uar = c.static[uint32(s.register)*uint32(len(c.static))/c.total]
	}
	return unless(s.uar != nil)
}

// layOut pins the buffer and places the queues in it.
func (s *mlx5QP) layOut(f *verbsFile, req *abi.Mlx5IbCreateQp) (err error) {
	s.rq = mlx5RQ{q: s.q, base: req.BufAddr, count: req.RqWqeCount, shift: req.RqWqeShift, record: s.record}
	if req.Flags&abi.MLX5_QP_FLAG_SIGNATURE != 0 {
		s.rq.skip = segment
	}
	s.sqBase, s.sqCount = req.BufAddr+uint64(req.RqWqeCount)<<req.RqWqeShift, req.SqWqeCount
	size := s.sqBase - req.BufAddr + uint64(req.SqWqeCount)*block
	if size == 0 {
		return nil
	}
	if req.BufAddr == 0 && !f.dev.robust() {
		return unix.EINVAL // the firmware's word
	}
	if s.buffer, err = f.pinRing(req.BufAddr, size, false); err != nil {
		return err
	}
	if !f.offsetFits(req.BufAddr) {
		f.unpin(s.buffer)
		return unix.EINVAL
	}
	return nil
}

// end: mlx5_ib_destroy_qp.
func (s *mlx5QP) end(f *verbsFile) {
	s.uar.qps = without(s.uar.qps, s)
	if s.register >= 0 {
		f.mlx.users[s.register]--
	}
	f.unpin(s.buffer)
	f.mlx.unpinRecord(s.record)
}

// describe: mlx5_ib_query_qp. The sizes of a send queue are the user's business.
func (s *mlx5QP) describe(r *abi.IbUverbsQueryQpResp) {
	r.MaxSendWr, r.MaxSendSge, r.MaxInlineData = 0, 0, 0
	r.MaxRecvWr, r.MaxRecvSge = s.rq.count, 0
	if s.rq.count > 0 {
		r.MaxRecvSge = uint32(1)<<s.rq.shift/segment - uint32(s.rq.skip)/segment
	}
	if r.MaxDestRdAtomic == 0 {
		r.QpAccessFlags &^= abi.IB_UVERBS_ACCESS_REMOTE_READ | abi.IB_UVERBS_ACCESS_REMOTE_ATOMIC
	}
	r.QpAccessFlags &= remoteAccess
	r.MaxRdAtomic, r.MaxDestRdAtomic = max(r.MaxRdAtomic, 1), max(r.MaxDestRdAtomic, 1)
	if s.q.typ == abi.IB_UVERBS_QPT_UD {
		r.Dest, r.PathMtu = abi.IbUverbsQpDest{}, maxMTU
	}
}

// without removes one element, the order of the others kept.
func without[T comparable](list []T, x T) []T {
	for i := range list {
		if list[i] == x {
			return append(list[:i], list[i+1:]...)
		}
	}
	return list
}
