//go:build linux

package fakekernel

import (
	"context"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
)

// command carries a write command out; in is its struct without the header, resp takes
// the response, of which it returns the length, and u is the driver's part of both.
func (f *verbsFile) command(w *uapi.WriteCmd, in, resp []byte, u *udata) (int, error) {
	if !f.context {
		return 0, unix.EINVAL
	}
	switch w.ID {
	case abi.IB_USER_VERBS_CMD_QUERY_DEVICE:
		return f.queryDevice(in, resp)
	case uapi.ExCmd | abi.IB_USER_VERBS_EX_CMD_QUERY_DEVICE:
		return f.queryDeviceEx(in, resp, u)
	case abi.IB_USER_VERBS_CMD_ALLOC_PD:
		return f.allocPD(resp, u)
	case abi.IB_USER_VERBS_CMD_REG_MR:
		return f.regMR(in, resp, u)
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
	case abi.IB_USER_VERBS_CMD_MODIFY_SRQ:
		return 0, f.modifySRQ(in, u)
	case abi.IB_USER_VERBS_CMD_QUERY_SRQ:
		return f.querySRQ(in, resp)
	case abi.IB_USER_VERBS_CMD_CREATE_AH:
		return f.createAH(in, resp, u)
	case abi.IB_USER_VERBS_CMD_ALLOC_MW:
		return f.allocMW(in, resp, u)
	case abi.IB_USER_VERBS_CMD_REREG_MR:
		return f.reregMR(in, resp)
	case abi.IB_USER_VERBS_CMD_RESIZE_CQ:
		return f.resizeCQ(in, resp, u)
	case abi.IB_USER_VERBS_CMD_ATTACH_MCAST:
		return 0, f.attachMcast(in)
	case abi.IB_USER_VERBS_CMD_DETACH_MCAST:
		return 0, f.detachMcast(in)
	}
	return 0, unix.EOPNOTSUPP
}

// invokeWrite is the ioctl that wraps a write command.
func (f *verbsFile) invokeWrite(r *request) error {
	id := r.number(abi.UVERBS_ATTR_WRITE_CMD)
	if id&^(uapi.ExCmd|0xff) != 0 {
		return unix.EINVAL
	}
	w := uapi.LookupWrite(uint32(id))
	if w == nil || !f.dev.drv.does(f.k.version, w.ID) {
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
	if len(in) < w.In || room < w.Out && w.ID&uapi.ExCmd == 0 { // extended answers are cut
		return unix.ENOSPC
	}
	if w.ID&uapi.ExCmd != 0 {
		if err := zeroTail(in, w.In); err != nil {
			return err
		}
	}
	u, err := r.udata()
	if err != nil {
		return err
	}
	resp := f.cmdResp[:min(room, len(f.cmdResp))]
	n, err := f.command(w, in, resp, &u)
	if err != nil {
		return err
	}
	if n > 0 {
		if err := out.out(resp[:n]); err != nil {
			return err
		}
	}
	return r.reply(&u)
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
	case w == nil || w.ID&uapi.ExCmd != 0 || !f.dev.drv.does(f.k.version, w.ID):
		return 0, unix.EOPNOTSUPP
	case int(hdr.InWords)*4 != len(p):
		return 0, unix.EINVAL
	case len(p)-8 < w.In || int(hdr.OutWords)*4 < w.Out:
		return 0, unix.ENOSPC
	}
	in, room := p[8:], int(hdr.OutWords)*4
	f.hw = udata{in: in[w.In:], room: room - w.Out}
	n, err := f.command(w, in[:w.In], f.cmdResp[:w.Out], &f.hw)
	if err != nil {
		return 0, err
	}
	if n+len(f.hw.out) > 0 {
		answer := append(f.cmdResp[:n], f.hw.out...)
		if err := f.reach().out(load[uint64](in), answer); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// lookup finds an object by the handle in a write command. Linux 5.10 said EINVAL of a wrong
// one, 6.1 says ENOENT.
func lookup[T object](f *verbsFile, handle uint32) (T, error) {
	o, ok := f.objects[handle].(T)
	if !ok && f.k.version < v601 {
		return o, unix.EINVAL
	}
	if !ok {
		return o, unix.ENOENT
	}
	return o, nil
}
