package mlx5

import "github.com/pureverbs/rdma/internal/provider"

const inlineFlag = 1 << 31 // in the length: the data follows

// putInline copies the pieces, total bytes, into a request behind its head and returns how
// many units that takes. Without pieces the bytes are there already, see InlineRoom. Nothing
// is nothing, not even a length.
func (s *sendQueue) putInline(at addr, head uintptr, pieces [][]byte, total uint32) uint32 {
	if total == 0 {
		return 0
	}
	seg := at.add(head)
	if seg == s.end {
		seg = s.ring
	}
	seg.put32(0, total|inlineFlag)
	data := seg.add(inlineHead)
	switch {
	case len(pieces) == 0 && !s.straightOn(data):
		s.copyAround(data, s.bounce[:total])
	case s.left(data) >= int(total):
		to := data.bytes(int(total))
		for _, piece := range pieces {
			to = to[copy(to, piece):]
		}
	default:
		for _, piece := range pieces {
			data = s.copyAround(data, piece)
		}
	}
	return (inlineHead + total + pieceSize - 1) / pieceSize
}

// copyAround copies bytes to a place in the ring, on at its beginning, and returns where they
// end.
func (s *sendQueue) copyAround(to addr, b []byte) addr {
	n := min(s.left(to), len(b))
	copy(to.bytes(n), b)
	if n == len(b) {
		return to.add(uintptr(n))
	}
	copy(s.ring.bytes(len(b)-n), b[n:])
	return s.ring.add(uintptr(len(b) - n))
}

// straightOn tells whether all inline data that a request can have, at a place, is before the
// ring's end.
func (s *sendQueue) straightOn(data addr) bool { return s.left(data) >= int(s.inline) }

// InlineRoom is where the next send request keeps its inline data, nil if the queue is full.
// Send copies it into the queue if there it would not be in one piece.
func (q *QP) InlineRoom(op provider.Opcode) []byte {
	s := &q.sq
	if s.full(&s.credit) {
		return nil
	}
	seg := s.place(s.cur).add(q.headSize(op))
	if seg == s.end {
		seg = s.ring
	}
	if data := seg.add(inlineHead); s.straightOn(data) {
		return data.bytes(int(s.inline))
	}
	return s.bounce
}

// headSize is what comes before the data of an operation that takes it inline.
func (q *QP) headSize(op provider.Opcode) uintptr {
	switch {
	case q.datagram:
		return headControl + headWay
	case op == provider.OpRDMAWrite, op == provider.OpRDMAWriteImm:
		return headControl + headRemote
	}
	return headControl
}
