//go:build linux

package fakekernel

import (
	"encoding/binary"
	"math/bits"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
)

// mlx5CQ is a completion queue: memory of the user, into which the device writes.
type mlx5CQ struct {
	c   *cq
	num uint32
	uar *mlx5UAR // where it is armed; nil: a page that is not the context's
	mlx5Ring
	pin      mlx5Pin
	record   uint64 // its address: the consumer's index, and how it is armed
	pi, ci   uint32 // of the next entry; of the first that was not consumed when last looked at
	overruns bool   // the user promised that there will be none
	dead     bool   // there was one
	arming
}

// mlx5Ring is where completions go, in the user's memory.
type mlx5Ring struct {
	base    uint64
	entries uint32
	size    uint32
}

const cqeSize = 64

// newCQ: mlx5_ib_create_cq, create_cq_user.
func (mlx5Driver) newCQ(f *verbsFile, c *cq, cqe uint32, u *udata) (uint32, error) {
	entries := cqEntries(cqe)
	if entries == 0 {
		return 0, unix.EINVAL
	}
	req, err := f.loadCQ(u.in)
	if err != nil {
		return 0, err
	}
	q := &mlx5CQ{
		c: c, mlx5Ring: mlx5Ring{req.BufAddr, entries, req.CqeSize}, record: req.DbAddr,
		overruns: c.flags&abi.IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN != 0, arming: newArming(),
	}
	if q.pin, err = f.pinCQ(q.mlx5Ring); err != nil {
		return 0, err
	}
	if err := f.mlx.pinRecord(q.record); err != nil {
		f.unpin(q.pin)
		return 0, err
	}
	if err := q.finish(f, &req); err != nil {
		f.unpin(q.pin)
		f.mlx.unpinRecord(q.record)
		return 0, err
	}
	c.ring = q
	u.respond(f.dev, bytesOf(&abi.Mlx5IbCreateCqResp{Cqn: q.num})[:cqAnswer(f.dev)])
	return entries - 1, nil
}

// cqAnswer: older kernels copy the number and nothing behind it.
func cqAnswer(d *device) int {
	if d.robust() {
		return len(bytesOf(&abi.Mlx5IbCreateCqResp{}))
	}
	return 4
}

// cqEntries is how many entries the ring has, 0 if that are too many.
func cqEntries(cqe uint32) uint32 {
	if cqe > mlx5MaxCQE {
		return 0
	}
	if n := roundUp(cqe + 1); n <= mlx5MaxCQE {
		return n
	}
	return 0
}

// loadCQ reads the user's part and checks what can be checked of it alone.
func (f *verbsFile) loadCQ(in []byte) (abi.Mlx5IbCreateCq, error) {
	const least = 22 // up to the flags
	req := load[abi.Mlx5IbCreateCq](in)
	known := uint16(abi.MLX5_IB_CREATE_CQ_FLAGS_CQE_128B_PAD | abi.MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX)
	if f.k.version >= v601 {
		known |= abi.MLX5_IB_CREATE_CQ_FLAGS_REAL_TIME_TS
	}
	switch {
	case len(in) < least:
		return req, unix.EINVAL
	case f.dev.robust() && zeroTail(in, len(bytesOf(&req))) != nil:
		return req, unix.EOPNOTSUPP
	case req.Flags&^known != 0, req.CqeSize != cqeSize && req.CqeSize != 2*cqeSize, req.Reserved0 != 0 || req.Reserved1 != 0:
		return req, unix.EINVAL
	}
	return req, nil
}

func (f *verbsFile) pinCQ(r mlx5Ring) (mlx5Pin, error) {
	pin, err := f.pinRing(r.base, uint64(r.entries)*uint64(r.size), true)
	if err == nil && !f.offsetFits(r.base) {
		f.unpin(pin)
		err = unix.EINVAL
	}
	return pin, err
}

// finish finds the registers, and refuses what the device does not have: compression, and
// padding of large entries.
func (q *mlx5CQ) finish(f *verbsFile, req *abi.Mlx5IbCreateCq) error {
	if err := q.findUAR(f, req); err != nil {
		return err
	}
	switch {
	case req.CqeCompEn == 1, req.Flags&abi.MLX5_IB_CREATE_CQ_FLAGS_CQE_128B_PAD != 0:
		return unix.EOPNOTSUPP
	case q.uar == nil, q.base%4096 != 0 && f.k.version < v601: // the firmware's word; the offset would be lost
		return unix.EINVAL
	}
	f.dev.hw.lastCQN++
	q.num = f.dev.hw.lastCQN
	q.uar.cqs = append(q.uar.cqs, q)
	q.disarm()
	return nil
}

