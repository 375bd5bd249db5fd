//go:build linux

package verbstest

import (
	"encoding/binary"
	"errors"
	"sync"
	"testing"

	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/uverbs"
)

func (u *Suite) atomicTests() []test {
	return []test{
		{"Atomics", u.atomics},
		{"AtomicsUnaligned", u.atomicsUnaligned},
		{"AtomicsRefused", u.atomicsRefused},
		{"AtomicsFromMany", u.atomicsFromMany},
		{"AtomicWrite", u.atomicWrite},
		{"Flush", u.flush},
	}
}

func word(b []byte) uint64       { return binary.NativeEndian.Uint64(b) }
func setWord(b []byte, v uint64) { binary.NativeEndian.PutUint64(b, v) }

// atomic does one atomic on the peer's first word and returns the old value.
func (s *side) atomic(t testing.TB, peer *side, wr uverbs.SendWR) uint64 {
	t.Helper()
	wr = s.remote(wr, peer)
	wr.ID, wr.Flags, wr.SGL = 70, uverbs.SendSignaled, []uverbs.SGE{s.mr.SGE(8, 8)}
	s.send(t, wr)
	op := uverbs.WCCompareSwap
	if wr.Opcode == uverbs.OpFetchAdd {
		op = uverbs.WCFetchAdd
	}
	s.ok(t, 70, op)
	return word(s.mr.Bytes()[8:])
}

// atomics: the old value comes back, the new one is there.
func (u *Suite) atomics(t *testing.T) {
	u.needs(t, atomics)
	a, b := u.pair(t, 4096)
	target := b.mr.Bytes()
	for _, tt := range []struct {
		name             string
		was, compare, by uint64 // by is what is added, or swapped in
		op               uverbs.Opcode
		want             uint64
	}{
		{"swap", 5, 5, 1 << 60, uverbs.OpCompareSwap, 1 << 60},
		{"no swap", 6, 5, 99, uverbs.OpCompareSwap, 6},
		{"add", 7, 0, 3, uverbs.OpFetchAdd, 10},
		{"add around", ^uint64(0), 0, 2, uverbs.OpFetchAdd, 1},
	} {
		setWord(target, tt.was)
		wr := uverbs.SendWR{Opcode: tt.op, CompareAdd: tt.compare, Swap: tt.by}
		if tt.op == uverbs.OpFetchAdd {
			wr.CompareAdd, wr.Swap = tt.by, 0
		}
		if old := a.atomic(t, b, wr); old != tt.was {
			t.Errorf("%s: the old value is %d, want %d", tt.name, old, tt.was)
		}
		if got := word(target); got != tt.want {
			t.Errorf("%s: the new value is %d, want %d", tt.name, got, tt.want)
		}
	}
}

// atomicsUnaligned: an address that is no multiple of 8 fails there.
func (u *Suite) atomicsUnaligned(t *testing.T) {
	u.needs(t, atomics)
	for _, off := range []uint64{1, 4} {
		a, b := u.pair(t, 4096)
		n, err := a.qp.PostSend([]uverbs.SendWR{{
			ID: 71, Opcode: uverbs.OpFetchAdd, Flags: uverbs.SendSignaled, SGL: []uverbs.SGE{a.mr.SGE(0, 8)},
			RemoteAddr: b.mr.Addr() + off, RKey: b.mr.RKey(), CompareAdd: 1,
		}})
		if errors.Is(err, uverbs.ErrInvalid) && n == 0 {
			continue // the library may know
		}
		testutil.Must(t, err)
		a.failsThere(t, 71, uverbs.WCRemoteInvalidRequest, uverbs.WCRemoteAccessError)
		if word(b.mr.Bytes()) != 0 {
			t.Errorf("offset %d: the memory changed", off)
		}
	}
}

// atomicsRefused: sizes other than 8 are refused before they are posted, and memory without
// the access flag by the peer.
func (u *Suite) atomicsRefused(t *testing.T) {
	u.needs(t, atomics)
	a, b := u.pair(t, 4096)
	for what, sgl := range map[string][]uverbs.SGE{
		"nothing": nil, "4 bytes": {a.mr.SGE(0, 4)}, "16 bytes": {a.mr.SGE(0, 16)}, "two pieces": {a.mr.SGE(0, 4), a.mr.SGE(4, 4)},
	} {
		for _, op := range []uverbs.Opcode{uverbs.OpCompareSwap, uverbs.OpFetchAdd} {
			n, err := a.qp.PostSend([]uverbs.SendWR{a.remote(uverbs.SendWR{Opcode: op, SGL: sgl}, b)})
			if n != 0 || !errors.Is(err, uverbs.ErrInvalid) {
				t.Errorf("%v of %s: posted %d, %v; want ErrInvalid", op, what, n, err)
			}
		}
	}
	wr := a.remote(uverbs.SendWR{Opcode: uverbs.OpFetchAdd, Flags: uverbs.SendInline, Inline: [][]byte{make([]byte, 8)}}, b)
	if n, err := a.qp.PostSend([]uverbs.SendWR{wr}); n != 0 || !errors.Is(err, uverbs.ErrInvalid) {
		t.Errorf("inline: posted %d, %v; want ErrInvalid", n, err)
	}
	closed := b.region(t, 64, fullAccess)
	a.send(t, uverbs.SendWR{
		ID: 72, Opcode: uverbs.OpFetchAdd, SGL: []uverbs.SGE{a.mr.SGE(0, 8)}, RemoteAddr: closed.Addr(), RKey: closed.RKey(),
	})
	a.failsThere(t, 72, uverbs.WCRemoteAccessError)
}

