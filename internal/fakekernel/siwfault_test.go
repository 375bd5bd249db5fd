//go:build linux

package fakekernel

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
)

// siwFault is a request that goes wrong, and what there is to see at the two ends.
type siwFault struct {
	name   string
	b      func(*siwRawQP) // prepares the receiver
	wr     func(a, b *siwRawQP) provider.SendWR
	sent   []ended
	recv   []ended
	states [2]uint8
	async  [2][]uint32
}

// TestSiwFaults: whatever is wrong, the connection ends. A fault of the request leaves the
// queue pair silent but in RTS; the other end always goes to error and is flushed. What TCP
// has taken is a success.
func TestSiwFaults(t *testing.T) {
	failing := func(s ...ended) []ended { return s }
	ok, flushed := ended{1, provider.WCSuccess}, ended{1, provider.WCFlushError}
	next := ended{2, provider.WCFlushError} // a second receive request
	none := func(*siwRawQP) {}
	one := func(q *siwRawQP) { q.recv(1, q.mr.sge(0, 100)); q.recv(2) }
	send := func(sge func(a *siwRawQP) provider.SGE) func(a, b *siwRawQP) provider.SendWR {
		return func(a, _ *siwRawQP) provider.SendWR {
			return provider.SendWR{ID: 1, Opcode: provider.OpSend, SGL: []provider.SGE{sge(a)}}
		}
	}
	remote := func(op provider.Opcode, off, n int, key uint32) func(a, b *siwRawQP) provider.SendWR {
		return func(a, b *siwRawQP) provider.SendWR {
			return provider.SendWR{ID: 1, Opcode: op, SGL: []provider.SGE{a.mr.sge(0, n)}, RemoteAddr: b.mr.addr(off), RKey: b.mr.key ^ key}
		}
	}
	for _, tt := range []siwFault{
		{"local key", one, send(func(a *siwRawQP) provider.SGE { return provider.SGE{Addr: a.mr.addr(0), Length: 4, LKey: a.mr.key ^ 1} }),
			failing(ended{1, provider.WCLocalQPOperationError}), failing(flushed, next), [2]uint8{stateRTS, stateError},
			[2][]uint32{{asyncQPFatal}, nil}},
		{"local bounds", one, send(func(a *siwRawQP) provider.SGE { return a.mr.sge(1<<16-3, 4) }),
			failing(ended{1, provider.WCLocalQPOperationError}), failing(flushed, next), [2]uint8{stateRTS, stateError},
			[2][]uint32{{asyncQPFatal}, nil}},
		{"no receive request", none, send(func(a *siwRawQP) provider.SGE { return a.mr.sge(0, 4) }),
			failing(ok), nil, [2]uint8{stateError, stateError}, [2][]uint32{}},
		{"message too long", one, send(func(a *siwRawQP) provider.SGE { return a.mr.sge(0, 101) }),
			failing(ok), failing(ended{1, provider.WCLocalLengthError}, next), [2]uint8{stateError, stateError},
			[2][]uint32{nil, {asyncQPFatal}}},
		{"receive into read-only memory", func(q *siwRawQP) { q.recv(1, q.d.mr(0).sge(0, 100)); q.recv(2) },
			send(func(a *siwRawQP) provider.SGE { return a.mr.sge(0, 4) }),
			failing(ok), failing(ended{1, provider.WCGeneralError}, next), [2]uint8{stateError, stateError},
			[2][]uint32{nil, {asyncAccess}}},
		{"write, key", one, remote(provider.OpRDMAWrite, 0, 4, 1),
			failing(ok), failing(flushed, next), [2]uint8{stateError, stateError}, [2][]uint32{}},
		{"write, bounds", one, remote(provider.OpRDMAWrite, 1<<16-3, 4, 0),
			failing(ok), failing(flushed, next), [2]uint8{stateError, stateError}, [2][]uint32{nil, {asyncAccess}}},
		{"write, access", one, func(a, b *siwRawQP) provider.SendWR {
			m := b.d.mr(abi.IB_UVERBS_ACCESS_LOCAL_WRITE | abi.IB_UVERBS_ACCESS_REMOTE_READ)
			return provider.SendWR{ID: 1, Opcode: provider.OpRDMAWrite, SGL: []provider.SGE{a.mr.sge(0, 4)}, RemoteAddr: m.addr(0), RKey: m.key}
		}, failing(ok), failing(flushed, next), [2]uint8{stateError, stateError}, [2][]uint32{nil, {asyncAccess}}},
		{"write, domain", one, func(a, b *siwRawQP) provider.SendWR {
			m, err := b.d.regMR(b.d.newPD(), everything, 1)
			must(t, err)
			return provider.SendWR{ID: 1, Opcode: provider.OpRDMAWrite, SGL: []provider.SGE{a.mr.sge(0, 4)}, RemoteAddr: m.addr(0), RKey: m.key}
		}, failing(ok), failing(flushed, next), [2]uint8{stateError, stateError}, [2][]uint32{nil, {asyncAccess}}},
		{"read, key", one, remote(provider.OpRDMARead, 0, 4, 1),
			failing(flushed), nil, [2]uint8{stateError, stateRTS}, [2][]uint32{nil, {asyncQPRequest}}},
		{"read, bounds", one, remote(provider.OpRDMARead, 1<<16-3, 4, 0),
			failing(flushed), nil, [2]uint8{stateError, stateRTS}, [2][]uint32{nil, {asyncQPRequest}}},
		{"read into read-only memory", one, func(a, b *siwRawQP) provider.SendWR {
			return provider.SendWR{ID: 1, Opcode: provider.OpRDMARead, SGL: []provider.SGE{a.d.mr(0).sge(0, 4)}, RemoteAddr: b.mr.addr(0), RKey: b.mr.key}
		}, failing(ended{1, provider.WCLocalProtectionError}), failing(flushed, next), [2]uint8{stateError, stateError},
			[2][]uint32{{asyncAccess}, nil}},
		{"own key to invalidate", one, func(_, _ *siwRawQP) provider.SendWR {
			return provider.SendWR{ID: 1, Opcode: provider.OpLocalInvalidate, InvKey: 0x100}
		}, failing(ended{1, provider.WCLocalQPOperationError}), failing(flushed, next), [2]uint8{stateRTS, stateError},
			[2][]uint32{{asyncQPFatal}, nil}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := siwConnected(t, Options{})
			tt.b(p.b)
			p.a.send(tt.wr(p.a, p.b))
			same(t, "sent", p.a.cq.ended(), tt.sent)
			same(t, "received", p.b.cq.ended(), tt.recv)
			p.states("after it", tt.states[0], tt.states[1])
			p.a.d.raised("active", tt.async[0]...)
			p.b.d.raised("passive", tt.async[1]...)
			gone := passiveFirst
			if tt.states[0] == stateRTS || len(tt.async[0]) > 0 { // the active side found it
				gone = bothGone
			}
			p.events("after it", gone...)
		})
	}
}

