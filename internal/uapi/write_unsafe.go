package uapi

import (
	"context"
	"runtime"
	"sync"
	"syscall"
	"unsafe"

	"github.com/pureverbs/rdma/abi"
)

// Invoke runs a write command through the ioctl INVOKE_WRITE. in and out are the core's
// structs, drvIn and drvOut the driver's; the kernel fills out and drvOut.
// Minimum kernel: 5.0.
func Invoke(f File, driver uint32, w *WriteCmd, in, out, drvIn, drvOut []byte) error {
	c := NewCommand(InvokeWrite, driver)
	c.Const(abi.UVERBS_ATTR_WRITE_CMD, uint64(w.ID))
	c.In(abi.UVERBS_ATTR_CORE_IN, in)
	if len(out) > 0 {
		c.Out(abi.UVERBS_ATTR_CORE_OUT, out)
	}
	return c.Driver(drvIn, drvOut).Do(f)
}

// NoResponse as respOff says that a command has no response.
const NoResponse = -1

// Call issues one command of rdma_cm's write interface: cmd, the command's struct, and
// the memory for its response, whose address goes to offset respOff of the struct. With a
// context it waits for an event (only GET_EVENT answers EAGAIN).
func Call(ctx context.Context, f File, cmd uint32, in []byte, respOff int, out []byte) error {
	const hdrLen = 8
	lent := calls.Get().(*call)
	defer calls.Put(lent)
	mem := lent.mem[:]
	if n := hdrLen + len(in) + len(out); n > len(mem) {
		mem = make([]byte, n)
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(unsafe.SliceData(mem))
	req, answer := mem[:hdrLen+len(in)], mem[hdrLen+len(in):][:len(out)]
	hdr := abi.RdmaUcmCmdHdr{Cmd: cmd, In: uint16(len(in)), Out: uint16(len(out))}
	copy(req, Bytes(&hdr))
	copy(req[hdrLen:], in)
	copy(answer, out) // the kernel reads it (options), or writes less
	if respOff != NoResponse {
		addr := Addr(answer)
		copy(req[hdrLen+respOff:], Bytes(&addr))
	}
	n, err := f.Write(ctx, req)
	copy(out, answer)
	if err == nil && n != len(req) {
		return syscall.EIO
	}
	return err
}

// call is memory for the commands of rdma_cm and their answers. It is lent to them: a program
// that makes many connections issues many. The kernel wants it to stay where it is, so it is
// on the heap, and what callers have does not need to be.
type call struct{ mem [768]byte }

var calls = sync.Pool{New: func() any { return new(call) }}

// A Doorbell is a write command that is built once and issued many times without
// allocation: POST_SEND and REQ_NOTIFY_CQ of the software devices.
type Doorbell struct {
	file   File
	arena  *Arena
	driver uint32
	cmd    *WriteCmd
	slot   []byte // header, body, response; off the heap
	call   []byte // header and body
	ioctl  bool   // write() was refused: these credentials are not those of open()
}

// NewDoorbell builds the command. body is the command's struct; where the command has a
// response, body begins with its address, which NewDoorbell fills in.
func NewDoorbell(f File, a *Arena, driver uint32, w *WriteCmd, body []byte) (*Doorbell, error) {
	slot, err := a.Get()
	if err != nil {
		return nil, err
	}
	size := 8 + len(body)
	hdr := abi.IbUverbsCmdHdr{Command: w.ID, InWords: uint16(size / 4), OutWords: uint16(w.Out / 4)}
	copy(slot, Bytes(&hdr))
	copy(slot[8:], body)
	if w.Out > 0 {
		addr := Addr(slot[size : size+w.Out])
		copy(slot[8:], Bytes(&addr))
	}
	return &Doorbell{file: f, arena: a, driver: driver, cmd: w, slot: slot, call: slot[:size]}, nil
}

// Body returns the command's struct, for a caller that changes a field between rings.
func (d *Doorbell) Body() []byte { return d.call[8:] }

// Ring issues the command. The error is the kernel's errno. write() is the cheaper form,
// but it wants the very credentials of open(): after a setuid in between the kernel says
// EACCES, and from then on the command goes through INVOKE_WRITE, which asks for none.
// The caller serialises.
func (d *Doorbell) Ring() error {
	if d.ioctl {
		return d.invoke()
	}
	_, err := d.file.Write(nil, d.call) //nolint:staticcheck // nil: a single attempt
	if err == nil {
		return nil
	}
	if err == syscall.EACCES {
		d.ioctl = true
		return d.invoke()
	}
	return err
}

func (d *Doorbell) invoke() error {
	var out []byte
	if d.cmd.Out > 0 {
		out = d.slot[len(d.call) : len(d.call)+d.cmd.Out]
	}
	return Invoke(d.file, d.driver, d.cmd, d.Body(), out, nil, nil)
}

// Close gives the command's memory back.
func (d *Doorbell) Close() {
	if d.slot != nil {
		d.arena.Put(d.slot)
		d.slot, d.call = nil, nil
	}
}
