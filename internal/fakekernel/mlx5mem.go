//go:build linux

package fakekernel

import (
	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
)

// mlx5Pin is memory of the user that the device may touch: a umem.
type mlx5Pin struct {
	bytes uint64 // of whole pages
	users int    // of a page with doorbell records
}

// pinRing pins memory: ib_umem_get, in its order.
func (f *verbsFile) pinRing(addr, size uint64, writable bool) (mlx5Pin, error) {
	if size == 0 || addr+size < addr || addr+size+pageSize < addr {
		return mlx5Pin{}, unix.EINVAL
	}
	p := mlx5Pin{bytes: ((addr+size-1)/pageSize - addr/pageSize + 1) * pageSize}
	if limit := f.k.opts.Memlock; limit > 0 && f.k.pinned+p.bytes > limit {
		return mlx5Pin{}, unix.ENOMEM
	}
	if !f.mem.mapped(addr, size, writable) {
		return mlx5Pin{}, unix.EFAULT
	}
	f.k.pinned += p.bytes
	return p, nil
}

func (f *verbsFile) unpin(p mlx5Pin) { f.k.pinned -= p.bytes }

// recordSize is that of a doorbell record.
const recordSize = 8

// pinRecord pins the page of a doorbell record, once for all records in it:
// mlx5_ib_db_map_user.
func (c *mlx5Context) pinRecord(addr uint64) error {
	if c.f.dev.robust() && addr%pageSize > pageSize-recordSize {
		return unix.EINVAL
	}
	page := addr &^ (pageSize - 1)
	p := c.dbPages[page]
	if p == nil {
		pin, err := c.f.pinRing(page, pageSize, false)
		if err != nil {
			return err
		}
		p = &pin
		c.dbPages[page] = p
	}
	p.users++
	return nil
}

func (c *mlx5Context) unpinRecord(addr uint64) {
	page := addr &^ (pageSize - 1)
	p := c.dbPages[page]
	if p.users--; p.users == 0 {
		c.f.unpin(*p)
		delete(c.dbPages, page)
	}
}

// offsetFits tells whether the device can begin at an address: it counts in pieces of a
// page's 64th part.
func (f *verbsFile) offsetFits(addr uint64) bool { return addr%(f.dev.hw.page/64) == 0 }

// regMR: the local key is the remote one, whatever the access.
func (mlx5Driver) regMR(f *verbsFile, m *mr, _ *udata) error {
	m.lkey = f.dev.nextMemKey()
	m.rkey = m.lkey
	return nil
}

func (d *device) nextMemKey() uint32 {
	d.lastKey = nextIndex(d.lastKey, 1, maxMRIndex, d.mrs)
	return d.lastKey<<8 | keyBits(d.lastKey)
}

// inPlace is the access that a mkey can gain or lose without becoming another.
const inPlace = abi.IB_UVERBS_ACCESS_LOCAL_WRITE | remoteAccess | abi.IB_UVERBS_ACCESS_RELAXED_ORDERING

// rereg: mlx5_ib_rereg_user_mr. With new memory, or with access that a mkey cannot change
// to, the region gets new keys.
func (mlx5Driver) rereg(f *verbsFile, m *mr, c *abi.IbUverbsReregMr, domain *pd) error {
	next := *m
	if c.Flags&reregAccess != 0 {
		next.access = c.AccessFlags
	}
	if c.Flags&reregTranslation != 0 {
		next.start, next.iova, next.length = c.Start, c.HcaVa, c.Length
		next.writable = next.access&writes != 0
		if err := f.pin(&next); err != nil {
			return err
		}
	} else if c.Flags&reregAccess != 0 && f.k.version >= v612 && c.AccessFlags&writes != 0 && !m.writable {
		return unix.EACCES
	}
	if c.Flags&reregTranslation != 0 || (m.access^next.access)&^inPlace != 0 || f.k.version < v601 {
		delete(f.dev.mrs, m.lkey>>8)
		next.lkey = f.dev.nextMemKey()
		next.rkey = next.lkey
	}
	f.k.pinned += next.pinned - m.pinned
	*m = next
	f.dev.mrs[m.lkey>>8] = m
	return nil
}

// newMW: mlx5_ib_alloc_mw. The user's part may be missing.
func (mlx5Driver) newMW(f *verbsFile, m *mw, u *udata) error {
	req := load[abi.Mlx5IbAllocMw](u.in)
	switch {
	case f.dev.robust() && len(u.in) > 0 && len(u.in) < len(bytesOf(&req)):
		return unix.EINVAL
	case req.CompMask != 0 || req.Reserved1 != 0 || req.Reserved2 != 0 || zeroTail(u.in, len(bytesOf(&req))) != nil:
		return unix.EOPNOTSUPP
	}
	m.rkey = f.dev.nextWindowKey()
	answer := [2]uint32{0, uint32(min(u.room, 8))} // comp_mask, response_length
	u.respond(f.dev, bytesOf(&answer))
	return nil
}
