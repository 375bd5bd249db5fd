package rdmacm

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"

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

	reader  reader
	record  abi.RdmaUcmEventResp    // the last event; under the turn
	pending []*abi.RdmaUcmEventResp // fetched by Migrate, for the next reader; under the turn

	mu     sync.Mutex
	closed bool
}

// NewEventChannel opens an event channel. It needs access to /dev/infiniband/rdma_cm, which
// by default everybody has, and kernel module rdma_ucm. A system without RDMA devices is no
// error yet.
//
// Threads and credentials: the kernel serves an event channel only to the credentials that
// opened it, and compares not ids but the very object. After syscall.Setuid and the like each
// thread of a Go program has one of its own, so what one thread opens another cannot use, and
// goroutines move between threads. Change ids before the program starts (setpriv, User= of a
// service), or have the program start itself again; otherwise there will be EACCES, with a
// hint.
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
		file: file, devs: devices{sys: sys}, ids: table{first: rand.Uint32()},
		reader: reader{turn: make(chan struct{}, 1), done: make(chan struct{})},
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
	return wrap(op, noAddr, c.shut())
}

// shut closes the file. The caller has the lock.
func (c *EventChannel) shut() error {
	if c.closed {
		return nil
	}
	c.closed = true
	close(c.reader.done)
	err := c.file.Close()
	c.reader.kick() // and let go of the context that the last wait was with
	return err
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
	for {
		ev, err := c.receive(ctx)
		if err == nil {
			return ev, nil
		}
		if !errors.Is(err, errPaused) {
			return nil, c.explain(opEvent, noAddr, err)
		}
	}
}

// SyscallConn gives access to the descriptor of the channel, for programs that wait in an
// event loop of their own: the descriptor is readable (POLLIN) when there is an event, which
// [EventChannel.TryEvent] then returns.
//
// Use Control only, and only to add the descriptor to epoll, or to poll it. It is
// non-blocking and has to stay so: NextEvent, contexts and Close keep working beside it. Do
// not read, write or close it. It is valid until Close.
//
// Errors: net.ErrClosed.
func (c *EventChannel) SyscallConn() (syscall.RawConn, error) {
	rc, err := c.descriptor()
	return rc, wrap("get descriptor of event channel", noAddr, err)
}

func (c *EventChannel) descriptor() (syscall.RawConn, error) {
	f, ok := c.file.(syscall.Conn)
	if !ok {
		return nil, ErrNotSupported
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, net.ErrClosed
	}
	return f.SyscallConn()
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
