//go:build linux

package fakekernel

import (
	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
)

// Types of memory windows: enum ib_mw_type.
const (
	windowType1 = 1
	windowType2 = 2
)

// mw is a memory window: sw/rxe/rxe_mw.c.
type mw struct {
	pd     *pd
	typ    uint8
	rkey   uint32
	access uint32
	addr   uint64
	length uint64
	mr     *mr // nil: it opens nothing
	q      *qp // type 2: that bound it
}

func (m *mw) kind() uint16 { return abi.UVERBS_OBJECT_MW }
func (m *mw) busy() error  { return nil }

func (m *mw) end(f *verbsFile) {
	m.unbind()
	m.pd.users--
	delete(f.dev.mws, m.rkey>>8)
}

func (m *mw) unbind() {
	if m.mr != nil {
		m.mr.windows--
	}
	m.mr, m.q, m.access, m.addr, m.length = nil, nil, 0, 0, 0
}

func (f *verbsFile) allocMW(in, resp []byte, u *udata) (int, error) {
	c := load[abi.IbUverbsAllocMw](in)
	p, err := lookup[*pd](f, c.PdHandle)
	if err != nil {
		return 0, err
	}
	if c.MwType != windowType1 && c.MwType != windowType2 {
		return 0, unix.EINVAL
	}
	m := &mw{pd: p, typ: c.MwType}
	if err := f.dev.drv.newMW(f, m, u); err != nil {
		return 0, err
	}
	f.dev.mws[m.rkey>>8] = m
	p.users++
	r := abi.IbUverbsAllocMwResp{MwHandle: f.add(m), Rkey: m.rkey}
	return copy(resp, bytesOf(&r)), nil
}

func (rxeDriver) newMW(f *verbsFile, m *mw, _ *udata) error {
	m.rkey = f.dev.nextWindowKey()
	return nil
}

func (d *device) nextWindowKey() uint32 {
	d.lastMW = nextIndex(d.lastMW, minMWIndex, maxMWIndex, d.mws)
	return d.lastMW<<8 | keyBits(d.lastMW)
}

// bindWindow is the work request, and returns its status.
func (k *Kernel) bindWindow(q *qp, w *work) uint32 {
	b := &w.bind
	m := q.f.dev.mws[b.MwRkey>>8]
	if m == nil || m.rkey != b.MwRkey {
		return statusBind
	}
	var region *mr
	if b.Length > 0 {
		if region = q.f.dev.mrs[b.MrLkey>>8]; region == nil || region.lkey != b.MrLkey {
			return statusBind
		}
	}
	if !m.takes(q, b, region) || k.version >= v603 && b.Access&abi.IB_UVERBS_ACCESS_HUGETLB != 0 {
		return statusBind
	}
	m.unbind()
	m.rkey = m.rkey&^0xff | b.Rkey&0xff
	m.access, m.addr, m.length, m.mr = b.Access, b.Addr, b.Length, region
	if region != nil {
		region.windows++
	}
	if m.typ == windowType2 {
		m.q = q
	}
	return statusSuccess
}

// takes is rxe_check_bind_mw; the names of the rules are those of IBTA volume 1.
func (m *mw) takes(q *qp, b *abi.RxeSendWrWrMw, region *mr) bool {
	zeroBased := b.Access&abi.IB_UVERBS_ACCESS_ZERO_BASED != 0
	switch {
	case m.typ == windowType1 && zeroBased, // o10-36.2.2
		m.typ == windowType2 && m.mr != nil,   // o10-37.2.30
		m.typ == windowType2 && q.pd != m.pd,  // C10-72
		m.typ == windowType2 && region == nil: // o10-37.2.40
		return false
	case region == nil:
		return true // this unbinds
	}
	switch {
	case region.access&abi.IB_UVERBS_ACCESS_ZERO_BASED != 0,
		region.access&abi.IB_UVERBS_ACCESS_MW_BIND == 0,                                 // C10-73
		b.Access&peerWrites != 0 && region.access&abi.IB_UVERBS_ACCESS_LOCAL_WRITE == 0: // C10-74
		return false
	case zeroBased: // C10-75
		return b.Length <= region.length
	}
	return b.Addr >= region.iova && b.Addr+b.Length <= region.iova+region.length
}

// window returns the window that a remote key opens for a queue pair, nil if it does not.
func (q *qp) window(key, access uint32) *mw {
	m := q.f.dev.mws[key>>8]
	if m == nil || m.rkey != key || m.pd != q.pd || m.mr == nil || access != 0 && m.access&access == 0 ||
		m.typ == windowType2 && m.q != q {
		return nil
	}
	return m
}

// localInvalidate is the work request, and returns its status.
func (k *Kernel) localInvalidate(q *qp, w *work) uint32 {
	if k.version < v514 { // takes any key of the region
		m := q.f.dev.mrs[w.invKey>>8]
		if m == nil {
			return statusBind
		}
		m.free = true
		return statusSuccess
	}
	if !k.invalidate(q, w.invKey) {
		return statusLocalQPOp
	}
	return statusSuccess
}

// invalidate makes a key open nothing any more. A region that the user registered cannot
// be invalidated. A free window cannot be either; there rxe would fall over.
func (k *Kernel) invalidate(q *qp, key uint32) bool {
	if k.version < v514 && q.mlx5() == nil {
		return true // a SEND with invalidate is a SEND there
	}
	m := q.f.dev.mws[key>>8]
	if m == nil || m.rkey != key || m.typ != windowType2 || m.mr == nil {
		return false
	}
	m.unbind()
	return true
}
