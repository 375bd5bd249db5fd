package mlx5

import "github.com/pureverbs/rdma/internal/provider"

// maxMessage is the longest message of any transport.
const maxMessage = 1 << 31

// plainFlags are the flags of a plain request, besides that of inline data.
const plainFlags = provider.SendFence | provider.SendSignaled | provider.SendSolicited

// plainOps is the set of operations that are plain, of those of a queue pair.
func plainOps(ops, pieces uint32, datagram bool) uint32 {
	if datagram || pieces == 0 {
		return 0
	}
	return ops & (InlineOps | 1<<provider.OpRDMARead)
}

// PostPlain encodes and shows requests, with one doorbell, if all of them are what most are: one
// piece of data each, or all of them some bytes inline, for a connection. It checks them itself,
// so the caller need not. It returns false, and nothing has happened, if one of them is something
// else or has a mistake, or if there is no room for all, or no request: then it is for the
// caller to look closely, and for Send.
//
// All is in one function, and what happens seldom ends in a return, so that the rest is in one
// piece: calls and jumps cost more here than all else.
func (q *QP) PostPlain(wrs []provider.SendWR) bool {
	s := &q.sq
	cur, n := s.cur, uint32(len(wrs))
	if n-1 >= s.limit-(s.head-s.seen) {
		return s.room(n) && q.PostPlain(wrs)
	}
	if s.fence != 0 || s.fresh != 0 {
		return false
	}
	if wrs[0].Flags&provider.SendInline != 0 {
		for i := 0; ; {
			wr := &wrs[i]
			if !wr.Opcode.In(q.plain&InlineOps) || wr.Flags&^plainFlags != provider.SendInline || !s.isInline(wr) {
				return false
			}
			op, at, data := &operations[wr.Opcode&15], s.place(cur), wr.Inline[0]
			head := op.putRemote(at, wr)
			seg := at.add(head)
			if s.left(seg) < inlineHead+len(data) {
				return false // it goes on at the ring's beginning
			}
			seg.put32(0, uint32(len(data))|inlineFlag)
			copy(seg.add(inlineHead).bytes(len(data)), data)
			units := (uint32(head) + inlineHead + uint32(len(data)) + pieceSize - 1) / pieceSize
			blocks := (units + 3) / 4
			q.control(at, cur, op.note.code(), units, wr.Flags, 0, op.word(wr))
			s.keep(cur, wr.ID, op.note.with(s.head+uint32(i), blocks))
			cur += blocks
			if i++; i == len(wrs) {
				s.cur, s.head = cur, s.head+n
				return q.ring(at, units, n == 1, false)
			}
		}
	}
	for i := 0; ; {
		wr := &wrs[i]
		if !wr.Opcode.In(q.plain) || wr.Flags&^plainFlags != 0 || !isPlain(wr) {
			return false
		}
		op, at, e := &operations[wr.Opcode&15], s.place(cur), &wr.SGL[0]
		head := op.putRemote(at, wr)
		seg, units := at.add(head), uint32(head/pieceSize)+1
		seg.put64(0, uint64(e.Length)<<32|uint64(e.LKey))
		seg.put64(8, e.Addr)
		q.control(at, cur, op.note.code(), units, wr.Flags, 0, op.word(wr))
		s.keep(cur, wr.ID, op.note.with(s.head+uint32(i), 1))
		cur++
		if i++; i == len(wrs) {
			s.cur, s.head = cur, s.head+n
			return q.ring(at, units, n == 1, false)
		}
	}
}

// isPlain tells whether the data is one piece. One of no bytes has a form of its own.
func isPlain(wr *provider.SendWR) bool {
	return len(wr.SGL) == 1 && wr.SGL[0].Length-1 < maxMessage && wr.Inline == nil
}

// isInline tells whether the data is in one slice.
func (s *sendQueue) isInline(wr *provider.SendWR) bool {
	return len(wr.Inline) == 1 && uint(len(wr.Inline[0]))-1 < uint(s.inline) && len(wr.SGL) == 0
}
