package discover

import "strings"

// Kind is a class of failure that programs may want to tell apart. Its values
// are errors: errors.Is(err, discover.ErrNoNode).
type Kind uint8

// The kinds of [Error]. Zero is a failure that has no name.
const (
	// ErrNoModule: a kernel module is not loaded and the kernel could not load it.
	ErrNoModule Kind = iota + 1
	// ErrNoVerbs: the kernel has the device and offers no verbs to programs.
	ErrNoVerbs
	// ErrNoNode: the device node is not in this file system.
	ErrNoNode
	// ErrWrongNode: what is in the place of the device node is something else.
	ErrWrongNode
	// ErrNoPermission: the kernel or the file system refuses.
	ErrNoPermission
	// ErrNoDevice: there is no device of that name.
	ErrNoDevice
	// ErrNoInterface: no network interface of the device is in this network
	// namespace.
	ErrNoInterface
)

// Error names the kind; the text of [Error] says more.
func (k Kind) Error() string {
	names := [...]string{
		0:               "failure",
		ErrNoModule:     "kernel module not loaded",
		ErrNoVerbs:      "no verbs for programs",
		ErrNoNode:       "device node missing",
		ErrWrongNode:    "device node is another device",
		ErrNoPermission: "permission denied",
		ErrNoDevice:     "no such RDMA device",
		ErrNoInterface:  "no network interface in this network namespace",
	}
	if int(k) >= len(names) {
		k = 0
	}
	return names[k]
}

// Error is the error of this package. Is and As of package errors find its kind
// as well as its cause, which may be a syscall.Errno or uapi.ErrNotLinux.
type Error struct {
	Op     string // what was tried: "list RDMA devices", "use device", ...
	Object string // on what: a device, a link, "" for none
	Node   string // the device node it is about, "" for none
	Dev    Dev    // the number that the kernel gives to the node, 0 if it gave none
	Kind   Kind   // what is wrong, for programs; 0 if nothing of the list
	Detail string // what is wrong, in words
	Next   string // the next step to take, in words
	Err    error  // the cause, nil if there is none
}

var _ error = (*Error)(nil)

// Error is one line: operation, object, what is wrong, the cause, the next step.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.Object != "" {
		b.WriteString(" " + e.Object)
	}
	if e.Detail != "" {
		b.WriteString(": " + e.Detail)
	}
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	if e.Next != "" {
		b.WriteString("; " + e.Next)
	}
	return b.String()
}

// Unwrap returns the kind and the cause, as far as they are set.
func (e *Error) Unwrap() []error {
	var errs []error
	if e.Kind != 0 {
		errs = append(errs, e.Kind)
	}
	if e.Err != nil {
		errs = append(errs, e.Err)
	}
	return errs
}
