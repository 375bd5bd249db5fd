package rdmacm

import (
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/pureverbs/rdma/uverbs"
)

// Options says how [Listen] and [Dial] make connections, and [ListenDatagram],
// [ResolveDatagram] and [JoinMulticast] datagram queue pairs. nil and the zero value are good for
// most programs.
type Options struct {
	// PD is the protection domain of the queue pair, on the device of the connection. nil
	// stands for one of the connection's own, so that a peer's keys reach nothing of
	// another's.
	PD *uverbs.PD

	// SendCQ and RecvCQ are where the queue pair reports to. nil stands for a queue of the
	// connection's own with a completion channel, as large as the queue pair's queue.
	// They may be the same. With either PD must be given: all three belong to one context.
	// A queue that is shared needs room for all that can complete in it before it is polled:
	// what finds none is lost, and only [uverbs.Context.NextAsyncEvent] says so.
	SendCQ, RecvCQ *uverbs.CQ

	// Blocking makes the channels of the connection's own completion queues block the thread
	// of who waits: see [uverbs.Context.NewBlockingCompChannel].
	Blocking bool

	// SRQ is a shared receive queue, for one of all connections that a listener accepts: the
	// queue pair takes its receives from there, and has no receive queue of its own. PD is
	// that of the SRQ, unless it is given. A receive completes in the queue of the connection
	// that it went to; a RecvCQ of the connection's own has room for all of the SRQ.
	SRQ *uverbs.SRQ

	// QP is the size of the queue pair's queues. The zero value stands for 16 sends and 16
	// receives of one piece, nothing inline.
	QP uverbs.QPCap

	// SignalAll makes each send report a completion.
	SignalAll bool

	ConnParam ConnParam

	// Prepare is called when the queue pair is in INIT, before the peer can send. It is
	// the place to register memory (see [Conn.AllocMR] and [Conn.Cleanup]) and to post
	// receives. Its error ends the attempt. It must not close the connection.
	Prepare func(*Conn) error

	// Control is called with each id before anything is done with it: before it is bound,
	// resolved, or, where it came with a connection request, accepted. It is the place for
	// [ID.SetTOS], [ID.SetAckTimeout], [ID.SetReuseAddr] and [ID.SetLocalECE]. Its error ends
	// the attempt. The id may be kept, to ask it for its path or the peer's ECE later on, but
	// not be closed or moved.
	Control func(*ID) error

	// Source is the own address to dial from; the zero AddrPort leaves it to the routing
	// table. Listen ignores it. For JoinMulticast it says which interface the group is on.
	Source netip.AddrPort

	// Timeout is how long address and route each may take to resolve. 0 stands for 2 s.
	Timeout time.Duration

	// AcceptTimeout is how long [Listener.Accept] waits for the confirmation of one
	// client, before it gives that client up and turns to the next. 0 stands for 5 s.
	AcceptTimeout time.Duration

	// Backlog bounds the connection requests that nobody has taken yet; what comes on top
	// is rejected. 0 stands for 128; more than 65536 for that.
	Backlog int

	// SendOnly joins a multicast group without receiving from it: see [JoinMulticast].
	SendOnly bool

	// System says how the event channel is opened. It is for this module's tests.
	System []Option
}

// recvDepth is how many receives may complete at once.
func (o *Options) recvDepth() uint32 {
	if o.SRQ != nil {
		return o.SRQ.Cap().MaxWR
	}
	return o.QP.MaxRecvWR
}

const (
	defaultTimeout       = 2 * time.Second
	defaultAcceptTimeout = 5 * time.Second
	defaultBacklog       = 128
	maxBacklog           = 1 << 16
)

// withDefaults copies o and fills in what is not given.
func (o *Options) withDefaults() (*Options, error) {
	var c Options
	if o != nil {
		c = *o
	}
	if c.PD == nil && c.SRQ != nil {
		c.PD = c.SRQ.PD()
	}
	if c.PD == nil && (c.SendCQ != nil || c.RecvCQ != nil) {
		return nil, invalidError("options have a completion queue but no protection domain")
	}
	if c.QP == (uverbs.QPCap{}) {
		c.QP = uverbs.QPCap{MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 1, MaxRecvSGE: 1}
	}
	if c.Timeout <= 0 {
		c.Timeout = defaultTimeout
	}
	if c.AcceptTimeout <= 0 {
		c.AcceptTimeout = defaultAcceptTimeout
	}
	if c.Backlog <= 0 {
		c.Backlog = defaultBacklog
	}
	c.Backlog = min(c.Backlog, maxBacklog)
	return &c, nil
}

// control lets the program set up an id.
func (o *Options) control(id *ID) error {
	if o.Control == nil {
		return nil
	}
	return wrap(opControl, noAddr, o.Control(id))
}

// closers undo what was made, last first. What fails does not keep the others from being
// undone, and is tried again by the next run.
type closers []func() error

func (c *closers) add(f func() error) { *c = append(*c, f) }

func (c *closers) run() (first error) {
	var failed closers
	for _, f := range slices.Backward(*c) {
		if err := f(); err != nil {
			failed = append(failed, f)
			if first == nil {
				first = err // the others follow from it
			}
		}
	}
	slices.Reverse(failed)
	*c = failed
	return first
}

// joined is errors.Join that keeps a lone error as it is.
func joined(first, second error) error {
	if second == nil {
		return first
	}
	return errors.Join(first, second)
}
