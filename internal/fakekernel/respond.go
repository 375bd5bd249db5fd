//go:build linux

package fakekernel

import (
	"github.com/pureverbs/rdma/abi"
)

// respond is the responder of connections: sw/rxe/rxe_resp.c. What the requester sends is
// in k.nic.local; what it asks for is left in k.nic.remote.
func (k *Kernel) respond(p, q *qp, w *work) verdict {
	n, held := k.serve(p, q, w)
	return k.conclude(p, w, n, held)
}

// serve does what a request asks for. held tells whether it has a receive request in hand.
func (k *Kernel) serve(p, q *qp, w *work) (n nak, held bool) {
	if !p.permits(w) || w.needsCredit() && p.attr.MaxDestRdAtomic == 0 {
		return nakInvalid, false
	}
	if w.takesRecv() {
		r := &k.nic.recv
		if !p.rq.peek(r) {
			return nakRNR, false
		}
		if r.num > p.maxRecvSGE() {
			return nakMalformed, true
		}
		// A write takes it with its last packet, and is judged by its first.
		held = w.isSend() || packets(q, w) == 1
	}
	if !w.isSend() {
		n := k.access(p, w)
		return n, held || n == nakNone && w.hasImm()
	}
	if n := k.land(p, w, k.nic.local, w.length); n != nakNone {
		return n, true
	}
	if w.op == abi.IB_UVERBS_WR_SEND_WITH_INV && !k.invalidate(p, w.invKey) {
		return nakInvalidate, true
	}
	return nakNone, true
}

// permits tells whether the queue pair's access flags allow an operation.
func (p *qp) permits(w *work) bool {
	need := w.needs()
	return p.attr.QpAccessFlags&need == need
}

// needs is the access that an operation needs: of the queue pair all of it, of the memory
// one kind.
func (w *work) needs() (access uint32) {
	switch w.op {
	case abi.IB_UVERBS_WR_RDMA_WRITE, abi.IB_UVERBS_WR_RDMA_WRITE_WITH_IMM, abi.IB_UVERBS_WR_ATOMIC_WRITE:
		access = abi.IB_UVERBS_ACCESS_REMOTE_WRITE
	case abi.IB_UVERBS_WR_RDMA_READ:
		access = abi.IB_UVERBS_ACCESS_REMOTE_READ
	case abi.IB_UVERBS_WR_ATOMIC_CMP_AND_SWP, abi.IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD:
		access = abi.IB_UVERBS_ACCESS_REMOTE_ATOMIC
	case abi.IB_UVERBS_WR_FLUSH:
		if w.flushType&flushGlobal != 0 {
			access |= abi.IB_UVERBS_ACCESS_FLUSH_GLOBAL
		}
		if w.flushType&flushPersistent != 0 {
			access |= abi.IB_UVERBS_ACCESS_FLUSH_PERSISTENT
		}
	}
	return access
}

// maxRecvSGE is the longest list that a receive request may have.
func (q *qp) maxRecvSGE() int {
	if q.mlx5() != nil {
		return maxPieces // as many as the request has room for
	}
	if q.srq != nil {
		return int(q.srq.maxSGE)
	}
	return int(q.cap.MaxRecvSge)
}

// access is an operation on memory of the responder: check_rkey, and what follows.
func (k *Kernel) access(p *qp, w *work) nak {
	size := w.length
	switch {
	case w.isAtomic():
		size = 8
	case w.op == abi.IB_UVERBS_WR_FLUSH:
		return p.checkFlush(w)
	case w.op == abi.IB_UVERBS_WR_ATOMIC_WRITE:
	case size == 0: // key and address do not count
		k.nic.remote = k.nic.remote[:0]
		return nakNone
	}
	s, ok := p.reach(w, size)
	switch {
	case !ok:
		return nakAccess
	case w.op == abi.IB_UVERBS_WR_ATOMIC_WRITE && size != 8:
		return nakLength
	case (w.isAtomic() || w.op == abi.IB_UVERBS_WR_ATOMIC_WRITE) && s.Base%8 != 0:
		return nakInvalid
	}
	k.nic.remote = append(k.nic.remote[:0], s)
	switch {
	case w.isAtomic():
		return k.nic.atomic(s, w)
	case w.brings():
		return nakNone // it is fetched later
	case k.nic.move(k.nic.remote, k.nic.local, int(size)) != nil:
		return nakAccess
	}
	return nakNone
}

// reach returns the memory behind the remote key of an operation, be it of a region or of
// a window. A window's bounds are not looked at, only its region's.
func (p *qp) reach(w *work, n uint32) (span, bool) {
	m, offset := p.behind(w)
	if m == nil || !m.within(w.addr+offset, uint64(n)) {
		return span{}, false
	}
	return m.span(w.addr+offset, n), true
}

// behind returns the region, and what to add to addresses.
func (p *qp) behind(w *work) (*mr, uint64) {
	if !isWindow(w.rkey) {
		return p.f.dev.peerRegion(p.pd, w.rkey, w.needs()), 0
	}
	win := p.window(w.rkey, w.needs())
	switch {
	case win == nil:
		return nil, 0
	case win.access&abi.IB_UVERBS_ACCESS_ZERO_BASED != 0:
		return win.mr, win.addr
	}
	return win.mr, 0
}

// land puts n bytes into the receive request that was looked at last.
func (k *Kernel) land(p *qp, w *work, src []span, n uint32) nak {
	r := &k.nic.recv
	if n > r.length {
		return nakMalformed
	}
	var err memErr
	k.nic.remote, err = r.collect(k.nic.remote[:0], p, n, abi.IB_UVERBS_ACCESS_LOCAL_WRITE)
	switch {
	case err == memKey && r.room() < uint64(n):
		return nakLength
	case err != memOK, k.nic.move(k.nic.remote, src, int(n)) != nil:
		return nakMalformed
	}
	return nakNone
}
