//go:build linux

package fakekernel

import (
	"encoding/binary"
	"math"
)

// mlx5RQ is a receive queue: a ring of lists of pieces, each as long as the stride.
type mlx5RQ struct {
	q      *qp
	base   uint64
	count  uint32
	shift  uint32
	skip   int // bytes in front of the pieces
	record uint64
	head   uint16 // of the oldest request; it runs freely
	buf    [maxStride]byte
}

// maxStride is as much of a request as the device reads.
const maxStride = maxPieces * segment

func (r *mlx5RQ) peek(w *recvWork) bool {
	var rec [4]byte
	mem := r.q.f.mem
	if r.count == 0 || mem.in(rec[:], r.record) != nil || binary.BigEndian.Uint16(rec[2:]) == r.head {
		return false
	}
	b := r.buf[:min(1<<r.shift, len(r.buf))]
	at := r.base + uint64(uint32(r.head)&(r.count-1))<<r.shift
	if mem.in(b, at) != nil {
		b = b[:0]
	}
	w.loadMLX5(uint64(r.head), b[min(r.skip, len(b)):])
	return true
}

func (r *mlx5RQ) consume()       { r.head++ }
func (r *mlx5RQ) end(*verbsFile) {}

// loadMLX5 decodes a receive request. Its length is what comes of the pieces.
func (w *recvWork) loadMLX5(counter uint64, b []byte) {
	w.id, w.length = recvID|counter, math.MaxUint32
	w.pieces.loadMLX5(b)
}

// mlx5SRQ is a shared receive queue: a list of entries, each of which names the next.
type mlx5SRQ struct {
	s      *srq
	num    uint32
	base   uint64
	count  uint32
	stride uint32
	record uint64
	pin    mlx5Pin
	head   uint32 // the oldest request, or the entry where the next one will be
	link   uint32 // the entry behind it, as the request that was looked at says
	taken  uint32 // how many were consumed; it runs freely
	buf    [maxStride]byte
}

const srqLink = 2 // offset of the next entry's number, 16 bits

// left is how many requests there are.
func (r *mlx5SRQ) left() uint32 {
	var rec [4]byte
	if r.s.f.mem.in(rec[:], r.record) != nil {
		return 0
	}
	if n := binary.BigEndian.Uint32(rec[:]) - r.taken; n < r.count {
		return n
	}
	return 0 // more than fit: the record is rubbish
}

func (r *mlx5SRQ) peek(w *recvWork) bool {
	if r.left() == 0 {
		return false
	}
	b := r.buf[:min(int(r.stride), len(r.buf))]
	if r.s.f.mem.in(b, r.base+uint64(r.head)*uint64(r.stride)) != nil {
		return false
	}
	r.link = uint32(binary.BigEndian.Uint16(b[srqLink:])) & (r.count - 1)
	w.loadMLX5(uint64(r.head), b[segment:])
	return true
}

func (r *mlx5SRQ) consume() {
	r.head = r.link
	r.taken++
	r.checkLimit()
}

// checkLimit raises the event once; the user sets the limit again if he wants another.
func (r *mlx5SRQ) checkLimit() {
	if r.s.limit > 0 && r.left() < r.s.limit {
		r.s.limit = 0
		r.s.raise(asyncSRQLimit)
	}
}

func (r *mlx5SRQ) end(f *verbsFile) {
	f.unpin(r.pin)
	f.mlx.unpinRecord(r.record)
}
