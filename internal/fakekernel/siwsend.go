//go:build linux

package fakekernel

import (
	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
)

// siwWork is a send request, as siw copies it out of the queue.
type siwWork struct {
	id     uint64
	op     uint8 // enum siw_opcode
	flags  uint16
	length uint32
	addr   uint64 // remote
	key    uint32 // remote, or the one to invalidate
	broken bool   // more pieces than there can be
	pieces
	inline [abi.SIW_MAX_INLINE]byte
}

func (w *siwWork) solicited() bool { return w.flags&abi.SIW_WQE_SOLICITED != 0 }
func (w *siwWork) isInline() bool  { return w.flags&abi.SIW_WQE_INLINE != 0 }

func (w *siwWork) reads() bool {
	return w.op == abi.SIW_OP_READ || w.op == abi.SIW_OP_READ_LOCAL_INV
}

// load copies a slot. The user may still write in it, so everything is read once.
func (w *siwWork) load(slot []byte) {
	e := *view[abi.SiwSqe](slot)
	w.id, w.op, w.flags, w.key, w.addr = e.Id, e.Opcode, e.Flags, e.Rkey, *e.Raddr()
	list := e.Sge()
	switch {
	case w.isInline():
		w.num, w.length = 0, list[0].Length
		copy(w.inline[:], bytesOf(list)[len(bytesOf(&list[0])):])
		return
	case w.reads():
		e.NumSge = 1
	}
	w.broken = e.NumSge > siwMaxSGE
	w.loadSiw(e.NumSge, list)
	w.length = uint32(w.room())
}

// doorbell is sw/siw/siw_verbs.c, siw_post_send, for a user. In error it hears, and does
// nothing.
func (s *siwQP) doorbell() error {
	switch s.q.state {
	case stateRTS:
	case stateError:
		return nil
	default:
		return unix.ENOTCONN
	}
	switch {
	case s.busy: // it will come to the rest by itself
		return nil
	case s.q.f.k.opts.Deferred:
		s.q.f.k.after(0, func() { _ = s.start() })
		return nil
	}
	return s.start()
}

// start carries out what is in the queue. A request that cannot even be begun stays where
// it is, and stops the queue for ever: the doorbell says so if it is the first.
func (s *siwQP) start() error {
	if s.busy || s.q.gone || s.q.state != stateRTS {
		return nil
	}
	if err := s.activate(); err != nil {
		return err
	}
	s.run()
	return nil
}

// run carries out the request at hand, and those behind it.
func (s *siwQP) run() {
	for s.busy && !s.muted && !s.q.gone {
		if s.conn.peer() == nil { // TCP tries again, or the end is under way
			s.q.f.k.after(s.q.f.k.opts.MaxRetry, s.run)
			return
		}
		if s.carryOut(&s.cur); s.muted {
			return
		}
		if s.activate() != nil {
			s.conn.drop()
		}
	}
}

// activate takes the next request out of the queue: siw_activate_tx_from_sq.
func (s *siwQP) activate() error {
	s.busy = false
	slot := s.slot()
	if siwFlags(slot)&abi.SIW_WQE_VALID == 0 {
		return nil
	}
	w := &s.cur
	w.load(slot)
	switch {
	case w.op >= abi.SIW_NUM_OPCODES,
		w.isInline() && (w.op != abi.SIW_OP_SEND && w.op != abi.SIW_OP_WRITE || w.length > abi.SIW_MAX_INLINE),
		w.reads() && (s.ord == 0 || w.flags&abi.SIW_WQE_READ_FENCE != 0):
		return unix.EINVAL
	}
	s.free()
	s.busy = true
	return nil
}

