package mlx5

import (
	"fmt"
	"math/bits"
	"sync/atomic"
	"syscall"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
	"github.com/pureverbs/rdma/mmio"
)

const (
	minSlot   = 32 // bytes
	offNext   = 2  // of a slot: 16 bits, the slot that the device takes after it
	offPieces = 16
	wordBits  = 64
)

// SRQPlan is the driver's part of creating a shared receive queue.
type SRQPlan struct {
	queueMem
	slots  uint32
	shift  uint32
	room   uint32 // for pieces in a slot, more than may be promised
	pieces uint32
	req    abi.Mlx5IbCreateSrq
	resp   abi.Mlx5IbCreateSrqResp
}

// PlanSRQ makes the memory of a shared receive queue. Either Attach or Drop must follow.
// Errors: EINVAL for more than the device's limits.
func (c *Context) PlanSRQ(maxWR, maxSGE uint32) (*SRQPlan, error) {
	most := c.recvBytes / pieceSize
	switch {
	case maxSGE > most:
		return nil, fmt.Errorf("%w: %d pieces a receive request", syscall.EINVAL, maxSGE)
	case maxWR == 0 || maxWR >= c.srqWR || pow2(maxWR+1) > c.srqWR:
		return nil, fmt.Errorf("%w: %d receive requests", syscall.EINVAL, maxWR)
	}
	p := &SRQPlan{slots: pow2(maxWR + 1)}
	size := pow2(max(minSlot, offPieces+pieceSize*maxSGE))
	p.shift = uint32(bits.TrailingZeros32(size))
	p.room = (size - offPieces) / pieceSize
	p.pieces = min(p.room, most)
	var err error
	if p.queueMem, err = c.alloc(int(p.slots << p.shift)); err != nil {
		return nil, err
	}
	for i, slot := uint32(1), addrOf(p.mem); i < p.slots; i++ {
		slot.put16(offNext, uint16(i))
		slot = slot.add(uintptr(size))
	}
	return p, nil
}

// In is the driver's input.
func (p *SRQPlan) In() []byte {
	p.req = abi.Mlx5IbCreateSrq{BufAddr: addrOf(p.mem).number(), DbAddr: p.rec.number()}
	return bytesOf(&p.req)
}

// Out is the memory for the driver's response.
func (p *SRQPlan) Out() []byte { return bytesOf(&p.resp) }

// MaxWR is what the kernel is to be asked for, and what the program gets: one slot of the
// list is never with the device.
func (p *SRQPlan) MaxWR() uint32 { return p.slots - 1 }

// MaxSGE is the same of the pieces a request.
func (p *SRQPlan) MaxSGE() uint32 { return p.pieces }

// Drop frees the memory: the kernel made no queue.
func (p *SRQPlan) Drop() error { return p.free() }

// Attach makes the queue; granted is how many requests the kernel says. On an error the plan
// stays: destroy the kernel's queue, then Drop.
func (p *SRQPlan) Attach(granted uint32) (*SRQ, error) {
	if granted != p.MaxWR() {
		return nil, fmt.Errorf("%w: %d receives for a queue of %d", provider.ErrCorrupt, granted, p.slots)
	}
	s := &SRQ{
		queueMem: p.queueMem, num: p.resp.Srqn & lowQPN,
		ring: addrOf(p.mem), shift: p.shift, slots: p.slots, room: p.room, last: p.slots - 1,
		next: make([]uint16, p.slots), ids: make([]uint64, p.slots),
		out: make([]atomic.Uint64, (p.slots+wordBits-1)/wordBits),
	}
	for i := range p.slots - 1 {
		s.next[i] = uint16(i + 1)
	}
	return s, nil
}

// SRQ is the producer's side of a shared receive queue. The caller serialises those who post.
// Completion queues give slots back without a lock.
//
// The device goes from slot to slot by the links in them. Slots that are free and linked in
// are a list from head to last; last has no link yet, so it cannot be posted. When the list
// is used up, slots that came back are linked in behind last.
type SRQ struct {
	queueMem
	num   uint32
	ring  addr
	shift uint32
	slots uint32
	room  uint32 // for pieces in a slot

	head, last uint32
	next       []uint16 // the links once more: those in the slots are not read
	counter    uint32   // of requests, free-running
	word       uint32   // of out, in which to look first
	ids        []uint64 // by slot

	out []atomic.Uint64 // a bit a slot: encoded and not completed
}

// Num is the queue's number on the device.
func (s *SRQ) Num() uint32 { return s.num }

func (s *SRQ) slot(i uint32) addr { return s.ring.add(uintptr(i) << s.shift) }

// Recv encodes one receive request; total is the length of its pieces. The device sees it
// after PublishRecv.
func (s *SRQ) Recv(wr *provider.RecvWR, _ uint32) error {
	if s.head == s.last && !s.harvest() {
		return provider.ErrFull
	}
	i := s.head
	putPieces(s.slot(i).add(offPieces), wr.SGL, s.room)
	s.ids[i] = wr.ID
	s.out[i/wordBits].Or(1 << (i % wordBits))
	s.head = uint32(s.next[i])
	s.counter++
	return nil
}

// harvest links slots in that came back; false if there is none.
func (s *SRQ) harvest() bool {
	for n := range uint32(len(s.out)) {
		word := (s.word + n) % uint32(len(s.out))
		free := ^s.out[word].Load() & s.within(word)
		if word == s.last/wordBits {
			free &^= 1 << (s.last % wordBits)
		}
		if free == 0 {
			continue
		}
		s.word = word
		for ; free != 0; free &= free - 1 {
			s.link(word*wordBits + uint32(bits.TrailingZeros64(free)))
		}
		return true
	}
	return false
}

// within has a bit for each slot that there is.
func (s *SRQ) within(word uint32) uint64 {
	if n := s.slots - word*wordBits; n < wordBits {
		return 1<<n - 1
	}
	return ^uint64(0)
}

// link makes a slot the last of the list.
func (s *SRQ) link(i uint32) {
	s.slot(s.last).put16(offNext, uint16(i))
	s.next[s.last] = uint16(i)
	s.last = i
}

// finish gives a slot back, whose receive the device says has completed, and returns the
// receive's number. It must be one that is open.
func (s *SRQ) finish(at uint16) (id uint64, ok bool) {
	i := uint32(at)
	if i >= s.slots {
		return 0, false
	}
	word, bit := &s.out[i/wordBits], uint64(1)<<(i%wordBits)
	if word.Load()&bit == 0 {
		return 0, false
	}
	id = s.ids[i] // before the slot is given up
	return id, word.And(^bit)&bit != 0
}

// PublishRecv shows the encoded receive requests to the device. There is no doorbell.
func (s *SRQ) PublishRecv() { mmio.StoreRecord(s.rec.word32(recvCount), swapped(s.counter)) }

// Close frees the memory. The kernel's queue is destroyed before.
func (s *SRQ) Close() error { return s.free() }
