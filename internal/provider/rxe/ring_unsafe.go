package rxe

import (
	"fmt"
	"unsafe"

	"github.com/pureverbs/rdma/internal/provider"
	"github.com/pureverbs/rdma/mmio"
)

// The header of a queue: struct rxe_queue_buf keeps each index on a cache line of its own.
const (
	offLog2Slot = 0
	offMask     = 4
	offProducer = 128
	offConsumer = 256
	offSlots    = 384
)

// ring is one shared queue. All bounds are checked once, in newRing: after that a masked
// index cannot leave the mapping.
type ring struct {
	region   *mmio.Region
	producer *uint32
	consumer *uint32
	slots    unsafe.Pointer
	shift    uint32
	mask     uint32
	own      uint32 // the index that this side moves
	shown    uint32 // what of it the kernel has been shown
}

// newRing attaches to a mapped queue whose slots hold at least slotSize bytes.
func newRing(region *mmio.Region, slotSize int) (*ring, error) {
	mem := region.Bytes()
	if len(mem) < offSlots {
		return nil, fmt.Errorf("%w: %d bytes are no queue", provider.ErrCorrupt, len(mem))
	}
	word := func(off int) *uint32 { return (*uint32)(unsafe.Pointer(&mem[off])) }
	r := &ring{region: region, producer: word(offProducer), consumer: word(offConsumer)}
	r.shift, r.mask = *word(offLog2Slot), *word(offMask)
	switch {
	case r.shift >= 24 || 1<<r.shift < slotSize:
		return nil, fmt.Errorf("%w: slots of 2^%d bytes, want at least %d", provider.ErrCorrupt, r.shift, slotSize)
	case r.mask != 0 && !mmio.IsMask(r.mask): // 0 is a queue that was asked for no entry
		return nil, fmt.Errorf("%w: index mask %#x", provider.ErrCorrupt, r.mask)
	case uint64(r.mask)+1 > uint64(len(mem)-offSlots)>>r.shift:
		return nil, fmt.Errorf("%w: %d slots do not fit %d bytes", provider.ErrCorrupt, uint64(r.mask)+1, len(mem))
	}
	r.slots = unsafe.Pointer(&mem[offSlots])
	return r, nil
}

// slot returns the address of the slot at index i.
func (r *ring) slot(i uint32) unsafe.Pointer {
	return unsafe.Add(r.slots, uintptr(i&r.mask)<<(r.shift&31)) // &31: so that the compiler need not look
}

// full tells whether the producer, which is this side, has no free slot.
func (r *ring) full() bool {
	return (r.own+1)&r.mask == mmio.LoadAcquire32(r.consumer)&r.mask
}

// free is how many slots the producer, which is this side, can fill.
func (r *ring) free() int {
	return int(mmio.Free(r.own, mmio.LoadAcquire32(r.consumer), r.mask))
}

// drained tells whether the consumer, which is the kernel, has taken all that it was shown.
func (r *ring) drained() bool {
	return mmio.LoadAcquire32(r.consumer)&r.mask == r.shown&r.mask
}

// publish makes all slots before the own index visible to the kernel.
func (r *ring) publish() {
	mmio.Publish32(r.producer, r.own)
	r.shown = r.own
}

// drop goes back to what the kernel has seen.
func (r *ring) drop() { r.own = r.shown }

// resume takes over from the index that stands in the ring.
func (r *ring) resume(index *uint32) {
	r.own = mmio.LoadAcquire32(index) & r.mask
	r.shown = r.own
}

// release gives all slots before the own index back to the kernel.
func (r *ring) release() {
	mmio.Publish32(r.consumer, r.own)
	r.shown = r.own
}

func (r *ring) close() error { return r.region.Close() }
