package uapi

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"unsafe"

	"github.com/pureverbs/rdma/abi"
)

// maxAttrs is more than any method has.
const maxAttrs = 20

// request is the frame of kernel-abi.md 2.1, a header and the attributes right behind it, and
// what they point at.
type request struct {
	hdr   abi.IbUverbsIoctlHdr
	attrs [maxAttrs]abi.IbUverbsAttr
	room  [512]byte

	n        int // attributes
	used     int // of the room
	payloads []payload
}

// payload is what an attribute points at. What the kernel writes there goes to answer.
type payload struct {
	mem, answer []byte
	apart       bool // not in the room
}

// requests are lent to commands. They are on the heap, because the kernel writes into them, and
// who makes many connections issues many.
var requests = sync.Pool{New: func() any { return &request{payloads: make([]payload, 0, maxAttrs)} }}

// A Command builds one ioctl of the schema and issues it. Setters keep the first mistake
// for Do to report, so call sites need no checks of their own.
type Command struct {
	method *Method
	req    *request         // until Do
	made   abi.IbUverbsAttr // the object or descriptor that Do made
	err    error
}

// NewCommand starts a request for a device of the given driver.
func NewCommand(m *Method, driver uint32) *Command {
	c := &Command{method: m, req: requests.Get().(*request)}
	c.req.hdr = abi.IbUverbsIoctlHdr{ObjectId: m.Object, MethodId: m.ID, DriverId: driver}
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
	case c.req.n == maxAttrs:
		c.fail("more than %d attributes", maxAttrs)
	}
	if c.err != nil {
		return new(abi.IbUverbsAttr)
	}
	a := &c.req.attrs[c.req.n]
	c.req.n++
	*a = abi.IbUverbsAttr{AttrId: id, Len: uint16(size), Flags: abi.UVERBS_ATTR_F_MANDATORY}
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
	c.req.point(b, nil)
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
		c.req.point(b, b)
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

var errIssued = errors.New("the request was issued already")

// Do issues the request, once. Everything it points at is pinned for the length of the call.
// The error is the kernel's errno unchanged.
func (c *Command) Do(f File) error {
	if c.req == nil {
		return errIssued
	}
	for i := range c.method.Attrs {
		if a := &c.method.Attrs[i]; a.Must && !c.req.has(a.ID) {
			c.fail("attribute %d is missing", a.ID)
		}
	}
	defer c.release()
	if c.err != nil {
		return c.err
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(c.req)
	c.address(&pin)
	n := uint16(c.req.n)
	c.req.hdr.NumAttrs = n
	c.req.hdr.Length = uint16(unsafe.Sizeof(c.req.hdr)) + n*uint16(unsafe.Sizeof(c.req.attrs[0]))
	err := f.Ioctl(abi.RDMA_VERBS_IOCTL, unsafe.Pointer(c.req))
	for i := range c.req.payloads {
		copy(c.req.payloads[i].answer, c.req.payloads[i].mem)
	}
	return err
}

// address notes where the payloads are. The request itself is pinned: to pin it again is dear.
func (c *Command) address(pin *runtime.Pinner) {
	next := 0
	for i := range c.req.attrs[:c.req.n] {
		a := &c.req.attrs[i]
		if !c.byAddress(a) {
			continue
		}
		p := &c.req.payloads[next]
		next++
		if p.apart {
			pin.Pin(unsafe.SliceData(p.mem))
		}
		*a.Data() = Addr(p.mem)
	}
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

// release gives the request back, but for the one answer that is asked for later.
func (c *Command) release() {
	for i := range c.req.attrs[:c.req.n] {
		if spec := c.method.Attr(c.req.attrs[i].AttrId); spec.Class == New || spec.Class == NewFD {
			c.made = c.req.attrs[i]
		}
	}
	c.req.n, c.req.used = 0, 0
	clear(c.req.payloads)
	c.req.payloads = c.req.payloads[:0]
	requests.Put(c.req)
	c.req = nil
}

// Result returns what the kernel wrote into the attribute of class New or NewFD, after Do. No
// method has two.
func (c *Command) Result(id uint16) uint32 {
	if c.made.AttrId != id {
		return 0
	}
	return uint32(*c.made.Data())
}

// point notes memory with the content of b, as good as b during Do, for the attribute that was
// added last.
func (r *request) point(b, answer []byte) {
	p := payload{answer: answer, apart: len(b) > len(r.room)-r.used}
	if p.apart {
		p.mem = slices.Clone(b)
	} else {
		p.mem = r.room[r.used : r.used+len(b)]
		copy(p.mem, b)
		r.used += (len(b) + 7) &^ 7
	}
	r.payloads = append(r.payloads, p)
}

func (r *request) has(id uint16) bool {
	for i := range r.attrs[:r.n] {
		if r.attrs[i].AttrId == id {
			return true
		}
	}
	return false
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
