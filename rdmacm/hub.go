package rdmacm

import (
	"context"
	"errors"
	"net"
	"sync"
)

// hub is what the synchronous layer stands on: an event channel and one goroutine that
// receives its events for all endpoints. It ends with its last endpoint.
type hub struct {
	ch   *EventChannel
	stop context.CancelFunc
	done chan struct{} // closed when the goroutine has ended

	mu        sync.Mutex
	endpoints map[*ID]*endpoint
	err       error   // why no events come in any more
	left      closers // of attempts that failed, see leave
}

// openHub is newHub with an endpoint.
func openHub(o *Options, ps PortSpace) (*endpoint, error) {
	h, err := newHub(o.System)
	if err != nil {
		return nil, err
	}
	e, err := h.open(ps)
	if err != nil {
		return nil, err
	}
	if err := o.control(e.id); err != nil {
		return nil, joined(err, h.close(e))
	}
	return e, nil
}

func newHub(opts []Option) (*hub, error) {
	ch, err := NewEventChannel(opts...)
	if err != nil {
		return nil, err
	}
	ch.hintLater = true
	ctx, stop := context.WithCancel(context.Background())
	h := &hub{ch: ch, stop: stop, done: make(chan struct{}), endpoints: make(map[*ID]*endpoint)}
	go h.run(ctx)
	return h, nil
}

func (h *hub) run(ctx context.Context) {
	defer close(h.done)
	for {
		ev, err := h.ch.NextEvent(ctx)
		if err != nil {
			h.fail(err)
			return
		}
		h.dispatch(ev)
	}
}

// fail ends all endpoints: their events cannot be received any more.
func (h *hub) fail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = err
	for _, e := range h.endpoints {
		e.finish(err)
	}
}

// open makes an id with its endpoint. If that fails and it was to be the first the hub ends.
func (h *hub) open(ps PortSpace) (*endpoint, error) {
	id, err := h.ch.NewID(ps)
	if err != nil {
		h.end()
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.addLocked(id), nil
}

func (h *hub) addLocked(id *ID) *endpoint {
	e := &endpoint{hub: h, id: id, steps: make(chan *Event, maxSteps), done: make(chan struct{})}
	h.endpoints[id] = e
	if h.err != nil {
		e.finish(h.err)
	}
	return e
}

// dispatch hands an event to its endpoint.
func (h *hub) dispatch(ev *Event) {
	if ev.Type == EventConnectRequest {
		h.request(ev)
		return
	}
	h.mu.Lock()
	e := h.endpoints[ev.ID]
	h.mu.Unlock()
	if e != nil {
		e.handle(ev)
	}
}

// request queues a connection request at its listener. Where nobody takes it, because the
// listener is closed or its queue is full, it is rejected.
func (h *hub) request(ev *Event) {
	h.mu.Lock()
	l := h.endpoints[ev.Listener]
	queued := l != nil && l.queue.put(h, ev)
	var answer func(*Event)
	if l != nil && !l.ended() {
		answer = l.answer
	}
	h.mu.Unlock()
	if queued {
		return
	}
	if answer != nil {
		answer(ev)
	}
	ev.ID.Close() // destroying an id that waits for an answer rejects it
}

// close closes the id of an endpoint, and ends the hub when it was the last. It may be called
// again if it fails.
func (h *hub) close(e *endpoint) error {
	e.finish(net.ErrClosed)
	err := e.id.Close() // what the kernel does not destroy goes with the channel
	if errors.Is(err, ErrBusy) {
		return err
	}
	h.mu.Lock()
	delete(h.endpoints, e.id)
	last := len(h.endpoints) == 0
	h.mu.Unlock()
	h.retry()
	if !last {
		return err
	}
	return joined(err, h.end())
}

// leave takes over what a failed attempt could not close, because the program still has
// memory regions on it. It is tried again whenever an endpoint closes, and at the end. What
// is left even then the garbage collector finds.
func (h *hub) leave(what closers) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.left = append(h.left, what...)
}

func (h *hub) retry() {
	h.mu.Lock()
	left := h.left
	h.left = nil
	h.mu.Unlock()
	if len(left) > 0 && left.run() != nil {
		h.leave(left)
	}
}

// end stops the goroutine and closes the event channel. Requests that come in meanwhile
// find no listener and are closed by the goroutine.
func (h *hub) end() error {
	h.stop()
	<-h.done
	return h.ch.end()
}
