//go:build linux

package verbstest

import (
	"bytes"
	"errors"
	"net"
	"testing"

	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/uverbs"
)

// builder: a batch of every plain operation does what PostSend of the same requests does.
func (u *Suite) builder(t *testing.T) {
	a, b := u.pair(t, 8192)
	testutil.Fill(a.mr.Bytes(), 1)
	testutil.Fill(b.mr.Bytes()[4096:], 2)
	recvs := 2
	bd := a.qp.StartSend()
	bd.Send(0, uverbs.SendSignaled).SGE(a.mr.SGE(0, 100))
	bd.Write(1, uverbs.SendSignaled, b.mr.Addr(), b.mr.RKey()).SGL([]uverbs.SGE{a.mr.SGE(0, 500), a.mr.SGE(500, 500)})
	bd.Send(2, uverbs.SendSignaled).Inline([]byte("inline"))
	bd.Read(3, uverbs.SendSignaled, b.mr.Addr()+4096, b.mr.RKey()).SGE(a.mr.SGE(4096, 1000))
	ids := []uint64{0, 1, 2, 3}
	if u.has(t, immediate) {
		bd.SendImm(4, uverbs.SendSignaled, 0x04030201).SGE(a.mr.SGE(0, 8))
		bd.WriteImm(5, uverbs.SendSignaled, b.mr.Addr()+2000, b.mr.RKey(), 99).SGE(a.mr.SGE(0, 8))
		ids, recvs = append(ids, 4, 5), 4
	}
	for i := range recvs {
		b.recv(t, uint64(i), 3000+100*i, 100)
	}
	n, err := bd.Complete()
	if n != len(ids) || err != nil {
		t.Fatalf("built %d, %v; want %d", n, err, len(ids))
	}
	for _, id := range ids {
		wc := a.next(t)
		if wc.Err() != nil || wc.ID != id {
			t.Fatalf("completion %+v, want id %d", wc, id)
		}
	}
	first := b.ok(t, 0, uverbs.WCRecv)
	second := b.ok(t, 1, uverbs.WCRecv)
	if first.ByteLen != 100 || !bytes.Equal(b.mr.Bytes()[3000:3100], a.mr.Bytes()[:100]) {
		t.Errorf("the send arrived as %d bytes", first.ByteLen)
	}
	if got := string(b.mr.Bytes()[3100:][:second.ByteLen]); got != "inline" {
		t.Errorf("the inline send arrived as %q", got)
	}
	if !bytes.Equal(b.mr.Bytes()[:1000], a.mr.Bytes()[:1000]) || !bytes.Equal(b.mr.Bytes()[4096:5096], a.mr.Bytes()[4096:5096]) {
		t.Error("the write or the read went wrong")
	}
	if u.has(t, immediate) {
		if wc := b.ok(t, 2, uverbs.WCRecv); !wc.HasImm() || wc.Imm != 0x04030201 {
			t.Errorf("the send with immediate arrived as %+v", wc)
		}
		if wc := b.ok(t, 3, uverbs.WCRecvWriteImm); !wc.HasImm() || wc.Imm != 99 {
			t.Errorf("the write with immediate arrived as %+v", wc)
		}
	}
}

// builderAllOrNothing: a mistake, a full queue or Abort leaves nothing of the batch.
func (u *Suite) builderAllOrNothing(t *testing.T) {
	a, b := u.pair(t, 4096)
	addr, key, limit := b.mr.Addr(), b.mr.RKey(), int(a.qp.Cap().MaxInline)
	for what, build := range map[string]func(*uverbs.SendBuilder){
		"a piece outside":    func(bd *uverbs.SendBuilder) { bd.Send(1, 0).SGE(a.mr.SGE(4096, 1)) },
		"too much inline":    func(bd *uverbs.SendBuilder) { bd.Send(1, 0).Inline(make([]byte, limit+1)) },
		"too much room":      func(bd *uverbs.SendBuilder) { bd.Send(1, 0).InlineRoom(limit + 1) },
		"less than no room":  func(bd *uverbs.SendBuilder) { bd.Send(1, 0).InlineRoom(-1) },
		"an unknown flag":    func(bd *uverbs.SendBuilder) { bd.Send(1, 1<<12) },
		"too many pieces":    func(bd *uverbs.SendBuilder) { bd.Send(1, 0).SGL(make([]uverbs.SGE, 100)) },
		"inline of a read":   func(bd *uverbs.SendBuilder) { bd.Read(1, 0, addr, key).Inline([]byte{1}) },
		"mistake, then good": func(bd *uverbs.SendBuilder) { bd.Send(1, 1<<12); bd.Send(2, uverbs.SendSignaled) },
		"atomic of 4 bytes":  func(bd *uverbs.SendBuilder) { bd.FetchAdd(1, 0, addr, key, 1).SGE(a.mr.SGE(0, 4)) },
		"a bind of nothing":  func(bd *uverbs.SendBuilder) { bd.BindMW(1, 0, nil) },
		"more than fits": func(bd *uverbs.SendBuilder) {
			for range 1000 {
				bd.Write(1, uverbs.SendSignaled, addr, key).SGE(a.mr.SGE(0, 8))
			}
		},
	} {
		bd := a.qp.StartSend()
		bd.Write(7, uverbs.SendSignaled, addr, key).SGE(a.mr.SGE(0, 8))
		build(bd)
		if n, err := bd.Complete(); n != 0 || err == nil || what == "more than fits" && !errors.Is(err, uverbs.ErrQueueFull) {
			t.Errorf("%s: posted %d, %v; want nothing and an error", what, n, err)
		}
		a.quiet(t)
	}
	bd := a.qp.StartSend()
	bd.Write(7, uverbs.SendSignaled, addr, key).SGE(a.mr.SGE(0, 8))
	bd.Abort()
	bd = a.qp.StartSend()
	if room := bd.InlineRoom(8); len(room) != 8 {
		t.Errorf("room for no request is %d bytes", len(room))
	}
	if n, _ := bd.Complete(); n != 0 {
		t.Errorf("room for no request: posted %d", n)
	}
	if n, err := a.qp.StartSend().Complete(); n != 0 || err != nil {
		t.Errorf("nothing built: posted %d, %v", n, err)
	}
	works(t, a, b)
	a.quiet(t)
}

