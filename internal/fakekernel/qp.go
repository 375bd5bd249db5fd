//go:build linux

package fakekernel

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
)

// States of a queue pair: enum ib_qp_state.
const (
	stateReset = iota
	stateInit
	stateRTR
	stateRTS
	stateSQD
	stateSQE
	stateError
)

// qp is a queue pair.
type qp struct {
	f          *verbsFile
	num        uint32
	typ        uint8 // enum ib_uverbs_qp_type
	pd         *pd
	srq        *srq // nil: it has a receive queue of its own
	send, recv *cq
	userHandle uint64
	sigAll     bool
	cap        abi.IbUverbsQpCap
	async      *eventFile
	resp       abi.IbUverbsDestroyQpResp

	attr     abi.IbUverbsModifyQp // as last modified; the mask is not used
	state    uint8
	draining bool // in SQD, and not at rest yet
	gone     bool
	groups   []membership // multicast groups

	sq sendQueue
	rq recvQueue // its own, or that of the srq

	sendPSN, recvPSN uint32
	waitUntil        time.Time // the requester pauses
	tries            uint8     // left of the kind that the requester is in
	trying           uint8     // notTrying, tryRNR, tryAck
	reading          int       // READs and atomics that are pending
	run, ack         func()    // made once, so that waiting does not allocate
}

func (q *qp) kind() uint16 { return abi.UVERBS_OBJECT_QP }

// busy: a queue pair has to leave its multicast groups first.
func (q *qp) busy() error { return busyIf(len(q.groups) > 0) }

func (q *qp) end(f *verbsFile) {
	q.gone = true
	q.pd.users--
	q.send.users--
	q.recv.users--
	delete(f.dev.qps, q.num)
	q.sq.end(f)
	if q.srq != nil {
		q.srq.users--
	} else {
		q.rq.end(f)
	}
	q.async.forget(q)
}

func (f *verbsFile) createQP(r *request) error {
	q := &qp{
		f: f, pd: used[*pd](r, abi.UVERBS_ATTR_CREATE_QP_PD_HANDLE),
		send:       used[*cq](r, abi.UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE),
		recv:       used[*cq](r, abi.UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE),
		srq:        used[*srq](r, abi.UVERBS_ATTR_CREATE_QP_SRQ_HANDLE),
		userHandle: value[uint64](r, abi.UVERBS_ATTR_CREATE_QP_USER_HANDLE),
		async:      f.async,
	}
	q.run, q.ack = func() { f.k.runQP(q) }, q.acknowledged
	flags := r.number(abi.UVERBS_ATTR_CREATE_QP_FLAGS)
	q.sigAll = flags&abi.IB_UVERBS_QP_CREATE_SQ_SIG_ALL != 0
	if a := r.get(abi.UVERBS_ATTR_CREATE_QP_EVENT_FD); a != nil {
		q.async = a.file
	}
	capIn, err := r.get(abi.UVERBS_ATTR_CREATE_QP_CAP).in()
	if err != nil {
		return err
	}
	q.cap = load[abi.IbUverbsQpCap](capIn)
	if err := q.checkType(r.number(abi.UVERBS_ATTR_CREATE_QP_TYPE), flags); err != nil {
		return err
	}
	u, err := r.udata()
	if err != nil {
		return err
	}
	return f.finishQP(r, q, &u)
}

// checkType is what the core says of types and flags. It lets some pass that only hardware
// has.
func (q *qp) checkType(typ, flags uint64) error {
	flags &^= abi.IB_UVERBS_QP_CREATE_SQ_SIG_ALL
	switch typ {
	case abi.IB_UVERBS_QPT_RC, abi.IB_UVERBS_QPT_UC, abi.IB_UVERBS_QPT_UD, abi.IB_UVERBS_QPT_XRC_INI, abi.IB_UVERBS_QPT_DRIVER:
		if q.old() && typ == abi.IB_UVERBS_QPT_XRC_INI {
			return unix.EINVAL
		}
	case abi.IB_UVERBS_QPT_RAW_PACKET:
		if !q.old() {
			return unix.EOPNOTSUPP
		}
	default:
		return unix.EINVAL
	}
	q.typ = uint8(typ)
	switch {
	case q.pd == nil || q.send == nil || q.recv == nil:
		return unix.ENOENT
	case flags&^knownQPFlags != 0 || flags != 0 && typ != abi.IB_UVERBS_QPT_UD && typ != abi.IB_UVERBS_QPT_DRIVER:
		return unix.EINVAL
	case flags != 0:
		return unix.EOPNOTSUPP
	}
	return nil
}

