//go:build linux

package fakekernel

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
	"github.com/pureverbs/rdma/internal/uapi"
	"github.com/pureverbs/rdma/mmio"
)

func fill(b []byte, seed byte) {
	for i := range b {
		b[i] = byte(i)*7 + seed
	}
}

// TestRawPing sends there and back, in both ways of running the device.
func TestRawPing(t *testing.T) {
	for name, opts := range map[string]Options{"inline": {}, "deferred": {Deferred: true}, "ioctl doorbell": {DenyWrite: true}} {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t, start(t, opts))
			for i := range 40 { // more than the queues hold
				n := 1 + i*31
				fill(a.mem[:n], byte(i))
				b.recv(uint64(i), b.sge(0, 4096))
				a.recv(uint64(i), a.sge(8192, 4096))
				a.send(provider.SendWR{ID: uint64(i), Opcode: provider.OpSend, Flags: provider.SendSignaled, SGL: a.sge(0, n)})
				want := provider.WC{ID: uint64(i), Opcode: provider.WCRecv, ByteLen: uint32(n), QPNum: b.num, Flags: provider.WCGRH}
				if diff := cmp.Diff(want, b.cq.one()); diff != "" {
					t.Fatalf("receive %d (-want +got):\n%s", i, diff)
				}
				b.send(provider.SendWR{Opcode: provider.OpSend, SGL: b.sge(0, n)})
				want = provider.WC{ID: uint64(i), Opcode: provider.WCSend, ByteLen: uint32(n), QPNum: a.num}
				if diff := cmp.Diff(want, a.cq.one()); diff != "" {
					t.Fatalf("send %d (-want +got):\n%s", i, diff)
				}
				if wc := a.cq.one(); wc.Opcode != provider.WCRecv || !bytes.Equal(a.mem[:n], a.mem[8192:][:n]) {
					t.Fatalf("echo %d is %+v, or differs", i, wc)
				}
			}
		})
	}
}

func TestOperations(t *testing.T) {
	a, b := pair(t, start(t, Options{}))
	remote := uapi.Addr(b.mem) + 100
	two := append(a.sge(10, 300), a.sge(1000, 3000)...)
	for i, tt := range []struct {
		name string
		wr   provider.SendWR
		recv provider.WC // zero: none
	}{
		{"write", provider.SendWR{Opcode: provider.OpRDMAWrite, SGL: two}, provider.WC{}},
		{"write with immediate", provider.SendWR{Opcode: provider.OpRDMAWriteImm, SGL: two, Imm: 0x01020304},
			provider.WC{Opcode: provider.WCRecvRDMAWriteI, Imm: 0x01020304, ByteLen: 3300, Flags: provider.WCGRH | provider.WCWithImm}},
		{"read", provider.SendWR{Opcode: provider.OpRDMARead, SGL: two}, provider.WC{}},
		{"send with immediate", provider.SendWR{Opcode: provider.OpSendImm, SGL: two, Imm: 5},
			provider.WC{Opcode: provider.WCRecv, Imm: 5, ByteLen: 3300, Flags: provider.WCGRH | provider.WCWithImm}},
		{"inline", provider.SendWR{Opcode: provider.OpSend, Flags: provider.SendInline, Inline: [][]byte{[]byte("in"), []byte("line")}},
			provider.WC{Opcode: provider.WCRecv, ByteLen: 6, Flags: provider.WCGRH}},
	} {
		fill(a.mem, byte(i))
		fill(b.mem, byte(100+i))
		if tt.recv != (provider.WC{}) {
			b.recv(9, b.sge(100, 4000))
			tt.recv.ID, tt.recv.QPNum = 9, b.num
		}
		tt.wr.Flags |= provider.SendSignaled
		tt.wr.RemoteAddr, tt.wr.RKey = remote, b.mr.Rkey
		a.send(tt.wr)
		if wc := a.cq.one(); wc.Status != provider.WCSuccess {
			t.Fatalf("%s: %v", tt.name, wc.Status)
		}
		local := append(bytes.Clone(a.mem[10:310]), a.mem[1000:4000]...)
		if len(tt.wr.Inline) > 0 {
			local = []byte("inline")
		}
		if !bytes.Equal(local, b.mem[100:][:len(local)]) {
			t.Errorf("%s: the memories differ", tt.name)
		}
		if tt.recv != (provider.WC{}) {
			if diff := cmp.Diff(tt.recv, b.cq.one()); diff != "" {
				t.Errorf("%s: receive (-want +got):\n%s", tt.name, diff)
			}
		}
		if rest := b.cq.poll(); len(rest) > 0 {
			t.Errorf("%s: unexpected at the receiver: %+v", tt.name, rest)
		}
	}
}

