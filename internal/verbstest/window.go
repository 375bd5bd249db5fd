//go:build linux

package verbstest

import (
	"errors"
	"testing"

	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/uverbs"
)

func (u *Suite) windowTests() []test {
	return []test{
		{"WindowType1", u.windowType1},
		{"WindowType2", u.windowType2},
		{"WindowLocalInvalidate", u.windowLocalInvalidate},
		{"WindowRemoteInvalidate", u.windowRemoteInvalidate},
		{"WindowBounds", u.windowBounds},
		{"WindowMistakes", u.windowMistakes},
		{"WindowHoldsRegion", u.windowHoldsRegion},
		{"RemoteInvalidateOfRegion", u.remoteInvalidateOfRegion},
	}
}

func (h *host) window(t testing.TB, typ uverbs.MWType) *uverbs.MW {
	t.Helper()
	w, err := h.pd.AllocMW(typ)
	testutil.Must(t, err)
	t.Cleanup(func() { closeAll(t, w) })
	if w.Type() != typ {
		t.Errorf("type is %v, want %v", w.Type(), typ)
	}
	return w
}

// bind binds a window of type 2 to the first n bytes at off.
func (s *side) bind(t testing.TB, w *uverbs.MW, off, n int) {
	t.Helper()
	b, err := w.Prepare(s.mr, off, n, uverbs.IncRKey(w.RKey()), uverbs.AccessRemoteWrite|uverbs.AccessRemoteRead)
	testutil.Must(t, err)
	s.send(t, uverbs.SendWR{ID: 50, Opcode: uverbs.OpBindMW, Flags: uverbs.SendSignaled, Bind: &b})
	s.ok(t, 50, uverbs.WCBindMW)
}

// write writes 8 bytes into the peer's memory by a key, and returns how that ended.
func (s *side) write(t testing.TB, peer *side, off int, key uint32) uverbs.WCStatus {
	t.Helper()
	s.send(t, uverbs.SendWR{
		ID: 60, Opcode: uverbs.OpRDMAWrite, Flags: uverbs.SendSignaled, SGL: []uverbs.SGE{s.mr.SGE(0, 8)},
		RemoteAddr: peer.mr.Addr() + uint64(off), RKey: key,
	})
	wc := s.next(t)
	if wc.ID != 60 {
		t.Fatalf("got completion %+v, want the write's", wc)
	}
	return wc.Status
}

// windowType1: the library chooses the key; with each bind the old one goes.
func (u *Suite) windowType1(t *testing.T) {
	u.needs(t, windows)
	a, b := u.pair(t, 4096)
	w := b.window(t, uverbs.MWType1)
	testutil.Fill(a.mr.Bytes(), 1)
	for round := range 3 {
		old := w.RKey()
		off := 1000 * (round + 1)
		testutil.Must(t, w.Bind(b.qp, 50, uverbs.SendSignaled, b.mr, off, 64, uverbs.AccessRemoteWrite))
		b.ok(t, 50, uverbs.WCBindMW)
		if w.RKey() == old {
			t.Errorf("round %d: the key did not change", round)
		}
		if s := a.write(t, b, off, w.RKey()); s != uverbs.WCSuccess {
			t.Fatalf("round %d: write through the window: %v", round, s)
		}
		if string(b.mr.Bytes()[off:off+8]) != string(a.mr.Bytes()[:8]) {
			t.Errorf("round %d: the bytes did not arrive", round)
		}
	}
	stale := w.RKey()
	testutil.Must(t, w.Bind(b.qp, 50, uverbs.SendSignaled, nil, 0, 0, 0))
	b.ok(t, 50, uverbs.WCBindMW)
	if s := a.write(t, b, 3000, stale); s != uverbs.WCRemoteAccessError {
		t.Errorf("write by the key of a window that was taken away: %v, want a remote access error", s)
	}
}

// windowType2: the program chooses the key, and the window is good for the queue pair that
// bound it.
func (u *Suite) windowType2(t *testing.T) {
	u.needs(t, windows)
	hb := u.newHost(t, 4096)
	ha := u.newHost(t, 4096)
	a, b := u.link(t, ha, hb, shape{}, shape{})
	a2, b2 := u.link(t, ha, hb, shape{}, shape{})
	w := b.window(t, uverbs.MWType2)
	b.bind(t, w, 512, 64)
	if s := a.write(t, b, 512, w.RKey()); s != uverbs.WCSuccess {
		t.Fatalf("write through the window: %v", s)
	}
	a.send(t, uverbs.SendWR{
		ID: 61, Opcode: uverbs.OpRDMARead, Flags: uverbs.SendSignaled, SGL: []uverbs.SGE{a.mr.SGE(100, 8)},
		RemoteAddr: b.mr.Addr() + 512, RKey: w.RKey(),
	})
	a.ok(t, 61, uverbs.WCRDMARead)
	if string(a.mr.Bytes()[100:108]) != string(b.mr.Bytes()[512:520]) {
		t.Error("the bytes read through the window differ")
	}
	if s := a2.write(t, b2, 512, w.RKey()); s != uverbs.WCRemoteAccessError {
		t.Errorf("write by another connection: %v, want a remote access error", s)
	}
}

