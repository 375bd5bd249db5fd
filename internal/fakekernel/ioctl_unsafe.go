//go:build linux

package fakekernel

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
)

const (
	hdrSize  = unsafe.Sizeof(abi.IbUverbsIoctlHdr{})
	attrSize = unsafe.Sizeof(abi.IbUverbsAttr{})
)

// attr is one attribute of a request that passed the checks.
type attr struct {
	spec *uapi.Attr
	raw  *abi.IbUverbsAttr // in the frame, where new handles go
	mem  userMem
	obj  object     // Use and Destroy
	file *eventFile // UseFD
}

// request is an ioctl that is being carried out.
type request struct {
	f     *verbsFile
	m     *uapi.Method
	attrs [24]attr
	n     int
}

// Ioctl is the entry of all verbs of this process: the frame is used where it is.
func (f *verbsFile) Ioctl(req uint32, arg unsafe.Pointer) error {
	if req != abi.RDMA_VERBS_IOCTL {
		return unix.ENOTTY
	}
	hdr := *(*abi.IbUverbsIoctlHdr)(arg)
	if err := checkFrame(&hdr); err != nil {
		return err
	}
	return f.ioctl(unsafe.Slice((*byte)(arg), hdr.Length))
}

// checkFrame is what is looked at before the frame is copied.
func checkFrame(hdr *abi.IbUverbsIoctlHdr) error {
	switch {
	case uint64(hdr.Length) > pageSize || uintptr(hdr.Length) != hdrSize+uintptr(hdr.NumAttrs)*attrSize:
		return unix.EINVAL
	case hdr.Reserved1 != 0 || hdr.Reserved2 != 0:
		return unix.EPROTONOSUPPORT
	}
	return nil
}

// ioctl carries a request out: core/uverbs_ioctl.c, ib_uverbs_ioctl. The frame, aligned to
// eight bytes and as long as its header says, is the caller's own or a copy of it: what
// the kernel writes into it, handles and flags of attributes, is there when it returns.
// Whatever attributes point at is in the memory of the file's process.
func (f *verbsFile) ioctl(frame []byte) error {
	t := f.k.tracer
	if t == nil || f.dev.Driver != abi.RDMA_DRIVER_MLX5 {
		return f.carryOut(frame)
	}
	c := t.before(f, frame)
	err := f.carryOut(frame)
	t.after(c, err)
	return err
}

func (f *verbsFile) carryOut(frame []byte) error {
	hdr := view[abi.IbUverbsIoctlHdr](frame)
	if err := f.k.check(ioctlCall(frame, hdr)); err != nil {
		return err
	}
	f.k.mu.Lock()
	defer f.k.mu.Unlock()
	m := lookupMethod(hdr.ObjectId, hdr.MethodId)
	if err := f.alive(); err != nil && !(err == unix.EIO && f.dev.zapped && m != nil && destroys(m)) {
		return err
	}
	if hdr.DriverId != f.dev.Driver {
		return unix.EINVAL
	}
	if m == nil || !f.k.version.knows(m.Object, m.ID) || !f.dev.drv.has(f.k.version, m.Object, m.ID) {
		return unix.EPROTONOSUPPORT
	}
	r := f.scratch()
	r.f, r.m, r.n = f, m, 0
	defer f.done(r)
	for i := range int(hdr.NumAttrs) {
		if err := r.parse(frameAttr(frame, i)); err != nil {
			return err
		}
	}
	for i := range m.Attrs {
		if m.Attrs[i].Must && r.get(m.Attrs[i].ID) == nil {
			return unix.EINVAL
		}
	}
	return f.method(r)
}

func frameAttr(frame []byte, i int) *abi.IbUverbsAttr {
	return view[abi.IbUverbsAttr](frame[int(hdrSize)+i*int(attrSize):])
}

// ioctlCall describes the call. INVOKE_WRITE counts as the command that it carries.
func ioctlCall(frame []byte, hdr *abi.IbUverbsIoctlHdr) Call {
	c := Call{Kind: CallIoctl, Object: hdr.ObjectId, Method: hdr.MethodId}
	if hdr.ObjectId != abi.UVERBS_OBJECT_DEVICE || hdr.MethodId != abi.UVERBS_METHOD_INVOKE_WRITE {
		return c
	}
	for i := range int(hdr.NumAttrs) {
		if a := frameAttr(frame, i); a.AttrId == abi.UVERBS_ATTR_WRITE_CMD {
			return Call{Kind: CallWrite, Cmd: uint32(*a.Data()), Ioctl: true}
		}
	}
	return c
}
