package rdmacm

import (
	"context"
	"net/netip"
	"sync"
)

// maxSteps is more than the events that can come of one handshake: two for address and
// route, and one for its outcome.
const maxSteps = 4

// endpoint is the hub's end of one id.
type endpoint struct {
	hub   *hub
	id    *ID
	queue *requestQueue // of a listener, else nil

	// answer answers a request for the queue pair of a datagram listener, on the hub's
	// goroutine. Its id is closed behind it. Under the hub's lock.
	answer func(*Event)

	steps chan *Event   // what the handshake waits for
	done  chan struct{} // closed when the connection has ended, or the listener

	once sync.Once
	err  error // why it ended; written before done is closed
}

// finish notes the end, the first time.
func (e *endpoint) finish(err error) {
	e.once.Do(func() {
		e.err = err
		close(e.done)
	})
}

// handle runs on the hub's goroutine.
func (e *endpoint) handle(ev *Event) {
	switch ev.Type {
	case EventDisconnected:
		// The peer waits for an answer, and those who wait for completions on this side
		// should find out: Disconnect does both. It fails if the program was faster.
		e.id.Disconnect()
		e.finish(ended(ev))
	case EventDeviceRemoval:
		e.finish(ev.Err)
	case EventMulticastError:
		e.push(ev)
		e.finish(ev.Err)
	case EventAddrChange, EventTimewaitExit:
	default:
		e.push(ev)
	}
}

// push keeps an event for who waits, or is going to. The latest count: if there are more than
// fit the oldest go. Only the hub's goroutine pushes.
func (e *endpoint) push(ev *Event) {
	for {
		select {
		case e.steps <- ev:
			return
		default:
			e.pending()
		}
	}
}

// ended tells whether finish was called.
func (e *endpoint) ended() bool {
	select {
	case <-e.done:
		return true
	default:
		return false
	}
}

func ended(ev *Event) error {
	if ev.Err != nil {
		return ev.Err
	}
	return &Error{Op: opConn, Addr: text(ev.ID.RemoteAddr()), Err: ErrDisconnected}
}

// await waits for the event that the present step of the handshake ends with, or for bad
// news. What is neither, for one an answer that the kernel repeats, is passed over.
func (e *endpoint) await(ctx context.Context, want EventType) (*Event, error) {
	for {
		ev, err := e.step(ctx)
		if err != nil {
			return nil, err
		}
		if ev.Err != nil || ev.Type == want {
			return ev, e.hub.ch.hinted(ev.Err, netip.AddrPort{})
		}
	}
}

func (e *endpoint) step(ctx context.Context) (*Event, error) {
	if ev := e.pending(); ev != nil {
		return ev, nil
	}
	select {
	case ev := <-e.steps:
		return ev, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-e.done:
	}
	if ev := e.pending(); ev != nil { // even if the end came right behind
		return ev, nil
	}
	return nil, e.err
}

// reason is why a command of the handshake failed with err: the bad news that came in before,
// if there are some.
func (e *endpoint) reason(err error) error {
	for ev := e.pending(); ev != nil; ev = e.pending() {
		if ev.Err != nil {
			return e.hub.ch.hinted(ev.Err, netip.AddrPort{})
		}
	}
	if e.ended() {
		return e.err
	}
	return err
}

func (e *endpoint) pending() *Event {
	select {
	case ev := <-e.steps:
		return ev
	default:
		return nil
	}
}
