//go:build linux

package fakekernel

import (
	"runtime"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
)

// frame is a request built by hand, well formed or not.
type frame struct {
	hdr   abi.IbUverbsIoctlHdr
	attrs [40]abi.IbUverbsAttr
}

func (r *frame) add(id, size, flags uint16, data uint64) *frame {
	a := &r.attrs[r.hdr.NumAttrs]
	r.hdr.NumAttrs++
	r.hdr.Length += uint16(unsafe.Sizeof(*a))
	a.AttrId, a.Len, a.Flags = id, size, flags
	*a.Data() = data
	return r
}

func newFrame(object, method uint16) *frame {
	r := new(frame)
	r.hdr.ObjectId, r.hdr.MethodId, r.hdr.DriverId, r.hdr.Length = object, method, abi.RDMA_DRIVER_RXE, uint16(unsafe.Sizeof(r.hdr))
	return r
}

func (r *frame) do(f uapi.File) error { return f.Ioctl(abi.RDMA_VERBS_IOCTL, unsafe.Pointer(r)) }

// address pins memory for the test and returns where it is.
func address(t *testing.T, b []byte) uint64 {
	var pin runtime.Pinner
	pin.Pin(&b[0])
	t.Cleanup(pin.Unpin)
	return uapi.Addr(b)
}

// TestFrameErrnos: what is wrong with the frame itself.
func TestFrameErrnos(t *testing.T) {
	k := start(t, Options{})
	d := openDev(t, k)
	must := uint16(abi.UVERBS_ATTR_F_MANDATORY)
	port := func() *frame { // a good request
		return newFrame(abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_QUERY_PORT).
			add(abi.UVERBS_ATTR_QUERY_PORT_PORT_NUM, 8, must, 1).
			add(abi.UVERBS_ATTR_QUERY_PORT_RESP, 48, must, address(t, make([]byte, 64)))
	}
	for _, tt := range []struct {
		name string
		edit func(*frame)
		want syscall.Errno
	}{
		{"good", func(*frame) {}, 0},
		{"length", func(r *frame) { r.hdr.Length++ }, unix.EINVAL},
		{"count", func(r *frame) { r.hdr.NumAttrs-- }, unix.EINVAL},
		{"reserved 1", func(r *frame) { r.hdr.Reserved1 = 1 }, unix.EPROTONOSUPPORT},
		{"reserved 2", func(r *frame) { r.hdr.Reserved2 = 1 }, unix.EPROTONOSUPPORT},
		{"driver", func(r *frame) { r.hdr.DriverId++ }, unix.EINVAL},
		{"method", func(r *frame) { r.hdr.MethodId = 99 }, unix.EPROTONOSUPPORT},
		{"object", func(r *frame) { r.hdr.ObjectId = 99 }, unix.EPROTONOSUPPORT},
		{"unknown mandatory attribute", func(r *frame) { r.add(77, 8, must, 0) }, unix.EPROTONOSUPPORT},
		{"unknown optional attribute", func(r *frame) { r.add(77, 8, 0, 0) }, 0},
		{"duplicate", func(r *frame) { r.add(abi.UVERBS_ATTR_QUERY_PORT_PORT_NUM, 8, must, 1) }, unix.EINVAL},
		{"missing", func(r *frame) { r.hdr.NumAttrs--; r.hdr.Length -= 16 }, unix.EINVAL},
		{"flags", func(r *frame) { r.attrs[0].Flags |= 4 }, unix.EINVAL},
		{"constant of 4 bytes", func(r *frame) { r.attrs[0].Len = 4 }, unix.EINVAL},
		{"reserved of an attribute", func(r *frame) { r.attrs[0].AttrData[0] = 1 }, unix.EINVAL},
		{"short output", func(r *frame) { r.attrs[1].Len = 40 }, unix.EINVAL},
		{"long output", func(r *frame) { r.attrs[1].Len = 64 }, 0},
		{"bad address", func(r *frame) { *r.attrs[1].Data() = 8 }, unix.EFAULT},
		{"port", func(r *frame) { *r.attrs[0].Data() = 2 }, unix.EINVAL},
	} {
		r := port()
		tt.edit(r)
		want(t, tt.name, r.do(d.f), tt.want)
	}
	want(t, "other ioctl", d.f.Ioctl(1, unsafe.Pointer(port())), unix.ENOTTY)
}

