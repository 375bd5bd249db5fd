//go:build linux

package fakekernel

import (
	"context"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
)

// command carries a write command out; in is its struct without the header, resp takes
// the response, of which it returns the length.
func (f *verbsFile) command(w *uapi.WriteCmd, in, resp []byte) (int, error) {
	if !f.context {
		return 0, unix.EINVAL
	}
	switch w.ID {
	case abi.IB_USER_VERBS_CMD_QUERY_DEVICE:
		return f.queryDevice(in, resp)
	case uapi.ExCmd | abi.IB_USER_VERBS_EX_CMD_QUERY_DEVICE:
		return f.queryDeviceEx(in, resp)
	case abi.IB_USER_VERBS_CMD_ALLOC_PD:
		return f.allocPD(resp)
	case abi.IB_USER_VERBS_CMD_REG_MR:
		return f.regMR(in, resp)
	case abi.IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL:
		return f.createCompChannel(resp)
	case abi.IB_USER_VERBS_CMD_REQ_NOTIFY_CQ:
		return 0, f.reqNotify(in)
	case abi.IB_USER_VERBS_CMD_MODIFY_QP:
		return 0, f.modifyQP(in)
	case abi.IB_USER_VERBS_CMD_QUERY_QP:
		return f.queryQP(in, resp)
	case abi.IB_USER_VERBS_CMD_POST_SEND:
		return f.postSend(in, resp)
	}
	return 0, unix.EOPNOTSUPP
}

// invokeWrite is the ioctl that wraps a write command. Driver input that rxe does not
// expect is ignored, as kernels before 7.2 do.
func (f *verbsFile) invokeWrite(r *request) error {
	id := r.number(abi.UVERBS_ATTR_WRITE_CMD)
	if id&^(uapi.ExCmd|0xff) != 0 {
		return unix.EINVAL
	}
	w := uapi.LookupWrite(uint32(id))
	if w == nil {
		return unix.EOPNOTSUPP
	}
	var in []byte
	if a := r.get(abi.UVERBS_ATTR_CORE_IN); a != nil {
		var err error
		if in, err = a.in(); err != nil {
			return err
		}
	}
	out := r.get(abi.UVERBS_ATTR_CORE_OUT)
	room := 0
	if out != nil {
		room = int(out.raw.Len)
	}
	if len(in) < w.In || room < w.Out {
		return unix.ENOSPC
	}
	if w.ID&uapi.ExCmd != 0 {
		if err := zeroTail(in, w.In); err != nil {
			return err
		}
	}
	resp := f.cmdResp[:min(room, len(f.cmdResp))]
	n, err := f.command(w, in, resp)
	if err != nil || n == 0 {
		return err
	}
	return out.out(resp[:n])
}

// Write is the write interface: header, struct, and the address of the response as the
// first field of the struct. Extended commands are not accepted here.
func (f *verbsFile) Write(_ context.Context, p []byte) (int, error) {
	if len(p) < 8 {
		return 0, unix.EINVAL
	}
	hdr := load[abi.IbUverbsCmdHdr](p)
	if err := f.k.check(Call{Kind: CallWrite, Cmd: hdr.Command}); err != nil {
		return 0, err
	}
	if f.k.opts.DenyWrite {
		return 0, unix.EACCES
	}
	f.k.mu.Lock()
	defer f.k.mu.Unlock()
	if err := f.alive(); err != nil {
		return 0, err
	}
	if hdr.Command&^(uapi.ExCmd|0xff) != 0 {
		return 0, unix.EINVAL
	}
	w := uapi.LookupWrite(hdr.Command)
	switch {
	case w == nil || w.ID&uapi.ExCmd != 0:
		return 0, unix.EOPNOTSUPP
	case int(hdr.InWords)*4 != len(p):
		return 0, unix.EINVAL
	case len(p)-8 < w.In || int(hdr.OutWords)*4 < w.Out:
		return 0, unix.ENOSPC
	}
	resp := f.cmdResp[:min(int(hdr.OutWords)*4, len(f.cmdResp))]
	n, err := f.command(w, p[8:], resp)
	if err != nil {
		return 0, err
	}
	if n > 0 {
		if err := copyOut(load[uint64](p[8:]), resp[:n]); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// lookup finds an object by the handle in a write command. A wrong handle is EINVAL here,
// other than in an attribute.
func lookup[T object](f *verbsFile, handle uint32) (T, error) {
	o, ok := f.objects[handle].(T)
	if !ok {
		return o, unix.EINVAL
	}
	return o, nil
}