// old tells whether it is rxe as it was in 5.10, which makes queue pairs of types that it does
// not know.
func (q *qp) old() bool { return q.f.k.version < v601 && q.f.dev.Driver == abi.RDMA_DRIVER_RXE }

const knownQPFlags = abi.IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK | abi.IB_UVERBS_QP_CREATE_PCI_WRITE_END_PADDING

// finishQP makes the queues and answers.
func (f *verbsFile) finishQP(r *request, q *qp, u *udata) error {
	q.num = f.dev.nextQPN()
	asked := q.cap
	err := f.dev.drv.newQP(f, q, u)
	if err != nil {
		return err
	}
	told := q.cap
	if f.dev.Driver == abi.RDMA_DRIVER_RXE && f.k.version < v603 { // the rings' real size shows in a query only
		told.MaxSendWr, told.MaxRecvWr = asked.MaxSendWr, asked.MaxRecvWr
	}
	if err = r.get(abi.UVERBS_ATTR_CREATE_QP_RESP_CAP).out(bytesOf(&told)); err == nil {
		err = r.get(abi.UVERBS_ATTR_CREATE_QP_RESP_QP_NUM).out(bytesOf(&q.num))
	}
	if err == nil {
		err = r.reply(u)
	}
	if err != nil {
		q.sq.end(f)
		if q.srq == nil {
			q.rq.end(f)
		}
		return err
	}
	q.pd.users++
	if q.srq != nil {
		q.srq.users++
	}
	q.send.users++
	q.recv.users++
	f.dev.qps[q.num] = q
	*r.get(abi.UVERBS_ATTR_CREATE_QP_HANDLE).raw.Data() = uint64(f.add(q))
	return nil
}

// nextQPN counts on, so that the number of a queue pair that is gone comes back late.
func (d *device) nextQPN() uint32 {
	for {
		d.lastQPN = max((d.lastQPN+1)&0xff_ffff, 17)
		if d.qps[d.lastQPN] == nil {
			return d.lastQPN
		}
	}
}

func (f *verbsFile) destroyQP(r *request) error {
	q := used[*qp](r, abi.UVERBS_ATTR_DESTROY_QP_HANDLE)
	if err := f.destroy(r, abi.UVERBS_ATTR_DESTROY_QP_HANDLE); err != nil {
		return err
	}
	return r.get(abi.UVERBS_ATTR_DESTROY_QP_RESP).out(bytesOf(&q.resp))
}

// queryQP tells everything, whatever the mask asks for, as rxe does.
func (f *verbsFile) queryQP(in, resp []byte) (int, error) {
	q, err := lookup[*qp](f, load[abi.IbUverbsQueryQp](in).QpHandle)
	if err != nil {
		return 0, err
	}
	a := &q.attr
	r := abi.IbUverbsQueryQpResp{
		Dest: a.Dest, MaxSendWr: q.cap.MaxSendWr, MaxRecvWr: q.cap.MaxRecvWr, MaxSendSge: q.cap.MaxSendSge,
		MaxRecvSge: q.cap.MaxRecvSge, MaxInlineData: q.cap.MaxInlineData, RqPsn: q.recvPSN, SqPsn: q.sendPSN,
		DestQpNum: a.DestQpNum, QpAccessFlags: a.QpAccessFlags, PkeyIndex: a.PkeyIndex, QpState: q.state,
		CurQpState: q.state, PathMtu: a.PathMtu, MaxRdAtomic: a.MaxRdAtomic, MaxDestRdAtomic: a.MaxDestRdAtomic,
		MinRnrTimer: a.MinRnrTimer, PortNum: a.PortNum, Timeout: a.Timeout, RetryCnt: a.RetryCnt, RnrRetry: a.RnrRetry,
		Qkey: a.Qkey,
	}
	if q.draining {
		r.SqDraining = 1
	}
	if q.srq != nil {
		r.MaxRecvWr, r.MaxRecvSge = 0, 0
	}
	if q.sigAll {
		r.SqSigAll = 1
	}
	if s, ok := q.sq.(interface {
		describe(*abi.IbUverbsQueryQpResp)
	}); ok {
		s.describe(&r)
	}
	return copy(resp, bytesOf(&r)), nil
}

// raise queues an asynchronous event of the queue pair.
func (q *qp) raise(typ uint32) {
	if q.async != nil {
		q.async.push(event{
			async:   abi.IbUverbsAsyncEventDesc{Element: q.userHandle, EventType: typ},
			counter: &q.resp.EventsReported, owner: q,
		})
	}
}
