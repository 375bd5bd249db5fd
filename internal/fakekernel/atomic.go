//go:build linux

package fakekernel

import "github.com/pureverbs/rdma/abi"

// Types and extents of a FLUSH: enum ib_placement_type, enum ib_selectivity_level.
const (
	flushGlobal     = 1
	flushPersistent = 2
	flushRegion     = 1
)

// atomic changes the eight bytes at s, and leaves the old value where the requester will
// fetch it. The kernel's lock makes it one step for all queue pairs.
func (n *nic) atomic(s span, w *work) nak {
	old := bytesOf(&n.word)
	if s.mem.in(old, uint64(s.Base)) != nil {
		return nakAccess
	}
	value := n.word + w.compareAdd
	if w.op == abi.IB_UVERBS_WR_ATOMIC_CMP_AND_SWP {
		if value = n.word; value == w.compareAdd {
			value = w.swap
		}
	}
	if s.mem.out(uint64(s.Base), bytesOf(&value)) != nil {
		return nakAccess
	}
	n.remote = append(n.remote[:0], spanOf(old))
	return nakNone
}

// checkFlush is all there is to do for a FLUSH here: memory in this process is as visible
// as it gets.
func (p *qp) checkFlush(w *work) nak {
	m, offset := p.behind(w)
	if m == nil || w.flushLevel != flushRegion && !m.within(w.addr+offset, uint64(w.length)) {
		return nakAccess
	}
	return nakNone
}