// TestAttrErrnos: what is wrong with inputs and handles.
func TestAttrErrnos(t *testing.T) {
	k := start(t, Options{})
	d := openDev(t, k)
	must := uint16(abi.UVERBS_ATTR_F_MANDATORY)
	pd, other := uint64(d.pd()), openDev(t, k)
	_, foreign := other.channel()
	_, own := d.channel()
	cqFrame := func() *frame {
		return newFrame(abi.UVERBS_OBJECT_CQ, abi.UVERBS_METHOD_CQ_CREATE).
			add(abi.UVERBS_ATTR_CREATE_CQ_HANDLE, 0, must, 0).
			add(abi.UVERBS_ATTR_CREATE_CQ_CQE, 4, must, load[uint64](bytesOf(&[2]uint32{10, 0}))).
			add(abi.UVERBS_ATTR_CREATE_CQ_USER_HANDLE, 8, must, 1).
			add(abi.UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, 4, must, 0).
			add(abi.UVERBS_ATTR_CREATE_CQ_RESP_CQE, 4, must, address(t, make([]byte, 4))).
			add(abi.UVERBS_ATTR_UHW_OUT, 16, must, address(t, make([]byte, 16)))
	}
	for _, tt := range []struct {
		name string
		edit func(*frame)
		want syscall.Errno
	}{
		{"good", func(*frame) {}, 0},
		{"channel", func(r *frame) { r.add(abi.UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, 0, must, uint64(own)) }, 0},
		{"handle with a length", func(r *frame) { r.attrs[0].Len = 4 }, unix.EINVAL},
		{"short input", func(r *frame) { r.attrs[1].Len = 3 }, unix.EINVAL},
		{"long input", func(r *frame) { r.attrs[1].Len = 5 }, unix.EINVAL},
		{"no entries", func(r *frame) { *r.attrs[1].Data() = 0 }, unix.EINVAL},
		{"too many entries", func(r *frame) { copy(bytesOf(r.attrs[1].Data()), bytesOf(&[1]uint32{maxCQE + 1})) }, unix.EINVAL},
		{"vector", func(r *frame) { copy(bytesOf(r.attrs[3].Data()), bytesOf(&[1]uint32{1})) }, unix.EINVAL},
		{"short driver output", func(r *frame) { r.attrs[5].Len = 8 }, unix.EINVAL},
		{"driver input", func(r *frame) { r.add(abi.UVERBS_ATTR_UHW_IN, 4, must, 0) }, unix.EINVAL},
		{"flags", func(r *frame) { r.add(abi.UVERBS_ATTR_CREATE_CQ_FLAGS, 8, must, 1) }, unix.EOPNOTSUPP},
		{"flags of 3 bytes", func(r *frame) { r.add(abi.UVERBS_ATTR_CREATE_CQ_FLAGS, 3, must, 0) }, unix.EINVAL},
		{"no such channel", func(r *frame) { r.add(abi.UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, 0, must, 5) }, unix.EBADF},
		{"another's channel", func(r *frame) { r.add(abi.UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, 0, must, uint64(foreign)) }, unix.EINVAL},
	} {
		r := cqFrame()
		tt.edit(r)
		want(t, tt.name, r.do(d.f), tt.want)
	}
	destroy := func(object, attr uint16, handle uint64) error {
		return newFrame(object, abi.UVERBS_METHOD_PD_DESTROY).add(attr, 0, must, handle).do(d.f)
	}
	want(t, "no such handle", destroy(abi.UVERBS_OBJECT_PD, abi.UVERBS_ATTR_DESTROY_PD_HANDLE, 1000), unix.ENOENT)
	want(t, "handle of another kind", destroy(abi.UVERBS_OBJECT_PD, abi.UVERBS_ATTR_DESTROY_PD_HANDLE, pd+1), unix.EINVAL)
	want(t, "the handle", destroy(abi.UVERBS_OBJECT_PD, abi.UVERBS_ATTR_DESTROY_PD_HANDLE, pd), 0)
	want(t, "twice", destroy(abi.UVERBS_OBJECT_PD, abi.UVERBS_ATTR_DESTROY_PD_HANDLE, pd), unix.ENOENT)
}

// TestInvokeErrnos: the write commands inside the ioctl.
func TestInvokeErrnos(t *testing.T) {
	d := openDev(t, start(t, Options{}))
	must := uint16(abi.UVERBS_ATTR_F_MANDATORY)
	invoke := func(id uint64, in, out int) error {
		r := newFrame(abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_INVOKE_WRITE).add(abi.UVERBS_ATTR_WRITE_CMD, 8, must, id)
		if in > 0 {
			b := make([]byte, in)
			data := address(t, b)
			if in <= 8 {
				data = 0
			}
			r.add(abi.UVERBS_ATTR_CORE_IN, uint16(in), must, data)
		}
		if out > 0 {
			r.add(abi.UVERBS_ATTR_CORE_OUT, uint16(out), must, address(t, make([]byte, out)))
		}
		return r.do(d.f)
	}
	want(t, "query device", invoke(abi.IB_USER_VERBS_CMD_QUERY_DEVICE, 8, 176), 0)
	want(t, "probe without structs", invoke(abi.IB_USER_VERBS_CMD_QUERY_DEVICE, 0, 0), unix.ENOSPC)
	want(t, "short input", invoke(abi.IB_USER_VERBS_CMD_QUERY_DEVICE, 4, 176), unix.ENOSPC)
	want(t, "short output", invoke(abi.IB_USER_VERBS_CMD_QUERY_DEVICE, 8, 172), unix.ENOSPC)
	want(t, "no handler", invoke(6, 8, 8), unix.EOPNOTSUPP)
	want(t, "stray bits", invoke(1<<20|1, 8, 176), unix.EINVAL)
	want(t, "extended, older caller", invoke(uapi.ExCmd|abi.IB_USER_VERBS_EX_CMD_QUERY_DEVICE, 8, 184), 0)
	tail := make([]byte, 16)
	tail[12] = 1
	long := newFrame(abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_INVOKE_WRITE).
		add(abi.UVERBS_ATTR_WRITE_CMD, 8, must, uapi.ExCmd|abi.IB_USER_VERBS_EX_CMD_QUERY_DEVICE).
		add(abi.UVERBS_ATTR_CORE_IN, 16, must, address(t, tail)).
		add(abi.UVERBS_ATTR_CORE_OUT, 184, must, address(t, make([]byte, 184)))
	want(t, "extended, newer caller", long.do(d.f), unix.EOPNOTSUPP)
	tail[12] = 0
	want(t, "extended, newer caller with zeros", long.do(d.f), 0)
	want(t, "wrong handle", invoke(abi.IB_USER_VERBS_CMD_REQ_NOTIFY_CQ, 8, 0), unix.ENOENT)
}
