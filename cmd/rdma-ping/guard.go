package main

import (
	"context"
	"errors"
	"time"
)

var (
	// errTimeout ends a wait that took too long.
	errTimeout = errors.New("no answer in time")
	// errPeerGone ends waits when the peer has disconnected or its connection broke.
	errPeerGone = errors.New("the peer closed the connection")
)

// guard puts a time limit on waits without making a context for each: a timer that is set
// anew costs a fraction of it, and there are two waits a round trip.
type guard struct {
	parent context.Context
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
}

func newGuard(parent context.Context) *guard { return &guard{parent: parent} }

// start returns a context that ends d from now, with cause errTimeout, unless stop is
// called before.
func (g *guard) start(d time.Duration) context.Context {
	if g.timer != nil {
		g.timer.Reset(d)
		return g.ctx
	}
	ctx, cancel := context.WithCancelCause(g.parent)
	g.ctx, g.cancel = ctx, cancel
	g.timer = time.AfterFunc(d, func() { cancel(errTimeout) })
	return ctx
}

// stop ends the time limit. The context of a limit that was reached is used up, also if
// its timer has fired this moment.
func (g *guard) stop() {
	if g.timer == nil || g.timer.Stop() {
		return
	}
	g.cancel(nil)
	g.timer = nil
}

// close frees the timer and the context; the guard must not be used any more.
func (g *guard) close() {
	g.stop()
	if g.timer != nil {
		g.cancel(nil)
	}
}
