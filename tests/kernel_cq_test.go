//go:build linux

package tests

import (
	"syscall"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
)

// cqCases are about completion queues and their channels.
var cqCases = []kernelCase{
	{"create", nil, func(r *rig) (fields, error) {
		var sizes []uint32
		for _, n := range []uint32{1, 2, 15, 16, 1000} {
			_, got, err := r.cq(cqRequest{cqe: n})
			r.must(err)
			sizes = append(sizes, got)
		}
		return fields{"sizes": sizes}, nil
	}},
	{"create for no completion", always(syscall.EINVAL), func(r *rig) (fields, error) {
		_, _, err := r.cq(cqRequest{})
		return nil, err
	}},
	{"create beyond the limit", always(syscall.EINVAL), func(r *rig) (fields, error) {
		_, _, err := r.cq(cqRequest{cqe: 1 << 30})
		return nil, err
	}},
	{"create on a vector that is not there", always(syscall.EINVAL), func(r *rig) (fields, error) {
		_, _, err := r.cq(cqRequest{cqe: 4, vector: 1 << 20})
		return nil, err
	}},
	{"create without room for the driver's answer", always(syscall.EINVAL), func(r *rig) (fields, error) {
		_, _, err := r.cq(cqRequest{cqe: 4, mute: true})
		return nil, err
	}},
	{"create on what is no descriptor", always(syscall.EBADF), func(r *rig) (fields, error) {
		_, _, err := r.cq(cqRequest{cqe: 4, channel: 99_999})
		return nil, err
	}},
	{"create on a channel", nil, func(r *rig) (fields, error) {
		_, fd := r.channel()
		_, _, err := r.cq(cqRequest{cqe: 4, channel: fd})
		return nil, err
	}},
	{"destroy", nil, func(r *rig) (fields, error) {
		cq := r.mustCQ(4)
		var resp abi.IbUverbsDestroyCqResp
		err := r.destroyCQ(cq, &resp)
		return fields{"events": resp.CompEventsReported, "async": resp.AsyncEventsReported}, err
	}},
	{"destroy under a queue pair", always(syscall.EBUSY), func(r *rig) (fields, error) {
		q := r.mustQP(qpRequest{})
		return nil, r.destroyCQ(q.cq, new(abi.IbUverbsDestroyCqResp))
	}},
	{"arm", rules{{driver: "siw", from: "6.1", errno: syscall.EOPNOTSUPP}}, func(r *rig) (fields, error) {
		_, fd := r.channel()
		cq, _, err := r.cq(cqRequest{cqe: 4, channel: fd})
		r.must(err)
		return nil, r.invoke(uapi.ReqNotifyCQ, uapi.Bytes(&abi.IbUverbsReqNotifyCq{CqHandle: cq}), nil, nil, nil)
	}},
	{"resize", onlySiw(syscall.EOPNOTSUPP), func(r *rig) (fields, error) {
		got, err := r.resize(r.mustCQ(4), 100, make([]byte, 16))
		if err != nil {
			return nil, err
		}
		return fields{"size": got}, nil
	}},
	{"resize to nothing", rules{{errno: syscall.EINVAL}, {driver: "siw", errno: syscall.EOPNOTSUPP}}, func(r *rig) (fields, error) {
		_, err := r.resize(r.mustCQ(4), 0, make([]byte, 16))
		return nil, err
	}},
	{"resize beyond the limit", rules{{errno: syscall.EINVAL}, {driver: "siw", errno: syscall.EOPNOTSUPP}}, func(r *rig) (fields, error) {
		_, err := r.resize(r.mustCQ(4), 1<<24, make([]byte, 16))
		return nil, err
	}},
	{"resize without room for the answer", rules{{errno: syscall.EINVAL}, {driver: "siw", errno: syscall.EOPNOTSUPP}}, func(r *rig) (fields, error) {
		_, err := r.resize(r.mustCQ(4), 100, nil)
		return nil, err
	}},
	{"moderate", always(syscall.EOPNOTSUPP), func(r *rig) (fields, error) {
		in := abi.IbUverbsExModifyCq{CqHandle: r.mustCQ(4), AttrMask: 1}
		return nil, r.invoke(uapi.ModifyCQ, uapi.Bytes(&in), nil, nil, nil)
	}},
}

// cqRequest is how a completion queue is wanted.
type cqRequest struct {
	cqe, vector uint32
	channel     int32
	mute        bool // no room for the driver's answer
}

// cqOut is the driver's answer.
func (r *rig) cqOut() []byte {
	if r.rxe() {
		return uapi.Bytes(new(abi.RxeCreateCqResp))
	}
	return uapi.Bytes(new(abi.SiwUrespCreateCq))
}

func (r *rig) cq(q cqRequest) (handle, size uint32, err error) {
	c := r.cmd(uapi.CQCreate).
		New(abi.UVERBS_ATTR_CREATE_CQ_HANDLE).
		In32(abi.UVERBS_ATTR_CREATE_CQ_CQE, q.cqe).
		In64(abi.UVERBS_ATTR_CREATE_CQ_USER_HANDLE, 1).
		In32(abi.UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, q.vector).
		Out(abi.UVERBS_ATTR_CREATE_CQ_RESP_CQE, uapi.Bytes(&size))
	if q.channel != 0 {
		c.UseFD(abi.UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, q.channel)
	}
	if !q.mute {
		c.Driver(nil, r.cqOut())
	}
	err = c.Do(r.f)
	return c.Result(abi.UVERBS_ATTR_CREATE_CQ_HANDLE), size, err
}

func (r *rig) mustCQ(cqe uint32) uint32 {
	r.t.Helper()
	h, _, err := r.cq(cqRequest{cqe: cqe})
	r.must(err)
	return h
}

func (r *rig) destroyCQ(handle uint32, resp *abi.IbUverbsDestroyCqResp) error {
	return r.cmd(uapi.CQDestroy).
		Destroy(abi.UVERBS_ATTR_DESTROY_CQ_HANDLE, handle).
		Out(abi.UVERBS_ATTR_DESTROY_CQ_RESP, uapi.Bytes(resp)).Do(r.f)
}

func (r *rig) channel() (uapi.File, int32) {
	r.t.Helper()
	var resp abi.IbUverbsCreateCompChannelResp
	r.must(r.invoke(uapi.CreateCompChannel, uapi.Bytes(&abi.IbUverbsCreateCompChannel{}), uapi.Bytes(&resp), nil, nil))
	f, err := r.sys.Opener.Adopt(int32(resp.Fd))
	r.must(err)
	r.t.Cleanup(func() { f.Close() })
	return f, int32(resp.Fd)
}

func (r *rig) resize(cq, cqe uint32, out []byte) (uint32, error) {
	in := abi.IbUverbsResizeCq{CqHandle: cq, Cqe: cqe}
	var resp abi.IbUverbsResizeCqResp
	err := r.invoke(uapi.ResizeCQ, uapi.Bytes(&in), uapi.Bytes(&resp), nil, out)
	return resp.Cqe, err
}
