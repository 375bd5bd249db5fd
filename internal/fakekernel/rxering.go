//go:build linux

package fakekernel

import (
	"math/bits"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/mmio"
)

// Offsets in a queue: struct rxe_queue_buf.
const (
	offProducer = 128
	offConsumer = 256
	offSlots    = 384
	minSlot     = 64
)

var (
	sendHead = len(bytesOf(&abi.RxeSendWqe{}))
	recvHead = len(bytesOf(&abi.RxeRecvWqe{}))
	sgeSize  = len(bytesOf(&abi.RxeSge{}))
)

// ring is one queue of rxe.
type ring struct {
	*mapping
	producer *uint32
	consumer *uint32
	shift    uint32
	mask     uint32
	own      uint32 // the index that the kernel moves
}

// newRing makes a queue of at least n slots: sw/rxe/rxe_queue.c, rxe_queue_init.
func (f *verbsFile) newRing(n uint32, slot int) (r ring, err error) {
	r.shift = uint32(bits.Len(uint(max(slot, minSlot) - 1)))
	slots := uint32(1) << bits.Len32(n)
	r.mask = slots - 1
	if r.mapping, err = f.newMapping(offSlots + uint64(slots)<<r.shift); err != nil {
		return r, err
	}
	r.producer, r.consumer = view[uint32](r.mem[offProducer:]), view[uint32](r.mem[offConsumer:])
	*view[uint32](r.mem) = r.shift
	*view[uint32](r.mem[4:]) = r.mask
	if f.k.opts.Spoil != nil {
		f.k.opts.Spoil(r.mem)
	}
	return r, nil
}

func (r *ring) info() abi.Mminfo {
	return abi.Mminfo{Offset: r.offset, Size: uint32(len(r.mem))}
}

// slots is how many entries the queue holds.
func (r *ring) slots() uint32 { return r.mask }

// slot is the memory of one slot, as the kernel sees it.
func (r *ring) slot(i uint32) []byte {
	off := offSlots + uint64(i&r.mask)<<r.shift
	return r.mem[off : off+1<<r.shift : off+1<<r.shift]
}

// empty tells whether the consumer, which is the kernel, has nothing to take at index i.
func (r *ring) empty(i uint32) bool { return mmio.LoadAcquire32(r.producer)&r.mask == i }

// consume gives the slot at the kernel's index back to the user.
func (r *ring) consume() {
	r.own = mmio.Next(r.own, r.mask)
	mmio.StoreRelease32(r.consumer, r.own)
}

// load copies a scatter/gather list out of a slot.
func (p *pieces) load(num uint32, data []byte) {
	p.num = int(num)
	if p.num > min(maxSGE, len(data)/sgeSize) {
		p.num = maxSGE + 1
		return
	}
	for i := range p.num {
		p.list[i] = *view[abi.RxeSge](data[i*sgeSize:])
	}
}

// sendRing is a send queue; own is the request to complete, at the one to carry out.
type sendRing struct {
	ring
	at uint32
}

func (r *sendRing) next(w *work) bool {
	if r.empty(r.at) {
		return false
	}
	w.load(r.slot(r.at))
	return true
}

func (r *sendRing) advance() { r.at = mmio.Next(r.at, r.mask) }

func (r *sendRing) pending(w *work) bool {
	if r.own == r.at {
		return false
	}
	w.load(r.slot(r.own))
	return true
}

func (r *sendRing) complete() { r.consume() }

// load decodes a slot. The user may still write in it, so everything is read once.
func (w *work) load(slot []byte) {
	s := *view[abi.RxeSendWqe](slot)
	data := slot[sendHead:]
	*w = work{id: s.Wr.WrId, op: s.Wr.Opcode, flags: s.Wr.SendFlags, length: s.Dma.Length, addr: s.Iova}
	w.imm, w.invKey = *s.Wr.ExImmData(), *s.Wr.ExInvalidateRkey()
	w.loadArm(&s.Wr)
	if w.inline() {
		w.data = data[:min(len(data), int(w.length))]
	} else {
		w.pieces.load(s.Dma.NumSge, data)
	}
}

// loadArm decodes the union. Sends have the address of a datagram in it, or nothing.
func (w *work) loadArm(s *abi.RxeSendWr) {
	switch w.op {
	case abi.IB_UVERBS_WR_ATOMIC_CMP_AND_SWP, abi.IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD:
		a := s.WrAtomic()
		w.rkey, w.compareAdd, w.swap = a.Rkey, a.CompareAdd, a.Swap
	case abi.IB_UVERBS_WR_FLUSH:
		a := s.WrFlush()
		w.rkey, w.flushType, w.flushLevel = a.Rkey, a.Type, a.Level
	case abi.IB_UVERBS_WR_BIND_MW:
		w.bind = *s.WrMw()
	case abi.IB_UVERBS_WR_SEND, abi.IB_UVERBS_WR_SEND_WITH_IMM:
		w.to = *s.WrUd()
	default:
		w.rkey = s.WrRdma().Rkey
	}
}

// recvRing is a receive queue.
type recvRing struct{ ring }

func (r *recvRing) peek(w *recvWork) bool {
	if r.empty(r.own) {
		return false
	}
	slot := r.slot(r.own)
	s := *view[abi.RxeRecvWqe](slot)
	w.id, w.length = s.WrId, s.Dma.Length
	w.pieces.load(s.Dma.NumSge, slot[recvHead:])
	return true
}

// When a completion queue raises an event.
const (
	notArmed = iota
	armedSolicited
	armedAny
)

// compRing is a completion queue.
type compRing struct {
	ring
	armed uint8
}

// post adds a completion: sw/rxe/rxe_cq.c, rxe_cq_post.
func (r *compRing) post(wc *abi.IbUverbsWc) bool {
	next := mmio.Next(r.own, r.mask)
	if next == mmio.LoadAcquire32(r.consumer)&r.mask {
		return false
	}
	copy(r.slot(r.own), bytesOf(wc))
	r.own = next
	mmio.StoreRelease32(r.producer, next)
	return true
}

// arm: there is no event for completions that are there already.
func (r *compRing) arm(solicitedOnly bool) error {
	switch {
	case !solicitedOnly:
		r.armed = armedAny
	case r.armed != armedAny: // a stronger wish stays
		r.armed = armedSolicited
	}
	return nil
}

func (r *compRing) fires(solicited bool) bool {
	if r.armed == armedAny || r.armed == armedSolicited && solicited {
		r.armed = notArmed
		return true
	}
	return false
}

// Ring is a queue that a test looks into or spoils, as a kernel gone wrong would.
type Ring struct {
	Producer, Consumer *uint32
	Mask               uint32
	Slot               func(i uint32) []byte
}

// Rings calls fn with the ring of every completion queue of rxe, under the kernel's lock.
func (k *Kernel) Rings(fn func(Ring)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for f := range k.files {
		v, ok := f.(*verbsFile)
		if !ok {
			continue
		}
		for _, o := range v.objects {
			c, ok := o.(*cq)
			if !ok {
				continue
			}
			if r, ok := c.ring.(*compRing); ok {
				fn(Ring{r.producer, r.consumer, r.mask, r.slot})
			}
		}
	}
}
