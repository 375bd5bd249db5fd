//go:build linux

package fakekernel

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

// Completions by order of the program, for a device that does not listen: the tracer stands
// in for it.

// order is a completion that is to be written.
type order struct {
	kind     string
	noise    uint64 // seed of what fills the fields that mean nothing here
	nth      int    // which of the open requests, from the oldest; those before it are done too
	syndrome byte
	vendor   byte
	opcode   byte // of "odd"
	event    bool // the peer asks for an event
	stale    bool // the owner's bit is that of the round before
	stranger bool // the queue pair is none
}

// cqeKinds are the opcodes of the kinds of completions.
var cqeKinds = map[string]byte{
	"send": cqeRequest, "recv": cqeRecvSend, "imm": cqeRecvSendImm, "inv": cqeRecvSendInv, "write": cqeRecvWriteImm,
	"sendfail": cqeRequestError, "recvfail": cqeResponseError, "odd": 0,
}

// inject writes a completion: the words are those of
//
//	CQ QP KIND [noise=N] [nth=N] [syn=X] [vendor=X] [op=X] [se] [stale] [stranger]
//
// The request is the oldest that is open, or the nth after it. A send that is completed
// takes those before it along, as unsignaled ones are; of a receive queue only the oldest
// can be.
func (t *tracer) inject(words []string) error {
	if len(words) < 3 {
		return fmt.Errorf("cqe: %d words", len(words))
	}
	c, err := find[*cq](t, words[0])
	if err != nil {
		return err
	}
	q, err := find[*qp](t, words[1])
	if err != nil {
		return err
	}
	ring, ok := c.ring.(*mlx5CQ)
	s := q.mlx5()
	if !ok || s == nil {
		return fmt.Errorf("%s is not of mlx5", words[0])
	}
	o := order{kind: words[2]}
	if err := o.parse(words[3:]); err != nil {
		return err
	}
	t.carryOut(ring, s, &o)
	return nil
}

func (o *order) parse(words []string) error {
	if _, ok := cqeKinds[o.kind]; !ok {
		return fmt.Errorf("cqe: no kind %q", o.kind)
	}
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		n, err := strconv.ParseUint(value, 0, 64)
		switch key {
		case "noise":
			o.noise = n
		case "nth":
			o.nth = int(n)
		case "syn":
			o.syndrome = byte(n)
		case "vendor":
			o.vendor = byte(n)
		case "op":
			o.opcode = byte(n)
		case "se":
			o.event, err = true, nil
		case "stale":
			o.stale, err = true, nil
		case "stranger":
			o.stranger, err = true, nil
		default:
			err = fmt.Errorf("no %q", key)
		}
		if err != nil {
			return fmt.Errorf("cqe: %w", err)
		}
	}
	return nil
}

// carryOut writes the completion, if there is a request for it and room.
func (t *tracer) carryOut(c *mlx5CQ, s *mlx5QP, o *order) {
	if c.uar != nil {
		c.uar.ringCQs()
	}
	c.look()
	if c.used() >= c.entries-1 { // as many as were promised
		t.put("  no room")
		return
	}
	fromPeer := o.kind != "send" && o.kind != "sendfail"
	var counter uint16
	opcode, ok := byte(0), o.stale || o.kind == "odd"
	if !ok {
		counter, opcode, ok = t.take(s, o, fromPeer)
	}
	if !ok {
		t.put("  nothing is posted")
		return
	}
	e := o.entry(s, fromPeer, opcode, counter)
	if o.stale {
		c.writeStale(e)
	} else {
		c.write(e)
		c.posted(o.kind == "sendfail" || o.kind == "recvfail")
		if c.fires(o.event) {
			c.c.notify()
		}
	}
	t.put("  completion %s", c.plain(e[:]))
	t.resync()
}