// carryOut does what one request asks for: siw_qp_sq_process.
func (s *siwQP) carryOut(w *siwWork) {
	switch w.op {
	case abi.SIW_OP_SEND, abi.SIW_OP_SEND_REMOTE_INV, abi.SIW_OP_WRITE:
		if w.broken || !s.gather(w) {
			s.refuse(w)
			return
		}
		s.sent(w, s.deliver(w))
	case abi.SIW_OP_READ, abi.SIW_OP_READ_LOCAL_INV:
		s.read(w)
	case abi.SIW_OP_INVAL_STAG:
		if s.q.f.dev.invalidate(s.q.pd, w.key) != nil {
			s.refuse(w)
			return
		}
		s.done(w, 0)
	default:
		s.refuse(w)
	}
}

// gather lists the local memory.
func (s *siwQP) gather(w *siwWork) (ok bool) {
	n := &s.q.f.k.nic
	if w.isInline() {
		n.local = append(n.local[:0], spanOf(w.inline[:min(int(w.length), len(w.inline))]))
		return true
	}
	n.local, ok = w.siwSpans(n.local[:0], s.q.f.dev, s.q.pd, w.length, 0)
	return ok
}

// refuse fails a request because of what it says. It ends the connection, but the queue
// pair stays as it is, and flushes nothing until somebody moves it to error.
func (s *siwQP) refuse(w *siwWork) {
	s.busy = false
	s.conn.drop()
	switch w.op {
	case abi.SIW_OP_FETCH_AND_ADD, abi.SIW_OP_COMP_AND_SWAP, abi.SIW_OP_RECEIVE, abi.SIW_OP_READ_RESPONSE:
		return // not even a completion
	}
	s.releaseHeld()
	s.completeSend(w, abi.SIW_WC_LOC_QP_OP_ERR, 0)
	s.raise(asyncQPFatal)
}

// sent ends a request that TCP has taken, whatever becomes of it at the peer.
func (s *siwQP) sent(w *siwWork, a arrival) {
	if s.q.f.k.opts.AckFirst || a.broken {
		s.done(w, w.length)
		a.finish()
		return
	}
	a.finish()
	s.done(w, w.length)
}

// done completes a request that went well.
func (s *siwQP) done(w *siwWork, n uint32) {
	s.busy = false
	switch {
	case w.flags&abi.SIW_WQE_SIGNALLED == 0:
	case s.q.f.k.opts.AckDelay > 0:
		s.hold(w, n)
	default:
		s.completeSend(w, abi.SIW_WC_SUCCESS, n)
	}
}

// read is an RDMA READ. The peer does not look whether the region may be read from afar;
// a key that it does not know ends the connection, and the request with a flush.
func (s *siwQP) read(w *siwWork) {
	peer, n := s.conn.peer(), &s.q.f.k.nic
	switch {
	case !s.conn.speak():
		peer.conn.early()
	case w.length == 0:
		s.done(w, 0)
	default:
		from, why := siwSpan(peer.q.f.dev, peer.q.pd, w.key, w.addr, w.length, 0)
		if why != accessOK {
			peer.conn.drop()
			peer.raise(asyncQPRequest)
			return
		}
		n.remote = append(n.remote[:0], from)
		s.readAnswer(w)
	}
}

// readAnswer puts what came where the request wants it, which is checked only now.
func (s *siwQP) readAnswer(w *siwWork) {
	n := &s.q.f.k.nic
	var ok bool
	n.local, ok = w.siwSpans(n.local[:0], s.q.f.dev, s.q.pd, w.length, abi.IB_UVERBS_ACCESS_LOCAL_WRITE)
	switch {
	case !ok:
		s.raise(asyncAccess)
		s.readFailed(w, abi.SIW_WC_LOC_PROT_ERR)
	case n.move(n.local, n.remote, int(w.length)) != nil:
		s.readFailed(w, abi.SIW_WC_GENERAL_ERR)
	default:
		s.done(w, w.length)
	}
}

func (s *siwQP) readFailed(w *siwWork, status uint32) {
	s.busy = false
	s.releaseHeld()
	s.completeSend(w, status, 0)
	s.conn.fail()
}
