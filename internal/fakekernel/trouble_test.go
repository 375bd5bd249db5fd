//go:build linux

package fakekernel

import (
	"bytes"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
	"github.com/pureverbs/rdma/internal/provider/rxe"
	"github.com/pureverbs/rdma/internal/uapi"
)

// TestTwoDevices: queue pairs and ids of two devices meet.
func TestTwoDevices(t *testing.T) {
	k := start(t, Options{Devices: []Device{{}, {}}})
	a, b := openNode(t, k, 0).qp(), openNode(t, k, 1).qp()
	connect(t, a, b, 7, 7)
	fill(a.mem[:100], 3)
	b.recv(1, b.sge(0, 100))
	a.send(provider.SendWR{Opcode: provider.OpSend, SGL: a.sge(0, 100)})
	if wc := b.cq.one(); wc.Status != provider.WCSuccess || !bytes.Equal(a.mem[:100], b.mem[:100]) {
		t.Errorf("got %+v", wc)
	}
	server, client := openCM(t, k), openCM(t, k)
	server.listener(1, ap("10.9.0.2:7174"))
	id := client.id(2)
	must(t, client.bind(id, ap("10.9.0.1:0"), 0))
	must(t, client.resolve(id, ap("10.9.0.2:7174"), 0))
	client.next(EventAddrResolved, 2)
	var r abi.RdmaUcmQueryAddrResp
	must(t, client.call(abi.RDMA_USER_CM_CMD_QUERY, bytesOf(&abi.RdmaUcmQuery{Id: id}), 0, bytesOf(&r)))
	if r.IbdevIndex != 0 {
		t.Errorf("the client is on device %d, want that of its source", r.IbdevIndex)
	}
	must(t, client.route(id))
	client.next(EventRouteResolved, 2)
	must(t, client.connect(id, abi.RdmaUcmConnParam{}, ""))
	child := server.next(EventConnectRequest, 1).Id
	must(t, server.call(abi.RDMA_USER_CM_CMD_QUERY, bytesOf(&abi.RdmaUcmQuery{Id: child}), 0, bytesOf(&r)))
	if src, _, err := parseAddr(&r.DstAddr, r.DstSize); err != nil || src.Addr() != ap("10.9.0.1:0").Addr() || r.IbdevIndex != 1 {
		t.Errorf("the server is on device %d and sees %v, %v", r.IbdevIndex, src, err)
	}
}

// TestMisfits: ends that do not fit each other.
func TestMisfits(t *testing.T) {
	t.Run("GID types", func(t *testing.T) {
		k := start(t, Options{Devices: []Device{{V1: true}}, MaxRetry: time.Millisecond})
		a, b := openDev(t, k).qp(), openDev(t, k).qp()
		a.d.gid, b.d.gid = k.devices[0].gids[2], k.devices[0].gids[3] // twins
		connect(t, a, b, 1, 1)
		a.send(provider.SendWR{Opcode: provider.OpSend})
		if wc := a.cq.one(); wc.Status != provider.WCRetryExceeded {
			t.Errorf("RoCE v1 to v2: %v", wc.Status)
		}
	})
	t.Run("path MTUs", func(t *testing.T) {
		k := start(t, Options{})
		a, b := openDev(t, k).qp(), openDev(t, k).qp()
		b.mtu = 2
		connect(t, a, b, 1, 7)
		write := func(n int) provider.WC {
			a.send(provider.SendWR{
				Opcode: provider.OpRDMAWrite, Flags: provider.SendSignaled, SGL: a.sge(0, n),
				RemoteAddr: uapi.Addr(b.mem), RKey: b.mr.Rkey,
			})
			return a.cq.one()
		}
		if wc := write(512); wc.Status != provider.WCSuccess {
			t.Errorf("one packet: %v", wc.Status)
		}
		if wc := write(513); wc.Status != provider.WCRemoteInvalidRequest {
			t.Errorf("two packets: %v", wc.Status)
		}
	})
	t.Run("path MTU over the port's", func(t *testing.T) {
		k := start(t, Options{MaxRetry: time.Millisecond})
		a, b := openDev(t, k).qp(), openDev(t, k).qp()
		a.mtu, b.mtu = 5, 5
		connect(t, a, b, 1, 7)
		b.recv(1, b.sge(0, 4096))
		b.recv(2, b.sge(0, 4096))
		if wc := a.do(provider.SendWR{Opcode: provider.OpSend, SGL: a.sge(0, 1024)}); wc.Status != provider.WCSuccess {
			t.Errorf("what fits: %v", wc.Status)
		}
		if wc := a.do(provider.SendWR{Opcode: provider.OpSend, SGL: a.sge(0, 1025)}); wc.Status != provider.WCRetryExceeded {
			t.Errorf("what does not: %v", wc.Status)
		}
	})
	t.Run("other addresses", func(t *testing.T) {
		k := start(t, Options{MaxRetry: time.Millisecond})
		a, b := openDev(t, k).qp(), openDev(t, k).qp()
		b.d.gid = k.devices[0].gids[2] // hears from IPv6, is spoken to by IPv4
		must(t, a.toInit())
		must(t, b.toInit())
		must(t, b.toRTR(a, 0))
		b.d.gid = k.devices[0].gids[1]
		must(t, a.toRTR(b, 0))
		must(t, a.toRTS(0, 1, 7))
		if wc := a.do(provider.SendWR{Opcode: provider.OpRDMAWrite}); wc.Status != provider.WCRetryExceeded {
			t.Errorf("got %v", wc.Status)
		}
	})
	t.Run("no read credit", func(t *testing.T) {
		k := start(t, Options{MaxRetry: time.Microsecond})
		a, b := openDev(t, k).qp(), openDev(t, k).qp()
		connect(t, a, b, 1, 7)
		k.mu.Lock()
		k.devices[0].qps[a.num].attr.MaxRdAtomic = 0
		k.mu.Unlock()
		a.send(provider.SendWR{Opcode: provider.OpRDMARead})
		time.Sleep(2 * time.Millisecond)
		if got := a.cq.poll(); len(got) > 0 {
			t.Errorf("got %+v, want that it hangs", got)
		}
	})
}

