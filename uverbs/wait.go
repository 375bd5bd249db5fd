package uverbs

import (
	"context"
	"net"
	"time"
)

// Wait takes up to len(wcs) completions, like Poll, and waits until there is at least one.
// It polls, spins for a moment if that has helped lately (see CQInitAttr.Spins), arms, polls
// again and only then parks, on the netpoller: a waiting goroutine costs no OS thread (but see
// [Context.NewBlockingCompChannel]). Any number may wait for one queue, and for the queues of
// one channel; each completion goes to one of them, and none is missed while another waits.
//
// It returns early when ctx ends, or with net.ErrClosed when the queue is closed. The
// queue must have a completion channel. wcs must hold at least one element.
func (q *CQ) Wait(ctx context.Context, wcs []WC) (int, error) {
	const op = "wait for completion"
	if len(wcs) == 0 {
		return 0, invalid(op, q.device, "no room for a completion")
	}
	if q.ch == nil {
		return 0, invalid(op, q.device, "the queue has no completion channel")
	}
	q.waiters.Add(1)
	n, err := q.wait(ctx, wcs)
	// More completions may be left than wcs held, and the one event may have gone to
	// this waiter: pass it on.
	if q.waiters.Add(-1) > 0 && n == len(wcs) {
		q.wake()
		q.ch.interrupt()
	}
	return n, wrap(op, q.device, err)
}

func (q *CQ) wait(ctx context.Context, wcs []WC) (int, error) {
	for {
		if n, err := q.spin(wcs); n > 0 || err != nil {
			return n, err
		}
		if n, err := q.armAndPoll(wcs); n > 0 || err != nil {
			return n, err
		}
		if err := q.sleep(ctx); err != nil {
			return 0, err
		}
	}
}

// spin polls, and goes on for a while where that helps.
func (q *CQ) spin(wcs []WC) (int, error) {
	if n, err := q.Poll(wcs); n > 0 || err != nil {
		return n, err
	}
	most := q.spinner.polls()
	if most == 0 {
		return 0, nil
	}
	begin := time.Now()
	for range most {
		if n, err := q.Poll(wcs); n > 0 || err != nil {
			q.spinner.found()
			return n, err
		}
	}
	q.spinner.gaveUp(time.Since(begin))
	return 0, nil
}

// armAndPoll makes sure that the next completion causes an event, then looks for those
// that came before.
func (q *CQ) armAndPoll(wcs []WC) (int, error) {
	q.mu.Lock()
	var err error
	if q.arms.Load() != armedAny {
		err = q.arm(false)
	}
	q.mu.Unlock()
	if err != nil {
		return 0, err
	}
	return q.Poll(wcs)
}

// sleep parks, and tells the spinner how long.
func (q *CQ) sleep(ctx context.Context) error {
	if q.spinner.most == 0 {
		return q.park(ctx)
	}
	begin := time.Now()
	err := q.park(ctx)
	q.spinner.slept(time.Since(begin))
	return err
}

// park waits for an event of this queue. Whoever has the channel's turn reads for all.
func (q *CQ) park(ctx context.Context) error {
	if q.woken() {
		return nil
	}
	select {
	case q.ch.turn <- struct{}{}:
	default:
		if mine, err := q.parkForTurn(ctx); !mine {
			return err
		}
	}
	defer func() { <-q.ch.turn }()
	for {
		// Taken before the look: what happens after the look interrupts the read.
		interrupted := q.ch.interruption()
		if q.woken() {
			return nil
		}
		if err := q.ended(ctx); err != nil {
			return err
		}
		switch got, err := q.ch.read(q.ch.either(ctx, interrupted)); {
		case err != nil && !isCanceled(err):
			return err
		case got == q:
			return nil
		case got != nil:
			got.wake()
		}
	}
}

// parkForTurn waits until there is an event or nobody reads any more: then mine is true.
func (q *CQ) parkForTurn(ctx context.Context) (mine bool, _ error) {
	select {
	case <-q.events:
		return false, nil
	case <-q.done:
		return false, net.ErrClosed
	case <-ctx.Done():
		return false, ctx.Err()
	case q.ch.turn <- struct{}{}:
		return true, nil
	}
}

// woken takes the event that came in meanwhile, if there is one. (It and ended look at one
// channel at a time, which takes no lock. A select of several locks them all.)
func (q *CQ) woken() bool {
	select {
	case <-q.events:
		return true
	default:
		return false
	}
}

// ended is why nobody should wait any longer, or nil.
func (q *CQ) ended(ctx context.Context) error {
	select {
	case <-q.done:
		return net.ErrClosed
	default:
		return ctx.Err()
	}
}

// answered notes that the kernel's event has come.
func (q *CQ) answered() {
	if c := q.counter.Load(); c != nil {
		c.Event() // first: who sees that the queue is not armed arms anew, which takes the count
	}
	q.arms.Store(0)
}

// wake makes one waiter look at the queue, now or when it comes.
func (q *CQ) wake() {
	select {
	case q.events <- struct{}{}:
	default:
	}
}