// windowLocalInvalidate: the owner takes the key away.
func (u *Suite) windowLocalInvalidate(t *testing.T) {
	u.needs(t, windows)
	a, b := u.pair(t, 4096)
	w := b.window(t, uverbs.MWType2)
	for range 3 {
		b.bind(t, w, 0, 64)
		if s := a.write(t, b, 0, w.RKey()); s != uverbs.WCSuccess {
			t.Fatalf("write through the window: %v", s)
		}
		b.send(t, uverbs.SendWR{ID: 51, Opcode: uverbs.OpLocalInvalidate, Flags: uverbs.SendSignaled, InvKey: w.RKey()})
		b.ok(t, 51, uverbs.WCLocalInv)
	}
	if s := a.write(t, b, 0, w.RKey()); s != uverbs.WCRemoteAccessError {
		t.Errorf("write by the key that was taken away: %v, want a remote access error", s)
	}
}

// windowRemoteInvalidate: the peer gives the key back with its message.
func (u *Suite) windowRemoteInvalidate(t *testing.T) {
	u.needs(t, windows)
	a, b := u.pair(t, 4096)
	w := b.window(t, uverbs.MWType2)
	for range 3 {
		b.bind(t, w, 128, 64)
		if s := a.write(t, b, 128, w.RKey()); s != uverbs.WCSuccess {
			t.Fatalf("write through the window: %v", s)
		}
		b.recv(t, 52, 1000, 64)
		a.send(t, uverbs.SendWR{
			ID: 53, Opcode: uverbs.OpSendInvalidate, Flags: uverbs.SendSignaled | uverbs.SendInline,
			Inline: [][]byte{{7}}, InvKey: w.RKey(),
		})
		a.ok(t, 53, uverbs.WCSend)
		if wc := b.ok(t, 52, uverbs.WCRecv); !wc.HasInv() || wc.InvKey != w.RKey() || wc.HasImm() || wc.ByteLen != 1 {
			t.Errorf("received %+v, want the key %#x taken away", wc, w.RKey())
		}
	}
	if s := a.write(t, b, 128, w.RKey()); s != uverbs.WCRemoteAccessError {
		t.Errorf("write by the key that was given back: %v, want a remote access error", s)
	}
}

// windowBounds: beyond its access, or its region, a window opens nothing. (rxe of all
// kernels lets a peer reach the whole region through a window, whatever its length.)
func (u *Suite) windowBounds(t *testing.T) {
	u.needs(t, windows)
	for _, off := range []int{4096, 4090, -8, 1 << 20} {
		a, b := u.pair(t, 4096)
		w := b.window(t, uverbs.MWType2)
		b.bind(t, w, 512, 64)
		if s := a.write(t, b, off, w.RKey()); s != uverbs.WCRemoteAccessError {
			t.Errorf("write at %d of a region of 4096 bytes: %v, want a remote access error", off, s)
		}
	}
	a, b := u.pair(t, 4096)
	w := b.window(t, uverbs.MWType1)
	testutil.Must(t, w.Bind(b.qp, 50, uverbs.SendSignaled, b.mr, 0, 64, uverbs.AccessRemoteRead))
	b.ok(t, 50, uverbs.WCBindMW)
	if s := a.write(t, b, 0, w.RKey()); s != uverbs.WCRemoteAccessError {
		t.Errorf("write by a window for reading: %v, want a remote access error", s)
	}
}

// windowHoldsRegion: a region stays while a window is bound to it.
func (u *Suite) windowHoldsRegion(t *testing.T) {
	u.needs(t, windows)
	a, b := u.pair(t, 4096)
	for _, typ := range []uverbs.MWType{uverbs.MWType1, uverbs.MWType2} {
		mr, err := b.pd.AllocMR(4096, u.access(t))
		testutil.Must(t, err)
		w, err := b.pd.AllocMW(typ)
		testutil.Must(t, err)
		own := &side{&host{u: u, ctx: b.ctx, pd: b.pd, ch: b.ch, cq: b.cq, mr: mr}, b.qp}
		if typ == uverbs.MWType1 {
			testutil.Must(t, w.Bind(b.qp, 50, uverbs.SendSignaled, mr, 0, 64, uverbs.AccessRemoteWrite))
			b.ok(t, 50, uverbs.WCBindMW)
		} else {
			own.bind(t, w, 0, 64)
		}
		if err := mr.Close(); !errors.Is(err, uverbs.ErrBusy) {
			t.Errorf("type %d: close a region with a window: got %v, want ErrBusy", typ, err)
		}
		if s := a.write(t, own, 0, w.RKey()); s != uverbs.WCSuccess {
			t.Errorf("type %d: write through the window: %v", typ, s)
		}
		closeAll(t, w, mr)
	}
}

