//go:build linux

package tests

import (
	"syscall"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
)

// protocolCases break the rules of the ioctl itself.
var protocolCases = []kernelCase{
	{"second context of one file", always(syscall.EINVAL), func(r *rig) (fields, error) {
		return nil, r.cmd(uapi.GetContext).Driver(nil, r.contextOut()).Do(r.f)
	}},
	{"context without room for the driver's answer", onlySiw(syscall.EINVAL), func(r *rig) (fields, error) {
		return nil, r.cmd(uapi.GetContext).Do(r.open())
	}},
	{"command before the context", always(syscall.EINVAL), func(r *rig) (fields, error) {
		r.f = r.open()
		return nil, r.invoke(uapi.AllocPD, uapi.Bytes(&abi.IbUverbsAllocPd{}), uapi.Bytes(new(abi.IbUverbsAllocPdResp)), nil, nil)
	}},
	{"context again after the file was closed", nil, func(r *rig) (fields, error) {
		var vectors uint32
		var support uint64
		r.must(r.f.Close())
		err := r.cmd(uapi.GetContext).
			Out(abi.UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, uapi.Bytes(&vectors)).
			Out(abi.UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, uapi.Bytes(&support)).
			Driver(nil, r.contextOut()).Do(r.open())
		return fields{"vectors": vectors > 0, "support": support}, err
	}},
	{"wrong driver", always(syscall.EINVAL), func(r *rig) (fields, error) {
		r.driver = abi.RDMA_DRIVER_MLX5
		_, err := r.port(1)
		return nil, err
	}},
	{"unknown object", always(syscall.EPROTONOSUPPORT), func(r *rig) (fields, error) {
		return nil, r.cmd(&uapi.Method{Object: 0xff, ID: 0}).Do(r.f)
	}},
	{"unknown method", always(syscall.EPROTONOSUPPORT), func(r *rig) (fields, error) {
		return nil, r.cmd(&uapi.Method{Object: abi.UVERBS_OBJECT_CQ, ID: 77}).Do(r.f)
	}},
	{"unknown mandatory attribute", always(syscall.EPROTONOSUPPORT), func(r *rig) (fields, error) {
		m := with(uapi.PDDestroy, uapi.Attr{ID: 99, Class: uapi.PtrIn, Max: 8})
		return nil, r.cmd(m).Destroy(abi.UVERBS_ATTR_DESTROY_PD_HANDLE, r.pd).In32(99, 0).Do(r.f)
	}},
	{"missing attribute", always(syscall.EINVAL), func(r *rig) (fields, error) {
		return nil, r.cmd(loose(uapi.PDDestroy)).Do(r.f)
	}},
	{"attribute that is too short", always(syscall.EINVAL), func(r *rig) (fields, error) {
		var p [4]byte
		return nil, r.cmd(loose(uapi.QueryPort)).
			Const(abi.UVERBS_ATTR_QUERY_PORT_PORT_NUM, 1).Out(abi.UVERBS_ATTR_QUERY_PORT_RESP, p[:]).Do(r.f)
	}},
	{"handle that was never given", always(syscall.ENOENT), func(r *rig) (fields, error) {
		return nil, r.destroyPD(4711)
	}},
	{"handle of another kind", always(syscall.EINVAL), func(r *rig) (fields, error) {
		return nil, r.cmd(uapi.MRDestroy).Destroy(abi.UVERBS_ATTR_DESTROY_MR_HANDLE, r.pd).Do(r.f)
	}},
	{"destroy twice", always(syscall.ENOENT), func(r *rig) (fields, error) {
		r.must(r.destroyPD(r.pd))
		return nil, r.destroyPD(r.pd)
	}},
	{"write command without handler", always(syscall.EOPNOTSUPP), func(r *rig) (fields, error) {
		return nil, r.invoke(&uapi.WriteCmd{ID: 12}, make([]byte, 16), nil, nil, nil)
	}},
	{"write command with a strange bit", always(syscall.EINVAL), func(r *rig) (fields, error) {
		return nil, r.invoke(&uapi.WriteCmd{ID: uapi.AllocPD.ID | 1<<20}, make([]byte, 16), nil, nil, nil)
	}},
	{"write command with a short struct", always(syscall.ENOSPC), func(r *rig) (fields, error) {
		return nil, r.invoke(uapi.RegMR, make([]byte, 16), uapi.Bytes(new(abi.IbUverbsRegMrResp)), nil, nil)
	}},
	{"write command with a short answer", always(syscall.ENOSPC), func(r *rig) (fields, error) {
		return nil, r.invoke(uapi.QueryDevice, uapi.Bytes(&abi.IbUverbsQueryDevice{}), make([]byte, 32), nil, nil)
	}},
	{"write command with a bad handle", append(badHandle[:len(badHandle):len(badHandle)], rule{"siw", "6.1", syscall.EOPNOTSUPP}), func(r *rig) (fields, error) {
		return nil, r.invoke(uapi.ReqNotifyCQ, uapi.Bytes(&abi.IbUverbsReqNotifyCq{CqHandle: 4711}), nil, nil, nil)
	}},
}

// badHandle is what write commands say to a handle that is none.
var badHandle = rules{{errno: syscall.EINVAL}, {from: "5.11", errno: syscall.ENOENT}}

func (r *rig) destroyPD(handle uint32) error {
	return r.cmd(uapi.PDDestroy).Destroy(abi.UVERBS_ATTR_DESTROY_PD_HANDLE, handle).Do(r.f)
}

// loose is a method whose attributes this module would let pass whatever their length.
func loose(m *uapi.Method) *uapi.Method {
	l := *m
	l.Attrs = nil
	for _, a := range m.Attrs {
		a.Must, a.Min, a.Max = false, 0, uapi.NoLimit
		l.Attrs = append(l.Attrs, a)
	}
	return &l
}

// with is a method with one attribute more.
func with(m *uapi.Method, a uapi.Attr) *uapi.Method {
	l := loose(m)
	l.Attrs = append(l.Attrs, a)
	return l
}
