package mlx5

import (
	"fmt"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
	"github.com/pureverbs/rdma/mmio"
)

// ResizePlan is the driver's part of resizing a completion queue.
type ResizePlan struct {
	q       *CQ
	mem     []byte
	entries uint32
	req     abi.Mlx5IbResizeCq
}

// PlanResize makes the memory for at least entries completions; nil says that the queue has
// that size already and nothing is to be done. Either Apply or Drop must follow, and until
// then nobody else may use the queue.
func (q *CQ) PlanResize(entries int) (*ResizePlan, error) {
	n, err := roundCQ(entries)
	if err != nil || n == q.ring.mask+1 {
		return nil, err
	}
	mem, err := q.ctx.mem.Alloc(q.ctx.pages(int(n) * cqeSize))
	if err != nil {
		return nil, err
	}
	disown(mem)
	return &ResizePlan{q: q, mem: mem, entries: n}, nil
}

// In is the driver's input.
func (p *ResizePlan) In() []byte {
	p.req = abi.Mlx5IbResizeCq{BufAddr: addrOf(p.mem).number(), CqeSize: cqeSize}
	return bytesOf(&p.req)
}

// Entries is how many completions the kernel is to be asked for.
func (p *ResizePlan) Entries() uint32 { return p.entries - 1 }

// Drop frees the memory: the kernel refused.
func (p *ResizePlan) Drop() error { return p.q.ctx.mem.Free(p.mem) }

// Apply goes on in the new queue, with what is in the old one; granted is how many
// completions the kernel says. The device does so too, thus even when the old queue is
// corrupt and its completions are lost, which the error says.
func (p *ResizePlan) Apply(granted uint32) error {
	q, old := p.q, p.q.mem
	count, err := q.pending()
	if err == nil && (granted != p.entries-1 || count > granted) {
		err = fmt.Errorf("%w: %d completions for a queue of %d, %d wait", provider.ErrCorrupt, granted, p.entries, count)
	}
	from, next := q.ring, q.next
	q.use(p.mem, p.entries)
	if err == nil {
		// The entry that says that the queue is resized takes a position in the old one, so
		// in the new one all are one further.
		for i := range count {
			n := next + i
			e := q.ring.entry(n + 1)
			copy(e.bytes(cqeSize), from.entry(n).bytes(cqeSize))
			e.put8(offOwner, e.get8(offOwner)&^1|q.ring.round(n+1))
		}
		q.seek(q.next + 1)
		q.Release() // or the device would count its last entry as unread until something completes
	}
	if e := q.ctx.mem.Free(old); err == nil {
		err = e
	}
	return err
}

// pending counts the completions up to the one that says that the device goes on in another
// queue.
func (q *CQ) pending() (uint32, error) {
	for n := uint32(0); n <= q.ring.mask; n++ {
		t := tailOf(q.ring.entry(q.next + n))
		if !q.ring.written(q.next+n, t) {
			break
		}
		if t.kind() == cqeResize {
			mmio.OrderReads()
			return n, nil
		}
	}
	return 0, fmt.Errorf("%w: a resized completion queue has no last entry", provider.ErrCorrupt)
}
