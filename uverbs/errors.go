package uverbs

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/pureverbs/rdma/internal/provider"
	"github.com/pureverbs/rdma/internal/uapi"
)

var (
	// ErrQueueFull says that a send or receive queue has no room for (more of) the work
	// requests. It is back-pressure: poll completions, then post the rest. On mlx5 the
	// room of a request comes back in no other way than that a completion is polled, its
	// own or that of a later request.
	ErrQueueFull = provider.ErrFull

	// ErrBusy says that an object cannot be closed yet because others live on it. All of
	// them go on working.
	ErrBusy = errors.New("object is in use")

	// ErrNotSupported says that the device, its driver or the running kernel lacks what
	// was asked for.
	ErrNotSupported = errors.New("not supported")

	// ErrInvalid says that an argument is wrong; the kernel was not asked.
	ErrInvalid = errors.New("invalid argument")

	// ErrCorrupt says that a queue shared with the kernel or the device holds what its
	// owner would never write. The object is of no more use but to be closed.
	ErrCorrupt = provider.ErrCorrupt
)

// Error is what every operation of this package fails with. errors.Is finds the cause:
// an errno, one of the sentinels above, net.ErrClosed or a context's error.
type Error struct {
	Op     string // what was tried: "create queue pair"
	Object string // what it was tried on: "rxe0"
	Err    error  // the cause
	Hint   string // the likely reason and the next step, where the errno alone misleads
}

func (e *Error) Error() string {
	s := e.Op
	if e.Object != "" {
		s += " on " + e.Object
	}
	s += ": " + e.Err.Error()
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// wrap makes an Error, or nil of nil. An Error is not wrapped twice.
func wrap(op, object string, err error) error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return err
	}
	return &Error{Op: op, Object: object, Err: cause(err), Hint: hint(err)}
}

// invalid is an Error for an argument that the kernel need not be asked about.
func invalid(op, object, format string, args ...any) error {
	return &Error{Op: op, Object: object, Err: fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)}
}

// cause gives the errnos by which kernels say "I do not know that" one meaning, and keeps
// the errno findable.
func cause(err error) error {
	if missing(err) {
		return fmt.Errorf("%w: %w", ErrNotSupported, err)
	}
	return err
}

// missing tells whether an errno says that a method is not there: ENOTTY and EPROTONOSUPPORT
// come from the core, EOPNOTSUPP from the core or the driver, ENOSYS from older drivers.
func missing(err error) bool {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return false
	}
	switch errno {
	case syscall.ENOTTY, syscall.EPROTONOSUPPORT, syscall.EOPNOTSUPP, syscall.ENOSYS:
		return true
	}
	return false
}

func hint(err error) string {
	switch {
	case errors.Is(err, uapi.ErrNotLinux), errors.Is(err, net.ErrClosed):
		return ""
	case errors.Is(err, syscall.EIO):
		return "the device was removed"
	case errors.Is(err, syscall.EBUSY):
		return "another goroutine is using the object"
	}
	return ""
}
