package uapi

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/pureverbs/rdma/abi"
)

// maxAttrs is more than any method has.
const maxAttrs = 20

// request is the frame of kernel-abi.md 2.1: a header and the attributes right behind it.
type request struct {
	hdr   abi.IbUverbsIoctlHdr
	attrs [maxAttrs]abi.IbUverbsAttr
}

// A Command builds one ioctl of the schema and issues it. Setters keep the first mistake
// for Do to report, so call sites need no checks of their own.
type Command struct {
	method *Method
	req    *request // on the heap: the kernel writes into it
	n      int
	data   [][]byte // what the attributes point at, pinned during Do
	err    error
}

// NewCommand starts a request for a device of the given driver.
func NewCommand(m *Method, driver uint32) *Command {
	c := &Command{method: m, req: new(request)}
	c.req.hdr.ObjectId, c.req.hdr.MethodId, c.req.hdr.DriverId = m.Object, m.ID, driver
	return c
}

// add appends an attribute after checking it against the schema.
func (c *Command) add(id uint16, class Class, size int) *abi.IbUverbsAttr {
	spec := c.method.Attr(id)
	switch {
	case spec == nil:
		c.fail("attribute %d is not in the schema", id)
	case spec.Class != class:
		c.fail("attribute %d has another class", id)
	case (class == PtrIn || class == PtrOut) && (size < spec.Min || size > spec.Max || size >= NoLimit):
		c.fail("attribute %d has %d bytes, want %d to %d", id, size, spec.Min, spec.Max)
	case c.n == maxAttrs:
		c.fail("more than %d attributes", maxAttrs)
	}
	if c.err != nil {
		return new(abi.IbUverbsAttr)
	}
	a := &c.req.attrs[c.n]
	c.n++
	a.AttrId, a.Len, a.Flags = id, uint16(size), abi.UVERBS_ATTR_F_MANDATORY
	return a
}

func (c *Command) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(c.method.Name+": "+format, args...)
	}
}

// In passes bytes to the kernel: by value where they fit the attribute, else by address.
func (c *Command) In(id uint16, b []byte) *Command {
	a := c.add(id, PtrIn, len(b))
	if len(b) <= 8 {
		copy(Bytes(a.Data()), b)
		return c
	}
	c.data = append(c.data, b)
	return c
}

// In32 passes a 32-bit value.
func (c *Command) In32(id uint16, v uint32) *Command { return c.In(id, Bytes(&v)) }

// In64 passes a 64-bit value.
func (c *Command) In64(id uint16, v uint64) *Command { return c.In(id, Bytes(&v)) }

// Out names the memory that the kernel fills.
func (c *Command) Out(id uint16, b []byte) *Command {
	c.add(id, PtrOut, len(b))
	if len(b) > 0 {
		c.data = append(c.data, b)
	}
	return c
}

// Const passes a number of class ConstIn.
func (c *Command) Const(id uint16, v uint64) *Command {
	*c.add(id, ConstIn, 8).Data() = v
	return c
}

// Flags passes a bit set of class FlagsIn.
func (c *Command) Flags(id uint16, v uint64) *Command {
	*c.add(id, FlagsIn, 8).Data() = v
	return c
}

// Use passes the handle of an object that is used.
func (c *Command) Use(id uint16, handle uint32) *Command {
	*c.add(id, Use, 0).Data() = uint64(handle)
	return c
}

// Destroy passes the handle of an object that is to end.
func (c *Command) Destroy(id uint16, handle uint32) *Command {
	*c.add(id, Destroy, 0).Data() = uint64(handle)
	return c
}

// UseFD passes a descriptor.
func (c *Command) UseFD(id uint16, fd int32) *Command {
	*c.add(id, UseFD, 0).DataS64() = int64(fd)
	return c
}

// New asks for an object; Result returns its handle after Do.
func (c *Command) New(id uint16) *Command {
	c.add(id, New, 0)
	return c
}

// NewFD asks for a descriptor; Result returns its number after Do.
func (c *Command) NewFD(id uint16) *Command {
	c.add(id, NewFD, 0)
	return c
}

// Driver passes the driver's own input and output; empty ones are left out.
func (c *Command) Driver(in, out []byte) *Command {
	if len(in) > 0 {
		c.In(abi.UVERBS_ATTR_UHW_IN, in)
	}
	if len(out) > 0 {
		c.Out(abi.UVERBS_ATTR_UHW_OUT, out)
	}
	return c
}

// Do issues the request. Everything it points at is pinned for the length of the call.
// The error is the kernel's errno unchanged.
func (c *Command) Do(f File) error {
	for i := range c.method.Attrs {
		if a := &c.method.Attrs[i]; a.Must && !c.has(a.ID) {
			c.fail("attribute %d is missing", a.ID)
		}
	}
	if c.err != nil {
		return c.err
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(c.req)
	next := 0
	for i := range c.req.attrs[:c.n] {
		a := &c.req.attrs[i]
		if !c.byAddress(a) {
			continue
		}
		p := unsafe.SliceData(c.data[next])
		next++
		pin.Pin(p)
		*a.Data() = uint64(uintptr(unsafe.Pointer(p)))
	}
	c.req.hdr.NumAttrs = uint16(c.n)
	c.req.hdr.Length = uint16(unsafe.Sizeof(c.req.hdr)) + uint16(c.n)*uint16(unsafe.Sizeof(c.req.attrs[0]))
	err := f.Ioctl(abi.RDMA_VERBS_IOCTL, unsafe.Pointer(c.req))
	runtime.KeepAlive(c)
	return err
}

func (c *Command) byAddress(a *abi.IbUverbsAttr) bool {
	switch c.method.Attr(a.AttrId).Class {
	case PtrIn:
		return a.Len > 8
	case PtrOut:
		return a.Len > 0
	}
	return false
}

func (c *Command) has(id uint16) bool { return c.find(id) != nil }

func (c *Command) find(id uint16) *abi.IbUverbsAttr {
	for i := range c.req.attrs[:c.n] {
		if c.req.attrs[i].AttrId == id {
			return &c.req.attrs[i]
		}
	}
	return nil
}

// Result returns what the kernel wrote into an attribute of class New or NewFD.
func (c *Command) Result(id uint16) uint32 {
	if a := c.find(id); a != nil {
		return uint32(*a.Data())
	}
	return 0
}

// Bytes returns the memory of *p, which holds no Go pointers.
func Bytes[T any](p *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(p)), unsafe.Sizeof(*p))
}

// Addr returns the address of b's first byte, as the kernel and the device see it. It
// means something only while b is pinned or off the Go heap.
func Addr(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// SliceBytes returns the memory of all elements of s, which hold no Go pointers.
func SliceBytes[T any](s []T) []byte {
	if len(s) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), len(s)*int(unsafe.Sizeof(s[0])))
}
