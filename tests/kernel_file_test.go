//go:build linux

package tests

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
)

const shared = uapi.ProtRead | uapi.ProtWrite

// fileCases are about mappings and event descriptors.
var fileCases = []kernelCase{
	{"map a queue", nil, func(r *rig) (fields, error) {
		off, size := r.queue()
		mem, err := r.f.Map(off, size, shared)
		return fields{"size": len(mem)}, err
	}},
	{"map a queue twice" + rxeOnly, always(syscall.EINVAL), func(r *rig) (fields, error) {
		off, size := r.queue()
		_, err := r.f.Map(off, size, shared)
		r.must(err)
		_, err = r.f.Map(off, size, shared)
		return nil, err
	}},
	{"map more than there is", always(syscall.EINVAL), func(r *rig) (fields, error) {
		off, size := r.queue()
		_, err := r.f.Map(off, size+1<<20, shared)
		return nil, err
	}},
	{"map what is not there", always(syscall.EINVAL), func(r *rig) (fields, error) {
		_, err := r.f.Map(1<<30, 1<<16, shared)
		return nil, err
	}},
	{"no event yet", always(syscall.ETIMEDOUT), func(r *rig) (fields, error) {
		ch, _ := r.channel()
		var e abi.IbUverbsCompEventDesc
		return nil, briefly(ch, uapi.Bytes(&e))
	}},
	{"asynchronous events", always(syscall.ETIMEDOUT), func(r *rig) (fields, error) {
		c := r.cmd(uapi.AsyncEventAlloc).NewFD(abi.UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE)
		r.must(c.Do(r.f))
		f, err := r.sys.Opener.Adopt(int32(c.Result(abi.UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE)))
		r.must(err)
		r.t.Cleanup(func() { f.Close() })
		var e abi.IbUverbsAsyncEventDesc
		return nil, briefly(f, uapi.Bytes(&e))
	}},
	{"wait on a channel of a file that was closed", always(syscall.EIO), func(r *rig) (fields, error) {
		ch, _ := r.channel()
		r.must(r.f.Close())
		var e abi.IbUverbsCompEventDesc
		return nil, briefly(ch, uapi.Bytes(&e))
	}},
}

// briefly reads an event that does not come: ETIMEDOUT stands for that.
func briefly(f uapi.File, p []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	_, err := f.Read(ctx, p)
	if errors.Is(err, context.DeadlineExceeded) {
		return syscall.ETIMEDOUT
	}
	return err
}

// queue is where a completion queue for 15 completions can be mapped.
func (r *rig) queue() (off int64, size int) {
	r.t.Helper()
	var got uint32
	c := r.cmd(uapi.CQCreate).
		New(abi.UVERBS_ATTR_CREATE_CQ_HANDLE).
		In32(abi.UVERBS_ATTR_CREATE_CQ_CQE, 15).
		In64(abi.UVERBS_ATTR_CREATE_CQ_USER_HANDLE, 1).
		In32(abi.UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, 0).
		Out(abi.UVERBS_ATTR_CREATE_CQ_RESP_CQE, uapi.Bytes(&got))
	if r.rxe() {
		var resp abi.RxeCreateCqResp
		r.must(c.Driver(nil, uapi.Bytes(&resp)).Do(r.f))
		return int64(resp.Mi.Offset), int(resp.Mi.Size)
	}
	var resp abi.SiwUrespCreateCq
	r.must(c.Driver(nil, uapi.Bytes(&resp)).Do(r.f))
	page := syscall.Getpagesize()
	bytes := int(resp.NumCqe)*32 + 8
	return int64(resp.CqKey), (bytes + page - 1) / page * page
}
