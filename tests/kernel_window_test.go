//go:build linux

package tests

import (
	"syscall"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
)

// rxe has memory windows since 5.14.
var windows = rules{{errno: syscall.EOPNOTSUPP}, {driver: "rxe", from: "5.14"}}

func windowsOr(e syscall.Errno) rules {
	return rules{{errno: syscall.EOPNOTSUPP}, {driver: "rxe", from: "5.14", errno: e}}
}

// windowCases are about memory windows.
var windowCases = []kernelCase{
	{"allocate type 1", windows, func(r *rig) (fields, error) {
		got, err := r.mw(1)
		if err != nil {
			return nil, err
		}
		return fields{"key": got.Rkey != 0}, nil
	}},
	{"allocate type 2", windows, func(r *rig) (fields, error) {
		got, err := r.mw(2)
		if err != nil {
			return nil, err
		}
		return fields{"key": got.Rkey != 0}, nil
	}},
	{"allocate a type that is none", windowsOr(syscall.EINVAL), func(r *rig) (fields, error) {
		_, err := r.mw(9)
		return nil, err
	}},
	{"free", windows, func(r *rig) (fields, error) {
		got, err := r.mw(1)
		if err != nil {
			return nil, err
		}
		return nil, r.cmd(uapi.MWDestroy).Destroy(abi.UVERBS_ATTR_DESTROY_MW_HANDLE, got.MwHandle).Do(r.f)
	}},
	{"free a domain with a window", windowsOr(syscall.EBUSY), func(r *rig) (fields, error) {
		if _, err := r.mw(1); err != nil {
			return nil, err
		}
		return nil, r.destroyPD(r.pd)
	}},
}

func (r *rig) mw(typ uint8) (got abi.IbUverbsAllocMwResp, err error) {
	in := abi.IbUverbsAllocMw{PdHandle: r.pd, MwType: typ}
	return got, r.invoke(uapi.AllocMW, uapi.Bytes(&in), uapi.Bytes(&got), nil, nil)
}

// missingCases ask for what neither driver has.
var missingCases = []kernelCase{
	{"XRC domain", always(syscall.EOPNOTSUPP), func(r *rig) (fields, error) {
		in := abi.IbUverbsOpenXrcd{Fd: 0xffffffff, Oflags: 0x40}
		return nil, r.invoke(uapi.OpenXRCD, uapi.Bytes(&in), uapi.Bytes(new(abi.IbUverbsOpenXrcdResp)), nil, nil)
	}},
	{"work queue", always(syscall.EPROTONOSUPPORT), func(r *rig) (fields, error) {
		var wr, sge uint32
		return nil, r.cmd(uapi.WQCreate).
			New(abi.UVERBS_ATTR_CREATE_WQ_HANDLE).
			Use(abi.UVERBS_ATTR_CREATE_WQ_PD_HANDLE, r.pd).
			Const(abi.UVERBS_ATTR_CREATE_WQ_TYPE, abi.IB_UVERBS_WQT_RQ).
			In64(abi.UVERBS_ATTR_CREATE_WQ_USER_HANDLE, 5).
			In32(abi.UVERBS_ATTR_CREATE_WQ_MAX_WR, 4).In32(abi.UVERBS_ATTR_CREATE_WQ_MAX_SGE, 1).
			Flags(abi.UVERBS_ATTR_CREATE_WQ_FLAGS, 0).
			Use(abi.UVERBS_ATTR_CREATE_WQ_CQ_HANDLE, r.mustCQ(4)).
			Out(abi.UVERBS_ATTR_CREATE_WQ_RESP_MAX_WR, uapi.Bytes(&wr)).
			Out(abi.UVERBS_ATTR_CREATE_WQ_RESP_MAX_SGE, uapi.Bytes(&sge)).Do(r.f)
	}},
	{"flow", always(syscall.EOPNOTSUPP), func(r *rig) (fields, error) {
		in := abi.IbUverbsCreateFlow{QpHandle: r.mustQP(qpRequest{}).handle, FlowAttr: abi.IbUverbsFlowAttr{Port: 1}}
		return nil, r.invoke(uapi.CreateFlow, uapi.Bytes(&in), make([]byte, 8), nil, nil)
	}},
}
