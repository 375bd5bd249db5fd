//go:build linux

package tests

import (
	"syscall"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
)

const (
	srqMaxWR = 1 // enum ib_srq_attr_mask
	srqLimit = 2
)

// srqCases are about shared receive queues.
var srqCases = []kernelCase{
	{"create", nil, func(r *rig) (fields, error) {
		_, wr, sge, err := r.srq(10, 3, 0, true)
		return fields{"wr": wr, "sge": sge}, err
	}},
	{"create for nothing", always(syscall.EINVAL), func(r *rig) (fields, error) {
		_, _, _, err := r.srq(0, 1, 0, true)
		return nil, err
	}},
	{"create with too many pieces", always(syscall.EINVAL), func(r *rig) (fields, error) {
		_, _, _, err := r.srq(4, 40, 0, true)
		return nil, err
	}},
	{"create with too many requests", always(syscall.EINVAL), func(r *rig) (fields, error) {
		_, _, _, err := r.srq(1<<26, 1, 0, true)
		return nil, err
	}},
	{"create with a limit beyond its size", onlySiw(syscall.EINVAL), func(r *rig) (fields, error) {
		_, _, _, err := r.srq(4, 1, 100, true)
		return nil, err
	}},
	{"create without room for the driver's answer", always(syscall.EINVAL), func(r *rig) (fields, error) {
		_, _, _, err := r.srq(4, 1, 0, false)
		return nil, err
	}},
	{"query", nil, func(r *rig) (fields, error) {
		h, _, _, err := r.srq(10, 3, 2, true)
		r.must(err)
		return r.querySRQ(h)
	}},
	{"set the limit", nil, func(r *rig) (fields, error) {
		h, _, _, err := r.srq(10, 3, 0, true)
		r.must(err)
		r.must(r.modifySRQ(abi.IbUverbsModifySrq{SrqHandle: h, AttrMask: srqLimit, SrqLimit: 5}, r.modifyIn(0)))
		return r.querySRQ(h)
	}},
	{"set the limit without the driver's part", rules{{driver: "rxe", errno: syscall.EINVAL}}, func(r *rig) (fields, error) {
		h, _, _, err := r.srq(10, 3, 0, true)
		r.must(err)
		return nil, r.modifySRQ(abi.IbUverbsModifySrq{SrqHandle: h, AttrMask: srqLimit, SrqLimit: 5}, nil)
	}},
	{"set the limit beyond the size", always(syscall.EINVAL), func(r *rig) (fields, error) {
		h, _, _, err := r.srq(10, 3, 0, true)
		r.must(err)
		return nil, r.modifySRQ(abi.IbUverbsModifySrq{SrqHandle: h, AttrMask: srqLimit, SrqLimit: 5000}, r.modifyIn(0))
	}},
	{"resize", onlySiw(syscall.EOPNOTSUPP), func(r *rig) (fields, error) {
		h, _, _, err := r.srq(10, 3, 0, true)
		r.must(err)
		in := r.modifyIn(uapi.Addr(r.pages(1)))
		if err := r.modifySRQ(abi.IbUverbsModifySrq{SrqHandle: h, AttrMask: srqMaxWR, MaxWr: 100}, in); err != nil {
			return nil, err
		}
		return r.querySRQ(h)
	}},
	{"queue pair on it", nil, func(r *rig) (fields, error) {
		h, _, _, err := r.srq(10, 3, 0, true)
		r.must(err)
		return r.createQP(qpRequest{srq: &h})
	}},
	{"destroy", nil, func(r *rig) (fields, error) {
		h, _, _, err := r.srq(10, 3, 0, true)
		r.must(err)
		return nil, r.destroySRQ(h)
	}},
	{"destroy under a queue pair", always(syscall.EBUSY), func(r *rig) (fields, error) {
		h, _, _, err := r.srq(10, 3, 0, true)
		r.must(err)
		r.mustQP(qpRequest{srq: &h})
		return nil, r.destroySRQ(h)
	}},
}

func (r *rig) srq(wr, sge, limit uint32, answer bool) (handle, gotWR, gotSGE uint32, err error) {
	c := r.cmd(uapi.SRQCreate).
		New(abi.UVERBS_ATTR_CREATE_SRQ_HANDLE).
		Use(abi.UVERBS_ATTR_CREATE_SRQ_PD_HANDLE, r.pd).
		Const(abi.UVERBS_ATTR_CREATE_SRQ_TYPE, abi.IB_UVERBS_SRQT_BASIC).
		In64(abi.UVERBS_ATTR_CREATE_SRQ_USER_HANDLE, 3).
		In32(abi.UVERBS_ATTR_CREATE_SRQ_MAX_WR, wr).
		In32(abi.UVERBS_ATTR_CREATE_SRQ_MAX_SGE, sge).
		In32(abi.UVERBS_ATTR_CREATE_SRQ_LIMIT, limit).
		Out(abi.UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, uapi.Bytes(&gotWR)).
		Out(abi.UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, uapi.Bytes(&gotSGE))
	if answer {
		out := uapi.Bytes(new(abi.SiwUrespCreateSrq))
		if r.rxe() {
			out = uapi.Bytes(new(abi.RxeCreateSrqResp))
		}
		c.Driver(nil, out)
	}
	err = c.Do(r.f)
	return c.Result(abi.UVERBS_ATTR_CREATE_SRQ_HANDLE), gotWR, gotSGE, err
}

func (r *rig) querySRQ(handle uint32) (fields, error) {
	in := abi.IbUverbsQuerySrq{SrqHandle: handle}
	var got abi.IbUverbsQuerySrqResp
	err := r.invoke(uapi.QuerySRQ, uapi.Bytes(&in), uapi.Bytes(&got), nil, nil)
	return fields{"wr": got.MaxWr, "sge": got.MaxSge, "limit": got.SrqLimit}, err
}

func (r *rig) modifySRQ(in abi.IbUverbsModifySrq, drvIn []byte) error {
	return r.invoke(uapi.ModifySRQ, uapi.Bytes(&in), nil, drvIn, nil)
}

// modifyIn is what rxe wants to be told with any change: where to write the new mapping.
func (r *rig) modifyIn(addr uint64) []byte {
	if !r.rxe() {
		return nil
	}
	return uapi.Bytes(&abi.RxeModifySrqCmd{MmapInfoAddr: addr})
}

func (r *rig) destroySRQ(handle uint32) error {
	return r.cmd(uapi.SRQDestroy).
		Destroy(abi.UVERBS_ATTR_DESTROY_SRQ_HANDLE, handle).
		Out(abi.UVERBS_ATTR_DESTROY_SRQ_RESP, uapi.Bytes(new(abi.IbUverbsDestroySrqResp))).Do(r.f)
}
