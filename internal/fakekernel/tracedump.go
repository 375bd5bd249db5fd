//go:build linux

package fakekernel

import (
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"strings"
)

// What a program has written to memory, by comparison with what was there at the last mark.

// dumper is the tracer's view of an object.
type dumper interface {
	dump(t *tracer, name string)
}

// memView is memory of the user, as it was last seen.
type memView struct {
	mem  userMem
	base uint64
	was  []byte
	now  []byte
}

// newMemView begins with what the program is to find there: zeros.
func newMemView(mem userMem, base uint64, size int) memView {
	return memView{mem: mem, base: base, was: make([]byte, size), now: make([]byte, size)}
}

// look reads the memory; false if it is gone.
func (v *memView) look() bool { return v.mem.in(v.now, v.base) == nil }

// changes calls say with each unit of the memory that is another than before.
func (v *memView) changes(unit int, say func(i int, b []byte)) {
	if !v.look() {
		return
	}
	for i := 0; i < len(v.now); i += unit {
		if now := v.now[i:min(i+unit, len(v.now))]; string(now) != string(v.was[i:i+len(now)]) {
			say(i/unit, now)
		}
	}
	v.was, v.now = v.now, v.was
}

// words writes bytes as the device reads them, in words.
func words(b []byte) string {
	var s strings.Builder
	for i := 0; i < len(b); i += 4 {
		if i > 0 {
			s.WriteByte(' ')
		}
		s.WriteString(hex.EncodeToString(b[i:min(i+4, len(b))]))
	}
	return s.String()
}

// adopt makes views of the new objects of a file.
func (t *tracer) adopt(f *verbsFile) {
	for _, h := range handles(f) {
		o := f.objects[h]
		if t.views[o] != nil {
			continue
		}
		switch o := o.(type) {
		case *qp:
			if s := o.mlx5(); s != nil {
				t.views[o] = newQPView(s)
			}
		case *cq:
			if q, ok := o.ring.(*mlx5CQ); ok {
				t.views[o] = newCQView(q)
			}
		case *srq:
			if r, ok := o.rq.(*mlx5SRQ); ok {
				t.views[o] = newSRQView(r)
			}
		case *mr:
			t.views[o] = &mrView{m: o}
		}
	}
	for _, u := range t.pagesOf(f) {
		t.quiet(u)
	}
}

// dump writes what has changed in all objects.
func (t *tracer) dump() {
	for _, f := range t.files {
		for _, h := range handles(f) {
			o := f.objects[h]
			if v := t.views[o]; v != nil {
				v.dump(t, t.names[o])
			}
		}
		t.dumpRegisters(f)
	}
}

// resync takes over what the device has written itself.
func (t *tracer) resync() {
	for _, v := range t.views {
		if q, ok := v.(*cqView); ok {
			q.follow()
			if q.ring.look() {
				q.ring.was, q.ring.now = q.ring.now, q.ring.was
			}
		}
	}
}

// qpView is the view of a queue pair.
type qpView struct {
	s          *mlx5QP
	sq, rq     memView
	record     memView
	rqSlotSize int
}

func newQPView(s *mlx5QP) *qpView {
	mem := s.q.f.mem
	return &qpView{
		s: s, sq: newMemView(mem, s.sqBase, int(s.sqCount)*block), record: newMemView(mem, s.record, recordSize),
		rq: newMemView(mem, s.rq.base, int(s.rq.count)<<s.rq.shift), rqSlotSize: 1 << s.rq.shift,
	}
}

func (v *qpView) dump(t *tracer, name string) {
	v.sq.changes(block, func(i int, b []byte) { t.put("  %s send[%d] %s", name, i, words(b)) })
	v.rq.changes(v.rqSlotSize, func(i int, b []byte) { t.put("  %s recv[%d] %s", name, i, words(b)) })
	v.record.changes(recordSize, func(_ int, b []byte) { t.put("  %s record %s", name, words(b)) })
}

// cqView is the view of a completion queue.
type cqView struct {
	q      *mlx5CQ
	ring   memView
	record memView
}

