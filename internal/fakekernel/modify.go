//go:build linux

package fakekernel

import (
	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
)

// Bits of the attribute mask: enum ib_qp_attr_mask.
const (
	maskState = 1 << iota
	maskCurState
	maskEnSQD
	maskAccess
	maskPKey
	maskPort
	maskQKey
	maskAV
	maskMTU
	maskTimeout
	maskRetry
	maskRNRRetry
	maskRQPSN
	maskMaxRD
	maskAlt
	maskMinRNR
	maskSQPSN
	maskMaxDestRD
	maskMig
	maskCap
	maskDest
	standardBits = 1<<iota - 1
)

// transition is a row of qp_state_table in core/verbs.c, for RC.
type transition struct {
	from, to           uint8
	required, optional uint32
}

const (
	initBits   = maskPKey | maskPort | maskAccess
	onlineBits = maskCurState | maskAccess | maskAlt | maskMig | maskMinRNR
)

var transitions = []transition{
	{stateReset, stateInit, initBits, 0},
	{stateInit, stateInit, 0, initBits},
	{stateInit, stateRTR, maskAV | maskMTU | maskDest | maskRQPSN | maskMaxDestRD | maskMinRNR, maskAlt | maskAccess | maskPKey},
	{stateRTR, stateRTS, maskTimeout | maskRetry | maskRNRRetry | maskSQPSN | maskMaxRD, onlineBits},
	{stateRTS, stateRTS, 0, onlineBits},
	{stateRTS, stateSQD, 0, maskEnSQD},
	{stateSQD, stateRTS, 0, onlineBits},
	{stateSQD, stateSQD, 0, initBits | maskAV | maskTimeout | maskRetry | maskRNRRetry | maskMaxRD | maskMaxDestRD |
		maskAlt | maskMinRNR | maskMig},
}

// legal is ib_modify_qp_is_ok.
func legal(from, to uint8, mask uint32) bool {
	if mask&maskCurState != 0 && (from < stateRTR || from > stateSQE) {
		return false
	}
	mask &^= maskState
	if to == stateReset || to == stateError {
		return mask == 0
	}
	for _, t := range transitions {
		if t.from == from && t.to == to {
			return mask&t.required == t.required && mask&^(t.required|t.optional) == 0
		}
	}
	return false
}

func (f *verbsFile) modifyQP(in []byte) error {
	c := load[abi.IbUverbsModifyQp](in)
	q, err := lookup[*qp](f, c.QpHandle)
	if err != nil {
		return err
	}
	if c.AttrMask&^standardBits != 0 {
		return unix.EOPNOTSUPP
	}
	from := q.state
	if c.AttrMask&maskCurState != 0 {
		from = c.CurQpState
	}
	to := from
	if c.AttrMask&maskState != 0 {
		to = c.QpState
	}
	if to > stateError || !legal(from, to, c.AttrMask) || !f.valid(&c) {
		return unix.EINVAL
	}
	q.set(&c)
	f.k.enter(q, to)
	return nil
}

// valid checks the values of the attributes.
func (f *verbsFile) valid(c *abi.IbUverbsModifyQp) bool {
	has := func(bit uint32) bool { return c.AttrMask&bit != 0 }
	switch {
	case has(maskPort) && c.PortNum != 1,
		has(maskPKey) && c.PkeyIndex != 0,
		has(maskAV) && !f.validPath(&c.Dest),
		has(maskMTU) && (c.PathMtu < 1 || c.PathMtu > f.dev.MTU),
		has(maskMaxRD) && c.MaxRdAtomic > maxRDAtom,
		has(maskMaxDestRD) && c.MaxDestRdAtomic > maxRDAtom,
		has(maskTimeout) && c.Timeout > 31,
		has(maskMinRNR) && c.MinRnrTimer > 31,
		has(maskAlt) && c.AltPortNum != 1:
		return false
	}
	return true
}

// validPath: on Ethernet a path is global, from a GID that there is.
func (f *verbsFile) validPath(d *abi.IbUverbsQpDest) bool {
	return d.PortNum == 1 && d.IsGlobal != 0 && int(d.SgidIndex) < len(f.dev.gids)
}

// set takes over the attributes of the mask.
func (q *qp) set(c *abi.IbUverbsModifyQp) {
	a, mask := &q.attr, c.AttrMask
	setIf(mask&maskAccess, &a.QpAccessFlags, c.QpAccessFlags)
	setIf(mask&maskPKey, &a.PkeyIndex, c.PkeyIndex)
	setIf(mask&maskPort, &a.PortNum, c.PortNum)
	setIf(mask&maskAV, &a.Dest, c.Dest)
	setIf(mask&maskMTU, &a.PathMtu, c.PathMtu)
	setIf(mask&maskTimeout, &a.Timeout, c.Timeout)
	setIf(mask&maskRetry, &a.RetryCnt, min(c.RetryCnt, 7))
	setIf(mask&maskRNRRetry, &a.RnrRetry, min(c.RnrRetry, 7))
	setIf(mask&maskMaxRD, &a.MaxRdAtomic, c.MaxRdAtomic)
	setIf(mask&maskMaxDestRD, &a.MaxDestRdAtomic, c.MaxDestRdAtomic)
	setIf(mask&maskMinRNR, &a.MinRnrTimer, c.MinRnrTimer)
	setIf(mask&maskDest, &a.DestQpNum, c.DestQpNum&psnMask)
	setIf(mask&maskRQPSN, &q.recvPSN, c.RqPsn&psnMask)
	setIf(mask&maskSQPSN, &q.sendPSN, c.SqPsn&psnMask)
}

func setIf[T any](yes uint32, p *T, v T) {
	if yes != 0 {
		*p = v
	}
}

// enter moves a queue pair to a state and does what comes with it.
func (k *Kernel) enter(q *qp, to uint8) {
	if to == q.state && to != stateError {
		return
	}
	q.state = to
	switch to {
	case stateReset:
		q.reset()
	case stateRTS:
		k.runQP(q)
	case stateError:
		q.flush()
	}
}

// reset drops what is in the queues.
func (q *qp) reset() {
	for !q.sq.empty(q.sq.own) {
		q.sq.consume()
	}
	for !q.rq.empty(q.rq.own) {
		q.rq.consume()
	}
	q.next = q.sq.own
	q.attr = abi.IbUverbsModifyQp{}
	q.stopTrying()
	q.sendPSN, q.recvPSN = 0, 0
}
