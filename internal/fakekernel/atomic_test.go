//go:build linux

package fakekernel

import (
	"testing"
	"time"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
	"github.com/pureverbs/rdma/internal/uapi"
)

const flushAccess = abi.IB_UVERBS_ACCESS_FLUSH_GLOBAL | abi.IB_UVERBS_ACCESS_FLUSH_PERSISTENT

func word(b []byte) *uint64 { return view[uint64](b) }

func TestAtomics(t *testing.T) {
	a, b := pairOf(t, start(t, Options{}), rawQP{access: everything | abi.IB_UVERBS_ACCESS_REMOTE_ATOMIC})
	at := word(b.mem[64:])
	*at = 100
	for i, tt := range []struct {
		op            provider.Opcode
		operand, swap uint64
		wc            provider.WCOpcode
		want          uint64
	}{
		{provider.OpFetchAdd, 5, 0, provider.WCFetchAdd, 105},
		{provider.OpFetchAdd, ^uint64(0), 0, provider.WCFetchAdd, 104},
		{provider.OpCompareSwap, 104, 7, provider.WCCompareSwap, 7},
		{provider.OpCompareSwap, 104, 8, provider.WCCompareSwap, 7},
	} {
		before := *at
		wc := a.do(provider.SendWR{Opcode: tt.op, SGL: a.sge(8, 8), RemoteAddr: uapi.Addr(b.mem) + 64, RKey: b.mr.Rkey, CompareAdd: tt.operand, Swap: tt.swap})
		if wc.Status != provider.WCSuccess || wc.Opcode != tt.wc || wc.ByteLen != 8 {
			t.Errorf("%d: %+v", i, wc)
		}
		if got := *word(a.mem[8:]); got != before || *at != tt.want {
			t.Errorf("%d: brought %d, want %d; there is %d, want %d", i, got, before, *at, tt.want)
		}
	}
}

// TestOneSidedErrors: what goes wrong with atomics, FLUSH and ATOMIC WRITE.
func TestOneSidedErrors(t *testing.T) {
	atomics := uint32(everything | abi.IB_UVERBS_ACCESS_REMOTE_ATOMIC | flushAccess)
	for _, tt := range []struct {
		name   string
		access uint32
		edit   func(a, b *rawQP, wr *provider.SendWR)
		want   provider.WCStatus
		done   bool // the peer's memory changed
	}{
		{"good", atomics, func(_, _ *rawQP, _ *provider.SendWR) {}, provider.WCSuccess, true},
		{"not aligned", atomics, func(_, _ *rawQP, wr *provider.SendWR) { wr.RemoteAddr += 4 }, provider.WCRemoteInvalidRequest, false},
		{"queue pair forbids", everything | flushAccess, func(_, _ *rawQP, _ *provider.SendWR) {}, provider.WCRemoteInvalidRequest, false},
		{"key", atomics, func(_, _ *rawQP, wr *provider.SendWR) { wr.RKey++ }, provider.WCRemoteAccessError, false},
		{"bounds", atomics, func(_, _ *rawQP, wr *provider.SendWR) { wr.RemoteAddr += 1 << 16 }, provider.WCRemoteAccessError, false},
		{"no room here", atomics, func(a, _ *rawQP, wr *provider.SendWR) { wr.SGL = a.sge(0, 4) }, provider.WCLocalProtectionError, true},
		{"key here", atomics, func(_, _ *rawQP, wr *provider.SendWR) { wr.SGL[0].LKey++ }, provider.WCLocalProtectionError, true},
		{"write, not aligned", atomics, func(_, _ *rawQP, wr *provider.SendWR) { atomicWrite(wr, 8); wr.RemoteAddr += 4 }, provider.WCRemoteInvalidRequest, false},
		{"write of 4 bytes", atomics, func(_, _ *rawQP, wr *provider.SendWR) { atomicWrite(wr, 4) }, provider.WCRemoteInvalidRequest, false},
		{"write, no key", atomics, func(_, _ *rawQP, wr *provider.SendWR) { atomicWrite(wr, 8); wr.RKey++ }, provider.WCRemoteAccessError, false},
		{"write", everything, func(_, _ *rawQP, wr *provider.SendWR) { atomicWrite(wr, 8) }, provider.WCSuccess, true},
		{"flush", atomics, func(_, _ *rawQP, wr *provider.SendWR) { flush(wr, provider.FlushGlobal, 64) }, provider.WCSuccess, false},
		{"flush forbidden", everything, func(_, _ *rawQP, wr *provider.SendWR) { flush(wr, provider.FlushPersistent, 64) }, provider.WCRemoteInvalidRequest, false},
		{"flush beyond", atomics, func(_, _ *rawQP, wr *provider.SendWR) { flush(wr, provider.FlushPersistent, 1<<17) }, provider.WCRemoteAccessError, false},
		{"flush of the region", atomics, func(_, _ *rawQP, wr *provider.SendWR) {
			flush(wr, provider.FlushGlobal, 1<<17)
			wr.Range = provider.FlushMR
		}, provider.WCSuccess, false},
		{"flush, key", atomics, func(_, _ *rawQP, wr *provider.SendWR) { flush(wr, provider.FlushGlobal, 1); wr.RKey++ }, provider.WCRemoteAccessError, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, b := pairOf(t, start(t, Options{Kernel: "6.12"}), rawQP{access: tt.access})
			wr := provider.SendWR{Opcode: provider.OpFetchAdd, SGL: a.sge(0, 8), RemoteAddr: uapi.Addr(b.mem), RKey: b.mr.Rkey, CompareAdd: 1}
			tt.edit(a, b, &wr)
			if wc := a.do(wr); wc.Status != tt.want || tt.want == provider.WCSuccess && wc.Opcode != map[provider.Opcode]provider.WCOpcode{
				provider.OpFetchAdd: provider.WCFetchAdd, provider.OpFlush: provider.WCFlush, provider.OpAtomicWrite: provider.WCAtomicWrite,
			}[wr.Opcode] {
				t.Errorf("got %+v, want %v", wc, tt.want)
			}
			if done := *word(b.mem) != 0 || *word(b.mem[8:]) != 0; done != tt.done {
				t.Errorf("memory changed: %v, want %v", done, tt.done)
			}
		})
	}
	for _, op := range []provider.Opcode{provider.OpAtomicWrite, provider.OpFlush} {
		a, _ := pair(t, start(t, Options{}))
		if wc := a.do(provider.SendWR{Opcode: op}); wc.Status != provider.WCLocalQPOperationError {
			t.Errorf("%v on 6.1: %v", op, wc.Status)
		}
	}
}

