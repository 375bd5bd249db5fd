//go:build linux

package fakekernel

import (
	"math/bits"

	"golang.org/x/sys/unix"

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

// queue is one queue shared with the user: the same memory mapped twice. After the user
// has unmapped it, touching it is a fault as with a real device.
type queue struct {
	offset   uint64
	mem      []byte // the kernel's mapping
	user     []byte // the user's; nil once it is unmapped
	taken    int    // bytes that the user mapped, 0 if it has not yet
	producer *uint32
	consumer *uint32
	shift    uint32
	mask     uint32
	own      uint32 // the index that the kernel moves
}

// newQueue makes a queue of more than n slots: sw/rxe/rxe_queue.c, rxe_queue_init. It
// waits for the user to map it.
func (f *verbsFile) newQueue(n uint32, slot int) (*queue, error) {
	shift := uint32(bits.Len(uint(max(slot, minSlot) - 1)))
	slots := uint32(1) << bits.Len32(n)
	size := (offSlots + uint64(slots)<<shift + pageSize - 1) / pageSize * pageSize
	q := &queue{shift: shift, mask: slots - 1}
	if err := q.alloc(int(size)); err != nil {
		return nil, err
	}
	q.producer, q.consumer = view[uint32](q.mem[offProducer:]), view[uint32](q.mem[offConsumer:])
	*view[uint32](q.mem) = q.shift
	*view[uint32](q.mem[4:]) = q.mask
	if f.k.opts.Spoil != nil {
		f.k.opts.Spoil(q.mem)
	}
	q.offset = f.dev.mapOff
	f.dev.mapOff += size
	f.pending[q.offset] = q
	return q, nil
}

func (q *queue) alloc(size int) error {
	fd, err := unix.MemfdCreate("queue", unix.MFD_CLOEXEC)
	if err != nil {
		return unix.ENOMEM
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		return unix.ENOMEM
	}
	for _, m := range []*[]byte{&q.mem, &q.user} {
		*m, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			q.free()
			return unix.ENOMEM
		}
	}
	return nil
}

func (q *queue) free() {
	for _, m := range []*[]byte{&q.mem, &q.user} {
		if *m != nil {
			unix.Munmap(*m)
			*m = nil
		}
	}
}

func (q *queue) info() abi.Mminfo {
	return abi.Mminfo{Offset: q.offset, Size: uint32(len(q.mem))}
}

// slots is how many entries the queue holds.
func (q *queue) slots() uint32 { return q.mask }

// slot is the memory of one slot, as the kernel sees it.
func (q *queue) slot(i uint32) []byte {
	off := offSlots + uint64(i&q.mask)<<q.shift
	return q.mem[off : off+1<<q.shift : off+1<<q.shift]
}

// empty tells whether the consumer, which is the kernel, has nothing to take at index i.
func (q *queue) empty(i uint32) bool { return mmio.LoadAcquire32(q.producer)&q.mask == i }

// consume gives the slot at the kernel's index back to the user.
func (q *queue) consume() {
	q.own = mmio.Next(q.own, q.mask)
	mmio.StoreRelease32(q.consumer, q.own)
}

// end gives the queue up: the user may still hold its mapping.
func (q *queue) end(f *verbsFile) {
	delete(f.pending, q.offset)
	user := q.user
	if q.taken > 0 {
		q.user = nil // lives until Unmap
	}
	q.free()
	if q.taken > 0 {
		q.user = user
	}
}

// Map gives a queue to the user, once: sw/rxe/rxe_mmap.c.
func (f *verbsFile) Map(off int64, length, _ int) ([]byte, error) {
	if err := f.k.check(Call{Kind: CallMap}); err != nil {
		return nil, err
	}
	f.k.mu.Lock()
	defer f.k.mu.Unlock()
	if err := f.alive(); err != nil {
		return nil, err
	}
	q := f.pending[uint64(off)]
	if q == nil || length <= 0 || length > len(q.user) {
		return nil, unix.EINVAL
	}
	delete(f.pending, q.offset)
	q.taken = length
	f.mapped[addrOf(q.user)] = q
	f.k.maps++
	return q.user[:length:length], nil
}

// Unmap takes it back; mem is what Map returned.
func (f *verbsFile) Unmap(mem []byte) error {
	f.k.mu.Lock()
	defer f.k.mu.Unlock()
	q := f.mapped[addrOf(mem)]
	if q == nil || len(mem) != q.taken {
		return unix.EINVAL
	}
	delete(f.mapped, addrOf(mem))
	f.k.maps--
	err := unix.Munmap(q.user)
	q.user = nil
	return err
}

// Ring is a queue that a test looks into or spoils, as a kernel gone wrong would.
type Ring struct {
	Producer, Consumer *uint32
	Mask               uint32
	Slot               func(i uint32) []byte
}

// Rings calls fn with every completion queue's ring, under the kernel's lock.
func (k *Kernel) Rings(fn func(Ring)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for f := range k.files {
		v, ok := f.(*verbsFile)
		if !ok {
			continue
		}
		for _, o := range v.objects {
			if c, ok := o.(*cq); ok {
				fn(Ring{c.ring.producer, c.ring.consumer, c.ring.mask, c.ring.slot})
			}
		}
	}
}
