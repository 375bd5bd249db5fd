//go:build linux

package fakekernel

import (
	"math/bits"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
)

// siwDriver is sw/siw: iWARP over TCP. It differs from rxe in nearly everything: a queue
// pair is connected by the connection manager only (iwarp.go), its requests are done with
// when TCP has them, and every fault of one end ends the connection at both.
//
// siw carries its queues out itself. The core finds them empty, whenever it looks.
type siwDriver struct{ plain }

// Limits: sw/siw/siw.h.
const (
	siwMaxWR    = 32 << 10
	siwMaxSRQWR = 10 * siwMaxWR
	siwMaxCQE   = 100 * siwMaxWR
	siwMaxSGE   = abi.SIW_MAX_SGE
	siwMaxReads = 128 // RDMA READs in flight, for each side
)

func (siwDriver) link() link {
	return link{name: "siw", abi: abi.SIW_ABI_VERSION, nodeType: abi.RDMA_NODE_RNIC, protocol: "iw"}
}

func (siwDriver) newContext(_ *verbsFile, u *udata) error {
	var answer abi.SiwUrespAllocCtx
	u.answer(bytesOf(&answer))
	return needRoom(u, answer)
}

// needRoom: siw does not care for input that it does not know, but wants room for all of
// its answer.
func needRoom[T any](u *udata, answer T) error { return unless(u.room >= len(bytesOf(&answer))) }

// roundUp is the next power of two; 0 stays 0.
func roundUp(n uint32) uint32 {
	if n == 0 {
		return 0
	}
	return 1 << bits.Len32(n-1)
}

func (siwDriver) newCQ(f *verbsFile, c *cq, cqe uint32, u *udata) (uint32, error) {
	if cqe > siwMaxCQE {
		return 0, unix.EINVAL
	}
	answer := abi.SiwUrespCreateCq{CqId: uint32(f.dev.GUID) ^ cqe, NumCqe: roundUp(cqe)} // the id is a random number
	if err := needRoom(u, answer); err != nil {
		return 0, err
	}
	r, err := f.newSiwRing(answer.NumCqe, siwCQESize, siwCtrlSize)
	if err != nil {
		return 0, err
	}
	answer.CqKey = r.offset
	c.ring = &siwCQ{siwRing: r}
	u.answer(bytesOf(&answer))
	return answer.NumCqe, nil
}

// newQP leaves the sizes as they were asked for: a query tells the real ones.
func (siwDriver) newQP(f *verbsFile, q *qp, u *udata) error {
	c := &q.cap
	answer := abi.SiwUrespCreateQp{NumSqe: roundUp(c.MaxSendWr), NumRqe: roundUp(c.MaxRecvWr)}
	switch {
	case q.typ != abi.IB_UVERBS_QPT_RC:
		return unix.EOPNOTSUPP
	case c.MaxSendWr > siwMaxWR, c.MaxRecvWr > siwMaxWR, c.MaxSendSge > siwMaxSGE, c.MaxRecvSge > siwMaxSGE,
		c.MaxInlineData > abi.SIW_MAX_INLINE, c.MaxSendWr == 0:
		return unix.EINVAL
	}
	if err := needRoom(u, answer); err != nil {
		return err
	}
	sq, err := f.newSiwRing(answer.NumSqe, siwSQESize, 0)
	if err != nil {
		return err
	}
	s := &siwQP{siwRing: sq, q: q}
	if q.srq == nil { // else the answer names the queue's size, and no queue
		if s.own, err = f.newSiwRQ(answer.NumRqe); err != nil {
			sq.end(f)
			return err
		}
		q.rq, answer.RqKey = s.own, s.own.key()
	} else {
		q.rq = q.srq.rq
	}
	q.num = f.dev.lowestQPN()
	q.sq, q.state = s, stateInit
	answer.QpId, answer.SqKey = q.num, sq.offset
	u.answer(bytesOf(&answer))
	return nil
}

// lowestQPN: siw gives a number again as soon as it is free.
func (d *device) lowestQPN() (n uint32) {
	for n = 1; d.qps[n] != nil; n++ {
	}
	return n
}