// TestErrorCompletions: what the requester and the responder see of each fault.
func TestErrorCompletions(t *testing.T) {
	const quiet = ^provider.WCStatus(0)
	for _, tt := range []struct {
		name       string
		wr         func(a, b *rawQP) provider.SendWR
		setup      func(b *rawQP)
		send, recv provider.WCStatus
	}{
		{"local key", func(a, _ *rawQP) provider.SendWR {
			sgl := a.sge(0, 8)
			sgl[0].LKey++
			return provider.SendWR{Opcode: provider.OpSend, SGL: sgl}
		}, nil, provider.WCLocalQPOperationError, quiet},
		{"local bounds", func(a, _ *rawQP) provider.SendWR {
			return provider.SendWR{Opcode: provider.OpSend, SGL: a.sge(1<<16-4, 8)}
		}, nil, provider.WCLocalProtectionError, quiet},
		{"other domain", func(_, b *rawQP) provider.SendWR {
			return provider.SendWR{Opcode: provider.OpSend, SGL: b.sge(0, 8)}
		}, nil, provider.WCLocalQPOperationError, quiet},
		{"remote key", func(a, b *rawQP) provider.SendWR {
			return provider.SendWR{Opcode: provider.OpRDMAWrite, SGL: a.sge(0, 8), RemoteAddr: uapi.Addr(b.mem), RKey: b.mr.Rkey + 1}
		}, nil, provider.WCRemoteAccessError, quiet},
		{"remote bounds", func(a, b *rawQP) provider.SendWR {
			return provider.SendWR{Opcode: provider.OpRDMARead, SGL: a.sge(0, 8), RemoteAddr: uapi.Addr(b.mem) - 1, RKey: b.mr.Rkey}
		}, nil, provider.WCRemoteAccessError, quiet},
		{"queue pair forbids", func(a, b *rawQP) provider.SendWR {
			return provider.SendWR{Opcode: provider.OpRDMAWrite, SGL: a.sge(0, 8), RemoteAddr: uapi.Addr(b.mem), RKey: b.mr.Rkey}
		}, func(b *rawQP) { b.access = 0 }, provider.WCRemoteInvalidRequest, quiet},
		{"no reads", func(a, b *rawQP) provider.SendWR {
			return provider.SendWR{Opcode: provider.OpRDMARead, SGL: a.sge(0, 8), RemoteAddr: uapi.Addr(b.mem), RKey: b.mr.Rkey}
		}, func(b *rawQP) { b.noRead = true }, provider.WCRemoteInvalidRequest, quiet},
		{"too long", func(a, b *rawQP) provider.SendWR {
			b.recv(1, b.sge(0, 7))
			return provider.SendWR{Opcode: provider.OpSend, SGL: a.sge(0, 8)}
		}, nil, provider.WCRemoteOperationError, provider.WCLocalQPOperationError},
		{"receive key", func(a, b *rawQP) provider.SendWR {
			sgl := b.sge(0, 64)
			sgl[0].LKey ^= 1
			b.recv(1, sgl)
			return provider.SendWR{Opcode: provider.OpSend, SGL: a.sge(0, 8)}
		}, nil, provider.WCRemoteOperationError, provider.WCLocalQPOperationError},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := start(t, Options{})
			a, b := openDev(t, k).qp(), openDev(t, k).qp()
			if tt.setup != nil {
				tt.setup(b)
			}
			connect(t, a, b, 7, 7)
			a.recv(70, a.sge(0, 8))
			a.queue(tt.wr(a, b)) // not signalled: errors are told all the same
			a.send(provider.SendWR{ID: 2, Opcode: provider.OpSend})
			got := a.cq.poll()
			if len(got) != 3 || got[0].Status != tt.send || got[1].ID != 2 || got[1].Status != provider.WCFlushError ||
				got[2].ID != 70 || got[2].Status != provider.WCFlushError {
				t.Errorf("requester sees %+v, want %v, then send and receive flushed", got, tt.send)
			}
			if a.state() != stateError {
				t.Errorf("requester is in state %d, want ERR", a.state())
			}
			got = b.cq.poll()
			if tt.recv == quiet && len(got) != 0 || tt.recv != quiet && (len(got) != 1 || got[0].Status != tt.recv) {
				t.Errorf("responder sees %+v, want %v", got, tt.recv)
			}
		})
	}
}

