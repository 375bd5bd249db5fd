//go:build linux

package fakekernel

import (
	"bytes"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/google/go-cmp/cmp"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
	"github.com/pureverbs/rdma/internal/uapi"
)

// TestSiwOperations: what each operation moves, and the completions at both ends.
func TestSiwOperations(t *testing.T) {
	p := siwConnected(t, Options{})
	a, b := p.a, p.b
	two := []provider.SGE{a.mr.sge(10, 300), a.mr.sge(1000, 3000)}
	for i, tt := range []struct {
		name string
		wr   provider.SendWR
		sent provider.WC
		recv bool
	}{
		{"send", provider.SendWR{Opcode: provider.OpSend, SGL: two}, provider.WC{Opcode: provider.WCSend, ByteLen: 3300}, true},
		{"write", provider.SendWR{Opcode: provider.OpRDMAWrite, SGL: two}, provider.WC{Opcode: provider.WCRDMAWrite, ByteLen: 3300}, false},
		{"read", provider.SendWR{Opcode: provider.OpRDMARead, SGL: two[1:]}, provider.WC{Opcode: provider.WCRDMARead, ByteLen: 3000}, false},
		{"inline", provider.SendWR{Opcode: provider.OpSend, Flags: provider.SendInline, Inline: [][]byte{[]byte("in"), []byte("line")}},
			provider.WC{Opcode: provider.WCSend, ByteLen: 6}, true},
		{"nothing", provider.SendWR{Opcode: provider.OpSend}, provider.WC{Opcode: provider.WCSend}, true},
	} {
		fill(a.mr.mem, byte(i))
		fill(b.mr.mem, byte(100+i))
		if tt.recv {
			b.recv(9, b.mr.sge(100, 1000), b.mr.sge(1100, 3000))
		}
		tt.wr.RemoteAddr, tt.wr.RKey = b.mr.addr(100), b.mr.key
		a.send(tt.wr)
		tt.sent.QPNum = a.num
		if diff := cmp.Diff([]provider.WC{tt.sent}, a.cq.poll()); diff != "" {
			t.Fatalf("%s (-want +got):\n%s", tt.name, diff)
		}
		var recv []provider.WC
		if tt.recv {
			recv = []provider.WC{{ID: 9, Opcode: provider.WCRecv, ByteLen: tt.sent.ByteLen, QPNum: b.num}}
		}
		if diff := cmp.Diff(recv, b.cq.poll()); diff != "" {
			t.Errorf("%s: receive (-want +got):\n%s", tt.name, diff)
		}
		sent := append(append([]byte(nil), a.mr.mem[10:310]...), a.mr.mem[1000:4000]...)
		switch got := b.mr.mem[100:3400]; {
		case tt.name == "inline":
			sent, got = []byte("inline"), got[:6]
			fallthrough
		case tt.sent.ByteLen == 3300:
			if !bytes.Equal(got[:len(sent)], sent) {
				t.Errorf("%s: the bytes differ", tt.name)
			}
		case tt.name == "read":
			if !bytes.Equal(got[:3000], a.mr.mem[1000:4000]) {
				t.Error("read: the bytes differ")
			}
		}
	}
	p.states("after all", stateRTS, stateRTS)
}

// TestSiwInvalidate: the peer's key is gone, for reads as for writes; the receiver is not
// told. One's own goes likewise.
func TestSiwInvalidate(t *testing.T) {
	for _, local := range []bool{false, true} {
		p := siwConnected(t, Options{})
		if local {
			p.b.recv(0)
			p.a.send(provider.SendWR{Opcode: provider.OpSend}) // so that b may speak
			p.b.send(provider.SendWR{ID: 2, Opcode: provider.OpLocalInvalidate, InvKey: p.b.mr.key})
			if wcs := p.b.cq.poll(); len(wcs) != 2 || wcs[1].Opcode != provider.WCLocalInv || wcs[1].Status != provider.WCSuccess {
				t.Errorf("local: %+v", wcs)
			}
		} else {
			p.b.recv(5)
			p.a.send(provider.SendWR{Opcode: provider.OpSendInvalidate, InvKey: p.b.mr.key})
			if wcs := p.b.cq.poll(); len(wcs) != 1 || wcs[0].Flags != 0 || wcs[0].InvKey != 0 || wcs[0].Status != provider.WCSuccess {
				t.Errorf("receive: %+v", wcs)
			}
		}
		p.a.send(provider.SendWR{Opcode: provider.OpRDMAWrite, SGL: []provider.SGE{p.a.mr.sge(0, 1)}, RemoteAddr: p.b.mr.addr(0), RKey: p.b.mr.key})
		p.events("write after it", passiveFirst...)
	}
}

