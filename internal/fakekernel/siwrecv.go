//go:build linux

package fakekernel

import (
	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
)

// What comes of a key and an address.
const (
	accessOK      = iota
	accessUnknown // there is no such key
	accessDenied  // there is, but not for this
)

// siwSpan returns the memory behind a key: sw/siw/siw_mem.c, siw_check_mem.
func siwSpan(d *device, p *pd, key uint32, addr uint64, n, access uint32) (span, int) {
	m := d.mrs[key>>8]
	switch {
	case m == nil || m.lkey != key:
		return span{}, accessUnknown
	case m.free || m.pd != p || m.access&access != access || !m.within(addr, uint64(n)):
		return span{}, accessDenied
	}
	return m.span(addr, n), accessOK
}

// siwSpans appends the memory of the pieces, as much as limit, which they hold.
func (p *pieces) siwSpans(to []span, d *device, dom *pd, limit, access uint32) ([]span, bool) {
	for i := 0; limit > 0; i++ {
		e := &p.list[i]
		n := min(e.Length, limit)
		s, why := siwSpan(d, dom, e.Lkey, e.Addr, n, access)
		if why != accessOK {
			return to, false
		}
		to = append(to, s)
		limit -= n
	}
	return to, true
}

// invalidate takes a region's keys away, for ever: siw_invalidate_stag looks at the index
// in the key alone.
func (d *device) invalidate(p *pd, key uint32) error {
	m := d.mrs[key>>8]
	switch {
	case m == nil:
		return unix.EINVAL
	case m.pd != p:
		return unix.EACCES
	}
	m.free = true
	return nil
}

// arrival is what a message does where it arrives: after the memory was written, so that
// the two ends can complete in either order.
type arrival struct {
	at     *siwQP
	recv   bool // a receive request ends
	id     uint64
	status uint32
	length uint32
	event  uint32 // an asynchronous event, 0 for none
	broken bool   // the connection ends
	early  bool   // because the message came before it was time
}

func (a *arrival) finish() {
	if a.event != 0 {
		a.at.raise(a.event)
	}
	if a.recv {
		a.at.completeRecv(a.id, a.status, a.length)
	}
	switch {
	case a.early:
		a.at.conn.early()
	case a.broken:
		a.at.conn.fail()
	}
}

// deliver brings a message to the peer. Its memory is in nic.local.
func (s *siwQP) deliver(w *siwWork) arrival {
	peer := s.conn.peer()
	switch {
	case !s.conn.speak():
		return arrival{at: peer, broken: true, early: true}
	case w.op == abi.SIW_OP_WRITE:
		return peer.write(w)
	}
	return peer.receive(w)
}

// write is an RDMA WRITE that arrives: siw_proc_write.
func (s *siwQP) write(w *siwWork) arrival {
	if w.length == 0 {
		return arrival{} // key and address do not count
	}
	n := &s.q.f.k.nic
	to, why := siwSpan(s.q.f.dev, s.q.pd, w.key, w.addr, w.length, abi.IB_UVERBS_ACCESS_REMOTE_WRITE)
	switch why {
	case accessUnknown:
		return arrival{at: s, broken: true}
	case accessDenied:
		return arrival{at: s, broken: true, event: asyncAccess}
	}
	n.remote = append(n.remote[:0], to)
	return arrival{at: s, broken: n.move(n.remote, n.local, int(w.length)) != nil}
}

// receive is a SEND that arrives. There is no waiting for a receive request: where there is
// none, the connection ends. siw_proc_send.
func (s *siwQP) receive(w *siwWork) arrival {
	n := &s.q.f.k.nic
	a := arrival{at: s, broken: true}
	rq, dom := s.queue()
	if !rq.take(&n.recv) {
		return a
	}
	a.recv, a.id = true, n.recv.id
	if n.recv.room() < uint64(w.length) {
		a.status, a.event = abi.SIW_WC_LOC_LEN_ERR, asyncQPFatal
		return a
	}
	var ok bool
	if n.remote, ok = n.recv.siwSpans(n.remote[:0], s.q.f.dev, dom, w.length, abi.IB_UVERBS_ACCESS_LOCAL_WRITE); !ok {
		a.status, a.event = abi.SIW_WC_GENERAL_ERR, asyncAccess
		return a
	}
	if n.move(n.remote, n.local, int(w.length)) != nil {
		a.status = abi.SIW_WC_GENERAL_ERR
		return a
	}
	a.broken, a.length = false, w.length
	// The user is not told which key went; and a key that cannot go does not end the
	// connection. siw_rdmap_complete.
	if w.op == abi.SIW_OP_SEND_REMOTE_INV && s.q.f.dev.invalidate(s.q.pd, w.key) != nil {
		a.status = abi.SIW_WC_REM_INV_REQ_ERR
	}
	return a
}

// queue is where the receive requests come from, and the domain of their memory.
func (s *siwQP) queue() (*siwRQ, *pd) {
	if s.own != nil {
		return s.own, s.q.pd
	}
	return s.q.rq.(*siwRQ), s.q.srq.pd
}
