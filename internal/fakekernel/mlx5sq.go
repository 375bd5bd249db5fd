//go:build linux

package fakekernel

import "encoding/binary"

// mlx5SQ is a send queue: a ring of blocks of 64 bytes, of which a request takes several.
// Indices count blocks and run freely.
type mlx5SQ struct {
	sqBase  uint64
	sqCount uint32
	at      uint32 // of the next request to carry out
	last    mlx5Done
	done    []mlx5Done // carried out, not completed
	wqes    [2][maxWQE]byte
}

// mlx5Done is what the completion of a request needs, and how many blocks it takes.
type mlx5Done struct {
	id        uint64
	op, flags uint32
	length    uint32
	blocks    uint32
}

const (
	block   = 64
	segment = 16
	maxWQE  = 63 * segment // the length of a request has six bits, and counts segments
)

// next decodes the oldest request that is not carried out. The record says how far there
// are any; how the doorbell was rung does not count.
func (s *mlx5QP) next(w *work) bool {
	var rec [4]byte
	mem := s.q.f.mem
	if s.sqCount == 0 || mem.in(rec[:], s.record+4) != nil {
		return false
	}
	left := binary.BigEndian.Uint16(rec[2:]) - uint16(s.at)
	if left == 0 {
		return false
	}
	*w = work{id: uint64(uint16(s.at))}
	b, ok := s.fetch(s.wqe(w)[:0])
	if !ok || uint32(left) > s.sqCount || !w.loadWQE(s.q, uint16(s.at), b) {
		w.op = opBroken
	}
	blocks := min(max(uint32(len(b)+block-1)/block, 1), uint32(left)) // or rubbish would go round and round
	s.last = mlx5Done{id: w.id, op: w.op, flags: w.flags, length: w.length, blocks: blocks}
	return true
}

// wqe is the memory of a request that is decoded: of the one that is carried out, or of one
// that is looked at meanwhile.
func (s *mlx5QP) wqe(w *work) *[maxWQE]byte {
	if w == &s.q.f.k.nic.work {
		return &s.wqes[0]
	}
	return &s.wqes[1]
}

// fetch reads a request out of the ring: its first block, which tells the length, and the
// rest, which goes on at the beginning of the ring.
func (s *mlx5QP) fetch(b []byte) ([]byte, bool) {
	b = b[:block]
	if s.read(b, 0) != nil {
		return nil, false
	}
	n := int(b[wqeLength]&0x3f) * segment
	if n < segment || uint32(n) > s.sqCount*block {
		return nil, false
	}
	if n > block {
		b = b[:n]
		return b, s.read(b[block:], block) == nil
	}
	return b[:n], true
}

// read reads from a distance behind the request, which is at most that to the ring's end.
func (s *mlx5QP) read(b []byte, from uint32) error {
	size := uint64(s.sqCount) * block
	off := uint64(s.at&(s.sqCount-1))*block + uint64(from)
	n := min(uint64(len(b)), size-off)
	if err := s.q.f.mem.in(b[:n], s.sqBase+off); err != nil {
		return err
	}
	return s.q.f.mem.in(b[n:], s.sqBase)
}

func (s *mlx5QP) advance() {
	s.done = append(s.done, s.last)
	s.at += s.last.blocks
}

func (s *mlx5QP) pending(w *work) bool {
	if len(s.done) == 0 {
		return false
	}
	d := &s.done[0]
	w.id, w.op, w.flags, w.length = d.id, d.op, d.flags, d.length
	return true
}

func (s *mlx5QP) complete() { s.done = append(s.done[:0], s.done[1:]...) }

// reset empties both queues. The user resets the records.
func (s *mlx5QP) reset() {
	s.at, s.done, s.rq.head = 0, s.done[:0], 0
	s.uar.forget()
}