// TestSiwArm: arming is a store, disarming too; and a receive is never solicited.
func TestSiwArm(t *testing.T) {
	p := siwConnected(t, Options{})
	solicit := func(flags provider.SendFlags) {
		p.b.recv(1)
		p.a.send(provider.SendWR{Opcode: provider.OpSend, Flags: flags})
	}
	solicit(0)
	if p.b.cq.event() {
		t.Error("event without arming")
	}
	p.b.cq.q.Arm(false)
	solicit(0)
	solicit(0)
	if !p.b.cq.event() || p.b.cq.event() {
		t.Error("not one event")
	}
	notify := func(q *siwRawCQ) *uint32 {
		c := p.k.devices[0].qps[p.a.num].send.ring.(*siwCQ)
		if q == p.b.cq {
			c = p.k.devices[0].qps[p.b.num].recv.ring.(*siwCQ)
		}
		return &view[abi.SiwCqCtrl](c.mem[int(c.n)*c.size:]).Flags
	}
	if n := *notify(p.b.cq); n != 0 {
		t.Errorf("still armed: %d", n)
	}
	p.b.cq.poll()
	*notify(p.b.cq), *notify(p.a.cq) = abi.SIW_NOTIFY_SOLICITED, abi.SIW_NOTIFY_SOLICITED
	solicit(0)
	if p.a.cq.event() {
		t.Error("the sender had an event without asking for it")
	}
	solicit(provider.SendSolicited)
	if p.b.cq.event() {
		t.Error("a receive was solicited")
	}
	if !p.a.cq.event() {
		t.Error("the send itself was not")
	}
}

func TestSiwFullCQ(t *testing.T) {
	p := siwConnected(t, Options{})
	for range 64 {
		p.b.recv(1)
		p.a.send(provider.SendWR{Opcode: provider.OpSend})
		p.a.cq.poll()
	}
	p.b.d.raised("full")
	p.b.recv(1)
	p.a.send(provider.SendWR{Opcode: provider.OpSend})
	p.b.d.raised("too full", asyncCQError)
	if n := len(p.b.cq.poll()); n != 64 {
		t.Errorf("%d completions", n)
	}
}

// TestSiwSRQ: the limit is reached once, and no flush takes what others share.
func TestSiwSRQ(t *testing.T) {
	k := startSiw(t, Options{})
	d := openSiw(t, k)
	s := d.sharedQueue(8, 0)
	other, err := d.regMR(d.newPD(), everything, 0)
	must(t, err)
	mr := d.mr(everything)
	plain := d.pd
	d.pd = d.newPD() // the pair's domain is not the queue's
	b := d.qpWith(&siwRawQP{d: d, cq: d.cq(64), srq: s, mr: d.mr(everything)}, abi.IbUverbsQpCap{MaxSendWr: 4})
	d.pd = plain
	p := &siwPair{t: t, k: k, cm: openCM(t, k), a: openSiw(t, k).qp(), b: b}
	p.cm.listener(listenUID, siwAddr)
	p.connect()

	want(t, "size", s.modify(srqMaxWR, 0), unix.EOPNOTSUPP)
	want(t, "limit too high", s.modify(srqLimit, 9), unix.EINVAL)
	must(t, s.modify(srqLimit, 2))
	for i := range 5 {
		s.recv(uint64(i), mr.sge(0, 8))
	}
	for i := range 4 {
		p.a.send(provider.SendWR{Opcode: provider.OpSend, SGL: []provider.SGE{p.a.mr.sge(0, 8)}})
		if i == 2 {
			d.raised("two are left")
		}
	}
	d.raised("one is left", asyncSRQLimit)
	var q abi.IbUverbsQuerySrqResp
	must(t, d.invoke(uapi.QuerySRQ, bytesOf(&abi.IbUverbsQuerySrq{SrqHandle: s.handle}), bytesOf(&q)))
	if q.MaxWr != 8 || q.SrqLimit != 2 {
		t.Errorf("query: %+v", q)
	}
	same(t, "received", b.cq.ended(), []ended{{ID: 0}, {ID: 1}, {ID: 2}, {ID: 3}})
	must(t, b.modify(stateError))
	same(t, "flushed", b.cq.ended(), nil)
	_ = other
}

