//go:build linux

package tests

import (
	"syscall"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
)

// qpCases make and destroy queue pairs and ring their bell.
var qpCases = []kernelCase{
	{"create RC", nil, func(r *rig) (fields, error) { return r.createQP(qpRequest{}) }},
	{"create UC", onlySiw(syscall.EOPNOTSUPP), func(r *rig) (fields, error) { return r.createQP(qpRequest{typ: abi.IB_UVERBS_QPT_UC}) }},
	{"create UD", onlySiw(syscall.EOPNOTSUPP), func(r *rig) (fields, error) { return r.createQP(qpRequest{typ: abi.IB_UVERBS_QPT_UD}) }},
	{"create XRC send", rules{{errno: syscall.EOPNOTSUPP}, {driver: "rxe", errno: syscall.EINVAL}, {driver: "rxe", from: "5.14", errno: syscall.EOPNOTSUPP}}, func(r *rig) (fields, error) {
		return r.createQP(qpRequest{typ: abi.IB_UVERBS_QPT_XRC_INI})
	}},
	{"create of an unknown type", always(syscall.EINVAL), func(r *rig) (fields, error) { return r.createQP(qpRequest{typ: 77}) }},
	{"create the largest inline", nil, func(r *rig) (fields, error) {
		return r.createQP(qpRequest{cap: abi.IbUverbsQpCap{MaxSendWr: 4, MaxRecvWr: 4, MaxSendSge: 1, MaxRecvSge: 1, MaxInlineData: r.maxInline()}})
	}},
	{"create with more inline than there is", always(syscall.EINVAL), func(r *rig) (fields, error) {
		return r.createQP(qpRequest{cap: abi.IbUverbsQpCap{MaxSendWr: 4, MaxRecvWr: 4, MaxSendSge: 1, MaxRecvSge: 1, MaxInlineData: r.maxInline() + 1}})
	}},
	{"create with too many pieces", always(syscall.EINVAL), func(r *rig) (fields, error) {
		return r.createQP(qpRequest{cap: abi.IbUverbsQpCap{MaxSendWr: 4, MaxRecvWr: 4, MaxSendSge: 33, MaxRecvSge: 1}})
	}},
	{"create with too many requests", always(syscall.EINVAL), func(r *rig) (fields, error) {
		return r.createQP(qpRequest{cap: abi.IbUverbsQpCap{MaxSendWr: 1 << 24, MaxRecvWr: 4, MaxSendSge: 1, MaxRecvSge: 1}})
	}},
	{"create without sends", onlySiw(syscall.EINVAL), func(r *rig) (fields, error) {
		return r.createQP(qpRequest{cap: abi.IbUverbsQpCap{MaxRecvWr: 4, MaxSendSge: 1, MaxRecvSge: 1}})
	}},
	{"create without receives", nil, func(r *rig) (fields, error) {
		return r.createQP(qpRequest{cap: abi.IbUverbsQpCap{MaxSendWr: 4, MaxSendSge: 1}})
	}},
	{"create without room for the driver's answer", always(syscall.EINVAL), func(r *rig) (fields, error) {
		return r.createQP(qpRequest{mute: true})
	}},
	{"create without completion queue", always(syscall.ENOENT), func(r *rig) (fields, error) { return r.createQP(qpRequest{noCQ: true}) }},
	{"query", nil, func(r *rig) (fields, error) {
		q := r.mustQP(qpRequest{})
		got, err := r.query(q)
		return fields{"state": got.QpState, "send wr": got.MaxSendWr, "recv wr": got.MaxRecvWr, "send sge": got.MaxSendSge,
			"recv sge": got.MaxRecvSge, "inline": got.MaxInlineData, "signal all": got.SqSigAll}, err
	}},
	{"query what is not there", badHandle, func(r *rig) (fields, error) {
		_, err := r.query(rawQP{handle: 4711})
		return nil, err
	}},
	{"destroy", nil, func(r *rig) (fields, error) {
		q := r.mustQP(qpRequest{})
		var resp abi.IbUverbsDestroyQpResp
		err := r.destroyQP(q, &resp)
		return fields{"events": resp.EventsReported}, err
	}},
	{"destroy a domain under a queue pair", always(syscall.EBUSY), func(r *rig) (fields, error) {
		r.mustQP(qpRequest{})
		return nil, r.destroyPD(r.pd)
	}},
	{"doorbell in RESET", rules{{errno: syscall.EINVAL}, {driver: "siw", errno: syscall.ENOTCONN}}, func(r *rig) (fields, error) {
		return nil, r.bell(r.mustQP(qpRequest{}), 128)
	}},
	{"doorbell in ERR", nil, func(r *rig) (fields, error) {
		q := r.mustQP(qpRequest{})
		r.must(r.toInit(q))
		r.must(r.modify(q, abi.IbUverbsModifyQp{AttrMask: maskState, QpState: stateErr}))
		return nil, r.bell(q, 128)
	}},
	{"doorbell with short requests", rules{{errno: syscall.EINVAL}, {driver: "siw", errno: syscall.ENOTCONN}, {driver: "siw", from: "6.1", errno: syscall.EINVAL}}, func(r *rig) (fields, error) {
		return nil, r.bell(r.mustQP(qpRequest{}), 8)
	}},
	{"doorbell of no queue pair", badHandle, func(r *rig) (fields, error) {
		return nil, r.bell(rawQP{handle: 4711}, 128)
	}},
}

