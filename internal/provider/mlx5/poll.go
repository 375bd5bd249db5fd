package mlx5

import (
	"github.com/pureverbs/rdma/internal/provider"
	"github.com/pureverbs/rdma/mmio"
)

// seek moves to the entry of a position. No pointer is stored: that would cost a look whether
// the garbage collector is at work.
func (q *CQ) seek(next uint32) {
	q.next, q.off, q.round = next, uintptr(next&q.ring.mask)*cqeSize, q.ring.round(next)
}

// head is the entry.
func (q *CQ) head() addr { return q.ring.base.add(q.off) }

// Empty tells whether there is no completion to be had. It is small enough to be inlined: a
// program that polls mostly finds nothing.
func (q *CQ) Empty() bool {
	t := tailOf(q.head())
	return t.owner() != q.round || t.kind() == cqeInvalid
}

// sender is the queue pair whose request completed last, in the form in which an entry names
// it. The completions of one come in runs.
type sender struct {
	qp    *QP
	num   uint32 // more than any number, where there is none
	index uint32
	mask  uint32 // of the index: 0 where entries have none
	owed  bool   // the poster has not been told of the last completions
}

const noNumber = 1 << 24

func (s *sender) init(byIndex bool) {
	if byIndex {
		s.mask = lowQPN
	}
	s.forget()
}

func (s *sender) forget() { s.qp, s.num = nil, noNumber }

// is notes that a request of the queue pair completed.
func (s *sender) is(qp *QP) {
	if s.qp != qp {
		s.settle()
		s.qp, s.num, s.index = qp, qp.num, qp.key&s.mask
	}
	s.owed = true
}

// settle tells the poster how many of its requests have completed.
func (s *sender) settle() {
	if s.owed {
		s.qp.sq.credit.show()
		s.owed = false
	}
}

// of tells whether an entry, if it is of a request, is of this queue pair's.
func (s *sender) of(e addr) bool {
	return e.get32(offQP)&lowQPN == s.num && e.get32(offIndex)&s.mask == s.index
}

// Poll decodes the oldest completions, up to len(wcs), into wcs, gives their entries back to
// the device and returns how many. After an error there is nothing more to be had.
//
// Most are like the one before: of a request of that queue pair that was done well. For them
// the loop does what Next does, with the same checks.
func (q *CQ) Poll(wcs []provider.WC) (n int, err error) {
	for n < len(wcs) {
		wc, e := &wcs[n], q.head()
		t := tailOf(e)
		mmio.OrderReads() // see Advance
		if uint8(t) != cqeRequester<<4|q.round || !q.sender.of(e) {
			var ok bool
			if ok, err = q.Next(wc); !ok {
				break
			}
			n++
			continue
		}
		s := &q.sender.qp.sq
		at := t.counter()
		posted := s.posted()
		slot := &s.slots[uint32(at)&s.mask]
		note := slot.note
		if !s.isOpen(at, posted, note) || note.code() != e.get8(offQP) {
			err = provider.ErrCorrupt
			break
		}
		*wc = provider.WC{}
		wc.ID, wc.Opcode, wc.QPNum = slot.id, note.done(), q.sender.num
		decodeSend(wc, e, note.code())
		s.finish(at, note)
		q.sender.owed = true
		q.seek(q.next + 1)
		n++
	}
	if n > 0 {
		q.settle()
		q.giveBack()
	}
	return n, err
}