// TestSiwOrder: completions of sends, early, late and in between.
func TestSiwOrder(t *testing.T) {
	for name, opts := range map[string]Options{
		"default": {}, "first": {AckFirst: true}, "late": {AckDelay: 5 * time.Millisecond}, "deferred": {Deferred: true},
	} {
		p := siwConnected(t, opts)
		p.b.recv(1)
		p.a.send(provider.SendWR{ID: 2, Opcode: provider.OpSend})
		var got []ended
		for deadline := time.Now().Add(time.Second); len(got) == 0 && time.Now().Before(deadline); {
			got = p.b.cq.ended()
		}
		same(t, name, got, []ended{{ID: 1}})
		if early := p.a.cq.ended(); name == "late" && len(early) > 0 {
			t.Errorf("late: %v at once", early)
		} else if name == "late" {
			time.Sleep(10 * time.Millisecond)
			same(t, name, p.a.cq.ended(), []ended{{ID: 2}})
			p.b.recv(1)
			p.a.send(provider.SendWR{ID: 2, Opcode: provider.OpSend})
			must(t, p.a.modify(stateError)) // nothing overtakes
			same(t, "flush", p.a.cq.ended(), []ended{{ID: 2}})
			p = siwConnected(t, opts)
			p.a.queue(provider.SendWR{ID: 2, Opcode: provider.OpRDMAWrite})
			p.a.send(provider.SendWR{ID: 3, Opcode: provider.OpLocalInvalidate, InvKey: 0x100})
			same(t, "fault", p.a.cq.ended(), []ended{{ID: 2}, {3, provider.WCLocalQPOperationError}})
		}
	}
}

// TestSiwCut: TCP waits for the cable.
func TestSiwCut(t *testing.T) {
	p := siwConnected(t, Options{MaxRetry: time.Millisecond})
	p.k.Cut(true)
	p.b.recv(1)
	p.a.send(provider.SendWR{ID: 2, Opcode: provider.OpSend})
	p.a.queue(provider.SendWR{ID: 3, Opcode: provider.OpRDMAWrite})
	want(t, "busy", p.a.bell.Ring(), 0)
	time.Sleep(5 * time.Millisecond)
	same(t, "cut", append(p.a.cq.ended(), p.b.cq.ended()...), nil)
	p.k.Cut(false)
	var got []ended
	for deadline := time.Now().Add(time.Second); len(got) < 2 && time.Now().Before(deadline); {
		got = append(got, p.a.cq.ended()...)
	}
	same(t, "mended", got, []ended{{ID: 2}, {ID: 3}})

	// The end of a connection, too, takes its time.
	p.k.Cut(true)
	must(t, p.cm.disconnect(p.ids[0]))
	p.events("cut", bothGone[0])
	p.k.Cut(false)
	p.cm.next(EventDisconnected, passiveUID)
}

// TestSiwError: what is there is flushed, in order, and what comes later stays.
func TestSiwError(t *testing.T) {
	p := siwConnected(t, Options{})
	p.a.recv(1)
	p.a.recv(2)
	p.a.queue(provider.SendWR{ID: 3, Opcode: provider.OpSend})
	p.b.recv(4)
	must(t, p.a.modify(stateError))
	same(t, "active", p.a.cq.ended(), []ended{{3, provider.WCFlushError}, {1, provider.WCFlushError}, {2, provider.WCFlushError}})
	same(t, "passive", p.b.cq.ended(), []ended{{4, provider.WCFlushError}})
	p.a.d.raised("active", asyncSQDrained)
	p.b.d.raised("passive")
	p.events("error", bothGone...)
	p.states("error", stateError, stateError)
	p.a.recv(5)
	p.a.send(provider.SendWR{ID: 6, Opcode: provider.OpSend})
	must(t, p.a.modify(stateError))
	same(t, "later", p.a.cq.ended(), nil)
}

// TestSiwDestroy: the queue pair takes its connection along, and is flushed.
func TestSiwDestroy(t *testing.T) {
	p := siwConnected(t, Options{})
	p.a.recv(1)
	p.a.queue(provider.SendWR{ID: 2, Opcode: provider.OpSend})
	p.a.destroy()
	same(t, "destroyed", p.a.cq.ended(), []ended{{2, provider.WCFlushError}, {1, provider.WCFlushError}})
	p.a.d.raised("destroyed")
	p.events("destroyed", bothGone...)
	p = siwConnected(t, Options{})
	must(t, p.a.d.f.Close())
	p.events("context closed", bothGone...)
	if c := p.k.Counts(); c.QPs != 1 || c.CQs != 1 {
		t.Errorf("left: %+v", c)
	}
}