func (siwDriver) newSRQ(f *verbsFile, s *srq, u *udata) error {
	answer := abi.SiwUrespCreateSrq{NumRqe: roundUp(s.maxWR)}
	if s.maxWR == 0 || s.maxWR > siwMaxSRQWR || s.maxSGE > siwMaxSGE || s.limit > s.maxWR {
		return unix.EINVAL
	}
	if err := needRoom(u, answer); err != nil {
		return err
	}
	r, err := f.newSiwRQ(answer.NumRqe)
	if err != nil {
		return err
	}
	r.shared, r.armed = s, s.limit > 0
	s.rq, s.depth, answer.SrqKey = r, answer.NumRqe, r.key()
	u.answer(bytesOf(&answer))
	return nil
}

// modifySRQ: siw cannot change the size.
func (siwDriver) modifySRQ(_ *verbsFile, s *srq, c *abi.IbUverbsModifySrq, _ *udata) error {
	switch {
	case c.AttrMask&srqMaxWR != 0:
		return unix.EOPNOTSUPP
	case c.AttrMask&srqLimit == 0:
		return nil
	case c.SrqLimit > s.depth:
		return unix.EINVAL
	}
	s.limit, s.rq.(*siwRQ).armed = c.SrqLimit, c.SrqLimit > 0
	return nil
}

// regMR: the user chooses the low 8 bits of the key, which is the local and the remote one,
// whatever the access. The address that requests name is that of the memory.
func (siwDriver) regMR(f *verbsFile, m *mr, u *udata) error {
	if len(u.in) < len(bytesOf(&abi.SiwUreqRegMr{})) {
		return unix.EINVAL
	}
	var answer abi.SiwUrespRegMr
	if err := needRoom(u, answer); err != nil {
		return err
	}
	d := f.dev
	d.lastKey = (d.lastKey*0x9e37 + 0x79b9) & 0xff_ffff // a random number
	for d.lastKey == 0 || d.mrs[d.lastKey] != nil {
		d.lastKey = (d.lastKey + 1) & 0xff_ffff
	}
	m.lkey = d.lastKey<<8 | uint32(load[abi.SiwUreqRegMr](u.in).StagKey)
	m.rkey, m.iova = m.lkey, m.start
	answer.Stag = m.lkey
	u.answer(bytesOf(&answer))
	return nil
}

// has: the objects that siw has are the ones that every driver has, and shared receive
// queues.
func (siwDriver) has(_ version, object, _ uint16) bool {
	switch object {
	case abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_OBJECT_PD, abi.UVERBS_OBJECT_COMP_CHANNEL, abi.UVERBS_OBJECT_CQ,
		abi.UVERBS_OBJECT_QP, abi.UVERBS_OBJECT_SRQ, abi.UVERBS_OBJECT_MR, abi.UVERBS_OBJECT_ASYNC_EVENT:
		return true
	}
	return false
}

// does: siw arms completion queues in memory, so that the command to do so is not enabled.
func (siwDriver) does(v version, cmd uint32) bool {
	switch cmd {
	case abi.IB_USER_VERBS_CMD_REQ_NOTIFY_CQ:
		return v < v601 // it was enabled, and did nothing of use
	case abi.IB_USER_VERBS_CMD_RESIZE_CQ, abi.IB_USER_VERBS_CMD_REREG_MR,
		abi.IB_USER_VERBS_CMD_ALLOC_MW, abi.IB_USER_VERBS_CMD_CREATE_AH,
		abi.IB_USER_VERBS_CMD_ATTACH_MCAST, abi.IB_USER_VERBS_CMD_DETACH_MCAST, abi.IB_USER_VERBS_CMD_OPEN_XRCD,
		uapi.ExCmd | abi.IB_USER_VERBS_EX_CMD_CREATE_FLOW, uapi.ExCmd | abi.IB_USER_VERBS_EX_CMD_MODIFY_CQ:
		return false
	}
	return true
}

// mayPost is the doorbell: what is in the queue is carried out at once.
func (siwDriver) mayPost(q *qp) error { return q.siw().doorbell() }

// execute is not called.
func (siwDriver) execute(*Kernel, *qp, *work) verdict { return verdict{again: tryNever} }