// qpRequest is how a queue pair is wanted.
type qpRequest struct {
	typ        uint64            // 0 is RC
	cap        abi.IbUverbsQpCap // zero is some of everything
	srq        *uint32
	mute, noCQ bool
}

type rawQP struct{ handle, num, cq uint32 }

func (r *rig) maxInline() uint32 {
	if r.rxe() {
		return 512
	}
	return 80
}

func (r *rig) qp(q qpRequest) (made rawQP, got abi.IbUverbsQpCap, err error) {
	if q.cap == (abi.IbUverbsQpCap{}) {
		q.cap = abi.IbUverbsQpCap{MaxSendWr: 5, MaxRecvWr: 6, MaxSendSge: 2, MaxRecvSge: 3, MaxInlineData: 40}
	}
	if q.typ == 0 {
		q.typ = abi.IB_UVERBS_QPT_RC
	}
	made.cq = r.mustCQ(16)
	c := r.cmd(uapi.QPCreate).
		New(abi.UVERBS_ATTR_CREATE_QP_HANDLE).
		Use(abi.UVERBS_ATTR_CREATE_QP_PD_HANDLE, r.pd).
		In64(abi.UVERBS_ATTR_CREATE_QP_USER_HANDLE, 2).
		In(abi.UVERBS_ATTR_CREATE_QP_CAP, uapi.Bytes(&q.cap)).
		Const(abi.UVERBS_ATTR_CREATE_QP_TYPE, q.typ).
		Out(abi.UVERBS_ATTR_CREATE_QP_RESP_CAP, uapi.Bytes(&got)).
		Out(abi.UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, uapi.Bytes(&made.num))
	if !q.noCQ {
		c.Use(abi.UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, made.cq).Use(abi.UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, made.cq)
	}
	if q.srq != nil {
		c.Use(abi.UVERBS_ATTR_CREATE_QP_SRQ_HANDLE, *q.srq)
	}
	if !q.mute {
		c.Driver(nil, r.qpOut())
	}
	err = c.Do(r.f)
	made.handle = c.Result(abi.UVERBS_ATTR_CREATE_QP_HANDLE)
	return made, got, err
}

func (r *rig) qpOut() []byte {
	if r.rxe() {
		return uapi.Bytes(new(abi.RxeCreateQpResp))
	}
	return uapi.Bytes(new(abi.SiwUrespCreateQp))
}

func (r *rig) createQP(q qpRequest) (fields, error) {
	_, got, err := r.qp(q)
	if err != nil {
		return nil, err
	}
	return fields{"send wr": got.MaxSendWr, "recv wr": got.MaxRecvWr, "send sge": got.MaxSendSge,
		"recv sge": got.MaxRecvSge, "inline": got.MaxInlineData}, nil
}

func (r *rig) mustQP(q qpRequest) rawQP {
	r.t.Helper()
	made, _, err := r.qp(q)
	r.must(err)
	return made
}

func (r *rig) query(q rawQP) (got abi.IbUverbsQueryQpResp, err error) {
	in := abi.IbUverbsQueryQp{QpHandle: q.handle, AttrMask: 1<<21 - 1}
	return got, r.invoke(uapi.QueryQP, uapi.Bytes(&in), uapi.Bytes(&got), nil, nil)
}

func (r *rig) destroyQP(q rawQP, resp *abi.IbUverbsDestroyQpResp) error {
	return r.cmd(uapi.QPDestroy).
		Destroy(abi.UVERBS_ATTR_DESTROY_QP_HANDLE, q.handle).
		Out(abi.UVERBS_ATTR_DESTROY_QP_RESP, uapi.Bytes(resp)).Do(r.f)
}

func (r *rig) bell(q rawQP, wqe uint32) error {
	in := abi.IbUverbsPostSend{QpHandle: q.handle, WqeSize: wqe}
	return r.invoke(uapi.PostSend, uapi.Bytes(&in), uapi.Bytes(new(abi.IbUverbsPostSendResp)), nil, nil)
}
