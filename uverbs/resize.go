package uverbs

import (
	"errors"
	"fmt"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider/rxe"
	"github.com/pureverbs/rdma/internal/uapi"
)

// Resize makes the queue hold at least cqe completions; those in it stay. It is safe while
// others poll and wait.
//
// Errors: EINVAL if cqe is less than what is in the queue, or more than the device's limit;
// ErrNotSupported on devices that cannot (siw). Source: ibv_resize_cq(3).
func (q *CQ) Resize(cqe int) error {
	const op = "resize completion queue"
	if cqe <= 0 || cqe > 1<<30 {
		return invalid(op, q.device, "%d completions", cqe)
	}
	if err := q.begin(op); err != nil {
		return err
	}
	defer q.end()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ring.mlx5 != nil {
		return wrap(op, q.device, q.resizeMLX5(cqe))
	}
	return wrap(op, q.device, q.resize(uint32(cqe)))
}

// resizeMLX5 moves to a queue that the device goes on in, and what is in the old one with it.
func (q *CQ) resizeMLX5(cqe int) error {
	plan, err := q.ring.mlx5.PlanResize(cqe)
	if plan == nil {
		return err
	}
	k := q.ctx.k
	in := abi.IbUverbsResizeCq{CqHandle: q.handle, Cqe: plan.Entries()}
	var resp abi.IbUverbsResizeCqResp
	if err := uapi.Invoke(k.file, k.driver, uapi.ResizeCQ, uapi.Bytes(&in), uapi.Bytes(&resp), plan.In(), nil); err != nil {
		return errors.Join(err, plan.Drop())
	}
	q.size = int(resp.Cqe)
	return plan.Apply(resp.Cqe)
}

// resize moves to the queue that the kernel makes, into which it has moved what was in the
// old one.
func (q *CQ) resize(cqe uint32) error {
	k := q.ctx.k
	if q.ring.rxe == nil {
		return fmt.Errorf("%w: the device cannot resize a completion queue", ErrNotSupported)
	}
	in := abi.IbUverbsResizeCq{CqHandle: q.handle, Cqe: cqe}
	var (
		resp abi.IbUverbsResizeCqResp
		plan rxe.CQPlan
	)
	if err := uapi.Invoke(k.file, k.driver, uapi.ResizeCQ, uapi.Bytes(&in), uapi.Bytes(&resp), nil, plan.Out()); err != nil {
		return err
	}
	ring, err := plan.Attach(k.mapper)
	if err != nil {
		return err
	}
	old := q.ring
	q.ring, q.size = cqRing{rxe: ring}, int(resp.Cqe)
	return old.close()
}

// Modify sets how many completions, and how many microseconds, the device may hold an event
// back. Errors: ErrNotSupported on devices that cannot (rxe, siw). Source: ibv_modify_cq(3).
func (q *CQ) Modify(count, period uint16) error {
	const op = "modify completion queue"
	if err := q.begin(op); err != nil {
		return err
	}
	defer q.end()
	in := abi.IbUverbsExModifyCq{
		CqHandle: q.handle, AttrMask: moderate, Attr: abi.IbUverbsCqModeration{CqCount: count, CqPeriod: period},
	}
	return wrap(op, q.device, q.ctx.k.invoke(uapi.ModifyCQ, uapi.Bytes(&in), nil))
}

// moderate is IB_CQ_MODERATE of enum ib_cq_attr_mask.
const moderate = 1