// builderInlineRoom: data that is written straight into the queue arrives.
func (u *Suite) builderInlineRoom(t *testing.T) {
	a, b := u.pair(t, 4096)
	limit := int(a.qp.Cap().MaxInline)
	sizes := []int{0, 1, 7, limit / 2, limit}
	for i := range sizes {
		b.recv(t, uint64(i), 200*i, 200)
	}
	bd := a.qp.StartSend()
	for i, n := range sizes {
		room := bd.Send(uint64(i), uverbs.SendSignaled).InlineRoom(n)
		if len(room) != n {
			t.Fatalf("room for %d bytes, asked for %d", len(room), n)
		}
		for j := range room {
			room[j] = byte(10*i + j)
		}
	}
	if n, err := bd.Complete(); n != len(sizes) || err != nil {
		t.Fatalf("posted %d, %v", n, err)
	}
	for i, n := range sizes {
		a.ok(t, uint64(i), uverbs.WCSend)
		wc := b.ok(t, uint64(i), uverbs.WCRecv)
		if int(wc.ByteLen) != n {
			t.Errorf("message %d has %d bytes, want %d", i, wc.ByteLen, n)
		}
		for j := range n {
			if got := b.mr.Bytes()[200*i+j]; got != byte(10*i+j) {
				t.Fatalf("byte %d of message %d is %d", j, i, got)
			}
		}
	}
}

// builderSpecials: the operations that not every device has.
func (u *Suite) builderSpecials(t *testing.T) {
	a, b := u.pair(t, 4096)
	check := func(what string, op uverbs.WCOpcode, build func(*uverbs.SendBuilder)) {
		t.Helper()
		bd := a.qp.StartSend()
		build(bd)
		if n, err := bd.Complete(); n != 1 || err != nil {
			t.Fatalf("%s: posted %d, %v", what, n, err)
		}
		a.ok(t, 5, op)
	}
	addr, key := b.mr.Addr(), b.mr.RKey()
	if u.has(t, atomics) {
		setWord(b.mr.Bytes(), 10)
		check("fetch and add", uverbs.WCFetchAdd, func(bd *uverbs.SendBuilder) {
			bd.FetchAdd(5, uverbs.SendSignaled, addr, key, 5).SGE(a.mr.SGE(0, 8))
		})
		check("compare and swap", uverbs.WCCompareSwap, func(bd *uverbs.SendBuilder) {
			bd.CompareSwap(5, uverbs.SendSignaled, addr, key, 15, 77).SGE(a.mr.SGE(8, 8))
		})
		if word(a.mr.Bytes()) != 10 || word(a.mr.Bytes()[8:]) != 15 || word(b.mr.Bytes()) != 77 {
			t.Errorf("atomics: %d, %d, %d; want 10, 15, 77", word(a.mr.Bytes()), word(a.mr.Bytes()[8:]), word(b.mr.Bytes()))
		}
	}
	if u.has(t, atomicWrite) {
		check("atomic write inline", uverbs.WCAtomicWrite, func(bd *uverbs.SendBuilder) {
			bd.AtomicWrite(5, uverbs.SendSignaled, addr, key).Inline(a.mr.Bytes()[:8])
		})
		check("atomic write in the room", uverbs.WCAtomicWrite, func(bd *uverbs.SendBuilder) {
			setWord(bd.AtomicWrite(5, uverbs.SendSignaled, addr, key).InlineRoom(8), 1234)
		})
		if word(b.mr.Bytes()) != 1234 {
			t.Errorf("atomic write: %d, want 1234", word(b.mr.Bytes()))
		}
	}
	if u.has(t, flushing) {
		mr := b.region(t, 4096, fullAccess|uverbs.AccessFlushGlobal)
		check("flush", uverbs.WCFlush, func(bd *uverbs.SendBuilder) {
			bd.Flush(5, uverbs.SendSignaled, mr.Addr(), mr.RKey(), 100, uverbs.FlushGlobal, uverbs.FlushSpan)
		})
	}
	if u.has(t, windows) {
		w := a.window(t, uverbs.MWType2)
		bind, err := w.Prepare(a.mr, 0, 64, uverbs.IncRKey(w.RKey()), uverbs.AccessRemoteRead)
		testutil.Must(t, err)
		check("bind", uverbs.WCBindMW, func(bd *uverbs.SendBuilder) { bd.BindMW(5, uverbs.SendSignaled, &bind) })
		check("local invalidate", uverbs.WCLocalInv, func(bd *uverbs.SendBuilder) {
			bd.LocalInvalidate(5, uverbs.SendSignaled, w.RKey())
		})
		far := b.window(t, uverbs.MWType2)
		b.bind(t, far, 0, 64)
		b.recv(t, 6, 0, 64)
		check("send with invalidate", uverbs.WCSend, func(bd *uverbs.SendBuilder) {
			bd.SendInvalidate(5, uverbs.SendSignaled, far.RKey())
		})
		if wc := b.ok(t, 6, uverbs.WCRecv); !wc.HasInv() || wc.InvKey != far.RKey() {
			t.Errorf("send with invalidate arrived as %+v", wc)
		}
	}
}

