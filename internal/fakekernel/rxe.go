//go:build linux

package fakekernel

import (
	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
)

// rxeDriver is sw/rxe.
type rxeDriver struct{ plain }

func (rxeDriver) link() link {
	return link{name: "rxe", abi: 2, nodeType: abi.RDMA_NODE_IB_CA, protocol: "roce"}
}

func (rxeDriver) newContext(*verbsFile, *udata) error { return nil }

func (rxeDriver) newCQ(f *verbsFile, c *cq, cqe uint32, u *udata) (uint32, error) {
	if cqe > maxCQE {
		return 0, unix.EINVAL
	}
	if err := u.only(len(bytesOf(&abi.RxeCreateCqResp{}))); err != nil {
		return 0, err
	}
	r, err := f.newRing(cqe, len(bytesOf(&abi.IbUverbsWc{})))
	if err != nil {
		return 0, err
	}
	c.ring = &compRing{ring: r}
	u.answer(bytesOf(&abi.RxeCreateCqResp{Mi: r.info()}))
	return r.slots(), nil
}

// newQP makes the queues and raises the sizes. A queue pair with a shared receive queue
// maps none for receives.
func (rxeDriver) newQP(f *verbsFile, q *qp, u *udata) error {
	switch q.typ {
	case abi.IB_UVERBS_QPT_RC, abi.IB_UVERBS_QPT_UC, abi.IB_UVERBS_QPT_UD:
	default:
		if !q.old() {
			return unix.EOPNOTSUPP
		}
	}
	if err := u.only(len(bytesOf(&abi.RxeCreateQpResp{}))); err != nil {
		return err
	}
	if !q.fits(f.dev.limits().qpWR) {
		return unix.EINVAL
	}
	room := max(int(q.cap.MaxSendSge)*sgeSize, int(q.cap.MaxInlineData))
	sq, err := f.newRing(q.cap.MaxSendWr, sendHead+room)
	if err != nil {
		return err
	}
	answer := abi.RxeCreateQpResp{SqMi: sq.info()}
	if q.srq == nil {
		rq, err := f.newRing(q.cap.MaxRecvWr, recvHead+int(q.cap.MaxRecvSge)*sgeSize)
		if err != nil {
			sq.end(f)
			return err
		}
		q.rq, q.cap.MaxRecvWr, answer.RqMi = &recvRing{rq}, rq.slots(), rq.info()
	} else {
		q.rq = q.srq.rq
	}
	q.sq, q.cap.MaxSendWr = &sendRing{ring: sq}, sq.slots()
	q.cap.MaxSendSge, q.cap.MaxInlineData = uint32(room/sgeSize), uint32(room)
	u.answer(bytesOf(&answer))
	return nil
}

// fits is rxe_qp_chk_cap.
func (q *qp) fits(maxWR uint32) bool {
	c := &q.cap
	return c.MaxSendWr <= maxWR && c.MaxSendSge <= maxSGE && c.MaxInlineData <= maxInline &&
		(q.srq != nil || c.MaxRecvWr <= maxWR && c.MaxRecvSge <= maxSGE)
}

// regMR chooses the keys: an index and eight bits that change, so that an old key does not
// open a new region. A region that no peer may touch had no remote key before 6.3.
func (rxeDriver) regMR(f *verbsFile, m *mr, _ *udata) error {
	if err := f.rxeAccess(m.access); err != nil {
		return err
	}
	d := f.dev
	d.lastKey = nextIndex(d.lastKey, 1, maxMRIndex, d.mrs)
	m.lkey = d.lastKey<<8 | keyBits(d.lastKey)
	if m.access&remoteAccess != 0 || f.k.version >= v603 {
		m.rkey = m.lkey
	}
	return nil
}

// rxeAccess is what newer rxe says of access that it does not know.
func (f *verbsFile) rxeAccess(access uint32) error {
	if f.k.version >= v603 && access&(abi.IB_UVERBS_ACCESS_ZERO_BASED|abi.IB_UVERBS_ACCESS_HUGETLB) != 0 {
		return unix.EOPNOTSUPP
	}
	return nil
}

// Indices of keys: memory regions, then memory windows.
const (
	maxMRIndex = 1 << 19
	minMWIndex = maxMRIndex + 1
	maxMWIndex = 1 << 20
)

func isWindow(key uint32) bool { return key>>8 >= minMWIndex }

// keyBits stands for the random byte of a key.
func keyBits(index uint32) uint32 { return uint32(uint8(index * 0x9d)) }

// nextIndex counts on, so that an index that is free again comes back late.
func nextIndex[T any](last, first, end uint32, taken map[uint32]T) uint32 {
	for {
		if last++; last < first || last > end {
			last = first
		}
		if _, ok := taken[last]; !ok {
			return last
		}
	}
}

func (rxeDriver) mayPost(q *qp) error {
	if q.state < stateRTS {
		return unix.EINVAL
	}
	return nil
}

// has: rxe has no work queues, flows and XRC domains, and memory windows since 5.14.
func (rxeDriver) has(v version, object, _ uint16) bool {
	if object >= driverObjects {
		return false
	}
	switch object {
	case abi.UVERBS_OBJECT_WQ, abi.UVERBS_OBJECT_FLOW, abi.UVERBS_OBJECT_XRCD:
		return false
	case abi.UVERBS_OBJECT_MW:
		return v >= v514
	}
	return true
}

func (rxeDriver) does(v version, cmd uint32) bool {
	switch cmd {
	case abi.IB_USER_VERBS_CMD_OPEN_XRCD, uapi.ExCmd | abi.IB_USER_VERBS_EX_CMD_CREATE_FLOW,
		uapi.ExCmd | abi.IB_USER_VERBS_EX_CMD_MODIFY_CQ:
		return false
	case abi.IB_USER_VERBS_CMD_ALLOC_MW:
		return v >= v514
	case abi.IB_USER_VERBS_CMD_REREG_MR:
		return v >= v603
	}
	return true
}

// can tells whether a queue pair's type has an operation: sw/rxe/rxe_opcode.c.
func (v version) can(typ uint8, op uint32) bool {
	const (
		datagram  = 1<<abi.IB_UVERBS_WR_SEND | 1<<abi.IB_UVERBS_WR_SEND_WITH_IMM
		connected = datagram | 1<<abi.IB_UVERBS_WR_RDMA_WRITE | 1<<abi.IB_UVERBS_WR_RDMA_WRITE_WITH_IMM
		reliable  = connected | 1<<abi.IB_UVERBS_WR_RDMA_READ | 1<<abi.IB_UVERBS_WR_ATOMIC_CMP_AND_SWP |
			1<<abi.IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD | 1<<abi.IB_UVERBS_WR_SEND_WITH_INV | 1<<abi.IB_UVERBS_WR_LOCAL_INV
	)
	set := uint32(datagram)
	switch typ {
	case abi.IB_UVERBS_QPT_RC:
		set = reliable
	case abi.IB_UVERBS_QPT_UC:
		set = connected
	}
	if v >= v514 && typ != abi.IB_UVERBS_QPT_UD {
		set |= 1 << abi.IB_UVERBS_WR_BIND_MW
	}
	if v >= v603 && typ == abi.IB_UVERBS_QPT_RC {
		set |= 1<<abi.IB_UVERBS_WR_FLUSH | 1<<abi.IB_UVERBS_WR_ATOMIC_WRITE
	}
	return op < 32 && set>>op&1 != 0
}
