package howto

import (
	"context"
	"runtime"

	"github.com/pureverbs/rdma/uverbs"
)

// Waiter takes completions out of a queue: at least one, or the error of ctx or the queue.
type Waiter func(ctx context.Context, cq *uverbs.CQ, wcs []uverbs.WC) (int, error)

// Sleep spins for a moment where that has helped before, then parks the goroutine until the
// kernel has an event for it.
func Sleep(ctx context.Context, cq *uverbs.CQ, wcs []uverbs.WC) (int, error) {
	return cq.Wait(ctx, wcs)
}

// Spin asks again and again.
func Spin(ctx context.Context, cq *uverbs.CQ, wcs []uverbs.WC) (int, error) {
	for ctx.Err() == nil {
		for range 100 { // the context costs more than the queue
			if n, err := cq.Poll(wcs); n > 0 || err != nil {
				return n, err
			}
		}
		runtime.Gosched() // the peer may be a goroutine of this very process
	}
	return 0, ctx.Err()
}
