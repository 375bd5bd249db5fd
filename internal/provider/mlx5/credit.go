package mlx5

import "github.com/pureverbs/rdma/mmio"

// credit is how the consumer of completions tells the poster of requests how many have
// completed.
type credit struct {
	_      [64]byte // not in a cache line with what the poster writes
	done   uint32   // requests, in all, free-running; the consumer's
	blocks uint16   // where the next request that can complete begins; the consumer's
	shown  uint32   // done, as the poster may know it
	_      [52]byte
}

func (c *credit) show() { mmio.Publish32(&c.shown, c.done) }

func (c *credit) reset() {
	c.done, c.blocks = 0, 0
	mmio.Publish32(&c.shown, 0)
}

// window is the poster's view of the requests that are open.
type window struct {
	limit uint32 // most that can be
	head  uint32 // encoded in all, free-running
	seen  uint32 // done, as last seen
}

// full tells whether as many are open as can be.
func (w *window) full(c *credit) bool { return w.head-w.seen >= w.limit && w.stillFull(c) }

func (w *window) stillFull(c *credit) bool {
	w.seen = mmio.LoadAcquire32(&c.shown)
	return w.head-w.seen >= w.limit
}

// room tells whether n more can be, at least one. It is seldom asked, and stays out of the way.
//
//go:noinline
func (q *sendQueue) room(n uint32) bool {
	q.seen = mmio.LoadAcquire32(&q.credit.shown)
	return n-1 < q.limit-(q.head-q.seen)
}
