//go:build linux

package fakekernel

import (
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/mmio"
)

// mlx5UAR is a page of registers, with the queues that ring there.
type mlx5UAR struct {
	*sharedPage
	c     *mlx5Context
	id    uint32 // its number, the first of several where pages are large
	entry uint32 // of an object: its page offset for mmap
	qps   []*mlx5QP
	cqs   []*mlx5CQ
	seen  []uint64 // what the watched words held last
}

func (u *mlx5UAR) kind() uint16   { return abi.MLX5_IB_OBJECT_UAR }
func (u *mlx5UAR) busy() error    { return nil }
func (u *mlx5UAR) end(*verbsFile) { u.put() }

// Registers in a page of the device: that of completion queues, and the halves of the two
// that queue pairs ring.
var mlx5Registers = [...]uint32{armRegister, 0x800, 0x900, 0xa00, 0xb00}

const armRegister = 0x20

// newUAR makes a page that users map at an offset.
func (c *mlx5Context) newUAR(off uint64) (*mlx5UAR, error) {
	d := c.f.dev
	p, err := c.f.newPage(off, int(d.hw.page))
	if err != nil {
		return nil, err
	}
	n := d.hw.uarsPerPage()
	u := &mlx5UAR{sharedPage: p, c: c, id: mlx5FirstPage, seen: make([]uint64, int(n)*len(mlx5Registers))}
	for d.hw.pages[u.id] != nil {
		u.id += n
	}
	d.hw.pages[u.id] = u
	if !d.MLX5.NoExec {
		c.f.k.watch(u)
	}
	return u, nil
}

// put drops the object's reference or that of a mapping. With the last one the device has
// the page back.
func (u *mlx5UAR) put() {
	if !u.sharedPage.put() {
		return
	}
	k := u.c.f.k
	delete(u.c.f.dev.hw.pages, u.id)
	delete(u.c.entries, u.entry)
	k.uars = slices.DeleteFunc(k.uars, func(x *mlx5UAR) bool { return x == u })
}

// mapUser maps the page for the user. Unmapping is under the lock.
func (u *mlx5UAR) mapUser(prot int) (*mapping, error) { return u.sharedPage.mapUser(prot, u.put) }

// uar finds the page of a number that the user names; the firmware refuses one that is not
// this context's.
func (c *mlx5Context) uar(id uint32) *mlx5UAR {
	d := &c.f.dev.hw
	if u := d.pages[id&^(d.uarsPerPage()-1)]; u != nil && u.c == c {
		return u
	}
	return nil
}

// registerAt is the offset of the watched word i.
func registerAt(i int) uint32 {
	return uint32(i/len(mlx5Registers))*4096 + mlx5Registers[i%len(mlx5Registers)]
}

// forget makes the registers of queue pairs look as if nobody had rung. One that begins anew
// may ring with the very bytes that it rang with last.
func (u *mlx5UAR) forget() {
	for i, was := range u.seen {
		if was != 0 && i%len(mlx5Registers) != 0 && atomic.CompareAndSwapUint64(view[uint64](u.mem[registerAt(i):]), was, 0) {
			u.seen[i] = 0
		}
	}
}

// heard tells which registers were written since the last look: that of completion queues,
// any of queue pairs. Two stores between two looks are one.
func (u *mlx5UAR) heard() (arm, send bool) {
	for i := range u.seen {
		off := registerAt(i)
		now := uint64(mmio.LoadAcquire32(view[uint32](u.mem[off:]))) |
			uint64(mmio.LoadAcquire32(view[uint32](u.mem[off+4:])))<<32
		if now == u.seen[i] {
			continue
		}
		u.seen[i] = now
		if i%len(mlx5Registers) == 0 {
			arm = true
		} else {
			send = true
		}
	}
	return arm, send
}

// firstEntry is the page offset of the first mapping that is not by command.
const firstEntry = 9 << 16

// allocUAR: UVERBS_HANDLER(MLX5_IB_METHOD_UAR_OBJ_ALLOC).
func (f *verbsFile) allocUAR(r *request) error {
	if f.mlx == nil {
		return unix.EINVAL
	}
	switch typ := r.number(abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE); {
	case typ > abi.MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC,
		typ == abi.MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF && f.dev.MLX5.NoBlueFlame:
		return unix.EOPNOTSUPP
	}
	entry := uint32(firstEntry)
	for f.mlx.entries[entry] != nil {
		entry++
	}
	page := f.dev.hw.page
	offset := entryOffset(entry) * page
	u, err := f.mlx.newUAR(offset)
	if err != nil {
		return err
	}
	u.entry = entry
	f.mlx.entries[entry] = u
	length := uint32(page)
	if err = r.get(abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET).out(bytesOf(&offset)); err == nil {
		err = r.get(abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH).out(bytesOf(&length))
	}
	if err == nil {
		err = r.get(abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID).out(bytesOf(&u.id))
	}
	if err != nil {
		u.put()
		return err
	}
	*r.get(abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE).raw.Data() = uint64(f.add(u))
	return nil
}

// entryOffset spreads an entry over command and index of an mmap offset, in pages:
// mlx5_entry_to_mmap_offset.
func entryOffset(entry uint32) uint64 {
	command, index := uint64(entry>>16), uint64(entry&0xffff)
	return index>>8<<16 | command<<8 | index&0xff
}