// TestSiwHarmless: what one might take for a fault, and is none.
func TestSiwHarmless(t *testing.T) {
	p := siwConnected(t, Options{})
	secret := p.b.d.mr(0) // nothing is allowed from afar
	fill(secret.mem[:8], 3)
	p.a.send(provider.SendWR{Opcode: provider.OpRDMARead, SGL: []provider.SGE{p.a.mr.sge(0, 8)}, RemoteAddr: secret.addr(0), RKey: secret.key})
	if !bytes.Equal(p.a.mr.mem[:8], secret.mem[:8]) {
		t.Error("a region that does not allow it was not read")
	}
	p.a.send(provider.SendWR{Opcode: provider.OpRDMAWrite, RKey: 99}) // no bytes, no check
	p.b.recv(4)
	p.a.send(provider.SendWR{Opcode: provider.OpSendInvalidate, InvKey: 0x100})
	same(t, "sent", p.a.cq.ended(), []ended{{}, {}, {}})
	same(t, "received", p.b.cq.ended(), []ended{{4, provider.WCRemoteInvalidRequest}})
	p.states("after all", stateRTS, stateRTS)
}

// doctored queues a WRITE and spoils it: the provider would not write such a request.
func (q *siwRawQP) doctored(id uint64, spoil func(slot []byte)) {
	q.queue(provider.SendWR{ID: id, Opcode: provider.OpRDMAWrite})
	r := q.d.k.devices[0].qps[q.num].siw().siwRing
	var last []byte
	for n := r.n; n > 0 && siwFlags(r.slot()) != 0; n-- {
		last = r.slot()
		r.at++
	}
	spoil(last)
}

// flag and op spoil the flags and the opcode.
func flag(f uint16) func([]byte) { return func(slot []byte) { *view[uint16](slot[siwHead:]) |= f } }
func op(op uint8) func([]byte)   { return func(slot []byte) { slot[siwHead+3] = op } }

func both(a, b func([]byte)) func([]byte) { return func(slot []byte) { a(slot); b(slot) } }

