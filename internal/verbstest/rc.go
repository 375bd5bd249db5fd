//go:build linux

package verbstest

import (
	"bytes"
	"errors"
	"testing"

	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/uverbs"
)

func (u *Suite) rcTests() []test {
	return []test{
		{"RCOperations", u.rcOperations},
		{"UCOperations", u.ucOperations},
		{"RW18NoPieces", u.rw18NoPieces},
		{"RW23InlinePieces", u.rw23InlinePieces},
		{"RW36ImmediateByBit", u.rw36ImmediateByBit},
		{"ErrorCompletions", u.errorCompletions},
		{"TooLongForReceive", u.tooLongForReceive},
		{"OwnPeer", u.ownPeer},
	}
}

// operation is one to be walked through.
type operation struct {
	name string
	wr   uverbs.SendWR
	recv bool            // takes a receive of the peer's
	op   uverbs.WCOpcode // at the sender
	got  uverbs.WCOpcode // at the receiver
	need feature         // that it needs, or byHand-1
	back bool            // from b to a
}

const nothing = feature(-1)

const bigMessage = 1 << 16

func operations(a, b *side) []operation {
	whole := []uverbs.SGE{a.mr.SGE(0, bigMessage)}
	pieces := []uverbs.SGE{a.mr.SGE(0, 1000), a.mr.SGE(1000, 0), a.mr.SGE(1000, 5000), a.mr.SGE(6000, bigMessage-6000)}
	return []operation{
		{"send", uverbs.SendWR{Opcode: uverbs.OpSend, SGL: whole}, true, uverbs.WCSend, uverbs.WCRecv, nothing, false},
		{"send in pieces", uverbs.SendWR{Opcode: uverbs.OpSend, SGL: pieces}, true, uverbs.WCSend, uverbs.WCRecv, nothing, false},
		{"send solicited", uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.SendSolicited, SGL: whole}, true, uverbs.WCSend, uverbs.WCRecv, nothing, false},
		{"send with immediate", uverbs.SendWR{Opcode: uverbs.OpSendImm, SGL: whole, Imm: 0x01020304}, true, uverbs.WCSend, uverbs.WCRecv, immediate, false},
		{"write", a.remote(uverbs.SendWR{Opcode: uverbs.OpRDMAWrite, SGL: whole}, b), false, uverbs.WCRDMAWrite, 0, nothing, false},
		{"write in pieces", a.remote(uverbs.SendWR{Opcode: uverbs.OpRDMAWrite, SGL: pieces}, b), false, uverbs.WCRDMAWrite, 0, nothing, false},
		{"write with immediate", a.remote(uverbs.SendWR{Opcode: uverbs.OpRDMAWriteImm, SGL: whole}, b), true, uverbs.WCRDMAWrite, uverbs.WCRecvWriteImm, immediate, false},
		{"read", a.remote(uverbs.SendWR{Opcode: uverbs.OpRDMARead, SGL: whole}, b), false, uverbs.WCRDMARead, 0, nothing, true},
		{"read into pieces", a.remote(uverbs.SendWR{Opcode: uverbs.OpRDMARead, SGL: pieces}, b), false, uverbs.WCRDMARead, 0, multiRead, true},
	}
}

// rcOperations walks every operation of a reliable connection that moves data once and
// compares bytes.
func (u *Suite) rcOperations(t *testing.T) {
	a, b := u.pair(t, bigMessage)
	for i, op := range operations(a, b) {
		t.Run(op.name, func(t *testing.T) {
			if op.need != nothing {
				u.needs(t, op.need)
			}
			walk(t, a, b, op, uint64(i))
		})
	}
}

// ucOperations: what an unreliable connection can, it does; reads and atomics it refuses.
func (u *Suite) ucOperations(t *testing.T) {
	u.needs(t, unreliable)
	a, b := u.pairOf(t, uverbs.QPTypeUC, bigMessage)
	for i, op := range operations(a, b) {
		t.Run(op.name, func(t *testing.T) {
			if op.wr.Opcode == uverbs.OpRDMARead {
				refusedByType(t, a, op.wr)
				return
			}
			walk(t, a, b, op, uint64(i))
		})
	}
	for _, wr := range []uverbs.SendWR{
		{Opcode: uverbs.OpCompareSwap, SGL: []uverbs.SGE{a.mr.SGE(0, 8)}}, {Opcode: uverbs.OpFlush, Flush: uverbs.FlushGlobal},
		{Opcode: uverbs.OpAtomicWrite, SGL: []uverbs.SGE{a.mr.SGE(0, 8)}},
	} {
		refusedByType(t, a, wr)
	}
	works(t, a, b)
}

