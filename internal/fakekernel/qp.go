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

var (
	sendHead = len(bytesOf(&abi.RxeSendWqe{}))
	recvHead = len(bytesOf(&abi.RxeRecvWqe{}))
	sgeSize  = len(bytesOf(&abi.RxeSge{}))
)

// qp is a queue pair of type RC.
type qp struct {
	f          *verbsFile
	num        uint32
	pd         *pd
	send, recv *cq
	userHandle uint64
	sigAll     bool
	cap        abi.IbUverbsQpCap
	async      *eventFile
	resp       abi.IbUverbsDestroyQpResp

	attr  abi.IbUverbsModifyQp // as last modified; the mask is not used
	state uint8
	gone  bool

	sq, rq *queue
	next   uint32 // the send request to carry out; sq.own is the one to complete

	sendPSN, recvPSN uint32
	waitUntil        time.Time // the requester pauses
	tries            uint8     // left of the kind that the requester is in
	trying           uint8     // notTrying, tryRNR, tryAck
	run              func()    // made once, so that waiting does not allocate
}

func (q *qp) kind() uint16 { return abi.UVERBS_OBJECT_QP }
func (q *qp) inUse() bool  { return false }

func (q *qp) end(f *verbsFile) {
	q.gone = true
	q.pd.users--
	q.send.users--
	q.recv.users--
	delete(f.dev.qps, q.num)
	q.sq.end(f)
	q.rq.end(f)
	q.async.forget(q)
}

func (f *verbsFile) createQP(r *request) error {
	q := &qp{
		f: f, pd: used[*pd](r, abi.UVERBS_ATTR_CREATE_QP_PD_HANDLE),
		send:       used[*cq](r, abi.UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE),
		recv:       used[*cq](r, abi.UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE),
		userHandle: value[uint64](r, abi.UVERBS_ATTR_CREATE_QP_USER_HANDLE),
		async:      f.async,
	}
	q.run = func() { f.k.runQP(q) }
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
	switch typ := r.number(abi.UVERBS_ATTR_CREATE_QP_TYPE); {
	case q.pd == nil || q.send == nil || q.recv == nil:
		return unix.EINVAL
	case flags&^abi.IB_UVERBS_QP_CREATE_SQ_SIG_ALL != 0:
		return unix.EINVAL
	case typ != abi.IB_UVERBS_QPT_RC:
		return unix.EOPNOTSUPP
	case !fits(&q.cap):
		return unix.EINVAL
	}
	uhw, err := driverOut(r, len(bytesOf(&abi.RxeCreateQpResp{})))
	if err != nil {
		return err
	}
	return f.finishQP(r, q, uhw)
}

func fits(c *abi.IbUverbsQpCap) bool {
	return c.MaxSendWr <= maxQPWR && c.MaxRecvWr <= maxQPWR && c.MaxSendSge <= maxSGE && c.MaxRecvSge <= maxSGE &&
		c.MaxInlineData <= maxInline
}

// finishQP makes the queues, raises the sizes as rxe does, and answers.
func (f *verbsFile) finishQP(r *request, q *qp, uhw *attr) (err error) {
	room := max(int(q.cap.MaxSendSge)*sgeSize, int(q.cap.MaxInlineData))
	if q.sq, err = f.newQueue(q.cap.MaxSendWr, sendHead+room); err != nil {
		return err
	}
	if q.rq, err = f.newQueue(q.cap.MaxRecvWr, recvHead+int(q.cap.MaxRecvSge)*sgeSize); err != nil {
		q.sq.end(f)
		return err
	}
	q.cap.MaxSendWr, q.cap.MaxRecvWr = q.sq.slots(), q.rq.slots()
	q.cap.MaxSendSge, q.cap.MaxInlineData = uint32(room/sgeSize), uint32(room)
	q.num = f.dev.nextQPN()
	mi := abi.RxeCreateQpResp{SqMi: q.sq.info(), RqMi: q.rq.info()}
	if err = r.get(abi.UVERBS_ATTR_CREATE_QP_RESP_CAP).out(bytesOf(&q.cap)); err == nil {
		err = r.get(abi.UVERBS_ATTR_CREATE_QP_RESP_QP_NUM).out(bytesOf(&q.num))
	}
	if err == nil {
		err = uhw.out(bytesOf(&mi))
	}
	if err != nil {
		q.sq.end(f)
		q.rq.end(f)
		return err
	}
	q.pd.users++
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
	}
	if q.sigAll {
		r.SqSigAll = 1
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
