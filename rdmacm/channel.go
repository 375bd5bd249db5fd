package rdmacm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/discover"
	"github.com/pureverbs/rdma/internal/uapi"
)

// Option changes how an event channel is opened.
type Option func(*discover.System) *discover.System

// WithSystem replaces the running kernel. It exists for this module's own tests: the
// argument's type is internal.
func WithSystem(s *discover.System) Option {
	return func(*discover.System) *discover.System { return s }
}

func system(opts []Option) *discover.System {
	s := discover.Host()
	for _, o := range opts {
		s = o(s)
	}
	return s
}

// EventChannel is an open rdma_cm device: what ids are made on, and what their events come
// from. It is safe for concurrent use.
type EventChannel struct {
	file uapi.File
	ids  table
	devs devices

	// hintLater keeps events from explaining themselves: what a hint says depends on the
	// network namespace of the thread, so where somebody else receives the events
	// (see hub) the one who waits for them explains.
	hintLater bool

	turn chan struct{} // held by the goroutine that reads
	done chan struct{} // closed by Close

	mu     sync.Mutex
	closed bool
}

// NewEventChannel opens an event channel. It needs access to /dev/infiniband/rdma_cm, which
// by default everybody has, and kernel module rdma_ucm. A system without RDMA devices is no
// error yet.
//
// Threads and credentials: the kernel serves an event channel only to the credentials that
// opened it. After syscall.Setuid and the like each thread has credentials of its own, so
// drop privileges first and open then; what goes wrong otherwise is EACCES with a hint.
//
// Errors: what is missing (module, node, permission) and the next step.
// Minimum kernel: 5.10. Source: rdma_create_event_channel(3).
func NewEventChannel(opts ...Option) (*EventChannel, error) {
	sys := system(opts)
	cm, err := sys.CM()
	if err == nil {
		err = cm.Reason
	}
	if err != nil {
		return nil, &Error{Op: opOpen, Err: err}
	}
	if cm.ABI < abi.RDMA_USER_CM_ABI_VERSION {
		return nil, &Error{Op: opOpen, Err: fmt.Errorf("rdma_cm has ABI version %d, want %d", cm.ABI, abi.RDMA_USER_CM_ABI_VERSION)}
	}
	file, err := sys.Opener.Open(cm.Node)
	if err != nil {
		return nil, &Error{Op: opOpen, Err: err}
	}
	return &EventChannel{
		file: file, devs: devices{sys: sys},
		turn: make(chan struct{}, 1), done: make(chan struct{}),
	}, nil
}

// Close closes the event channel and wakes NextEvent with net.ErrClosed. It fails with
// ErrBusy, and nothing has happened, while ids of it are open, or objects on a device that
// [ID.Context] opened. Closing again does nothing.
func (c *EventChannel) Close() error {
	const op = "close event channel"
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	if n := c.ids.len(); n > 0 {
		return &Error{Op: op, Err: ErrBusy, Hint: fmt.Sprintf("%d of its ids are open: close them first", n)}
	}
	if err := c.devs.close(); err != nil {
		return &Error{Op: op, Err: err}
	}
	return wrap(op, netip.AddrPort{}, c.shut())
}

// shut closes the file. The caller has the lock.
func (c *EventChannel) shut() error {
	if c.closed {
		return nil
	}
	c.closed = true
	close(c.done)
	return c.file.Close()
}

// end is Close for a channel that nobody but the hub has: the file is closed in any case,
// and the error is about devices that are still in use. They are tried again by another call.
func (c *EventChannel) end() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.shut(), c.devs.close())
}

// NextEvent waits for the next event of any id of the channel. It returns when there is
// one, when ctx ends, or with net.ErrClosed when c is closed. Several goroutines may wait;
// each event goes to one of them. While it waits it costs no OS thread.
//
// It does the library's part of a connection before it returns: on the active side it
// brings the queue pair to RTS and confirms the connection, so that what the program sees
// is EventEstablished. Bringing a queue pair to RTR may resolve a link-layer address, which
// can block for about a second.
//
// Closing an id from the loop that receives its events is the natural thing to do and never
// blocks on the event in hand. Events of an id that was closed are dropped.
//
// Source: rdma_get_cm_event(3).
func (c *EventChannel) NextEvent(ctx context.Context) (*Event, error) {
	const op = "wait for event"
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return nil, wrap(op, netip.AddrPort{}, ctx.Err())
	case <-c.done:
		return nil, wrap(op, netip.AddrPort{}, net.ErrClosed)
	}
	for {
		r, err := c.getEvent(ctx)
		if err != nil {
			return nil, c.explain(op, netip.AddrPort{}, err)
		}
		if ev := c.dispatch(r); ev != nil {
			return ev, nil
		}
	}
}

// getEvent waits for the kernel's next record. It is out of the kernel's books with that:
// rdma_cm counts the events that it handed out for one reason only, so that a library which
// keeps a pointer to its object in the kernel does not free it too early. Here the kernel
// has a number and the table knows if it is stale, so nobody has to wait for anything.
func (c *EventChannel) getEvent(ctx context.Context) (*abi.RdmaUcmEventResp, error) {
	var in abi.RdmaUcmGetEvent
	out := new(abi.RdmaUcmEventResp)
	err := uapi.Call(ctx, c.file, abi.RDMA_USER_CM_CMD_GET_EVENT, uapi.Bytes(&in), 0, uapi.Bytes(out))
	return out, err
}

// call issues a command that has no answer, on the thread of the calling goroutine.
func (c *EventChannel) call(cmd uint32, in []byte) error {
	return uapi.Call(nil, c.file, cmd, in, uapi.NoResponse, nil) //nolint:staticcheck // nil: no event to wait for
}

// ask issues a command whose answer goes to out; the address of out goes to offset off.
func (c *EventChannel) ask(cmd uint32, in []byte, off int, out []byte) error {
	return uapi.Call(nil, c.file, cmd, in, off, out) //nolint:staticcheck // nil: no event to wait for
}

// destroy frees an id of the kernel. The answer, the number of events handed out, is not
// needed (see getEvent).
func (c *EventChannel) destroy(handle uint32) error {
	in := abi.RdmaUcmDestroyId{Id: handle}
	var out abi.RdmaUcmDestroyIdResp
	return c.ask(abi.RDMA_USER_CM_CMD_DESTROY_ID, uapi.Bytes(&in), 0, uapi.Bytes(&out))
}