func atomicWrite(wr *provider.SendWR, n int) {
	wr.Opcode, wr.Flags, wr.SGL, wr.Inline = provider.OpAtomicWrite, provider.SendInline, nil, [][]byte{[]byte("ABCDEFGH")[:n]}
}

func flush(wr *provider.SendWR, typ provider.FlushType, n uint32) {
	wr.Opcode, wr.SGL, wr.Flush, wr.Length = provider.OpFlush, nil, typ, n
}

// TestFence: a fenced request waits for the READs before it, LOCAL INVALIDATE for all.
func TestFence(t *testing.T) {
	const delay = 50 * time.Millisecond
	for _, tt := range []struct {
		name  string
		first provider.Opcode
		then  provider.SendWR
		waits bool
	}{
		{"no fence", provider.OpRDMARead, provider.SendWR{Opcode: provider.OpRDMAWrite}, false},
		{"fence", provider.OpRDMARead, provider.SendWR{Opcode: provider.OpRDMAWrite, Flags: provider.SendFence}, true},
		{"fence after a write", provider.OpRDMAWrite, provider.SendWR{Opcode: provider.OpRDMAWrite, Flags: provider.SendFence}, false},
		{"invalidate", provider.OpRDMAWrite, provider.SendWR{Opcode: provider.OpLocalInvalidate}, true},
	} {
		a, b := pair(t, start(t, Options{AckDelay: delay}))
		a.queue(provider.SendWR{Opcode: tt.first, Flags: provider.SendSignaled, SGL: a.sge(0, 8), RemoteAddr: uapi.Addr(b.mem), RKey: b.mr.Rkey})
		tt.then.SGL, tt.then.RemoteAddr, tt.then.RKey, tt.then.InvKey = a.sge(16, 8), uapi.Addr(b.mem)+8, b.mr.Rkey, a.mr.Rkey
		if tt.then.Opcode == provider.OpLocalInvalidate {
			tt.then.SGL = nil
		}
		a.mem[16] = 5
		a.send(tt.then)
		if early := b.mem[8] == 5; tt.then.Opcode == provider.OpRDMAWrite && early == tt.waits || len(a.cq.poll()) > 0 {
			t.Errorf("%s: carried out at once: %v", tt.name, early)
		}
		if wc := a.cq.one(); wc.Status != provider.WCSuccess {
			t.Errorf("%s: first: %v", tt.name, wc.Status)
		}
		if tt.then.Opcode == provider.OpLocalInvalidate { // which fails, of a region
			if wc := a.cq.one(); wc.Status != provider.WCLocalQPOperationError {
				t.Errorf("%s: second: %v", tt.name, wc.Status)
			}
			continue
		}
		for deadline := time.Now().Add(time.Second); b.mem[8] != 5 && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		}
		if b.mem[8] != 5 {
			t.Errorf("%s: never carried out", tt.name)
		}
	}
}
