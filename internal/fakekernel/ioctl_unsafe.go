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
	raw  *abi.IbUverbsAttr // in the caller's request, where new handles go
	obj  object            // Use and Destroy
	file *eventFile        // UseFD
}

// request is an ioctl that is being carried out.
type request struct {
	f     *verbsFile
	m     *uapi.Method
	attrs [24]attr
	n     int
}

// Ioctl is the entry of all verbs: core/uverbs_ioctl.c, ib_uverbs_ioctl.
func (f *verbsFile) Ioctl(req uint32, arg unsafe.Pointer) error {
	if req != abi.RDMA_VERBS_IOCTL {
		return unix.ENOTTY
	}
	hdr := *(*abi.IbUverbsIoctlHdr)(arg)
	if uint64(hdr.Length) > pageSize || uintptr(hdr.Length) != hdrSize+uintptr(hdr.NumAttrs)*attrSize {
		return unix.EINVAL
	}
	if hdr.Reserved1 != 0 || hdr.Reserved2 != 0 {
		return unix.EPROTONOSUPPORT
	}
	if err := f.k.check(ioctlCall(arg, &hdr)); err != nil {
		return err
	}
	f.k.mu.Lock()
	defer f.k.mu.Unlock()
	m := uapi.Lookup(hdr.ObjectId, hdr.MethodId)
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
	for i := range uintptr(hdr.NumAttrs) {
		if err := r.parse((*abi.IbUverbsAttr)(unsafe.Add(arg, hdrSize+i*attrSize))); err != nil {
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

// ioctlCall describes the call. INVOKE_WRITE counts as the command that it carries.
func ioctlCall(arg unsafe.Pointer, hdr *abi.IbUverbsIoctlHdr) Call {
	c := Call{Kind: CallIoctl, Object: hdr.ObjectId, Method: hdr.MethodId}
	if hdr.ObjectId != abi.UVERBS_OBJECT_DEVICE || hdr.MethodId != abi.UVERBS_METHOD_INVOKE_WRITE {
		return c
	}
	for i := range uintptr(hdr.NumAttrs) {
		a := (*abi.IbUverbsAttr)(unsafe.Add(arg, hdrSize+i*attrSize))
		if a.AttrId == abi.UVERBS_ATTR_WRITE_CMD {
			return Call{Kind: CallWrite, Cmd: uint32(*a.Data()), Ioctl: true}
		}
	}
	return c
}
