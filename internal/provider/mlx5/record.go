package mlx5

import (
	"errors"
	"math/bits"
	"slices"

	"github.com/pureverbs/rdma/internal/provider"
)

// The two words of a doorbell record.
const (
	recvCount = 0 // receives posted; for a completion queue what was consumed
	sendCount = 4 // blocks of the send queue; for a completion queue how it is armed
)

// records hands out doorbell records. The kernel pins a page once for all the records in it,
// so they share pages, but each has a cache line for itself.
type records struct {
	mem   provider.Allocator
	page  int
	slot  int
	pages []*recordPage // the newest last
}

type recordPage struct {
	mem  []byte
	used []uint64 // a bit a slot
	n    int
}

// record is a doorbell record and where it belongs.
type record struct {
	addr
	page *recordPage
	at   int
}

func (r *records) init(mem provider.Allocator, page, slot int) {
	r.mem, r.page, r.slot = mem, page, slot
}

// take returns a record of zeros: the lowest free one of the newest page that has one.
func (r *records) take() (record, error) {
	for i := len(r.pages) - 1; i >= 0; i-- {
		if p := r.pages[i]; p.n < r.page/r.slot {
			return r.takeFrom(p), nil
		}
	}
	mem, err := r.mem.Alloc(r.page)
	if err != nil {
		return record{}, err
	}
	p := &recordPage{mem: mem, used: make([]uint64, (r.page/r.slot+63)/64)}
	r.pages = append(r.pages, p)
	return r.takeFrom(p), nil
}

// takeFrom takes from a page that has a free slot.
func (r *records) takeFrom(p *recordPage) record {
	i := slices.IndexFunc(p.used, func(word uint64) bool { return word != ^uint64(0) })
	bit := bits.TrailingZeros64(^p.used[i])
	p.used[i] |= 1 << bit
	p.n++
	at := 64*i + bit
	mem := p.mem[at*r.slot:][:r.slot]
	clear(mem)
	return record{addrOf(mem), p, at}
}

// give takes a record back, and frees its page with the last one.
func (r *records) give(rec record) error {
	p := rec.page
	p.used[rec.at/64] &^= 1 << (rec.at % 64)
	if p.n--; p.n > 0 {
		return nil
	}
	r.pages = slices.DeleteFunc(r.pages, func(q *recordPage) bool { return q == p })
	return r.mem.Free(p.mem)
}

func (r *records) close() error {
	var errs []error
	for _, p := range r.pages {
		errs = append(errs, r.mem.Free(p.mem))
	}
	r.pages = nil
	return errors.Join(errs...)
}

// queueMem is the memory of one queue, or pair of queues, with its doorbell record.
type queueMem struct {
	ctx *Context
	mem []byte
	rec record
}

// alloc takes size bytes, in whole pages, and a record. The memory is zeroed.
func (c *Context) alloc(size int) (q queueMem, err error) {
	q.ctx = c
	if q.mem, err = c.mem.Alloc(c.pages(size)); err != nil {
		return queueMem{}, err
	}
	c.mu.Lock()
	q.rec, err = c.records.take()
	c.mu.Unlock()
	if err != nil {
		return queueMem{}, errors.Join(err, c.mem.Free(q.mem))
	}
	return q, nil
}

// free gives both back. The device must be done with them.
func (q *queueMem) free() error {
	if q.mem == nil {
		return nil
	}
	q.ctx.mu.Lock()
	err := q.ctx.records.give(q.rec)
	q.ctx.mu.Unlock()
	err = errors.Join(err, q.ctx.mem.Free(q.mem))
	q.mem = nil
	return err
}