func (q *mlx5CQ) findUAR(f *verbsFile, req *abi.Mlx5IbCreateCq) error {
	switch {
	case q.c.uarIndex != nil && f.k.version >= v612:
		q.uar = f.mlx.uar(*q.c.uarIndex)
	case req.Flags&abi.MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX != 0:
		q.uar = f.mlx.uar(uint32(req.UarPageIndex))
	case f.mlx.dynamic:
		return unix.EINVAL
	default:
		q.uar = f.mlx.static[0]
	}
	return nil
}

func (q *mlx5CQ) end(f *verbsFile) {
	q.uar.cqs = without(q.uar.cqs, q)
	f.unpin(q.pin)
	f.mlx.unpinRecord(q.record)
}

// arm is the command, which mlx5 does not have.
func (q *mlx5CQ) arm(bool) error { return unix.EOPNOTSUPP }

// resizeCQ: mlx5_ib_resize_cq. The device tells the user in the old ring that it goes on in
// the new one, and what he has not consumed he copies himself.
func (mlx5Driver) resizeCQ(f *verbsFile, c *cq, cqe uint32, u *udata) (uint32, error) {
	q := c.ring.(*mlx5CQ)
	entries := cqEntries(cqe)
	switch {
	case entries == 0, cqe == 0 && !f.dev.robust():
		return 0, unix.EINVAL
	case entries == q.entries:
		return entries - 1, nil
	}
	req := load[abi.Mlx5IbResizeCq](u.in)
	switch {
	case len(u.in) < len(bytesOf(&req)) && f.dev.robust():
		return 0, unix.EINVAL
	case len(u.in) == 0:
		return 0, unix.EFAULT
	case f.dev.robust() && zeroTail(u.in, len(bytesOf(&req))) != nil:
		return 0, unix.EOPNOTSUPP
	case req.Reserved0 != 0 || req.Reserved1 != 0:
		return 0, unix.EINVAL
	}
	ring := mlx5Ring{req.BufAddr, entries, uint32(req.CqeSize)}
	pin, err := f.pinCQ(ring)
	if err != nil {
		return 0, err
	}
	q.look()
	if ring.size != q.size || q.used() >= min(q.entries, entries) { // the firmware's word
		f.unpin(pin)
		return 0, unix.EINVAL
	}
	var e cqe64
	e.setOpcode(cqeResize)
	q.write(&e)
	f.unpin(q.pin)
	q.mlx5Ring, q.pin = ring, pin
	return entries - 1, nil
}

// used is how many entries wait, as far as the user has told; full looks again before it
// says so.
func (q *mlx5CQ) used() uint32 { return (q.pi - q.ci) & psnMask }

func (q *mlx5CQ) full() bool {
	if q.used() < q.entries {
		return false
	}
	q.look()
	return q.used() >= q.entries
}

// look reads how far the user has consumed.
func (q *mlx5CQ) look() {
	var b [4]byte
	if q.c.f.mem.in(b[:], q.record) == nil {
		q.ci = binary.BigEndian.Uint32(b[:]) & psnMask
	}
}

// write appends an entry, the byte that tells the owner last.
func (q *mlx5CQ) write(e *cqe64) {
	if q.pi>>bits.TrailingZeros32(q.entries)&1 != 0 {
		e[63] |= cqeOwner
	}
	at := q.base + uint64(q.pi&(q.entries-1))*uint64(q.size) + uint64(q.size-cqeSize)
	if q.c.f.mem.out(at, e[:63]) == nil {
		_ = q.c.f.mem.out(at+63, e[63:])
	}
	q.pi++
}

// post adds a completion. When there is no room the queue and all that complete to it are
// broken, for good.
func (q *mlx5CQ) post(wc *abi.IbUverbsWc) bool {
	switch {
	case q.dead:
		return true
	case !q.overruns && q.full():
		q.dead = true
		q.breakUsers()
		return false
	}
	var e cqe64
	e.fill(q.c.f, wc)
	q.write(&e)
	q.posted(wc.Status != statusSuccess)
	return true
}

// breakUsers ends the queue pairs, as soon as what goes on with one of them is over.
func (q *mlx5CQ) breakUsers() {
	k, d := q.c.f.k, q.c.f.dev
	k.after(0, func() {
		for _, p := range d.qps {
			if (p.send == q.c || p.recv == q.c) && p.state != stateReset { // there nothing is open
				k.enter(p, stateError)
			}
		}
	})
}
