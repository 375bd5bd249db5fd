//go:build linux

package fakekernel

import (
	"math/bits"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
)

// privilegedQKey is the bit of a Q_Key that takes CAP_NET_RAW, which nobody has here.
const privilegedQKey = 1 << 31

func (f *verbsFile) modifyQP(in []byte) error {
	c := load[abi.IbUverbsModifyQp](in)
	if c.AttrMask&^standardBits != 0 {
		return unix.EOPNOTSUPP
	}
	q, err := lookup[*qp](f, c.QpHandle)
	if err != nil {
		return err
	}
	if err := f.checkModify(q, &c); err != nil {
		return err
	}
	return f.dev.drv.modify(f, q, &c)
}

// checkModify is what the core looks at, whatever the driver: modify_qp in
// core/uverbs_cmd.c.
func (f *verbsFile) checkModify(q *qp, c *abi.IbUverbsModifyQp) error {
	has := func(bit uint32) bool { return c.AttrMask&bit != 0 }
	switch {
	case has(maskPort) && c.PortNum != 1,
		has(maskAV) && (c.Dest.PortNum != 1 || has(maskState) && c.QpState == stateRTR && q.attr.PortNum != 1),
		has(maskAlt) && (c.AltPortNum != 1 || c.AltDest.PortNum != 1),
		has(maskCurState) && c.CurQpState > stateError,
		has(maskState) && c.QpState > stateError:
		return unix.EINVAL
	case has(maskQKey) && c.Qkey&privilegedQKey != 0:
		return unix.EPERM
	}
	return nil
}

func (rxeDriver) modify(f *verbsFile, q *qp, c *abi.IbUverbsModifyQp) error {
	if c.AttrMask&(maskAV|maskState) == maskAV {
		c.AttrMask, c.PortNum = c.AttrMask|maskPort, c.Dest.PortNum
	}
	if err := f.checkPath(c); err != nil {
		return err
	}
	from := q.state
	if c.AttrMask&maskCurState != 0 {
		from = c.CurQpState
	}
	to := from
	if c.AttrMask&maskState != 0 {
		to = c.QpState
	}
	if !legal(q.typ, from, to, c.AttrMask) || !valid(c) || from == stateSQD && q.draining && to != stateError {
		return unix.EINVAL
	}
	q.set(c)
	if c.AttrMask&maskState != 0 {
		f.k.enter(q, to)
	}
	return nil
}

// checkPath is _ib_modify_qp: on Ethernet a path is global, from a GID that there is, and
// there is no second path.
func (f *verbsFile) checkPath(c *abi.IbUverbsModifyQp) error {
	switch {
	case c.AttrMask&maskAV != 0 && c.Dest.IsGlobal == 0, c.AttrMask&maskAlt != 0:
		return unix.EINVAL
	case c.AttrMask&maskAV != 0 && int(c.Dest.SgidIndex) >= len(f.dev.gids):
		return unix.ENODATA
	}
	return nil
}

// valid checks the values of the attributes: rxe_qp_chk_attr. The path MTU is not compared
// with what the port has now.
func valid(c *abi.IbUverbsModifyQp) bool {
	has := func(bit uint32) bool { return c.AttrMask&bit != 0 }
	return !(has(maskMTU) && (c.PathMtu < 1 || c.PathMtu > maxMTU) ||
		has(maskMaxRD) && c.MaxRdAtomic > maxRDAtom || has(maskTimeout) && c.Timeout > 31)
}

// set takes over the attributes of the mask.
func (q *qp) set(c *abi.IbUverbsModifyQp) {
	a, mask := &q.attr, c.AttrMask
	setIf(mask&maskAccess, &a.QpAccessFlags, c.QpAccessFlags)
	setIf(mask&maskPKey, &a.PkeyIndex, c.PkeyIndex)
	setIf(mask&maskPort, &a.PortNum, c.PortNum)
	setIf(mask&maskQKey, &a.Qkey, c.Qkey)
	setIf(mask&maskAV, &a.Dest, c.Dest)
	setIf(mask&maskMTU, &a.PathMtu, c.PathMtu)
	setIf(mask&maskTimeout, &a.Timeout, c.Timeout)
	setIf(mask&maskRetry, &a.RetryCnt, min(c.RetryCnt, 7))
	setIf(mask&maskRNRRetry, &a.RnrRetry, min(c.RnrRetry, 7))
	setIf(mask&maskMaxRD, &a.MaxRdAtomic, powerOfTwo(c.MaxRdAtomic))
	setIf(mask&maskMaxDestRD, &a.MaxDestRdAtomic, powerOfTwo(c.MaxDestRdAtomic))
	setIf(mask&maskMinRNR, &a.MinRnrTimer, c.MinRnrTimer)
	setIf(mask&maskEnSQD, &a.EnSqdAsyncNotify, c.EnSqdAsyncNotify)
	setIf(mask&maskDest, &a.DestQpNum, c.DestQpNum&psnMask)
	setIf(mask&maskRQPSN, &q.recvPSN, c.RqPsn&psnMask)
	setIf(mask&maskSQPSN, &q.sendPSN, c.SqPsn&psnMask)
}

func setIf[T any](yes uint32, p *T, v T) {
	if yes != 0 {
		*p = v
	}
}

// powerOfTwo rounds up; 0 stays 0, and what does not fit is 128 as it is for rxe.
func powerOfTwo(n uint8) uint8 {
	if n == 0 {
		return 0
	}
	return 1 << min(bits.Len8(n-1), 7)
}

// enter moves a queue pair to a state and does what comes with it. On the way to RTS
// nothing is carried out that is in the queue: that takes a doorbell.
func (k *Kernel) enter(q *qp, to uint8) {
	if to == q.state && to != stateError && to != stateReset {
		return
	}
	again := q.state == stateError && q.mlx5() != nil
	q.state, q.draining = to, to == stateSQD
	switch to {
	case stateReset:
		q.reset()
	case stateSQD:
		q.checkDrained()
	case stateSQE:
		q.flushSends()
	case stateError:
		q.flush()
		if q.srq != nil && (k.version >= v611 || q.mlx5() != nil) && !again {
			q.raise(asyncLastWQE)
		}
	}
}

// reset drops what is in the queues.
func (q *qp) reset() {
	q.attr = abi.IbUverbsModifyQp{}
	q.stopTrying()
	q.sendPSN, q.recvPSN, q.reading = 0, 0, 0
	if s := q.mlx5(); s != nil {
		s.reset()
		return
	}
	n := &q.f.k.nic
	for q.sq.next(&n.old) {
		q.sq.advance()
	}
	for q.sq.pending(&n.old) {
		q.sq.complete()
	}
	for q.srq == nil && q.rq.peek(&n.recv) {
		q.rq.consume()
	}
}