func TestReceiverNotReady(t *testing.T) {
	k := start(t, Options{})
	a, b := openDev(t, k).qp(), openDev(t, k).qp()
	b.rnr = 14 // 1.28 ms
	connect(t, a, b, 7, 7)
	begin := time.Now()
	a.send(provider.SendWR{ID: 1, Opcode: provider.OpSend, Flags: provider.SendSignaled, SGL: a.sge(0, 8)})
	if got := a.cq.poll(); len(got) > 0 {
		t.Fatalf("completed without a receiver: %+v", got)
	}
	b.recv(2, b.sge(0, 8))
	if wc := a.cq.one(); wc.Status != provider.WCSuccess {
		t.Errorf("sender: %v", wc.Status)
	}
	if took := time.Since(begin); took < rnrDelay(14) {
		t.Errorf("tried again after %v, want at least %v", took, rnrDelay(14))
	}
	if wc := b.cq.one(); wc.ID != 2 || wc.ByteLen != 8 {
		t.Errorf("receiver: %+v", wc)
	}
}

// TestRetriesEnd: a finite count of tries ends in an error, of the kind that was tried.
func TestRetriesEnd(t *testing.T) {
	for _, tt := range []struct {
		name     string
		psn, rnr uint8
		gone     bool
		want     provider.WCStatus
	}{
		{"not ready", 0, 2, false, provider.WCRNRRetryExceeded},
		{"not ready, no second try", 0, 0, false, provider.WCRNRRetryExceeded},
		{"wrong sequence number", 1, 7, false, provider.WCRetryExceeded},
		{"peer gone", 0, 7, true, provider.WCRetryExceeded},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := start(t, Options{MaxRetry: time.Millisecond})
			a, b := openDev(t, k).qp(), openDev(t, k).qp()
			must(t, b.toInit())
			must(t, b.toRTR(a, 100+uint32(tt.psn)))
			must(t, a.toInit())
			must(t, a.toRTR(b, 0))
			must(t, a.toRTS(100, 2, tt.rnr))
			if tt.gone {
				must(t, b.d.f.Close())
			}
			a.send(provider.SendWR{ID: 1, Opcode: provider.OpSend})
			if wc := a.cq.one(); wc.ID != 1 || wc.Status != tt.want {
				t.Errorf("got %+v, want %v", wc, tt.want)
			}
		})
	}
}