// refusedByType: a transport's queue pair does not take an operation.
func refusedByType(t *testing.T, a *side, wr uverbs.SendWR) {
	t.Helper()
	n, err := a.qp.PostSend([]uverbs.SendWR{wr})
	notSupported(t, wr.Opcode.String(), err)
	if n != 0 || a.qp.Supports(wr.Opcode) {
		t.Errorf("%v: posted %d, Supports says %v", wr.Opcode, n, a.qp.Supports(wr.Opcode))
	}
}

func walk(t *testing.T, a, b *side, op operation, seed uint64) {
	t.Helper()
	if !a.qp.Supports(op.wr.Opcode) {
		t.Errorf("Supports(%v) is false", op.wr.Opcode)
	}
	testutil.Fill(a.mr.Bytes(), 2*seed)
	testutil.Fill(b.mr.Bytes(), 2*seed+1)
	want := bytes.Clone(a.mr.Bytes())
	if op.back {
		want = bytes.Clone(b.mr.Bytes())
	}
	if op.recv {
		b.recv(t, 7, 0, bigMessage)
	}
	op.wr.ID, op.wr.Flags = seed, op.wr.Flags|uverbs.SendSignaled
	a.send(t, op.wr)
	a.ok(t, seed, op.op)
	if op.recv {
		wc := b.ok(t, 7, op.got)
		imm := op.wr.Opcode.HasImm()
		if wc.ByteLen != bigMessage || wc.HasImm() != imm || imm && wc.Imm != op.wr.Imm || wc.QPNum != b.qp.Num() {
			t.Errorf("got receive %+v, want %d bytes, immediate %v %#x", wc, bigMessage, imm, op.wr.Imm)
		}
	} else {
		b.settle(t, a)
	}
	if !bytes.Equal(a.mr.Bytes(), want) || !bytes.Equal(b.mr.Bytes(), want) {
		t.Error("the memories differ")
	}
}

// settle waits until all that from sent before has arrived: an unreliable connection
// completes a write when it has left.
func (s *side) settle(t *testing.T, from *side) {
	t.Helper()
	if from.typ() == uverbs.QPTypeRC {
		return
	}
	_, err := s.qp.PostRecv([]uverbs.RecvWR{{ID: hello}})
	testutil.Must(t, err)
	from.send(t, uverbs.SendWR{ID: hello, Opcode: uverbs.OpSend, Flags: uverbs.SendSignaled})
	from.ok(t, hello, uverbs.WCSend)
	s.ok(t, hello, uverbs.WCRecv)
}

// rw18NoPieces: nothing to send is a message of length 0.
func (u *Suite) rw18NoPieces(t *testing.T) {
	a, b := u.pair(t, 4096)
	wrs := []uverbs.SendWR{
		{Opcode: uverbs.OpSend},
		{Opcode: uverbs.OpSend, SGL: []uverbs.SGE{}},
		{Opcode: uverbs.OpSend, SGL: []uverbs.SGE{a.mr.SGE(4096, 0)}},
		{Opcode: uverbs.OpSend, Flags: uverbs.SendInline},
		{Opcode: uverbs.OpSend, Flags: uverbs.SendInline, Inline: [][]byte{nil, {}}},
	}
	if u.has(t, immediate) {
		wrs = append(wrs, a.remote(uverbs.SendWR{Opcode: uverbs.OpRDMAWriteImm, Imm: 5}, b))
	}
	for i, wr := range wrs {
		_, err := b.qp.PostRecv([]uverbs.RecvWR{{ID: 9}})
		testutil.Must(t, err)
		wr.ID, wr.Flags = uint64(i), wr.Flags|uverbs.SendSignaled
		a.send(t, wr)
		if wc := a.next(t); wc.Err() != nil || wc.ID != uint64(i) {
			t.Fatalf("request %d: completion %+v", i, wc)
		}
		if wc := b.next(t); wc.Err() != nil || wc.ByteLen != 0 || wc.ID != 9 {
			t.Errorf("request %d: received %+v, want 0 bytes", i, wc)
		}
	}
	for i, op := range []uverbs.Opcode{uverbs.OpRDMAWrite, uverbs.OpRDMARead} { // of nothing, by no key
		a.send(t, uverbs.SendWR{ID: uint64(i), Opcode: op, Flags: uverbs.SendSignaled})
		if wc := a.next(t); wc.Err() != nil || wc.ID != uint64(i) {
			t.Fatalf("%v: completion %+v", op, wc)
		}
	}
	works(t, a, b)
}

