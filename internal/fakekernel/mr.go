//go:build linux

package fakekernel

import (
	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
)

const (
	// remoteAccess is what lets a peer in.
	remoteAccess = abi.IB_UVERBS_ACCESS_REMOTE_WRITE | abi.IB_UVERBS_ACCESS_REMOTE_READ | abi.IB_UVERBS_ACCESS_REMOTE_ATOMIC
	// peerWrites is what a region may allow only if it allows local writes too.
	peerWrites = abi.IB_UVERBS_ACCESS_REMOTE_WRITE | abi.IB_UVERBS_ACCESS_REMOTE_ATOMIC
	// writes is what the memory has to be writable for: ib_access_writable.
	writes = abi.IB_UVERBS_ACCESS_LOCAL_WRITE | peerWrites | abi.IB_UVERBS_ACCESS_MW_BIND
)

// mr is a memory region.
type mr struct {
	mem        userMem
	pd         *pd
	start      uint64 // the user's address
	iova       uint64 // the address that work requests name
	length     uint64
	access     uint32
	lkey, rkey uint32
	pinned     uint64
	writable   bool // the memory was pinned to be written
	windows    int  // memory windows that are bound to it
	free       bool // invalidated, which nothing undoes
}

func (m *mr) kind() uint16 { return abi.UVERBS_OBJECT_MR }

// busy: rxe_dereg_mr has an errno of its own.
func (m *mr) busy() error {
	if m.windows > 0 {
		return unix.EINVAL
	}
	return nil
}

func (m *mr) end(f *verbsFile) {
	m.pd.users--
	f.k.pinned -= m.pinned
	delete(f.dev.mrs, m.lkey>>8)
}

func (f *verbsFile) regMR(in, resp []byte, u *udata) (int, error) {
	c := load[abi.IbUverbsRegMr](in)
	if c.Start%pageSize != c.HcaVa%pageSize {
		return 0, unix.EINVAL
	}
	if err := f.checkAccess(c.AccessFlags); err != nil {
		return 0, err
	}
	p, err := lookup[*pd](f, c.PdHandle)
	if err != nil {
		return 0, err
	}
	m := &mr{
		mem: f.mem, pd: p, start: c.Start, iova: c.HcaVa, length: c.Length, access: c.AccessFlags,
		writable: c.AccessFlags&writes != 0,
	}
	if err := f.pin(m); err != nil {
		return 0, err
	}
	if err := f.dev.drv.regMR(f, m, u); err != nil {
		return 0, err
	}
	f.k.pinned += m.pinned
	f.dev.mrs[m.lkey>>8] = m
	p.users++
	r := abi.IbUverbsRegMrResp{MrHandle: f.add(m), Lkey: m.lkey, Rkey: m.rkey}
	return copy(resp, bytesOf(&r)), nil
}

// checkAccess is ib_check_mr_access.
func (f *verbsFile) checkAccess(access uint32) error {
	known := uint32(abi.IB_UVERBS_ACCESS_HUGETLB<<1 - 1 | abi.IB_UVERBS_ACCESS_OPTIONAL_RANGE)
	if f.k.version >= v603 {
		known |= abi.IB_UVERBS_ACCESS_FLUSH_GLOBAL | abi.IB_UVERBS_ACCESS_FLUSH_PERSISTENT
	}
	switch {
	case access&peerWrites != 0 && access&abi.IB_UVERBS_ACCESS_LOCAL_WRITE == 0,
		access&^known != 0,
		access&abi.IB_UVERBS_ACCESS_ON_DEMAND != 0 && (f.k.version < v615 || f.dev.Driver == abi.RDMA_DRIVER_MLX5):
		return unix.EINVAL
	}
	return nil
}

// pin checks the memory, and counts it.
func (f *verbsFile) pin(m *mr) error {
	if m.length == 0 || m.start+m.length < m.start {
		return unix.EINVAL
	}
	if !m.mem.mapped(m.start, m.length, m.writable) {
		return unix.EFAULT
	}
	first, last := m.start/pageSize, (m.start+m.length-1)/pageSize
	m.pinned = (last - first + 1) * pageSize
	if limit := f.k.opts.Memlock; limit > 0 && f.k.pinned+m.pinned > limit {
		return unix.ENOMEM
	}
	return nil
}

// within tells whether a piece of the region's address space lies in the region.
func (m *mr) within(addr, n uint64) bool {
	return addr >= m.iova && n <= m.length && addr-m.iova <= m.length-n
}

// span is the memory behind a piece that lies in the region.
func (m *mr) span(addr uint64, n uint32) span {
	s := span{mem: m.mem}
	s.Base, s.Len = uintptr(addr-m.iova+m.start), int(n)
	return s
}

// memErr is what is wrong with a key and an address.
type memErr uint8

const (
	memOK memErr = iota
	memKey
	memRange
)

// find returns the memory behind a local key, for a queue pair of the domain.
func (d *device) find(p *pd, key uint32, addr uint64, n uint32, access uint32) (span, memErr) {
	m := d.mrs[key>>8]
	switch {
	case m == nil || m.free || m.lkey != key || m.pd != p || m.access&access != access:
		return span{}, memKey
	case !m.within(addr, uint64(n)):
		return span{}, memRange
	}
	return m.span(addr, n), memOK
}

// peerRegion returns the region that a remote key opens for one of the kinds of access,
// nil if it does not.
func (d *device) peerRegion(p *pd, key, access uint32) *mr {
	m := d.mrs[key>>8]
	if m == nil || m.free || m.rkey != key || m.rkey == 0 || m.pd != p || access != 0 && m.access&access == 0 {
		return nil
	}
	return m
}