// builderDatagrams: each request of a batch may go somewhere else.
func (u *Suite) builderDatagrams(t *testing.T) {
	u.needs(t, datagrams)
	ha := u.newHost(t, 4096)
	a, b := u.link(t, ha, u.newHost(t, 4096), shape{Type: uverbs.QPTypeUD}, shape{Type: uverbs.QPTypeUD})
	c := u.newHost(t, 4096).make(t, shape{Type: uverbs.QPTypeUD})
	c.toDatagrams(t, qkey)
	ah := a.handle(t, a.way(t, b.host))
	bd := a.qp.StartSend()
	for i, to := range []*side{b, c} {
		to.recv(t, 1, 0, 256)
		bd.Send(uint64(i), uverbs.SendSignaled).Inline([]byte{byte(40 + i)}).To(ah.Dest(to.qp.Num(), qkey))
	}
	if n, err := bd.Complete(); n != 2 || err != nil {
		t.Fatalf("posted %d, %v", n, err)
	}
	for i, to := range []*side{b, c} {
		a.ok(t, uint64(i), uverbs.WCSend)
		to.ok(t, 1, uverbs.WCRecv)
		if got := to.mr.Bytes()[uverbs.GRHSize]; got != byte(40+i) {
			t.Errorf("queue pair %d received %d, want %d", i, got, 40+i)
		}
	}
	bd = a.qp.StartSend()
	bd.Send(1, 0)
	if n, err := bd.Complete(); n != 0 || !errors.Is(err, uverbs.ErrInvalid) {
		t.Errorf("without a destination: posted %d, %v; want ErrInvalid", n, err)
	}
}

// builderAfterClose: an error, and the lock is free.
func (u *Suite) builderAfterClose(t *testing.T) {
	a, b := u.pair(t, 4096)
	testutil.Must(t, a.qp.Close())
	for range 2 {
		bd := a.qp.StartSend()
		bd.Write(1, 0, b.mr.Addr(), b.mr.RKey()).SGE(a.mr.SGE(0, 8))
		if n, err := bd.Complete(); n != 0 || !errors.Is(err, net.ErrClosed) {
			t.Errorf("posted %d, %v; want net.ErrClosed", n, err)
		}
		bd = a.qp.StartSend()
		bd.Send(1, 0).InlineRoom(8)
		bd.Abort()
	}
	// What is built in error is flushed, as what is posted.
	testutil.Must(t, b.qp.Modify(&uverbs.QPAttr{State: uverbs.StateError}, uverbs.QPAttrState))
	bd := b.qp.StartSend()
	bd.Send(33, 0)
	if n, err := bd.Complete(); n != 1 || err != nil {
		t.Errorf("in error: posted %d, %v; want 1", n, err)
	}
	for {
		if wc := b.next(t); wc.ID == 33 {
			if wc.Status != uverbs.WCFlushError {
				t.Errorf("in error: %+v, want a flush", wc)
			}
			return
		}
	}
}