// rw23InlinePieces: the sum counts, and sources may change right after the post.
func (u *Suite) rw23InlinePieces(t *testing.T) {
	a, b := u.pair(t, 4096)
	limit := int(a.qp.Cap().MaxInline)
	for n := 1; n <= 5; n++ {
		var pieces [][]byte
		for i := range n {
			pieces = append(pieces, bytes.Repeat([]byte{byte(10*n + i)}, limit/n))
		}
		want := bytes.Join(pieces, nil)
		b.recv(t, 4, 0, 4096)
		a.send(t, uverbs.SendWR{ID: 3, Opcode: uverbs.OpSend, Flags: uverbs.SendInline | uverbs.SendSignaled, Inline: pieces})
		for _, p := range pieces {
			clear(p)
		}
		a.ok(t, 3, uverbs.WCSend)
		if wc := b.ok(t, 4, uverbs.WCRecv); int(wc.ByteLen) != len(want) || !bytes.Equal(b.mr.Bytes()[:len(want)], want) {
			t.Errorf("%d pieces: received %d bytes, want %d, joined", n, wc.ByteLen, len(want))
		}
	}
	for _, over := range [][][]byte{
		{make([]byte, limit+1)}, {make([]byte, limit), {1}}, {make([]byte, limit/2), make([]byte, limit-limit/2+1)},
		{nil, make([]byte, limit), nil, {1}},
	} {
		n, err := a.qp.PostSend([]uverbs.SendWR{{Opcode: uverbs.OpSend, Flags: uverbs.SendInline, Inline: over}})
		if n != 0 || !errors.Is(err, uverbs.ErrInvalid) {
			t.Errorf("more than the limit: posted %d, %v; want ErrInvalid", n, err)
		}
	}
	works(t, a, b)
}

// rw36ImmediateByBit: immediate data is there if the bit says so, whatever other bits are,
// also when it is 0.
func (u *Suite) rw36ImmediateByBit(t *testing.T) {
	u.needs(t, immediate)
	a, b := u.pair(t, 4096)
	for _, op := range []uverbs.Opcode{uverbs.OpSend, uverbs.OpSendImm, uverbs.OpRDMAWriteImm} {
		for _, imm := range []uint32{0x01020304, 0} {
			b.recv(t, 1, 0, 8)
			a.send(t, uverbs.SendWR{ID: 2, Opcode: op, Flags: uverbs.SendSignaled, Imm: imm})
			if wc := a.next(t); wc.Err() != nil || wc.ID != 2 {
				t.Fatalf("completion %+v", wc)
			}
			wc := b.next(t)
			testutil.Must(t, wc.Err())
			switch {
			case wc.HasImm() != op.HasImm():
				t.Errorf("%v: HasImm is %v", op, wc.HasImm())
			case wc.HasImm() && wc.Imm != imm:
				t.Errorf("%v: immediate is %#x, want %#x", op, wc.Imm, imm)
			case wc.HasInv():
				t.Errorf("%v: HasInv is true", op)
			}
		}
	}
}