func newCQView(q *mlx5CQ) *cqView {
	v := &cqView{q: q, record: newMemView(q.c.f.mem, q.record, recordSize)}
	binary.BigEndian.PutUint32(v.record.was[4:], armNever)
	v.follow()
	return v
}

// follow goes to another ring with the queue, in which nothing is written yet.
func (v *cqView) follow() {
	if v.ring.base == v.q.base && len(v.ring.was) == int(v.q.entries*v.q.size) {
		return
	}
	v.ring = newMemView(v.q.c.f.mem, v.q.base, int(v.q.entries*v.q.size))
	for i := int(v.q.size) - 1; i < len(v.ring.was); i += int(v.q.size) {
		v.ring.was[i] = 0xf0
	}
}

func (v *cqView) dump(t *tracer, name string) {
	v.follow()
	v.ring.changes(int(v.q.size), func(i int, b []byte) { t.put("  %s[%d] %s", name, i, v.q.plain(b)) })
	v.record.changes(recordSize, func(_ int, b []byte) { t.put("  %s record %s", name, words(b)) })
}

// plain is a completion in words, without its time, and of a receive of a shared queue without
// the entry, which is the program's choice.
func (q *mlx5CQ) plain(b []byte) string {
	b = append([]byte(nil), b...)
	e := b[len(b)-cqeSize:]
	op := e[63] >> 4
	if op < cqeRequestError {
		clear(e[cqeTime : cqeTime+8])
	}
	p := q.c.f.dev.qps[binary.BigEndian.Uint32(e[cqeOpcodeQPN:])&0xff_ffff]
	if p != nil && p.srq != nil && (op >= cqeRecvWriteImm && op <= cqeRecvSendInv || op == cqeResponseError) {
		clear(e[cqeCounter : cqeCounter+2])
	}
	return words(b)
}

// srqView is the view of a shared receive queue. Which entry holds which request, and how
// many there are, is the program's business: the view goes along the links as the device
// does.
type srqView struct {
	r      *mlx5SRQ
	seen   uint32 // requests, as the record counts
	at     uint32 // entry of the next one
	entry  []byte
	record memView
	held   []uint16 // entries that the device has taken and not completed
}

func newSRQView(r *mlx5SRQ) *srqView {
	return &srqView{r: r, entry: make([]byte, r.stride), record: newMemView(r.s.f.mem, r.record, 4)}
}

func (v *srqView) dump(t *tracer, name string) {
	v.record.changes(4, func(_ int, b []byte) {
		for posted := binary.BigEndian.Uint32(b); v.seen != posted; v.seen++ {
			if v.r.s.f.mem.in(v.entry, v.r.base+uint64(v.at)*uint64(v.r.stride)) != nil {
				break
			}
			t.put("  %s request %d: %s", name, v.seen, words(v.pieces()))
			v.at = uint32(binary.BigEndian.Uint16(v.entry[srqLink:])) & (v.r.count - 1)
		}
		t.put("  %s record %s", name, words(b))
	})
}

// pieces is what the device reads of an entry: up to the piece that says that it was the
// last.
func (v *srqView) pieces() []byte {
	b := v.entry[segment:]
	for i := 0; i < len(b); i += segment {
		if binary.BigEndian.Uint32(b[i:]) == 0 && binary.BigEndian.Uint32(b[i+4:]) == terminateKey {
			return b[:i+segment]
		}
	}
	return b
}

// mrView is the view of a memory region: what the device has done there.
type mrView struct {
	m     *mr
	wrote bool // since the last dump
	sum   uint32
	buf   []byte
}

func (v *mrView) dump(t *tracer, name string) {
	if !v.wrote {
		return
	}
	v.wrote = false
	if uint64(len(v.buf)) != v.m.length {
		v.buf = make([]byte, v.m.length)
	}
	if v.m.mem.in(v.buf, v.m.start) != nil {
		return
	}
	if sum := crc32.ChecksumIEEE(v.buf); sum != v.sum {
		v.sum = sum
		t.put("  %s holds %08x", name, sum)
	}
}
