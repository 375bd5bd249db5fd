package rdmacm

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"

	"github.com/pureverbs/rdma/uverbs"
)

var (
	// ErrDisconnected says that the connection ended in the orderly way: the peer
	// disconnected, or answered our disconnect.
	ErrDisconnected = errors.New("peer disconnected")

	// ErrRequestGone says that the client of a connection request gave up before the
	// request was answered, or before the answer was confirmed. It is a normal race and
	// concerns that one request only.
	ErrRequestGone = errors.New("the client of this request has gone")

	// ErrDeviceRemoved says that the RDMA device was unplugged or deleted. All that is
	// left to do with the id is to close it.
	ErrDeviceRemoved = errors.New("RDMA device was removed")

	// ErrBusy says that an object cannot be closed yet because others live on it.
	// Nothing has happened.
	ErrBusy = uverbs.ErrBusy

	// ErrInvalid says that an argument is wrong, or that the operation does not fit the
	// id's state; the kernel was not asked.
	ErrInvalid = uverbs.ErrInvalid

	// ErrNotSupported says that the kernel or the device cannot do it. Where a newer
	// kernel can, the error says so.
	ErrNotSupported = uverbs.ErrNotSupported

	errPathBroke  = errors.New("the path to the peer broke")
	errNoResponse = errors.New("the peer does not answer")
)

// Error is what the operations of this package fail with, and what [Event] carries.
// errors.Is and errors.As find the cause: an errno, a [RejectedError], one of the
// sentinels, net.ErrClosed or a context's error.
type Error struct {
	Op   string // what was tried: "resolve address"
	Addr string // the address that it was about, "" for none
	Err  error  // the cause
	Hint string // the likely reason and the next step, where the cause alone misleads
}

var _ net.Error = (*Error)(nil)

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.Addr != "" {
		b.WriteString(" " + e.Addr)
	}
	b.WriteString(": " + e.Err.Error())
	if e.Hint != "" {
		b.WriteString(" (" + e.Hint + ")")
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Timeout tells whether time ran out: the context's, or the kernel's patience with a peer
// that does not answer.
func (e *Error) Timeout() bool {
	return errors.Is(e.Err, context.DeadlineExceeded) || errors.Is(e.Err, os.ErrDeadlineExceeded) ||
		errors.Is(e.Err, syscall.ETIMEDOUT)
}

// Temporary makes Error a net.Error. It is false: what may go away says Timeout.
func (e *Error) Temporary() bool { return false }

// wrap makes an Error without a hint, or nil of nil. An Error is not wrapped twice.
func wrap(op string, addr netip.AddrPort, err error) error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return err
	}
	return &Error{Op: op, Addr: text(addr), Err: err}
}

// invalidError is ErrInvalid in other words.
type invalidError string

func (e invalidError) Error() string { return string(e) }
func (e invalidError) Unwrap() error { return ErrInvalid }

// noAddr is the address of errors that are about none.
var noAddr netip.AddrPort

// text is an address in words, "" for none.
func text(addr netip.AddrPort) string {
	if !addr.IsValid() {
		return ""
	}
	return addr.String()
}