// errorCompletions: a wrong key fails at the requester, and what follows is flushed, what
// is posted then, too.
func (u *Suite) errorCompletions(t *testing.T) {
	a, b := u.pair(t, 4096)
	a.recv(t, 11, 0, 64)
	// On iWARP a write is complete when it has left: there the failure is of a read.
	bad := uverbs.SendWR{ID: 1, Opcode: uverbs.OpRDMARead, SGL: []uverbs.SGE{a.mr.SGE(0, 8)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey() + 1}
	wrs, count := []uverbs.SendWR{bad}, 2
	if u.byHand(t) {
		wrs[0].Opcode = uverbs.OpRDMAWrite
		wrs, count = append(wrs, uverbs.SendWR{ID: 2, Opcode: uverbs.OpSend}), 3
	}
	_, err := a.qp.PostSend(wrs)
	testutil.Must(t, err)
	for id, status := range a.statuses(t, count) {
		switch {
		case id == 1 && u.byHand(t) && u.has(t, tellsErrors) && status != uverbs.WCRemoteAccessError, status == uverbs.WCSuccess,
			id != 1 && status != uverbs.WCFlushError:
			t.Errorf("request %d: %v", id, status)
		}
	}
	attr, err := a.qp.Query(uverbs.QPAttrState)
	testutil.Must(t, err)
	if attr.State != uverbs.StateError {
		t.Errorf("state is %v, want ERR", attr.State)
	}
	a.recv(t, 21, 0, 64)
	a.send(t, uverbs.SendWR{ID: 22, Opcode: uverbs.OpSend})
	if got := a.statuses(t, 2); got[21] != uverbs.WCFlushError || got[22] != uverbs.WCFlushError {
		t.Errorf("posted in error: completions %v, want two flushes", got)
	}
}

// statuses are those of the next n completions, by work request.
func (h *host) statuses(t *testing.T, n int) map[uint64]uverbs.WCStatus {
	t.Helper()
	got := map[uint64]uverbs.WCStatus{}
	for range n {
		wc := h.next(t)
		if _, twice := got[wc.ID]; twice {
			t.Fatalf("request %d completed twice", wc.ID)
		}
		got[wc.ID] = wc.Status
	}
	return got
}

// ownPeer: a queue pair may be connected to itself. When it fails each request ends once.
func (u *Suite) ownPeer(t *testing.T) {
	u.needs(t, byHand)
	a := u.newHost(t, 4096).make(t, shape{})
	a.connect(t, a)
	a.recv(t, 1, 0, 64)
	a.send(t, uverbs.SendWR{ID: 2, Opcode: uverbs.OpSend, Flags: uverbs.SendSignaled, SGL: []uverbs.SGE{a.mr.SGE(64, 8)}})
	for id, status := range a.statuses(t, 2) {
		if status != uverbs.WCSuccess {
			t.Errorf("request %d: %v", id, status)
		}
	}
	a.recv(t, 3, 0, 64)
	_, err := a.qp.PostSend([]uverbs.SendWR{
		{ID: 4, Opcode: uverbs.OpRDMAWrite, SGL: []uverbs.SGE{a.mr.SGE(0, 8)}, RemoteAddr: a.mr.Addr(), RKey: a.mr.RKey() + 1},
		{ID: 5, Opcode: uverbs.OpSend},
	})
	testutil.Must(t, err)
	for id, status := range a.statuses(t, 3) {
		if status == uverbs.WCSuccess {
			t.Errorf("request %d succeeded", id)
		}
	}
	moment()
	a.quiet(t)
}

// tooLongForReceive: a message that does not fit fails at both ends.
func (u *Suite) tooLongForReceive(t *testing.T) {
	a, b := u.pair(t, 4096)
	b.recv(t, 1, 0, 64)
	a.send(t, uverbs.SendWR{ID: 2, Opcode: uverbs.OpSend, Flags: uverbs.SendSignaled, SGL: []uverbs.SGE{a.mr.SGE(0, 128)}})
	if wc := b.next(t); wc.ID != 1 || wc.Status == uverbs.WCSuccess {
		t.Errorf("the receive: %+v, want a failure", wc)
	}
	if !u.byHand(t) {
		return // the sender of an iWARP message hears of the end of the connection only
	}
	if wc := a.next(t); wc.ID != 2 || wc.Status == uverbs.WCSuccess {
		t.Errorf("the send: %+v, want a failure", wc)
	}
}