// TestArm: an event comes only for a completion after arming, once, and if asked only for
// a solicited one.
func TestArm(t *testing.T) {
	a, b := pair(t, start(t, Options{}))
	hit := func(flags provider.SendFlags) {
		b.recv(1, b.sge(0, 8))
		a.send(provider.SendWR{Opcode: provider.OpSend, Flags: flags})
	}
	hit(0)
	b.cq.arm(0)
	if b.cq.event() {
		t.Error("event for a completion from before arming")
	}
	hit(0)
	hit(0)
	if !b.cq.event() {
		t.Error("no event for a completion after arming")
	}
	if b.cq.event() {
		t.Error("two events for one arming")
	}
	b.cq.arm(1)
	hit(0)
	if b.cq.event() {
		t.Error("event for an unsolicited completion")
	}
	hit(provider.SendSolicited)
	if !b.cq.event() {
		t.Error("no event for a solicited completion")
	}
	b.cq.arm(0)
	b.cq.arm(1) // does not weaken the first
	hit(0)
	if !b.cq.event() {
		t.Error("the weaker arming replaced the stronger")
	}
}

func TestOverrun(t *testing.T) {
	k := start(t, Options{})
	d := openDev(t, k)
	small := d.cq(3)
	a, b := d.qpOn(small), openDev(t, k).qp()
	connect(t, a, b, 7, 7)
	for i := range 5 {
		a.send(provider.SendWR{ID: uint64(i), Opcode: provider.OpRDMAWrite, Flags: provider.SendSignaled})
	}
	if got := small.poll(); len(got) != 3 {
		t.Errorf("%d completions, want the 3 that fit", len(got))
	}
	var e abi.IbUverbsAsyncEventDesc
	if _, err := d.async.Read(t.Context(), bytesOf(&e)); err != nil || e.Element != 0xc0ffee || e.EventType != asyncCQError {
		t.Errorf("got event %+v, %v, want a CQ error", e, err)
	}
}

// TestOrder: which of a message's two completions is seen first can be chosen.
func TestOrder(t *testing.T) {
	for name, opts := range map[string]Options{"receive first": {}, "send first": {AckFirst: true}} {
		d := openDev(t, start(t, opts))
		cq := d.cq(16)
		a, b := d.qpOn(cq), d.qpOn(cq)
		connect(t, a, b, 7, 7)
		b.recv(1, b.sge(0, 8))
		a.send(provider.SendWR{ID: 2, Opcode: provider.OpSend, Flags: provider.SendSignaled})
		got := cq.poll()
		if first := got[0].ID == 1; len(got) != 2 || first != (name == "receive first") {
			t.Errorf("%s: got %+v", name, got)
		}
	}
	a, b := pair(t, start(t, Options{AckDelay: 5 * time.Millisecond}))
	b.recv(1, b.sge(0, 8))
	a.recv(3, a.sge(0, 8))
	a.send(provider.SendWR{ID: 2, Opcode: provider.OpSend, Flags: provider.SendSignaled})
	b.send(provider.SendWR{Opcode: provider.OpSend})
	if wc := a.cq.one(); wc.ID != 3 {
		t.Errorf("first completion is %+v, want the answer's", wc)
	}
	if wc := a.cq.one(); wc.ID != 2 {
		t.Errorf("second completion is %+v, want the send's", wc)
	}
}

// TestErrorState: going to ERR flushes both queues; what is received later stays until
// something wakes the queue pair; RESET is the way back.
func TestErrorState(t *testing.T) {
	a, b := pair(t, start(t, Options{}))
	a.recv(1, a.sge(0, 8))
	must(t, a.modify(abi.IbUverbsModifyQp{AttrMask: maskState, QpState: stateError}))
	if got := a.cq.poll(); len(got) != 1 || got[0].ID != 1 || got[0].Status != provider.WCFlushError {
		t.Errorf("got %+v, want the receive flushed", got)
	}
	a.recv(2, a.sge(0, 8))
	if got := a.cq.poll(); len(got) != 0 {
		t.Errorf("got %+v without a reason", got)
	}
	a.send(provider.SendWR{ID: 3, Opcode: provider.OpSend})
	if got := a.cq.poll(); len(got) != 2 || got[0].ID != 3 || got[1].ID != 2 {
		t.Errorf("got %+v, want send and receive flushed", got)
	}
	must(t, a.modify(abi.IbUverbsModifyQp{AttrMask: maskState, QpState: stateReset}))
	must(t, a.toInit())
	want(t, "doorbell in INIT", a.bell.Ring(), 22)
	_ = b
}

