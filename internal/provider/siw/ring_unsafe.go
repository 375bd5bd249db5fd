package siw

import (
	"fmt"
	"math"
	"os"
	"sync/atomic"
	"unsafe"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
	"github.com/pureverbs/rdma/mmio"
)

const (
	offHead    = 8       // of the word with the flags, in slots of all kinds
	maxEntries = 1 << 22 // the kernel's largest queue (SIW_MAX_CQE, rounded up)
	valid      = abi.SIW_WQE_VALID
)

// The word with the flags begins with them wherever they are.
var (
	_ [unsafe.Offsetof(abi.SiwSqe{}.Flags) - offHead]byte
	_ [unsafe.Offsetof(abi.SiwRqe{}.Flags) - offHead]byte
	_ [unsafe.Offsetof(abi.SiwCqe{}.Flags) - offHead]byte
	_ [offHead - unsafe.Offsetof(abi.SiwSqe{}.Flags)]byte
	_ [offHead - unsafe.Offsetof(abi.SiwRqe{}.Flags)]byte
	_ [offHead - unsafe.Offsetof(abi.SiwCqe{}.Flags)]byte
)

// ring is one shared queue. All bounds are checked once, in attach: after that a masked
// position cannot leave the mapping.
type ring struct {
	region *mmio.Region
	slots  unsafe.Pointer
	size   uintptr // bytes of a slot
	mask   uint32
	own    uint32 // free-running position of this side
	given  uint32 // what of it the kernel has been given
}

// attach maps a queue with tail bytes behind it.
//
// The value SIW_INVAL_UOBJ_KEY is a key like any other: keys are page numbers times the page
// size, so each context comes to it, and a create call that made no mapping has failed.
func attach(m provider.Mapper, key uint64, entries uint32, slot, tail uintptr) (*ring, error) {
	page := uintptr(os.Getpagesize())
	switch {
	case entries == 0, entries > maxEntries, entries&(entries-1) != 0:
		return nil, fmt.Errorf("%w: %d entries", provider.ErrCorrupt, entries)
	case key > math.MaxInt64, key%uint64(page) != 0:
		return nil, fmt.Errorf("%w: mapping key %#x", provider.ErrCorrupt, key)
	}
	length := uintptr(entries)*slot + tail
	length = (length + page - 1) &^ (page - 1) // exactly this, or the kernel refuses
	region, err := m(int64(key), int(length))
	if err != nil {
		return nil, err
	}
	mem := region.Bytes()
	if uintptr(len(mem)) < length {
		region.Close()
		return nil, fmt.Errorf("%w: %d entries do not fit %d bytes", provider.ErrCorrupt, entries, len(mem))
	}
	return &ring{region: region, slots: unsafe.Pointer(&mem[0]), size: slot, mask: entries - 1}, nil
}

// slot returns the address of the slot at position i.
func (r *ring) slot(i uint32) unsafe.Pointer { return unsafe.Add(r.slots, uintptr(i&r.mask)*r.size) }

// head returns the word of that slot with the flags.
func (r *ring) head(i uint32) *uint32 { return (*uint32)(unsafe.Add(r.slot(i), offHead)) }

// spent tells whether this side has got round: the next slot is the first of those that the
// kernel has not been given yet.
func (r *ring) spent() bool { return r.own-r.given > r.mask }

func (r *ring) close() error { return r.region.Close() }

// producer is a ring that this side fills.
type producer struct {
	ring
	words []uint32 // by slot: what publish writes into it
}

func attachProducer(m provider.Mapper, key uint64, entries uint32, slot uintptr) (*producer, error) {
	r, err := attach(m, key, entries, slot, 0)
	if err != nil {
		return nil, err
	}
	return &producer{ring: *r, words: make([]uint32, entries)}, nil
}

// full tells whether the next slot is still taken. The kernel flushes and counts any slot
// with a flag, so a free one has none.
func (p *producer) full() bool {
	return p.spent() || headFlags(bigEndian, mmio.LoadAcquire32(p.head(p.own))) != 0
}

// put ends the encoding of the next slot.
func (p *producer) put(flags uint16, pieces, op uint8) {
	p.words[p.own&p.mask] = packHead(bigEndian, flags|valid, pieces, op)
	p.own++
}

// publish hands what was put to the kernel, in order: it may take the first before the last
// is there.
func (p *producer) publish() {
	for ; p.given != p.own; p.given++ {
		mmio.Publish32(p.head(p.given), p.words[p.given&p.mask])
	}
}

// drop forgets what was put and not published.
func (p *producer) drop() { p.own = p.given }

// take takes back what the kernel has not taken, and goes on from there, as the kernel will.
// Slots are used in turn, so behind the newest comes the oldest.
func (p *producer) take(each func(id uint64)) {
	slots, next := p.mask+1, p.given
	for i := next - slots; i != next; i++ {
		head := p.head(i)
		word := mmio.LoadAcquire32(head)
		if headFlags(bigEndian, word)&valid == 0 {
			continue
		}
		id := *(*uint64)(p.slot(i))
		if !atomic.CompareAndSwapUint32(head, word, freeHead(bigEndian, word)) {
			continue // the kernel was faster
		}
		if p.given == next {
			p.given = i
		}
		each(id)
	}
	p.own = p.given
}

// putSGL writes the pieces that hold something. A message of no bytes has one empty piece,
// as the kernel's own have, and as RDMA READ needs it.
func putSGL(dst *[abi.SIW_MAX_SGE]abi.SiwSge, sgl []provider.SGE) (n uint8) {
	for i := range sgl {
		if sgl[i].Length > 0 {
			dst[n].Laddr, dst[n].Length, dst[n].Lkey = sgl[i].Addr, sgl[i].Length, sgl[i].LKey
			n++
		}
	}
	if n > 0 {
		return n
	}
	dst[0] = abi.SiwSge{}
	if len(sgl) > 0 {
		dst[0].Laddr, dst[0].Lkey = sgl[0].Addr, sgl[0].LKey
	}
	return 1
}
