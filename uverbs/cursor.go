package uverbs

import "github.com/pureverbs/rdma/internal/provider"

// Cursor reads completions one by one, straight out of the queue. See [CQ.Start].
type Cursor struct {
	q      *CQ
	id     uint64
	status WCStatus
	wc     provider.WC
	whole  bool // wc is decoded
	taken  bool // from the ring, so there is something to give back
	failed []*QP
	err    error
}

// Start begins to read completions one by one and holds the queue until End: nobody else
// polls it meanwhile. Of each completion only what is asked for is decoded, and the loop
// may stop at any of them:
//
//	cur := cq.Start()
//	for cur.Next() {
//		use(cur.ID(), cur.Status())
//	}
//	err := cur.End()
//
// It does not allocate. Do not call other methods of the queue, or close its queue pairs,
// between Start and End. Source: ibv_start_poll(3).
func (q *CQ) Start() *Cursor {
	q.mu.lockMutex()
	q.mu.lockWord()
	c := &q.cursor
	c.q, c.taken, c.err = q, false, nil
	if !q.ring.open() {
		c.err = errClosed
	}
	return c
}

// Next moves to the next completion; false if there is none (yet).
func (c *Cursor) Next() bool {
	if c.err != nil {
		return false
	}
	ok, err := c.q.ring.advance()
	switch {
	case ok:
		c.taken, c.whole = true, false
		if c.id, c.status = c.q.ring.current(); c.status != WCSuccess {
			c.failed = c.q.ctx.suspect(c.failed, c.WC().QPNum)
		}
	case err != nil:
		c.err = err
	case len(c.q.own) > 0:
		c.wc, c.whole, ok = c.q.takeOwn(), true, true
		c.id, c.status = c.wc.ID, c.wc.Status
	}
	return ok
}

// ID is the work request's number.
func (c *Cursor) ID() uint64 { return c.id }

// Status says how the work request ended.
func (c *Cursor) Status() WCStatus { return c.status }

// WC decodes all of the completion. It is valid until the next call of Next or End.
func (c *Cursor) WC() *WC {
	if !c.whole {
		c.q.ring.decode(&c.wc)
		c.whole = true
	}
	return (*WC)(&c.wc)
}

// End gives what was read back to the device and lets others use the queue.
//
// Errors: net.ErrClosed; ErrCorrupt.
func (c *Cursor) End() error {
	q, err, failed := c.q, c.err, c.failed
	if c.taken {
		q.ring.release()
	}
	c.failed = nil
	q.mu.unlockMutex()
	q.mu.unlockWord()
	buryAll(failed)
	return wrap("poll completion queue", q.device, err)
}
