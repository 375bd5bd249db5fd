//go:build linux

package fakekernel

import (
	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
)

// parse checks one attribute: core/uverbs_ioctl.c, uverbs_set_attr and
// uverbs_process_attr.
func (r *request) parse(raw *abi.IbUverbsAttr) error {
	if raw.Flags&^abi.UVERBS_ATTR_F_MANDATORY != 0 {
		return unix.EINVAL
	}
	spec := r.m.Attr(raw.AttrId)
	if spec == nil || spec.ID >= driverObjects && !r.driverAttr(spec.ID) {
		if raw.Flags&abi.UVERBS_ATTR_F_MANDATORY != 0 {
			return unix.EPROTONOSUPPORT
		}
		return nil
	}
	if r.get(raw.AttrId) != nil || r.n == len(r.attrs) {
		return unix.EINVAL
	}
	a := &r.attrs[r.n]
	*a = attr{spec: spec, raw: raw, mem: r.f.reach()}
	if err := r.judge(a); err != nil {
		return err
	}
	r.n++
	return nil
}

// driverAttr tells whether the driver has an attribute of its own.
func (r *request) driverAttr(id uint16) bool {
	if r.m.Object >= driverObjects || r.m.UHW && id <= abi.UVERBS_ATTR_UHW_OUT {
		return true
	}
	return r.f.dev.Driver == abi.RDMA_DRIVER_MLX5 && r.f.k.version >= v612
}

func (r *request) judge(a *attr) error {
	if a.raw.AttrData[0] != 0 {
		return unix.EINVAL
	}
	switch a.spec.Class {
	case uapi.PtrIn:
		return a.judgeIn()
	case uapi.PtrOut:
		if int(a.raw.Len) < a.spec.Min || int(a.raw.Len) > a.spec.Max && !a.spec.Tail {
			return unix.EINVAL
		}
		return nil
	case uapi.ConstIn:
		return unless(a.raw.Len == 8)
	case uapi.FlagsIn:
		return unless(a.raw.Len == 8 || a.raw.Len == 4)
	}
	if a.raw.Len != 0 {
		return unix.EINVAL
	}
	return r.resolve(a)
}

func unless(ok bool) error {
	if ok {
		return nil
	}
	return unix.EINVAL
}

// known is how much of an input the kernel understands where longer ones are accepted.
func known(a *uapi.Attr) int {
	if !a.Tail || a.ID == abi.UVERBS_ATTR_CORE_IN || a.ID == abi.UVERBS_ATTR_UHW_IN {
		return uapi.NoLimit // a list, or judged by the command, by the driver
	}
	return a.Min
}

func (a *attr) judgeIn() error {
	n := int(a.raw.Len)
	switch {
	case n < a.spec.Min:
		return unix.EINVAL
	case n > a.spec.Max:
		return unix.EINVAL
	case n <= known(a.spec):
		return nil
	}
	b, err := a.in()
	if err != nil {
		return err
	}
	return zeroTail(b, known(a.spec))
}

// zeroTail says EOPNOTSUPP if there is anything beyond what the kernel knows.
func zeroTail(b []byte, known int) error {
	for _, c := range b[min(known, len(b)):] {
		if c != 0 {
			return unix.EOPNOTSUPP
		}
	}
	return nil
}

// resolve looks the object of a handle or descriptor up.
func (r *request) resolve(a *attr) error {
	switch a.spec.Class {
	case uapi.New, uapi.NewFD:
		return nil
	case uapi.UseFD:
		e := r.f.eventAt(*a.raw.DataS64())
		if e == nil {
			return unix.EBADF
		}
		if e.ctx != r.f || e.completion != (a.spec.Object == abi.UVERBS_OBJECT_COMP_CHANNEL) {
			return unix.EINVAL
		}
		a.file = e
		return nil
	}
	o := r.f.objects[uint32(*a.raw.Data())]
	switch {
	case *a.raw.Data()>>32 != 0 || o == nil:
		return unix.ENOENT
	case o.kind() != a.spec.Object:
		return unix.EINVAL
	}
	a.obj = o
	return nil
}

// get returns an attribute that came with the request, nil if it did not.
func (r *request) get(id uint16) *attr {
	for i := range r.attrs[:r.n] {
		if r.attrs[i].spec.ID == id {
			return &r.attrs[i]
		}
	}
	return nil
}

// in returns the bytes of an input.
func (a *attr) in() ([]byte, error) {
	b := make([]byte, a.raw.Len)
	if len(b) <= 8 {
		copy(b, bytesOf(a.raw.Data()))
		return b, nil
	}
	return b, a.mem.in(b, *a.raw.Data())
}

// out writes an output: what does not fit is cut, what is left of the buffer is cleared
// if the attribute says so.
func (a *attr) out(b []byte) error {
	if a == nil {
		return nil
	}
	n := min(len(b), int(a.raw.Len))
	if err := a.mem.out(*a.raw.Data(), b[:n]); err != nil {
		return err
	}
	if rest := int(a.raw.Len) - n; rest > 0 && a.spec.Tail && a.spec.ID != abi.UVERBS_ATTR_UHW_OUT {
		if err := a.mem.out(*a.raw.Data()+uint64(n), make([]byte, rest)); err != nil {
			return err
		}
	}
	a.raw.Flags |= abi.UVERBS_ATTR_F_VALID_OUTPUT
	return nil
}

// number is the value of a constant or of flags, 0 if it did not come.
func (r *request) number(id uint16) uint64 {
	a := r.get(id)
	switch {
	case a == nil:
		return 0
	case a.raw.Len == 4:
		return uint64(load[uint32](bytesOf(a.raw.Data())))
	}
	return *a.raw.Data()
}

// value reads an input of up to 8 bytes.
func value[T uint32 | uint64](r *request, id uint16) T {
	return load[T](bytesOf(r.get(id).raw.Data()))
}

// object returns the object of an attribute, the zero T if it did not come.
func used[T object](r *request, id uint16) (o T) {
	if a := r.get(id); a != nil {
		o, _ = a.obj.(T)
	}
	return o
}
