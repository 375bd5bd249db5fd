//go:build linux

package fakekernel

import (
	"slices"
	"sync/atomic"
	"syscall"
)

// CallKind says through which door a call came in.
type CallKind uint8

// The kinds of calls.
const (
	CallOpen  CallKind = iota // open of a node; Path
	CallAdopt                 // taking over a descriptor
	CallIoctl                 // an ioctl method other than INVOKE_WRITE; Object, Method
	CallWrite                 // a write command of uverbs, by write() or INVOKE_WRITE; Cmd
	CallCM                    // a command of rdma_cm; Cmd
	CallMap                   // mmap of a queue
	CallRead                  // read of an event
)

// Call is one call into the kernel.
type Call struct {
	Kind           CallKind
	Path           string // node, for CallOpen
	Object, Method uint16
	Cmd            uint32
	Ioctl          bool // CallWrite: by INVOKE_WRITE
}

type fault struct {
	match func(Call) bool
	errno syscall.Errno
}

// Fail has every call that match accepts fail with errno, before it does anything, until
// cancel is called. match is called without a lock, from the goroutine of the call.
// [Method], [Command], [CMCommand] and [Nth] make the usual ones.
func (k *Kernel) Fail(match func(Call) bool, errno syscall.Errno) (cancel func()) {
	f := &fault{match, errno}
	k.faultMu.Lock()
	defer k.faultMu.Unlock()
	k.faults = append(k.faults, f)
	k.faulty.Add(1)
	return func() {
		k.faultMu.Lock()
		defer k.faultMu.Unlock()
		if i := slices.Index(k.faults, f); i >= 0 {
			k.faults = slices.Delete(k.faults, i, i+1)
			k.faulty.Add(-1)
		}
	}
}

// Method matches an ioctl method.
func Method(object, method uint16) func(Call) bool {
	return func(c Call) bool { return c.Kind == CallIoctl && c.Object == object && c.Method == method }
}

// Command matches a write command of uverbs, whichever way it comes.
func Command(cmd uint32) func(Call) bool {
	return func(c Call) bool { return c.Kind == CallWrite && c.Cmd == cmd }
}

// CMCommand matches a command of rdma_cm.
func CMCommand(cmd uint32) func(Call) bool {
	return func(c Call) bool { return c.Kind == CallCM && c.Cmd == cmd }
}

// Kind matches every call of a kind.
func Kind(kind CallKind) func(Call) bool {
	return func(c Call) bool { return c.Kind == kind }
}

// Nth matches the n-th call that match matches, counted from 1, and no other.
func Nth(n int32, match func(Call) bool) func(Call) bool {
	var seen atomic.Int32
	return func(c Call) bool { return match(c) && seen.Add(1) == n }
}

// check is at the beginning of every call.
func (k *Kernel) check(c Call) error {
	if k.opts.Log != nil {
		k.opts.Log(c)
	}
	if k.faulty.Load() == 0 {
		return nil
	}
	k.faultMu.Lock()
	faults := slices.Clone(k.faults)
	k.faultMu.Unlock()
	for _, f := range faults {
		if f.match(c) {
			return f.errno
		}
	}
	return nil
}