// TestReset: what was posted is gone without a completion, and the queue pair starts anew.
func TestReset(t *testing.T) {
	a, b := pair(t, start(t, Options{}))
	a.recv(1, a.sge(0, 8))
	a.send(provider.SendWR{ID: 2, Opcode: provider.OpSend, Flags: provider.SendSignaled}) // the receiver is not ready
	for _, q := range []*rawQP{a, b} {
		must(t, q.modify(abi.IbUverbsModifyQp{AttrMask: maskState, QpState: stateReset}))
	}
	connect(t, a, b, 7, 7)
	if got := a.cq.poll(); len(got) > 0 {
		t.Errorf("completions of what was reset: %+v", got)
	}
	b.recv(3, b.sge(0, 8))
	a.send(provider.SendWR{ID: 4, Opcode: provider.OpSend, Flags: provider.SendSignaled})
	if wc := a.cq.one(); wc.ID != 4 || wc.Status != provider.WCSuccess {
		t.Errorf("got %+v", wc)
	}
}

// TestCut: with the cable out sends fail after their tries, and the end of a connection is
// only heard by whoever waits for an answer.
func TestCut(t *testing.T) {
	k := start(t, Options{MaxRetry: time.Millisecond, CMTimeout: time.Millisecond})
	a, b := pair(t, k)
	server, client := openCM(t, k), openCM(t, k)
	server.listener(1, ap("10.9.0.1:7174"))
	id := client.dial(10, ap("10.9.0.1:7174"))
	must(t, client.connect(id, abi.RdmaUcmConnParam{}, ""))
	child := server.next(EventConnectRequest, 1).Id
	must(t, server.accept(child, 2, abi.RdmaUcmConnParam{}, ""))
	client.next(EventConnectResponse, 10)
	must(t, client.establish(id))
	server.next(EventEstablished, 2)
	late := client.dial(11, ap("10.9.0.1:7174"))

	k.Cut(true)
	b.recv(1, b.sge(0, 8))
	a.send(provider.SendWR{Opcode: provider.OpSend})
	if wc := a.cq.one(); wc.Status != provider.WCRetryExceeded {
		t.Errorf("send: %v", wc.Status)
	}
	must(t, client.connect(late, abi.RdmaUcmConnParam{}, ""))
	client.next(EventUnreachable, 11)
	must(t, client.disconnect(id))
	if e := client.next(EventDisconnected, 10); int32(e.Status) != -int32(unix.ETIMEDOUT) {
		t.Errorf("status %d, want a time-out", int32(e.Status))
	}
	server.quiet()
	k.Cut(false)
	must(t, server.disconnect(child)) // nobody answers any more
	late = client.dial(12, ap("10.9.0.1:7174"))
	must(t, client.connect(late, abi.RdmaUcmConnParam{}, ""))
	server.next(EventConnectRequest, 1)
}

func TestRaise(t *testing.T) {
	k := start(t, Options{})
	d := openDev(t, k)
	q := d.qp()
	next := func() (e abi.IbUverbsAsyncEventDesc) {
		_, err := d.async.Read(t.Context(), bytesOf(&e))
		must(t, err)
		return e
	}
	if !k.RaiseQP("rxe0", q.num, 1) || k.RaiseQP("rxe0", q.num+1, 1) || k.RaiseQP("rxe1", q.num, 1) {
		t.Error("RaiseQP mistakes which queue pairs there are")
	}
	if e := next(); e.Element != 0xbeef || e.EventType != 1 {
		t.Errorf("got %+v, want QP fatal", e)
	}
	k.RaisePort("rxe0", 10)
	if e := next(); e.Element != 1 || e.EventType != 10 {
		t.Errorf("got %+v, want port error", e)
	}
	k.RaiseQP("rxe0", q.num, 1)
	var resp abi.IbUverbsDestroyQpResp
	must(t, cmd(uapi.QPDestroy).Destroy(abi.UVERBS_ATTR_DESTROY_QP_HANDLE, q.handle).
		Out(abi.UVERBS_ATTR_DESTROY_QP_RESP, bytesOf(&resp)).Do(d.f))
	if resp.EventsReported != 1 {
		t.Errorf("%d events reported, want the one that was read", resp.EventsReported)
	}
	must(t, d.f.Close())
	var e abi.IbUverbsAsyncEventDesc
	_, err := d.async.Read(t.Context(), bytesOf(&e))
	want(t, "read after the end of the context", err, unix.EIO) // and the unread event is gone
	_, err = q.cq.ch.Read(t.Context(), make([]byte, 8))
	want(t, "read of its completion channel", err, unix.EIO)
}

func TestSpoil(t *testing.T) {
	k := start(t, Options{Spoil: func(q []byte) { *view[uint32](q[4:]) = 12 }})
	var (
		size uint32
		plan rxe.CQPlan
		d    = openDev(t, k)
	)
	must(t, createCQ(10, &size, plan.Out()).Do(d.f))
	if _, err := plan.Attach(d.mapper); err == nil {
		t.Error("an index mask of 12 went unnoticed")
	}
}
