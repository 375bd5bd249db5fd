//go:build linux

package verbstest

import (
	"bytes"
	"testing"

	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/uverbs"
)

// rcOperations walks every operation of a reliable connection once and compares bytes.
func (u *Suite) rcOperations(t *testing.T) {
	testutil.NoLeaks(t)
	const size = 1 << 16
	a, b := u.newPair(t, size)
	peer := func(wr uverbs.SendWR) uverbs.SendWR {
		wr.RemoteAddr, wr.RKey = b.mr.Addr(), b.mr.RKey()
		return wr
	}
	whole := func(s *side) []uverbs.SGE { return []uverbs.SGE{s.mr.SGE(0, size)} }
	pieces := []uverbs.SGE{a.mr.SGE(0, 1000), a.mr.SGE(1000, 0), a.mr.SGE(1000, 5000), a.mr.SGE(6000, size-6000)}
	tests := []struct {
		name string
		wr   uverbs.SendWR
		recv bool
		op   uverbs.WCOpcode // on a
		imm  bool
		back bool // b to a
	}{
		{"send", uverbs.SendWR{Opcode: uverbs.OpSend, SGL: whole(a)}, true, uverbs.WCSend, false, false},
		{"send in pieces", uverbs.SendWR{Opcode: uverbs.OpSend, SGL: pieces}, true, uverbs.WCSend, false, false},
		{"send with immediate", uverbs.SendWR{Opcode: uverbs.OpSendImm, SGL: whole(a), Imm: 0x01020304}, true, uverbs.WCSend, true, false},
		{"write", peer(uverbs.SendWR{Opcode: uverbs.OpRDMAWrite, SGL: whole(a)}), false, uverbs.WCRDMAWrite, false, false},
		{"write with immediate", peer(uverbs.SendWR{Opcode: uverbs.OpRDMAWriteImm, SGL: whole(a), Imm: 0}), true, uverbs.WCRDMAWrite, true, false},
		{"read", peer(uverbs.SendWR{Opcode: uverbs.OpRDMARead, SGL: whole(a)}), false, uverbs.WCRDMARead, false, true},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			testutil.Fill(a.mr.Bytes(), uint64(2*i))
			testutil.Fill(b.mr.Bytes(), uint64(2*i+1))
			if tt.recv {
				_, err := b.qp.PostRecv([]uverbs.RecvWR{{ID: 7, SGL: whole(b)}})
				testutil.Must(t, err)
			}
			tt.wr.ID, tt.wr.Flags = uint64(i), uverbs.SendSignaled
			_, err := a.qp.PostSend([]uverbs.SendWR{tt.wr})
			testutil.Must(t, err)
			a.ok(t, uint64(i), tt.op)
			if tt.recv {
				wc := b.next(t)
				testutil.Must(t, wc.Err())
				if wc.ByteLen != size || wc.HasImm() != tt.imm || wc.Imm != tt.wr.Imm {
					t.Errorf("got receive %+v, want %d bytes, immediate %v %#x", wc, size, tt.imm, tt.wr.Imm)
				}
			}
			if !bytes.Equal(a.mr.Bytes(), b.mr.Bytes()) {
				t.Error("the memories differ")
			}
		})
	}
}

// rw18NoPieces: nothing to send is a message of length 0.
func (u *Suite) rw18NoPieces(t *testing.T) {
	testutil.NoLeaks(t)
	a, b := u.newPair(t, 4096)
	for i, wr := range []uverbs.SendWR{
		{Opcode: uverbs.OpSend},
		{Opcode: uverbs.OpSend, SGL: []uverbs.SGE{}},
		{Opcode: uverbs.OpSend, SGL: []uverbs.SGE{a.mr.SGE(4096, 0)}},
		{Opcode: uverbs.OpSend, Flags: uverbs.SendInline},
		{Opcode: uverbs.OpSend, Flags: uverbs.SendInline, Inline: [][]byte{nil, {}}},
		{Opcode: uverbs.OpRDMAWriteImm, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(), Imm: 5},
	} {
		_, err := b.qp.PostRecv([]uverbs.RecvWR{{ID: 9}})
		testutil.Must(t, err)
		wr.ID, wr.Flags = uint64(i), wr.Flags|uverbs.SendSignaled
		_, err = a.qp.PostSend([]uverbs.SendWR{wr})
		testutil.Must(t, err)
		testutil.Must(t, func() error { wc := a.next(t); return wc.Err() }())
		wc := b.next(t)
		testutil.Must(t, wc.Err())
		if wc.ByteLen != 0 {
			t.Errorf("request %d: received %d bytes, want 0", i, wc.ByteLen)
		}
	}
	_, err := a.qp.PostSend([]uverbs.SendWR{
		{ID: 1, Opcode: uverbs.OpRDMAWrite, Flags: uverbs.SendSignaled},
		{ID: 2, Opcode: uverbs.OpRDMARead, Flags: uverbs.SendSignaled},
	})
	testutil.Must(t, err)
	a.ok(t, 1, uverbs.WCRDMAWrite)
	a.ok(t, 2, uverbs.WCRDMARead)
}

// rw23InlinePieces: the sum counts, and sources may change right after the post.
func (u *Suite) rw23InlinePieces(t *testing.T) {
	testutil.NoLeaks(t)
	a, b := u.newPair(t, 4096)
	limit := int(a.qp.Cap().MaxInline)
	two := [][]byte{bytes.Repeat([]byte{1}, limit/2), bytes.Repeat([]byte{2}, limit-limit/2)}
	want := bytes.Join(two, nil)
	_, err := b.qp.PostRecv([]uverbs.RecvWR{{SGL: []uverbs.SGE{b.mr.SGE(0, 4096)}}})
	testutil.Must(t, err)
	_, err = a.qp.PostSend([]uverbs.SendWR{{ID: 3, Opcode: uverbs.OpSend, Flags: uverbs.SendInline | uverbs.SendSignaled, Inline: two}})
	testutil.Must(t, err)
	clear(two[0])
	clear(two[1])
	a.ok(t, 3, uverbs.WCSend)
	if wc := b.next(t); int(wc.ByteLen) != limit || !bytes.Equal(b.mr.Bytes()[:limit], want) {
		t.Errorf("received %+v, want %d bytes, the two pieces joined", wc, limit)
	}
	over := [][]byte{make([]byte, limit), {1}}
	if n, err := a.qp.PostSend([]uverbs.SendWR{{Opcode: uverbs.OpSend, Flags: uverbs.SendInline, Inline: over}}); n != 0 || err == nil {
		t.Errorf("one byte more than the limit was posted: %d, %v", n, err)
	}
}
