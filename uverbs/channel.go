package uverbs

import (
	"context"
	"sync"
	"syscall"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
)

// CompChannel is a completion channel: the descriptor through which the kernel says that
// an armed completion queue got a completion. Any number of queues may share one.
//
// There is no goroutine behind it. Of the goroutines that wait for its queues one reads the
// descriptor, for all of them; when it leaves another takes over.
type CompChannel struct {
	object
	ctx  *Context
	file uapi.File
	fd   int32

	turn   chan struct{} // held by the goroutine that reads
	merged merged        // under the turn, as is
	desc   abi.IbUverbsCompEventDesc

	mu     sync.Mutex
	base   context.Context // ends with the next interrupt
	cancel context.CancelFunc
}

// NewCompChannel makes a completion channel. Source: ibv_create_comp_channel(3).
func (c *Context) NewCompChannel() (*CompChannel, error) {
	return c.newCompChannel(c.k.opener.Adopt)
}

// NewBlockingCompChannel makes a completion channel whose one reader sleeps in the kernel
// together with its thread, as C programs do, instead of parking its goroutine on the
// netpoller. That may take fewer instructions a wake-up, and takes a thread for as long as
// somebody waits: it is for the few queues that are always waited for. Contexts and Close end
// waits as on any other channel.
//
// Waits are cut short with SIGURG, the runtime's own signal: a program that has had it
// ignored (signal.Ignore) gets a channel of the other kind. Source: ibv_create_comp_channel(3).
func (c *Context) NewBlockingCompChannel() (*CompChannel, error) {
	return c.newCompChannel(c.k.opener.AdoptBlocking)
}

func (c *Context) newCompChannel(adopt func(fd int32) (uapi.File, error)) (*CompChannel, error) {
	const op = "create completion channel"
	if err := c.begin(op); err != nil {
		return nil, err
	}
	defer c.end()
	var (
		in   abi.IbUverbsCreateCompChannel
		resp abi.IbUverbsCreateCompChannelResp
	)
	if err := c.k.invoke(uapi.CreateCompChannel, uapi.Bytes(&in), uapi.Bytes(&resp)); err != nil {
		return nil, wrap(op, c.device, err)
	}
	file, err := adopt(int32(resp.Fd))
	if err != nil {
		return nil, wrap(op, c.device, err)
	}
	ch := &CompChannel{
		object: object{kind: "completion channel", device: c.device},
		ctx:    c, file: file, fd: int32(resp.Fd), turn: make(chan struct{}, 1),
	}
	ch.base, ch.cancel = context.WithCancel(context.Background())
	if err := ch.adopt(ch, &c.object); err != nil {
		file.Close()
		return nil, err
	}
	return ch, nil
}

func (ch *CompChannel) String() string { return "completion channel" }

// Close closes the channel. It fails with ErrBusy while completion queues are on it.
// Closing again does nothing.
func (ch *CompChannel) Close() error {
	return ch.object.close(ch, func() error {
		err := ch.file.Close()
		ch.turn <- struct{}{} // somebody may still be on the way out of a read
		ch.cancel()
		ch.merged.release()
		<-ch.turn
		return err
	})
}

// NextEvent waits for an event of any completion queue of the channel that was armed, and
// returns the queue, which is to be polled until it is empty and armed again. It returns
// early when ctx ends, or with net.ErrClosed when the channel is closed. Events are
// acknowledged inside.
//
// It is for programs that arm by themselves: one goroutine that serves many queues, or that
// waits for solicited completions only. Most want [CQ.Wait], which does not mix with it on
// the same channel: each would take the other's events. Source: ibv_get_cq_event(3).
func (ch *CompChannel) NextEvent(ctx context.Context) (*CQ, error) {
	const op = "wait for completion event"
	select {
	case ch.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, wrap(op, ch.device, ctx.Err())
	}
	defer func() { <-ch.turn }()
	for {
		q, err := ch.read(ctx)
		if q != nil || err != nil {
			return q, wrap(op, ch.device, err)
		}
	}
}

// read waits for one event and notes it at its completion queue, which is nil if it was
// closed meanwhile. It ends with ctx. The caller has the turn.
func (ch *CompChannel) read(ctx context.Context) (*CQ, error) {
	n, err := ch.file.Read(ctx, uapi.Bytes(&ch.desc))
	switch {
	case err != nil:
		return nil, err
	case n != len(uapi.Bytes(&ch.desc)):
		return nil, syscall.EIO
	}
	q, ok := ch.ctx.objects.get(ch.desc.CqHandle).(*CQ)
	if ok {
		q.answered()
	}
	return q, nil
}

// either returns a context that ends with ctx and with interrupted. It is kept for the next
// time, because most loops wait with one context. The caller has the turn.
func (ch *CompChannel) either(ctx, interrupted context.Context) context.Context {
	m := &ch.merged
	switch {
	case ctx.Done() == nil:
		return interrupted
	case m.parent == ctx.Done() && m.interrupted == interrupted.Done() && m.ctx.Err() == nil:
		return m.ctx
	}
	m.release()
	m.parent, m.interrupted = ctx.Done(), interrupted.Done()
	var cancel context.CancelFunc
	m.ctx, cancel = context.WithCancel(ctx)
	stop := context.AfterFunc(interrupted, cancel)
	m.undo = func() { stop(); cancel() }
	return m.ctx
}

// merged is a context that ends with either of two others.
type merged struct {
	parent, interrupted <-chan struct{}
	ctx                 context.Context
	undo                func()
}

func (m *merged) release() {
	if m.undo != nil {
		m.undo()
		*m = merged{}
	}
}

// interruption is a context that ends with the next interrupt.
func (ch *CompChannel) interruption() context.Context {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return ch.base
}

// interrupt makes the goroutine that reads look around: a queue was closed, or has
// completions left.
func (ch *CompChannel) interrupt() {
	if len(ch.turn) == 0 {
		return
	}
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.cancel()
	ch.base, ch.cancel = context.WithCancel(context.Background())
}