// atomicsFromMany: additions from several connections are not lost.
func (u *Suite) atomicsFromMany(t *testing.T) {
	u.needs(t, atomics)
	const peers, each = 4, 50
	hb := u.newHost(t, 4096)
	var wg sync.WaitGroup
	var sides []*side
	for range peers {
		a, b := u.link(t, u.newHost(t, 4096), hb, shape{}, shape{})
		_ = b
		sides = append(sides, a)
	}
	target := &side{host: hb}
	for _, a := range sides {
		wg.Go(func() {
			for range each {
				a.atomic(t, target, uverbs.SendWR{Opcode: uverbs.OpFetchAdd, CompareAdd: 1})
			}
		})
	}
	wg.Wait()
	if got := word(hb.mr.Bytes()); got != peers*each {
		t.Errorf("the sum is %d, want %d", got, peers*each)
	}
}

// atomicWrite: 8 bytes, from memory or inline.
func (u *Suite) atomicWrite(t *testing.T) {
	u.needs(t, atomicWrite)
	a, b := u.pair(t, 4096)
	if !a.qp.Supports(uverbs.OpAtomicWrite) {
		t.Error("Supports says no")
	}
	setWord(a.mr.Bytes(), 0x1122334455667788)
	inline := make([]byte, 8)
	setWord(inline, 0x99aabbccddeeff00)
	for _, tt := range []struct {
		wr   uverbs.SendWR
		want uint64
	}{
		{uverbs.SendWR{SGL: []uverbs.SGE{a.mr.SGE(0, 8)}}, 0x1122334455667788},
		{uverbs.SendWR{Flags: uverbs.SendInline, Inline: [][]byte{inline[:3], inline[3:]}}, 0x99aabbccddeeff00},
	} {
		wr := a.remote(tt.wr, b)
		wr.ID, wr.Opcode, wr.Flags = 73, uverbs.OpAtomicWrite, wr.Flags|uverbs.SendSignaled
		n, err := a.qp.PostSend([]uverbs.SendWR{wr})
		if n == 0 && len(wr.SGL) > 0 && errors.Is(err, uverbs.ErrInvalid) {
			continue // a device may take it inline only
		}
		testutil.Must(t, err)
		a.ok(t, 73, uverbs.WCAtomicWrite)
		if got := word(b.mr.Bytes()); got != tt.want {
			t.Errorf("the word is %#x, want %#x", got, tt.want)
		}
	}
	for what, wr := range map[string]uverbs.SendWR{
		"4 bytes": {SGL: []uverbs.SGE{a.mr.SGE(0, 4)}}, "nothing": {}, "12 bytes inline": {Flags: uverbs.SendInline, Inline: [][]byte{inline, inline[:4]}},
	} {
		wr = a.remote(wr, b)
		wr.Opcode = uverbs.OpAtomicWrite
		if n, err := a.qp.PostSend([]uverbs.SendWR{wr}); n != 0 || !errors.Is(err, uverbs.ErrInvalid) {
			t.Errorf("%s: posted %d, %v; want ErrInvalid", what, n, err)
		}
	}
	bad := a.remote(uverbs.SendWR{ID: 74, Opcode: uverbs.OpAtomicWrite, SGL: []uverbs.SGE{a.mr.SGE(0, 8)}}, b)
	bad.RemoteAddr += 4
	if _, err := a.qp.PostSend([]uverbs.SendWR{bad}); err == nil {
		if wc := a.next(t); wc.ID != 74 || wc.Status == uverbs.WCSuccess {
			t.Errorf("unaligned: got %+v, want a failure", wc)
		}
	} else if !errors.Is(err, uverbs.ErrInvalid) {
		t.Errorf("unaligned: %v", err)
	}
}

// flush: a range and a whole region, where the region allows it; and no region that does
// not.
func (u *Suite) flush(t *testing.T) {
	u.needs(t, flushing)
	a, b := u.pair(t, 4096)
	mr := b.region(t, 8192, fullAccess|uverbs.AccessFlushGlobal)
	for _, wr := range []uverbs.SendWR{
		{Flush: uverbs.FlushGlobal, Range: uverbs.FlushSpan, Length: 100},
		{Flush: uverbs.FlushGlobal, Range: uverbs.FlushMR},
	} {
		a.send(t, uverbs.SendWR{Opcode: uverbs.OpRDMAWrite, SGL: []uverbs.SGE{a.mr.SGE(0, 100)}, RemoteAddr: mr.Addr(), RKey: mr.RKey()})
		wr.ID, wr.Opcode, wr.Flags, wr.RemoteAddr, wr.RKey = 75, uverbs.OpFlush, uverbs.SendSignaled, mr.Addr(), mr.RKey()
		a.send(t, wr)
		a.ok(t, 75, uverbs.WCFlush)
	}
	wr := a.remote(uverbs.SendWR{ID: 76, Opcode: uverbs.OpFlush, Flush: uverbs.FlushGlobal, Length: 8}, b)
	wr.SGL = []uverbs.SGE{a.mr.SGE(0, 8)}
	if n, err := a.qp.PostSend([]uverbs.SendWR{wr}); n != 0 || !errors.Is(err, uverbs.ErrInvalid) {
		t.Errorf("with data: posted %d, %v; want ErrInvalid", n, err)
	}
	wr.SGL = nil
	a.send(t, wr) // the region of the host lacks the access flag
	a.failsThere(t, 76, uverbs.WCRemoteAccessError)
}
