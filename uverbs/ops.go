package uverbs

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
)

// What each transport service can do (IBTA volume 1, table 36).
const (
	opsUD = 1<<OpSend | 1<<OpSendImm
	opsUC = opsUD | 1<<OpSendInvalidate | 1<<OpRDMAWrite | 1<<OpRDMAWriteImm | 1<<OpLocalInvalidate | 1<<OpBindMW
	opsRC = provider.AllOps
)

// ops is the set of operations that a queue pair of a type can do on this device and kernel.
func (c *Context) ops(typ QPType) (uint32, error) {
	set := c.prov.ops
	switch typ {
	case QPTypeUD:
		set &= opsUD
	case QPTypeUC:
		set &= opsUC
	case QPTypeRC:
		set &= opsRC
	}
	if set&(1<<OpFlush|1<<OpAtomicWrite|1<<OpBindMW|1<<OpFetchAdd) == 0 {
		return set, nil
	}
	attr, err := c.QueryDevice()
	if err != nil {
		return 0, err
	}
	caps := attr.CapFlagsEx | uint64(attr.CapFlags)
	if attr.AtomicCap == 0 {
		set &^= 1<<OpCompareSwap | 1<<OpFetchAdd
	}
	if caps&(abi.IB_UVERBS_DEVICE_FLUSH_GLOBAL|abi.IB_UVERBS_DEVICE_FLUSH_PERSISTENT) == 0 {
		set &^= 1 << OpFlush
	}
	if caps&abi.IB_UVERBS_DEVICE_ATOMIC_WRITE == 0 {
		set &^= 1 << OpAtomicWrite
	}
	if caps&(abi.IB_UVERBS_DEVICE_MEM_WINDOW|abi.IB_UVERBS_DEVICE_MEM_WINDOW_TYPE_2A|abi.IB_UVERBS_DEVICE_MEM_WINDOW_TYPE_2B) == 0 {
		set &^= 1 << OpBindMW
	}
	return set, nil
}

// Supports tells whether the queue pair can do an operation: its type, the device and the
// running kernel decide. PostSend refuses the others with ErrNotSupported.
func (q *QP) Supports(op Opcode) bool { return op.In(q.ops) }

// notSupported says why an operation is refused.
func (q *QP) notSupported(op Opcode) error {
	if !op.IsKnown() {
		return errOpcode
	}
	why := "the device"
	switch {
	case q.typ == QPTypeUD && !op.In(opsUD), q.typ == QPTypeUC && !op.In(opsUC):
		why = fmt.Sprintf("a queue pair of type %v", q.typ)
	case op.In(q.ctx.prov.ops) && q.ctx.k.driver == abi.RDMA_DRIVER_MLX5:
		why = "this model of device, or its firmware,"
	case op.In(q.ctx.prov.ops):
		why = "this kernel's driver (rxe has FLUSH and ATOMIC WRITE from Linux 6.3 on, memory windows from 5.14 on)"
	}
	return fmt.Errorf("%w: %s has no %v", ErrNotSupported, why, op)
}

// iWARP tells whether the kernel's connection manager moves the queue pair by itself.
func (q *QP) iWARP() bool { return q.ctx.k.driver == abi.RDMA_DRIVER_SIW }

// ring shows the encoded requests to the device and makes it look.
func (q *QP) ring() error {
	switch r := &q.rings; {
	case r.mlx5 != nil:
		r.mlx5.PublishSend()
		return nil
	case q.State() == StateError: // siw, and rxe of 5.10, would take no notice
		r.takeSends(func(id uint64) { q.send.give(q.flushed(id, provider.WCSend)) })
		return nil
	case r.rxe != nil:
		r.rxe.PublishSend()
		return q.bell.Ring()
	}
	q.rings.siw.PublishSend()
	err := q.bell.Ring()
	if err != nil && errors.Is(err, syscall.ENOTCONN) { // also the answer while the state is only looked at
		runtime.Gosched()
		err = q.bell.Ring()
	}
	return err
}

func (q *QP) explainRing(err error) error {
	return fmt.Errorf("the kernel refuses the doorbell: the queue pair is not in state RTS: %w", err)
}
