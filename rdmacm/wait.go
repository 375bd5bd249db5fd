package rdmacm

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
)

// errPaused ends a wait whose context goes on: somebody needs the channel for a moment.
var errPaused = errors.New("paused")

// reader is the right to receive the events of a channel: one goroutine at a time has it, so
// that events are handled in order. Who waits in the kernel can be asked to leave for a
// moment, see pause.
type reader struct {
	turn chan struct{} // held by the goroutine that reads
	done chan struct{} // closed when the channel is

	gate sync.RWMutex // locked by who wants the turn of one that waits

	mu     sync.Mutex
	of     <-chan struct{} // Done of the context that ctx is made from
	ctx    context.Context
	cancel context.CancelFunc
}

// take waits for the turn. The context that it returns is for waiting in the kernel: it ends
// with ctx, and for a pause.
func (r *reader) take(ctx context.Context) (context.Context, error) {
	for {
		select {
		case r.turn <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-r.done:
			return nil, net.ErrClosed
		}
		if r.gate.TryRLock() {
			defer r.gate.RUnlock()
			return r.arm(ctx), nil
		}
		r.leave()
		r.waitGate()
	}
}

// try takes the turn if it is free.
func (r *reader) try() bool {
	select {
	case r.turn <- struct{}{}:
		return true
	default:
		return false
	}
}

func (r *reader) leave() { <-r.turn }

func (r *reader) waitGate() {
	r.gate.RLock()
	defer r.gate.RUnlock()
}

// arm returns the context to wait with. It is kept from one wait to the next: who waits again
// with the same context, as most loops do, pays once.
func (r *reader) arm(ctx context.Context) context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx != nil && r.of == ctx.Done() && r.ctx.Err() == nil {
		return r.ctx
	}
	r.disarm()
	r.of = ctx.Done()
	r.ctx, r.cancel = context.WithCancel(ctx)
	return r.ctx
}

// disarm ends the wait in the kernel. The caller has the lock.
func (r *reader) disarm() {
	if r.cancel != nil {
		r.cancel()
	}
	r.ctx, r.cancel, r.of = nil, nil, nil
}

// pause takes the turn, also from one that waits, until resume is called. A reader goes on by
// itself, and asks the kernel anew before it waits again.
func (r *reader) pause() (resume func()) {
	r.gate.Lock()
	r.kick()
	r.turn <- struct{}{}
	return func() {
		r.leave()
		r.gate.Unlock()
	}
}

func (r *reader) kick() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.disarm()
}

// receive waits for an event that is to be reported.
func (c *EventChannel) receive(ctx context.Context) (*Event, error) {
	waiting, err := c.reader.take(ctx)
	if err != nil {
		return nil, err
	}
	defer c.reader.leave()
	for {
		r, err := c.getEvent(waiting)
		switch {
		case err != nil && ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil && waiting.Err() != nil:
			return nil, errPaused
		case err != nil:
			return nil, err
		}
		if ev := c.dispatch(r); ev != nil {
			return ev, nil
		}
	}
}

// TryEvent returns the next event if there is one, else nil; it never waits. It is for
// programs that wait by other means, see [EventChannel.SyscallConn]: when the descriptor is
// readable call TryEvent until it returns nil. While another goroutine is in NextEvent that
// one gets the events, and TryEvent returns nil.
//
// What it does for a connection, and what may take a while, is as with NextEvent. Errors:
// net.ErrClosed.
func (c *EventChannel) TryEvent() (*Event, error) {
	if !c.reader.try() {
		return nil, nil
	}
	defer c.reader.leave()
	for {
		r, err := c.getEvent(nil) //nolint:staticcheck // nil: no waiting
		if errors.Is(err, syscall.EAGAIN) {
			return nil, nil
		}
		if err != nil {
			return nil, c.explain(opEvent, noAddr, err)
		}
		if ev := c.dispatch(r); ev != nil {
			return ev, nil
		}
	}
}

// getEvent waits for the kernel's next record, or with a nil context says EAGAIN. The record
// is out of the kernel's books with that: rdma_cm counts the events that it handed out for one
// reason only, so that a library which keeps a pointer to its object in the kernel does not
// free it too early. Here the kernel has a number and the table knows if it is stale, so
// nobody has to wait for anything. The caller has the turn, and the record for as long. (It is
// not cleared: a kernel writes the same part of it each time.)
func (c *EventChannel) getEvent(ctx context.Context) (*abi.RdmaUcmEventResp, error) {
	if len(c.pending) > 0 {
		r := c.pending[0]
		c.pending = c.pending[1:]
		return r, nil
	}
	return &c.record, c.fetchEvent(ctx, &c.record)
}

func (c *EventChannel) fetchEvent(ctx context.Context, r *abi.RdmaUcmEventResp) error {
	var in abi.RdmaUcmGetEvent
	return uapi.Call(ctx, c.file, abi.RDMA_USER_CM_CMD_GET_EVENT, uapi.Bytes(&in), 0, uapi.Bytes(r))
}
