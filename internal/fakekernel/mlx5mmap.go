//go:build linux

package fakekernel

import (
	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
)

// mmap: mlx5_ib_mmap. The page offset is a command and an index, or an entry that belongs
// to an object.
func (mlx5Driver) mmap(f *verbsFile, off uint64, length, prot int) (*mapping, error) {
	page := f.dev.hw.page
	if f.mlx == nil || off%page != 0 {
		return nil, unix.EINVAL
	}
	off /= page
	command, index := off>>8&0xff, uint32(off&0xff|off>>16<<8)
	switch command {
	case abi.MLX5_IB_MMAP_REGULAR_PAGE, abi.MLX5_IB_MMAP_NC_PAGE:
		return f.mlx.mapStatic(index&0xff, off*page, length, prot)
	case abi.MLX5_IB_MMAP_WC_PAGE, abi.MLX5_IB_MMAP_ALLOC_WC:
		if f.dev.MLX5.NoBlueFlame {
			return nil, unix.EPERM
		}
		if command == abi.MLX5_IB_MMAP_ALLOC_WC {
			return f.mlx.mapLate(index, off*page, length, prot)
		}
		return f.mlx.mapStatic(index&0xff, off*page, length, prot)
	case abi.MLX5_IB_MMAP_GET_CONTIGUOUS_PAGES:
		return nil, unix.ENOSYS
	case abi.MLX5_IB_MMAP_CORE_CLOCK:
		return f.mlx.mapClock(off*page, length, prot)
	case abi.MLX5_IB_MMAP_CLOCK_INFO:
		return nil, noClockInfo(index, length == int(page), prot)
	}
	u := f.mlx.entries[uint32(command)<<16|index]
	if u == nil || length != int(page) {
		return nil, unix.EINVAL
	}
	return u.mapUser(prot)
}

// mapStatic: uar_mmap. A page is mapped by one of several commands, each of which has an offset
// of its own. In a memory file that stands for the device file in another process the page is
// where that process maps it.
func (c *mlx5Context) mapStatic(index uint32, off uint64, length, prot int) (*mapping, error) {
	if c.dynamic || length != int(c.f.dev.hw.page) || int(index) >= len(c.static) {
		return nil, unix.EINVAL
	}
	u := c.static[index]
	if c.f.backing != 0 && int64(off) != u.at {
		if err := u.moveTo(int64(off)); err != nil {
			return nil, err
		}
		c.f.k.tracer.moved(u)
	}
	return u.mapUser(prot)
}

// mapLate makes a page and maps it.
func (c *mlx5Context) mapLate(index uint32, off uint64, length, prot int) (*mapping, error) {
	d := &c.f.dev.hw
	if c.dynamic || length != int(d.page) || index >= c.numLate/(2*d.uarsPerPage()) || c.late[index] != nil {
		return nil, unix.EINVAL
	}
	u, err := c.newUAR(off)
	if err != nil {
		return nil, err
	}
	m, err := u.mapUser(prot)
	if err != nil {
		u.put()
		return nil, err
	}
	c.late[index] = u
	return m, nil
}

// mapClock: mlx5_ib_mmap, core clock. The clock stands still.
func (c *mlx5Context) mapClock(off uint64, length, prot int) (*mapping, error) {
	page := c.f.dev.hw.page
	switch {
	case length != int(page):
		return nil, unix.EINVAL
	case prot&unix.PROT_WRITE != 0:
		return nil, unix.EPERM
	case page > 4096:
		return nil, unix.EOPNOTSUPP
	}
	if c.clock == nil {
		var err error
		if c.clock, err = c.f.newPage(off, int(page)); err != nil {
			return nil, err
		}
	}
	clock := c.clock
	return clock.mapUser(prot, func() { clock.put() })
}

// noClockInfo is what is said of the page that the kernel keeps the clock's ratio in, which
// this device does not have.
func noClockInfo(index uint32, fits bool, prot int) error {
	switch {
	case !fits:
		return unix.EINVAL
	case index == 0 && prot&(unix.PROT_WRITE|unix.PROT_EXEC) != 0:
		return unix.EPERM
	}
	return unix.EOPNOTSUPP
}
