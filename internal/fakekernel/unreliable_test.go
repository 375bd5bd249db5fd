//go:build linux

package fakekernel

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
	"github.com/pureverbs/rdma/internal/uapi"
)

const typeUC = abi.IB_UVERBS_QPT_UC

func TestUnreliable(t *testing.T) {
	a, b := pairOf(t, start(t, Options{}), rawQP{typ: typeUC})
	fill(a.mem[:3000], 3)
	b.recv(1, b.sge(0, 4096))
	if wc := a.do(provider.SendWR{Opcode: provider.OpSendImm, Imm: 9, SGL: a.sge(0, 3000)}); wc.Status != provider.WCSuccess {
		t.Errorf("send: %v", wc.Status)
	}
	want := provider.WC{ID: 1, Opcode: provider.WCRecv, ByteLen: 3000, QPNum: b.num, Imm: 9, Flags: provider.WCGRH | provider.WCWithImm}
	if diff := cmp.Diff(want, b.next()); diff != "" || !bytes.Equal(a.mem[:3000], b.mem[:3000]) {
		t.Errorf("receive (-want +got):\n%s", diff)
	}
	b.recv(2, nil)
	wr := provider.SendWR{Opcode: provider.OpRDMAWriteImm, Imm: 4, SGL: a.sge(0, 8), RemoteAddr: uapi.Addr(b.mem) + 8000, RKey: b.mr.Rkey}
	if wc := a.do(wr); wc.Status != provider.WCSuccess {
		t.Errorf("write: %v", wc.Status)
	}
	if wc := b.next(); wc.Opcode != provider.WCRecvRDMAWriteI || wc.ByteLen != 8 || !bytes.Equal(a.mem[:8], b.mem[8000:8008]) {
		t.Errorf("write with immediate: %+v", wc)
	}
	b.recv(3, b.sge(0, 8))
	if wc := a.do(provider.SendWR{Opcode: provider.OpRDMARead, SGL: a.sge(0, 8), RemoteAddr: uapi.Addr(b.mem), RKey: b.mr.Rkey}); wc.Status != provider.WCLocalQPOperationError {
		t.Errorf("read: %v", wc.Status)
	}
}

// TestUnreliableLost: the sender never learns, and what comes after arrives.
func TestUnreliableLost(t *testing.T) {
	for _, tt := range []struct {
		name   string
		access uint32
		shared bool
		wr     func(a, b *rawQP) provider.SendWR
		want   []provider.WCStatus
	}{
		{"no receive", everything, false, func(a, b *rawQP) provider.SendWR {
			return provider.SendWR{Opcode: provider.OpSend, SGL: a.sge(0, 8)}
		}, nil},
		{"write forbidden", abi.IB_UVERBS_ACCESS_LOCAL_WRITE, false, func(a, b *rawQP) provider.SendWR {
			return provider.SendWR{Opcode: provider.OpRDMAWrite, SGL: a.sge(0, 8), RemoteAddr: uapi.Addr(b.mem), RKey: b.mr.Rkey}
		}, nil},
		{"key", everything, false, func(a, b *rawQP) provider.SendWR {
			b.recv(1, b.sge(0, 64))
			return provider.SendWR{Opcode: provider.OpRDMAWriteImm, SGL: a.sge(0, 8), RemoteAddr: uapi.Addr(b.mem), RKey: b.mr.Rkey + 1}
		}, nil},
		{"key, shared queue", everything, true, func(a, b *rawQP) provider.SendWR {
			b.shared.recv(1, nil)
			return provider.SendWR{Opcode: provider.OpRDMAWriteImm, SGL: a.sge(0, 8), RemoteAddr: uapi.Addr(b.mem), RKey: b.mr.Rkey + 1}
		}, []provider.WCStatus{provider.WCRemoteAccessError}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := start(t, Options{})
			d := openDev(t, k)
			model := rawQP{pd: d.pd(), typ: typeUC, access: tt.access}
			if tt.shared {
				model.shared = d.srq(model.pd, 4)
			}
			e := openDev(t, k)
			a, b := e.build(&rawQP{pd: e.pd(), typ: typeUC}), d.build(&model)
			connect(t, a, b, 0, 0)
			if wc := a.do(tt.wr(a, b)); wc.Status != provider.WCSuccess {
				t.Errorf("sender: %v", wc.Status)
			}
			var got []provider.WCStatus
			for _, wc := range b.cq.poll() {
				got = append(got, wc.Status)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("receiver (-want +got):\n%s", diff)
			}
			if tt.shared {
				b.shared.recv(2, b.sge(0, 8))
			} else {
				b.recv(2, b.sge(0, 8))
			}
			a.do(provider.SendWR{Opcode: provider.OpSend, SGL: a.sge(0, 8)})
			if got := b.cq.poll(); len(got) != 1 || got[0].Status != provider.WCSuccess {
				t.Errorf("the next message: %+v", got)
			}
		})
	}
}

// TestUnreliableBroken: a receive request that does not do ends the receiver, not the sender.
func TestUnreliableBroken(t *testing.T) {
	a, b := pairOf(t, start(t, Options{}), rawQP{typ: typeUC})
	b.recv(1, b.sge(0, 4))
	b.recv(2, nil)
	if wc := a.do(provider.SendWR{Opcode: provider.OpSend, SGL: a.sge(0, 8)}); wc.Status != provider.WCSuccess || a.state() != stateRTS {
		t.Errorf("sender: %v", wc.Status)
	}
	got := b.cq.poll()
	if len(got) != 2 || got[0].Status != provider.WCLocalQPOperationError || got[1].Status != provider.WCFlushError || b.state() != stateError {
		t.Errorf("receiver: %+v", got)
	}
}

// TestLengthOfReceive: one that claims more bytes than its pieces hold.
func TestLengthOfReceive(t *testing.T) {
	a, b := pair(t, start(t, Options{}))
	must(t, b.q.Recv(&provider.RecvWR{SGL: b.sge(0, 4)}, 100))
	b.q.PublishRecv()
	if wc := a.do(provider.SendWR{Opcode: provider.OpSend, SGL: a.sge(0, 8)}); wc.Status != provider.WCRemoteInvalidRequest {
		t.Errorf("sender: %v", wc.Status)
	}
	if wc := b.next(); wc.Status != provider.WCRemoteInvalidRequest {
		t.Errorf("receiver: %v", wc.Status)
	}
}

// TestAccessEvent: 7.2 tells the responder of a violation that no receive request tells of.
func TestAccessEvent(t *testing.T) {
	for _, tt := range []struct {
		kernel string
		op     provider.Opcode
		want   [][2]uint64
		recv   []provider.WCStatus
	}{
		{"7.2", provider.OpRDMAWrite, [][2]uint64{{0xbeef, asyncAccess}}, []provider.WCStatus{provider.WCFlushError}},
		{"7.2", provider.OpRDMAWriteImm, nil, []provider.WCStatus{provider.WCRemoteAccessError}},
		{"6.12", provider.OpRDMAWrite, nil, []provider.WCStatus{provider.WCFlushError}},
	} {
		a, b := pair(t, start(t, Options{Kernel: tt.kernel}))
		b.recv(1, nil)
		if wc := a.do(provider.SendWR{Opcode: tt.op, SGL: a.sge(0, 8), RKey: 1}); wc.Status != provider.WCRemoteAccessError {
			t.Errorf("%+v: sender got %v", tt, wc.Status)
		}
		b.d.wantAsync(tt.kernel, tt.want...)
		if wc := b.next(); wc.Status != tt.recv[0] {
			t.Errorf("%+v: receiver got %v", tt, wc.Status)
		}
	}
}