// entry makes the completion.
func (o *order) entry(s *mlx5QP, fromPeer bool, opcode byte, counter uint16) *cqe64 {
	e := new(cqe64)
	noise := rand.New(rand.NewPCG(o.noise, 0))
	for i := 0; i < len(e); i += 8 {
		binary.BigEndian.PutUint64(e[i:], noise.Uint64())
	}
	index := userIndex(s.q, fromPeer)
	if o.stranger {
		index, counter = 0xabcdef, 0
	}
	e.put32(cqeIndex, uint32(e[cqeIndex])<<24|index)
	if fromPeer {
		opcode = e[cqeOpcodeQPN]
	}
	num := s.q.num
	if o.stranger {
		num = 0xabcdef
	}
	e.put32(cqeOpcodeQPN, uint32(opcode)<<24|num)
	e.put16(cqeCounter, counter)
	kind := cqeKinds[o.kind]
	if o.kind == "odd" {
		kind = o.opcode
	}
	e.setOpcode(kind)
	if kind == cqeRequestError || kind == cqeResponseError {
		e.syndrome(o.vendor, o.syndrome)
	}
	if o.event {
		e[63] |= cqeSolicited
	}
	return e
}

// cqeSolicited is the bit in the last byte that tells that the peer asked for an event.
const cqeSolicited = 2

// writeStale writes an entry as it would stand there from the round before.
func (q *mlx5CQ) writeStale(e *cqe64) {
	if q.pi&q.entries == 0 {
		e[63] |= cqeOwner
	}
	_ = q.c.f.mem.out(q.base+uint64(q.pi&(q.entries-1))*uint64(q.size)+uint64(q.size-cqeSize), e[:])
}

// take takes a request out of a queue, as the device does when it is done with it.
func (t *tracer) take(s *mlx5QP, o *order, fromPeer bool) (counter uint16, opcode byte, ok bool) {
	if !fromPeer {
		return s.takeSend(o.nth)
	}
	if s.q.srq != nil {
		v, _ := t.views[s.q.srq].(*srqView)
		counter, ok = v.take(o.nth)
		return counter, 0, ok
	}
	r := &s.rq
	var rec [4]byte
	if r.count == 0 || s.q.f.mem.in(rec[:], r.record) != nil || binary.BigEndian.Uint16(rec[2:]) == r.head {
		return 0, 0, false
	}
	r.head++
	return r.head - 1, 0, true
}

// takeSend takes the nth open request and those before it.
func (s *mlx5QP) takeSend(nth int) (counter uint16, opcode byte, ok bool) {
	var rec [4]byte
	if s.sqCount == 0 || s.q.f.mem.in(rec[:], s.record+4) != nil {
		return 0, 0, false
	}
	posted, at := binary.BigEndian.Uint16(rec[2:]), uint16(s.at)
	for left := int(posted - at); left > 0; {
		var ctrl [16]byte
		if s.q.f.mem.in(ctrl[:], s.sqBase+uint64(uint32(at)&(s.sqCount-1))*block) != nil {
			break
		}
		counter, opcode, ok = at, ctrl[wqeOpcode], true
		blocks := max(int(ctrl[wqeLength]&0x3f)+3, 4) / 4
		at, left = at+uint16(blocks), left-blocks
		s.at = uint32(at)
		if nth--; nth < 0 {
			break
		}
	}
	return counter, opcode, ok
}

// take takes the nth of the requests that the device holds, and fetches those that it
// takes.
func (v *srqView) take(nth int) (entry uint16, ok bool) {
	var w recvWork
	for len(v.held) <= nth && v.r.peek(&w) {
		v.held = append(v.held, uint16(v.r.head))
		v.r.consume()
	}
	if len(v.held) == 0 {
		return 0, false
	}
	nth = min(nth, len(v.held)-1)
	entry = v.held[nth]
	v.held = append(v.held[:nth:nth], v.held[nth+1:]...)
	return entry, true
}

// run carries out all that is posted, until nothing goes on.
func (t *tracer) run() {
	for before := -1; before != t.progress(); {
		before = t.progress()
		for _, f := range t.files {
			for _, u := range t.pagesOf(f) {
				u.ringCQs()
				u.ringQPs()
			}
		}
	}
	for _, v := range t.views {
		if m, ok := v.(*mrView); ok {
			m.wrote = true
		}
	}
	t.resync()
}

// progress is another number after anything was carried out.
func (t *tracer) progress() (n int) {
	for _, v := range t.views {
		switch v := v.(type) {
		case *qpView:
			n += int(v.s.at) + int(v.s.rq.head)
		case *cqView:
			n += int(v.q.pi)
		case *srqView:
			n += int(v.r.taken)
		}
	}
	return n
}
