package mlx5

import "sync/atomic"

// credit is how the consumer of completions tells the poster of requests how many have
// completed.
type credit struct {
	_      [64]byte      // not in a cache line with what the poster writes
	done   uint32        // requests, in all, free-running; the consumer's
	blocks uint16        // where the next request that can complete begins; the consumer's
	shown  atomic.Uint32 // done, as the poster may know it
	_      [52]byte
}

func (c *credit) show() { c.shown.Store(c.done) }

func (c *credit) reset() {
	c.done, c.blocks = 0, 0
	c.shown.Store(0)
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
	w.seen = c.shown.Load()
	return w.head-w.seen >= w.limit
}
