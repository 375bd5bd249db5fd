//go:build linux

package fakekernel

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
)

// Commands in a trace: the method, its attributes by number, and what came of it. Where a
// program keeps things is its own business: addresses are cut to what the kernel looks at.

// tracedCall is a command that is being carried out.
type tracedCall struct {
	f     *verbsFile
	m     *uapi.Method
	cmd   uint32 // of INVOKE_WRITE
	frame []byte
	line  strings.Builder
}

// before writes down what the program asks for.
func (t *tracer) before(f *verbsFile, frame []byte) *tracedCall {
	hdr := view[abi.IbUverbsIoctlHdr](frame)
	c := &tracedCall{f: f, frame: frame, m: lookupMethod(hdr.ObjectId, hdr.MethodId)}
	if c.m == nil {
		fmt.Fprintf(&c.line, "method %#x/%#x", hdr.ObjectId, hdr.MethodId)
		return c
	}
	c.line.WriteString(c.title(hdr))
	for _, a := range c.attrs() {
		if s := c.input(a); s != "" {
			fmt.Fprintf(&c.line, " %x=%s%s", a.AttrId, s, optionalMark(a))
		}
	}
	return c
}

// title names the method, or the command that it carries.
func (c *tracedCall) title(hdr *abi.IbUverbsIoctlHdr) string {
	if c.m != uapi.InvokeWrite {
		return c.m.Name
	}
	call := ioctlCall(c.frame, hdr)
	c.cmd = call.Cmd
	if w := uapi.LookupWrite(c.cmd); w != nil {
		return w.Name
	}
	return fmt.Sprintf("command %#x", c.cmd)
}

// attrs are the attributes in the order of their numbers.
func (c *tracedCall) attrs() []*abi.IbUverbsAttr {
	all := make([]*abi.IbUverbsAttr, (len(c.frame)-int(hdrSize))/int(attrSize))
	for i := range all {
		all[i] = frameAttr(c.frame, i)
	}
	slices.SortFunc(all, func(a, b *abi.IbUverbsAttr) int { return int(a.AttrId) - int(b.AttrId) })
	return all
}

// optionalMark tells attributes apart that a kernel may overlook.
func optionalMark(a *abi.IbUverbsAttr) string {
	if a.Flags&abi.UVERBS_ATTR_F_MANDATORY == 0 {
		return "?"
	}
	return ""
}

// after adds what came of it, and writes the line.
func (t *tracer) after(c *tracedCall, err error) {
	if err != nil {
		fmt.Fprintf(&c.line, " -> %s", errnoName(err))
	} else {
		c.line.WriteString(" -> ok")
		if c.m != nil {
			for _, a := range c.attrs() {
				if s := c.output(a); s != "" {
					fmt.Fprintf(&c.line, " %x=%s", a.AttrId, s)
				}
			}
		}
	}
	t.put("%s", c.line.String())
	t.k.mu.Lock()
	defer t.k.mu.Unlock()
	t.meet(c.f)
	t.name(c.f)
	t.adopt(c.f)
}

func errnoName(err error) string {
	if e, ok := err.(unix.Errno); ok { //nolint:errorlint // the kernel's errnos are bare
		return unix.ErrnoName(e)
	}
	return err.Error()
}

// input is what an attribute carries to the kernel.
func (c *tracedCall) input(a *abi.IbUverbsAttr) string {
	spec := c.m.Attr(a.AttrId)
	if spec == nil {
		return fmt.Sprintf("(%d)", a.Len)
	}
	switch spec.Class {
	case uapi.PtrIn:
		return c.bytesIn(a)
	case uapi.PtrOut:
		return fmt.Sprintf("[%d]", a.Len)
	case uapi.UseFD:
		if spec.Object == abi.UVERBS_OBJECT_COMP_CHANNEL {
			return "channel"
		}
		return "async"
	case uapi.New, uapi.NewFD:
		return ""
	}
	return fmt.Sprintf("%d", *a.Data())
}

func (c *tracedCall) bytesIn(a *abi.IbUverbsAttr) string {
	if isUserHandle(c.m, a.AttrId) {
		return "*"
	}
	at := attr{raw: a, mem: c.f.mem}
	b, err := at.in()
	if err != nil {
		return "(bad address)"
	}
	c.cutAddresses(a.AttrId, b)
	return hex.EncodeToString(b)
}

// isUserHandle: what a program calls its own objects is its business.
func isUserHandle(m *uapi.Method, id uint16) bool {
	switch m {
	case uapi.CQCreate:
		return id == abi.UVERBS_ATTR_CREATE_CQ_USER_HANDLE
	case uapi.QPCreate:
		return id == abi.UVERBS_ATTR_CREATE_QP_USER_HANDLE
	case uapi.SRQCreate:
		return id == abi.UVERBS_ATTR_CREATE_SRQ_USER_HANDLE
	}
	return false
}

// cutAddresses leaves of addresses of queues and records their place in a page, and nothing
// of those of answers.
func (c *tracedCall) cutAddresses(id uint16, b []byte) {
	switch {
	case id == abi.UVERBS_ATTR_UHW_IN && (c.m == uapi.CQCreate || c.m == uapi.QPCreate || c.m == uapi.SRQCreate):
		cutAddress(b, 0)
		cutAddress(b, 8)
	case id == abi.UVERBS_ATTR_UHW_IN && c.cmd == abi.IB_USER_VERBS_CMD_RESIZE_CQ:
		cutAddress(b, 0)
	case id == abi.UVERBS_ATTR_CORE_IN && c.m == uapi.InvokeWrite:
		switch c.cmd {
		case abi.IB_USER_VERBS_CMD_MODIFY_QP, abi.IB_USER_VERBS_CMD_MODIFY_SRQ,
			uapi.ExCmd | abi.IB_USER_VERBS_EX_CMD_QUERY_DEVICE: // these have no answer in the write interface
			return
		case abi.IB_USER_VERBS_CMD_CREATE_AH:
			clear(b[8:min(16, len(b))]) // the user's handle
		}
		clear(b[:min(8, len(b))])
	}
}

func cutAddress(b []byte, off int) {
	if len(b) >= off+8 {
		*view[uint64](b[off:]) &= pageSize - 1
	}
}

// output is what an attribute brought back.
func (c *tracedCall) output(a *abi.IbUverbsAttr) string {
	spec := c.m.Attr(a.AttrId)
	switch {
	case spec == nil:
		return ""
	case spec.Class == uapi.New && spec.Object == abi.MLX5_IB_OBJECT_UAR:
		return "uar"
	case spec.Class == uapi.New:
		return fmt.Sprintf("%d", *a.Data())
	case spec.Class != uapi.PtrOut:
		return ""
	case c.cmd == abi.IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL:
		return "fd"
	}
	b := make([]byte, a.Len)
	if c.f.mem.in(b, *a.Data()) != nil {
		return "(bad address)"
	}
	return hex.EncodeToString(trimZeros(b))
}

// trimZeros keeps long answers short.
func trimZeros(b []byte) []byte {
	n := len(b)
	for n > 0 && b[n-1] == 0 {
		n--
	}
	return b[:n]
}