// TestDelayedBeforeError: what was carried out completes well, also if it is told late.
func TestDelayedBeforeError(t *testing.T) {
	a, _ := pair(t, start(t, Options{AckDelay: time.Hour}))
	a.queue(provider.SendWR{ID: 1, Opcode: provider.OpRDMAWrite, Flags: provider.SendSignaled})
	bad := a.sge(0, 8)
	bad[0].LKey++
	a.send(provider.SendWR{ID: 2, Opcode: provider.OpSend, SGL: bad})
	got := a.cq.poll()
	if len(got) != 2 || got[0].ID != 1 || got[0].Status != provider.WCSuccess || got[1].Status != provider.WCLocalQPOperationError {
		t.Errorf("got %+v, want success, then an error", got)
	}
}

// TestRNRWithoutEnd: 7 is no count.
func TestRNRWithoutEnd(t *testing.T) {
	a, b := pair(t, start(t, Options{}))
	a.send(provider.SendWR{ID: 1, Opcode: provider.OpSend, Flags: provider.SendSignaled})
	time.Sleep(20 * rnrDelay(b.rnr))
	if got := a.cq.poll(); len(got) > 0 {
		t.Fatalf("gave up: %+v", got)
	}
	b.recv(2, nil)
	if wc := a.cq.one(); wc.Status != provider.WCSuccess {
		t.Errorf("got %v", wc.Status)
	}
}

func TestDoorbellDoesNotAllocate(t *testing.T) {
	a, b := pair(t, start(t, Options{}))
	one := a.sge(0, 64)
	into := b.sge(0, 64)
	var wcs [1]provider.WC
	n := testing.AllocsPerRun(200, func() {
		r := provider.RecvWR{SGL: into}
		b.q.Recv(&r, 64)
		b.q.PublishRecv()
		w := provider.SendWR{Opcode: provider.OpSend, Flags: provider.SendSignaled, SGL: one}
		a.q.Send(&w, 64)
		a.q.PublishSend()
		if a.bell.Ring() != nil {
			t.Fatal("doorbell failed")
		}
		for _, c := range []*rawCQ{a.cq, b.cq} {
			_, _, _ = c.q.Poll(wcs[:])
		}
	})
	if n != 0 {
		t.Errorf("%v allocations a message, want 0: benchmarks of the library would count them", n)
	}
}

// TestRings: a test can spoil a queue.
func TestRings(t *testing.T) {
	k := start(t, Options{})
	c := openDev(t, k).cq(7)
	k.Rings(func(r Ring) { mmio.StoreRelease32(r.Producer, r.Mask+1) })
	if _, _, err := c.q.Poll(make([]provider.WC, 1)); err == nil {
		t.Error("an index beyond the ring went unnoticed")
	}
}

func TestUnregisteredWhileUsed(t *testing.T) {
	a, b := pair(t, start(t, Options{}))
	destroy := cmd(uapi.MRDestroy).Destroy(abi.UVERBS_ATTR_DESTROY_MR_HANDLE, b.mr.MrHandle)
	must(t, destroy.Do(b.d.f))
	a.send(provider.SendWR{Opcode: provider.OpRDMAWrite, SGL: a.sge(0, 8), RemoteAddr: uapi.Addr(b.mem), RKey: b.mr.Rkey})
	if wc := a.cq.one(); wc.Status != provider.WCRemoteAccessError {
		t.Errorf("got %v, want a remote access error", wc.Status)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := b.d.async.Read(ctx, make([]byte, 16)); err != context.Canceled {
		t.Errorf("got %v, want no asynchronous event", err)
	}
}
