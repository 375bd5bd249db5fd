package uverbs

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
)

// Modify changes the attributes that mask names, and with QPAttrState the state. The mask
// is checked against the transition first, so that an error names the attribute.
//
// On iWARP the kernel's connection manager brings the queue pair to RTS: to modify it to RTS
// only notes here that it has, which package rdmacm does.
//
// StateReset forgets all that was posted; on mlx5 also completions that were not polled.
// mlx5 has no way to StateSQD.
//
// The kernel finds the peer's link-layer address on the way to RTR, which can block for
// about a second, uninterruptibly. Errors: ErrInvalid with the attribute; EINVAL from the
// kernel (for one an empty GID table entry); ENODEV, ENETUNREACH and the like if the peer
// cannot be reached. Source: ibv_modify_qp(3).
func (q *QP) Modify(attr *QPAttr, mask QPAttrMask) error {
	const op = "modify queue pair"
	if err := q.begin(op); err != nil {
		return err
	}
	defer q.end()
	q.modMu.Lock()
	defer q.modMu.Unlock()
	from := q.State()
	to := from
	if mask&QPAttrCurState != 0 {
		from = attr.CurState
	}
	if mask&QPAttrState != 0 {
		to = attr.State
	}
	if err := q.checkStep(from, to, mask); err != nil {
		return &Error{Op: op, Object: q.words(), Err: err}
	}
	if q.iWARP() && to == StateRTS {
		q.state.Store(uint32(to))
		return nil
	}
	in := q.modifyRequest(attr, mask)
	if err := q.ctx.k.invoke(uapi.ModifyQP, uapi.Bytes(&in), nil); err != nil {
		return &Error{Op: op, Object: q.words(), Err: fmt.Errorf("%v to %v: %w", from, to, cause(err)), Hint: modifyHint(err, to)}
	}
	switch to {
	case StateError:
		q.enterError()
	case StateReset:
		q.enterReset()
	default:
		q.state.Store(uint32(to))
	}
	return nil
}

// words name the queue pair in an error.
func (q *QP) words() string { return fmt.Sprintf("%s queue pair %d", q.device, q.num) }

// enterReset notes that the kernel has moved the queue pair to StateReset. On mlx5 the queues
// are this side's: what was open is forgotten, with its completions, before the next post.
func (q *QP) enterReset() {
	r := q.rings.mlx5
	if r == nil {
		q.state.Store(uint32(StateReset))
		return
	}
	q.sqMu.Lock()
	defer q.sqMu.Unlock()
	q.rqMu.Lock()
	defer q.rqMu.Unlock()
	q.recv.purge(r)
	if q.send != q.recv {
		q.send.purge(r)
	}
	r.Reset()
	q.state.Store(uint32(StateReset))
}

// checkStep judges the mask. iWARP has states of its own, of which only the kernel knows.
func (q *QP) checkStep(from, to QPState, mask QPAttrMask) error {
	switch {
	case !q.iWARP():
		return q.typ.checkStep(from, to, mask)
	case to == StateRTR:
		return fmt.Errorf("%w: on iWARP a queue pair is connected by rdma_cm only (package rdmacm)", ErrNotSupported)
	}
	return nil
}

func modifyHint(err error, to QPState) string {
	switch {
	case errors.Is(err, syscall.ENODEV) && to == StateRTR:
		return "no interface of this device in this network namespace"
	case errors.Is(err, syscall.EINVAL) && to == StateSQD:
		return "not every driver has this state: mlx5 never leaves RTS for it"
	case errors.Is(err, syscall.ENODATA) && to == StateRTR:
		return "SGIDIndex names an empty entry of the GID table"
	case errors.Is(err, syscall.EINVAL) && to == StateRTR:
		return "for one: IsGlobal is missing, PortNum or SGIDIndex is out of range, or PathMTU exceeds the port's"
	}
	return hint(err)
}

// State is the state that the last Modify or Query saw. The device may have moved the
// queue pair to StateError since: Query asks it.
func (q *QP) State() QPState { return QPState(q.state.Load()) }

// Query asks the kernel for the attributes that mask names; the driver may fill more.
// Source: ibv_query_qp(3).
func (q *QP) Query(mask QPAttrMask) (QPAttr, error) {
	const op = "query queue pair"
	if err := q.begin(op); err != nil {
		return QPAttr{}, err
	}
	defer q.end()
	in := abi.IbUverbsQueryQp{QpHandle: q.handle, AttrMask: uint32(mask)}
	var resp abi.IbUverbsQueryQpResp
	if err := q.ctx.k.invoke(uapi.QueryQP, uapi.Bytes(&in), uapi.Bytes(&resp)); err != nil {
		return QPAttr{}, wrap(op, q.device, err)
	}
	a := qpAttrFromQuery(&resp)
	if q.rings.mlx5 != nil { // whose driver does not know
		a.Cap.MaxSendWR, a.Cap.MaxSendSGE, a.Cap.MaxInline = q.cap.MaxSendWR, q.cap.MaxSendSGE, q.cap.MaxInline
	}
	if q.iWARP() && a.State == StateReset { // some versions of siw do not tell
		a.State = q.State()
		a.CurState = a.State
	}
	if a.State == StateError {
		q.enterError()
	}
	q.state.Store(uint32(a.State))
	return a, nil
}
