//go:build linux

package fakekernel

import (
	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
)

// Bits of access that let a peer in.
const remoteAccess = abi.IB_UVERBS_ACCESS_REMOTE_WRITE | abi.IB_UVERBS_ACCESS_REMOTE_READ | abi.IB_UVERBS_ACCESS_REMOTE_ATOMIC

const knownAccess = abi.IB_UVERBS_ACCESS_LOCAL_WRITE | remoteAccess | abi.IB_UVERBS_ACCESS_MW_BIND |
	abi.IB_UVERBS_ACCESS_OPTIONAL_RANGE

// mr is a memory region.
type mr struct {
	pd         *pd
	start      uint64 // the user's address
	iova       uint64 // the address that work requests name
	length     uint64
	access     uint32
	lkey, rkey uint32
	pinned     uint64
}

func (m *mr) kind() uint16 { return abi.UVERBS_OBJECT_MR }
func (m *mr) inUse() bool  { return false }

func (m *mr) end(f *verbsFile) {
	m.pd.users--
	f.k.pinned -= m.pinned
	delete(f.dev.mrs, m.lkey>>8)
}

func (f *verbsFile) regMR(in, resp []byte) (int, error) {
	c := load[abi.IbUverbsRegMr](in)
	p, err := lookup[*pd](f, c.PdHandle)
	if err != nil {
		return 0, err
	}
	if err := f.checkRegMR(&c); err != nil {
		return 0, err
	}
	m := &mr{pd: p, start: c.Start, iova: c.HcaVa, length: c.Length, access: c.AccessFlags}
	first, last := c.Start/pageSize, (c.Start+c.Length-1)/pageSize
	m.pinned = (last - first + 1) * pageSize
	if limit := f.k.opts.Memlock; limit > 0 && f.k.pinned+m.pinned > limit {
		return 0, unix.ENOMEM
	}
	f.k.pinned += m.pinned
	f.dev.addMR(m)
	p.users++
	r := abi.IbUverbsRegMrResp{MrHandle: f.add(m), Lkey: m.lkey, Rkey: m.rkey}
	return copy(resp, bytesOf(&r)), nil
}

func (f *verbsFile) checkRegMR(c *abi.IbUverbsRegMr) error {
	writes := uint32(abi.IB_UVERBS_ACCESS_REMOTE_WRITE | abi.IB_UVERBS_ACCESS_REMOTE_ATOMIC)
	switch {
	case c.Start%pageSize != c.HcaVa%pageSize:
		return unix.EINVAL
	case c.AccessFlags&writes != 0 && c.AccessFlags&abi.IB_UVERBS_ACCESS_LOCAL_WRITE == 0:
		return unix.EINVAL
	case c.AccessFlags&^knownAccess != 0:
		return unix.EOPNOTSUPP
	case c.Length == 0 || c.Start+c.Length < c.Start:
		return unix.EINVAL
	case !mapped(c.Start, c.Length, c.AccessFlags&(writes|abi.IB_UVERBS_ACCESS_LOCAL_WRITE) != 0):
		return unix.EFAULT
	}
	return nil
}

// addMR chooses the keys as rxe does: an index and eight bits that change, so that an old
// key does not open a new region. A region that no peer may touch has no remote key.
func (d *device) addMR(m *mr) {
	d.lastKey++
	m.lkey = d.lastKey<<8 | uint32(uint8(d.lastKey*0x9d))
	if m.access&remoteAccess != 0 {
		m.rkey = m.lkey
	}
	d.mrs[d.lastKey] = m
}

// within tells whether a piece of the region's address space lies in the region.
func (m *mr) within(addr, n uint64) bool {
	return addr >= m.iova && n <= m.length && addr-m.iova <= m.length-n
}

// local returns the memory behind a local key, for a queue pair of the domain.
func (d *device) local(p *pd, key uint32, addr uint64, n uint32, access uint32) (span, bool) {
	m := d.mrs[key>>8]
	if m == nil || m.lkey != key || m.pd != p || m.access&access != access || !m.within(addr, uint64(n)) {
		return span{}, false
	}
	return span{Base: uintptr(addr - m.iova + m.start), Len: int(n)}, true
}

// remote returns the memory behind a remote key.
func (d *device) remote(p *pd, key uint32, addr uint64, n uint32, access uint32) (span, bool) {
	m := d.mrs[key>>8]
	if m == nil || m.rkey != key || m.rkey == 0 || m.pd != p || m.access&access == 0 || !m.within(addr, uint64(n)) {
		return span{}, false
	}
	return span{Base: uintptr(addr - m.iova + m.start), Len: int(n)}, true
}
