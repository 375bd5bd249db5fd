package main

import (
	"context"
	"runtime"
	"time"

	"github.com/pureverbs/rdma/uverbs"
)

// waiter takes completions from a queue, on events or spinning.
type waiter struct {
	cq   *uverbs.CQ
	spin bool
	wcs  [16]uverbs.WC
}

// wait returns at least one completion, and the time at which it was seen. The slice is
// valid until the next call.
//
// What is in the queue counts even if the wait was to end: an answer that came together
// with the peer's farewell is an answer.
func (w *waiter) wait(ctx context.Context) ([]uverbs.WC, time.Time, error) {
	n, err := w.take(ctx)
	at := time.Now()
	if n > 0 {
		return w.wcs[:n], at, nil
	}
	if left, pollErr := w.cq.Poll(w.wcs[:]); pollErr == nil && left > 0 {
		return w.wcs[:left], at, nil
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return nil, at, err
}

func (w *waiter) take(ctx context.Context) (int, error) {
	if !w.spin {
		return w.cq.Wait(ctx, w.wcs[:])
	}
	for {
		n, err := w.cq.Poll(w.wcs[:])
		if n > 0 || err != nil {
			return n, err
		}
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		// A thread that never yields would starve the timers and, with few CPUs, the
		// very device that it waits for.
		runtime.Gosched()
	}
}

// poll returns the completions that are there, none if there are none.
func (w *waiter) poll() ([]uverbs.WC, error) {
	n, err := w.cq.Poll(w.wcs[:])
	return w.wcs[:n], err
}