// windowMistakes: what cannot work is refused before it is posted.
func (u *Suite) windowMistakes(t *testing.T) {
	u.needs(t, windows)
	a, b := u.pair(t, 4096)
	w1, w2 := b.window(t, uverbs.MWType1), b.window(t, uverbs.MWType2)
	invalid := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, uverbs.ErrInvalid) {
			t.Errorf("%s: got %v, want ErrInvalid", what, err)
		}
	}
	next := uverbs.IncRKey(w2.RKey())
	prepare := func(w *uverbs.MW, mr *uverbs.MR, off, n int, key uint32) error {
		_, err := w.Prepare(mr, off, n, key, uverbs.AccessRemoteRead)
		return err
	}
	invalid("bind type 2 as type 1", w2.Bind(b.qp, 1, 0, b.mr, 0, 8, 0))
	invalid("prepare type 1", prepare(w1, b.mr, 0, 8, uverbs.IncRKey(w1.RKey())))
	invalid("a region of another domain", prepare(w2, a.mr, 0, 8, next))
	invalid("beyond the region", prepare(w2, b.mr, 4090, 8, next))
	invalid("before the region", prepare(w2, b.mr, -1, 8, next))
	invalid("no region", prepare(w2, nil, 0, 8, next))
	invalid("a key of another window", prepare(w2, b.mr, 0, 8, next+1<<8))
	_, err := b.pd.AllocMW(3)
	invalid("a type that is none", err)
	_, err = b.qp.PostSend([]uverbs.SendWR{{Opcode: uverbs.OpBindMW}})
	invalid("a bind of nothing", err)
	if got := uverbs.IncRKey(0xabcdefff); got != 0xabcdef00 {
		t.Errorf("the key after 0xabcdefff is %#x, want 0xabcdef00", got)
	}
	if err := b.pd.Close(); !errors.Is(err, uverbs.ErrBusy) {
		t.Errorf("close a domain with windows: got %v, want ErrBusy", err)
	}
	works(t, a, b)
}

// remoteInvalidateOfRegion: a peer may also give back the key of a region, on drivers that
// let it.
func (u *Suite) remoteInvalidateOfRegion(t *testing.T) {
	u.needs(t, remoteInvalidate)
	if u.has(t, windows) {
		return // rxe has keys of windows for this since it has windows, and refuses those of regions
	}
	a, b := u.pair(t, 4096)
	mr := b.region(t, 4096, fullAccess)
	write := func() uverbs.WCStatus {
		a.send(t, uverbs.SendWR{
			ID: 60, Opcode: uverbs.OpRDMAWrite, Flags: uverbs.SendSignaled, SGL: []uverbs.SGE{a.mr.SGE(0, 8)},
			RemoteAddr: mr.Addr(), RKey: mr.RKey(),
		})
		wc := a.next(t)
		return wc.Status
	}
	if s := write(); s != uverbs.WCSuccess {
		t.Fatalf("write by the region's key: %v", s)
	}
	b.recv(t, 52, 0, 64)
	a.send(t, uverbs.SendWR{ID: 53, Opcode: uverbs.OpSendInvalidate, Flags: uverbs.SendSignaled, InvKey: mr.RKey()})
	a.ok(t, 53, uverbs.WCSend)
	if wc := b.ok(t, 52, uverbs.WCRecv); u.has(t, tellsInvalidate) && (!wc.HasInv() || wc.InvKey != mr.RKey()) {
		t.Errorf("received %+v, want the key %#x taken away", wc, mr.RKey())
	}
	if !u.has(t, invalidatesRegions) {
		return // rxe before it had windows tells the key, and leaves it as it is
	}
	a.send(t, uverbs.SendWR{
		ID: 61, Opcode: uverbs.OpRDMARead, Flags: uverbs.SendSignaled, SGL: []uverbs.SGE{a.mr.SGE(0, 8)},
		RemoteAddr: mr.Addr(), RKey: mr.RKey(),
	})
	if wc := a.next(t); wc.ID != 61 || wc.Status == uverbs.WCSuccess {
		t.Errorf("read by the key that was taken away: %+v, want a failure", wc)
	}
}
