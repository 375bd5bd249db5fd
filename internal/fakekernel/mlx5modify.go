//go:build linux

package fakekernel

import (
	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
)

// modify: mlx5_ib_modify_qp.
func (mlx5Driver) modify(f *verbsFile, q *qp, c *abi.IbUverbsModifyQp) error {
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
	switch {
	case !legal(q.typ, from, to, c.AttrMask):
		return unix.EINVAL
	case from == stateReset && to == stateReset:
		return nil
	case !f.dev.validMLX5(c), !mlx5Moves(from, to):
		return unix.EINVAL
	}
	q.set(c)
	q.attr.MaxRdAtomic = max(q.attr.MaxRdAtomic, 1)
	if c.AttrMask&maskState != 0 {
		f.k.enter(q, to)
	}
	return nil
}

// validMLX5 checks the values of the attributes.
func (d *device) validMLX5(c *abi.IbUverbsModifyQp) bool {
	has := func(bit uint32) bool { return c.AttrMask&bit != 0 }
	return !(has(maskPKey) && c.PkeyIndex >= 1 ||
		has(maskMaxRD) && c.MaxRdAtomic > mlx5MaxRDAtom || has(maskMaxDestRD) && c.MaxDestRdAtomic > mlx5MaxRDAtom ||
		has(maskMTU) && (c.PathMtu < 1 || c.PathMtu > maxMTU) || has(maskAV) && !d.validRate(c.Dest.StaticRate))
}

// mlx5Moves tells whether the driver has a transition: the table of __mlx5_ib_modify_qp
// lacks those to SQD, which the core allows.
func mlx5Moves(from, to uint8) bool { return to != stateSQD || from == stateReset }