// TestSiwStuck: a request that cannot even be begun stops the queue for ever. It costs the
// connection only behind another.
func TestSiwStuck(t *testing.T) {
	for name, spoil := range map[string]func([]byte){
		"fenced READ":            both(op(abi.SIW_OP_READ), flag(abi.SIW_WQE_READ_FENCE)),
		"opcode":                 op(abi.SIW_NUM_OPCODES),
		"inline with invalidate": both(op(abi.SIW_OP_SEND_REMOTE_INV), flag(abi.SIW_WQE_INLINE)),
		"much inline": both(flag(abi.SIW_WQE_INLINE), func(slot []byte) {
			view[abi.SiwSqe](slot).Sge()[0].Length = abi.SIW_MAX_INLINE + 1
		}),
	} {
		p := siwConnected(t, Options{})
		p.a.doctored(9, spoil)
		want(t, name, p.a.bell.Ring(), unix.EINVAL)
		want(t, name+", again", p.a.bell.Ring(), unix.EINVAL)
		p.states(name, stateRTS, stateRTS)
		must(t, p.a.modify(stateError))
		same(t, name+", flushed", p.a.cq.ended(), []ended{{9, provider.WCFlushError}})
		p.a.d.raised(name, asyncSQDrained)
	}
	p := siwConnected(t, Options{})
	p.a.queue(provider.SendWR{ID: 1, Opcode: provider.OpRDMAWrite})
	p.a.doctored(2, op(abi.SIW_NUM_OPCODES))
	want(t, "second", p.a.bell.Ring(), 0)
	same(t, "second", p.a.cq.ended(), []ended{{1, provider.WCSuccess}})
	p.states("second", stateRTS, stateError)
	p.events("second", bothGone...)
	want(t, "after it", p.a.bell.Ring(), unix.EINVAL)

	// Without READs in flight there is no READ.
	k := startSiw(t, Options{})
	p = &siwPair{t: t, k: k, cm: openCM(t, k), a: openSiw(t, k).qp(), b: openSiw(t, k).qp()}
	p.cm.listener(listenUID, siwAddr)
	p.connectWith(abi.RdmaUcmConnParam{})
	p.a.queue(provider.SendWR{Opcode: provider.OpRDMARead, SGL: []provider.SGE{p.a.mr.sge(0, 1)}})
	want(t, "READ", p.a.bell.Ring(), unix.EINVAL)
}

// TestSiwStrangers: operations that siw begins and cannot end, and lists that are too long.
func TestSiwStrangers(t *testing.T) {
	failed := []ended{{9, provider.WCLocalQPOperationError}}
	for _, tt := range []struct {
		name  string
		spoil func([]byte)
		sent  []ended
		async []uint32
	}{
		{"SEND with immediate", op(abi.SIW_OP_SEND_WITH_IMM), failed, []uint32{asyncQPFatal}},
		{"memory registration", op(abi.SIW_OP_REG_MR), failed, []uint32{asyncQPFatal}},
		{"atomic", op(abi.SIW_OP_FETCH_AND_ADD), nil, nil},
		{"receive", op(abi.SIW_OP_RECEIVE), nil, nil},
		{"seven pieces", func(slot []byte) { slot[siwHead+2] = 7 }, failed, []uint32{asyncQPFatal}},
	} {
		p := siwConnected(t, Options{})
		p.a.doctored(9, tt.spoil)
		must(t, p.a.bell.Ring())
		same(t, tt.name, p.a.cq.ended(), tt.sent)
		p.a.d.raised(tt.name, tt.async...)
		p.states(tt.name, stateRTS, stateError)
		p.events(tt.name, bothGone...)

		// What is posted now is taken, and never sent; and flushed at last.
		p.a.send(provider.SendWR{ID: 10, Opcode: provider.OpSend})
		p.a.send(provider.SendWR{ID: 11, Opcode: provider.OpSend})
		same(t, tt.name+", later", p.a.cq.ended(), nil)
		must(t, p.a.modify(stateError))
		same(t, tt.name+", flushed", p.a.cq.ended(), []ended{{10, provider.WCFlushError}, {11, provider.WCFlushError}})
	}
}

// TestSiwStates: the ways out of RTS and from there. Each ends the connection.
func TestSiwStates(t *testing.T) {
	for _, tt := range []struct {
		name    string
		way     []uint8
		state   uint8
		flushed []ended // the requests are: one queued, and one receive
	}{
		{"closing", []uint8{stateSQD}, stateSQD, []ended{{2, provider.WCFlushError}}},
		{"closing, idle", []uint8{stateSQD, stateReset}, stateInit, []ended{{2, provider.WCFlushError}}},
		{"closing, error", []uint8{stateSQD, stateError}, stateError, []ended{{2, provider.WCFlushError}}},
		{"terminate", []uint8{stateSQE}, stateSQE, nil},
		{"terminate, error", []uint8{stateSQE, stateError}, stateError, []ended{{2, provider.WCFlushError}}},
	} {
		p := siwConnected(t, Options{})
		must(t, p.a.modify(stateInit)) // is no transition, and no error
		p.a.recv(2)
		p.a.queue(provider.SendWR{ID: 1, Opcode: provider.OpSend})
		for _, to := range tt.way {
			must(t, p.a.modify(to))
		}
		same(t, tt.name, p.a.cq.ended(), tt.flushed)
		p.states(tt.name, tt.state, stateError)
		p.events(tt.name, bothGone...)
		if tt.state != stateError {
			want(t, tt.name+": doorbell", p.a.bell.Ring(), unix.ENOTCONN)
		}
	}

	// With a request in hand, closing is an error.
	p := siwConnected(t, Options{})
	p.k.Cut(true)
	p.a.send(provider.SendWR{ID: 1, Opcode: provider.OpSend})
	p.a.queue(provider.SendWR{ID: 2, Opcode: provider.OpSend})
	must(t, p.a.modify(stateSQD))
	same(t, "busy", p.a.cq.ended(), []ended{{1, provider.WCFlushError}, {2, provider.WCFlushError}})
	if s := p.a.query().QpState; s != stateError {
		t.Errorf("busy: state %d, want error", s)
	}
}
