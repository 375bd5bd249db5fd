//go:build linux

package fakekernel

import (
	"bytes"
	"encoding/hex"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
	"github.com/pureverbs/rdma/internal/provider/rxe"
	"github.com/pureverbs/rdma/internal/uapi"
)

const typeUD = abi.IB_UVERBS_QPT_UD

func (d *dev) ud() *rawQP {
	d.t.Helper()
	return d.build(&rawQP{pd: d.pd(), typ: typeUD}).up()
}

// datagram is a SEND of n bytes to a queue pair over an address handle.
func (q *rawQP) datagram(av *provider.AV, to *rawQP, n int) provider.SendWR {
	return provider.SendWR{
		ID: 1, Opcode: provider.OpSend, SGL: q.sge(0, n), Dest: provider.Dest{AV: av, QPN: to.num, QKey: to.qkey},
	}
}

// TestDatagram: what lands, and the header before it, within a device and between two, with
// both ways to say where to.
func TestDatagram(t *testing.T) {
	const (
		within  = "0000000000000000000000000000000000000000" + "455a0040000040004011" + "0000" + "0a0900010a090001"
		between = "0000000000000000000000000000000000000000" + "455a0040000040004011" + "263f" + "0a0900010a090002"
		v6      = "65a00000002c1140" + "20010db8000900000000000000000001" + "20010db8000900000000000000000002"
		v6less  = "65a00000002c1140" + "20010db8000900000000000000000001" + "20010db8000900000000000000000001"
		v6hops  = "65a00000002c1109" + "20010db8000900000000000000000001" + "20010db8000900000000000000000002"
	)
	for _, tt := range []struct {
		name, kernel string
		device, gid  int // the receiver's
		want         string
	}{
		{"IPv4 within", "6.1", 0, 1, within},
		{"IPv4 between", "6.1", 1, 1, between},
		{"IPv6 between", "6.12", 1, 2, v6},
		{"IPv6 within", "6.12", 0, 2, v6less},
		{"IPv6 between, way in the request", "5.10", 1, 2, v6hops},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := start(t, Options{Kernel: tt.kernel, Devices: []Device{{}, {}}})
			a, b := openNode(t, k, 0).ud(), openNode(t, k, tt.device).ud()
			_, av := a.d.ah(a.pd, uint8(tt.gid), gidOf(b.d, tt.gid), 9)
			if numbered := av.Number != 0; numbered != (tt.kernel != "5.10") {
				t.Errorf("number of the address handle: %d", av.Number)
			}
			fill(a.mem[:10], 1)
			b.recv(2, b.sge(0, 200))
			if wc := a.do(a.datagram(av, b, 10)); wc.Status != provider.WCSuccess || wc.Opcode != provider.WCSend {
				t.Errorf("sender: %+v", wc)
			}
			want := provider.WC{ID: 2, Opcode: provider.WCRecv, ByteLen: 50, QPNum: b.num, SrcQP: a.num, Flags: provider.WCGRH}
			if diff := cmp.Diff(want, b.next()); diff != "" {
				t.Errorf("receiver (-want +got):\n%s", diff)
			}
			if got := hex.EncodeToString(b.mem[:40]); got != tt.want {
				t.Errorf("header\n%s, want\n%s", got, tt.want)
			}
			if !bytes.Equal(b.mem[40:50], a.mem[:10]) || b.mem[50] != 0 {
				t.Errorf("data: %x", b.mem[40:51])
			}
		})
	}
}

// TestDatagramLost: the sender never learns.
func TestDatagramLost(t *testing.T) {
	k := start(t, Options{Devices: []Device{{MTU: 2}}})
	a, b := openDev(t, k).ud(), openDev(t, k).ud()
	rc := b.d.qp()
	idle := b.d.build(&rawQP{pd: b.d.pd(), typ: typeUD})
	_, av := a.d.ah(a.pd, 1, gidOf(b.d, 1), 1)
	_, nobody := a.d.ah(a.pd, 1, [16]byte{10: 0xff, 0xff, 10, 9, 0, 77}, 1)
	for name, edit := range map[string]func(wr *provider.SendWR){
		"key":            func(wr *provider.SendWR) { wr.Dest.QKey++ },
		"no such number": func(wr *provider.SendWR) { wr.Dest.QPN = 5000 },
		"other type":     func(wr *provider.SendWR) { wr.Dest.QPN = rc.num },
		"other state":    func(wr *provider.SendWR) { wr.Dest.QPN = idle.num },
		"nobody there":   func(wr *provider.SendWR) { wr.Dest.AV = nobody },
		"over the MTU":   func(wr *provider.SendWR) { wr.SGL = a.sge(0, 513) },
		"many, to one":   func(wr *provider.SendWR) { wr.Dest.QPN = multicastQPN },
	} {
		b.recv(1, b.sge(0, 4096))
		wr := a.datagram(av, b, 8)
		edit(&wr)
		if wc := a.do(wr); wc.Status != provider.WCSuccess {
			t.Errorf("%s: sender got %v", name, wc.Status)
		}
		if got := b.cq.poll(); len(got) > 0 {
			t.Errorf("%s: arrived: %+v", name, got)
		}
	}
	if wc := a.do(a.datagram(av, b, 512)); wc.Status != provider.WCSuccess || b.next().ByteLen != 552 {
		t.Errorf("as long as the MTU: %v", wc.Status)
	}
	k.Cut(true)
	if wc := a.do(a.datagram(av, b, 1)); wc.Status != provider.WCSuccess || len(b.cq.poll()) > 0 {
		t.Errorf("without a cable: %v", wc.Status)
	}
	k.Cut(false)
	b.cq.arm(1)
	wr := a.datagram(av, b, 1)
	wr.Opcode, wr.Imm, wr.Flags = provider.OpSendImm, 7, provider.SendSolicited
	a.do(wr)
	if wc := b.next(); wc.Imm != 7 || wc.Flags != provider.WCGRH|provider.WCWithImm || !b.cq.event() {
		t.Errorf("immediate: %+v", wc)
	}
	if full := b.cq; a.state() != stateRTS || b.state() != stateRTS || len(full.poll()) > 0 {
		t.Error("a queue pair is not in RTS")
	}
}

// TestDatagramTooShort: a receive request without room for header and data.
func TestDatagramTooShort(t *testing.T) {
	for _, tt := range []struct {
		kernel string
		shared bool
		want   []provider.WCStatus
		state  uint8
	}{
		{"6.1", false, []provider.WCStatus{provider.WCLocalQPOperationError}, stateError},
		{"6.12", false, nil, stateRTS},
		{"6.12", true, []provider.WCStatus{provider.WCRemoteInvalidRequest}, stateRTS},
	} {
		d := openDev(t, start(t, Options{Kernel: tt.kernel}))
		model := rawQP{pd: d.pd(), typ: typeUD}
		if tt.shared {
			model.shared = d.srq(model.pd, 4)
		}
		a, b := d.ud(), d.build(&model).up()
		_, av := a.d.ah(a.pd, 1, gidOf(d, 1), 1)
		if tt.shared {
			model.shared.recv(1, b.sge(0, 47))
		} else {
			b.recv(1, b.sge(0, 47))
		}
		if wc := a.do(a.datagram(av, b, 8)); wc.Status != provider.WCSuccess {
			t.Errorf("%+v: sender got %v", tt, wc.Status)
		}
		var got []provider.WCStatus
		for _, wc := range b.cq.poll() {
			got = append(got, wc.Status)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" || b.state() != tt.state {
			t.Errorf("%+v: state %d, receiver (-want +got):\n%s", tt, b.state(), diff)
		}
	}
}

// TestDatagramRefused: what the requester itself cannot do.
func TestDatagramRefused(t *testing.T) {
	for name, edit := range map[string]func(a *rawQP, wr *provider.SendWR){
		"handle of another domain": func(a *rawQP, wr *provider.SendWR) { _, wr.Dest.AV = a.d.ah(a.d.pd(), 1, gidOf(a.d, 1), 1) },
		"handle that is gone": func(a *rawQP, wr *provider.SendWR) {
			var h uint32
			h, wr.Dest.AV = a.d.ah(a.pd, 1, gidOf(a.d, 1), 1)
			must(a.d.t, cmd(uapi.AHDestroy).Destroy(abi.UVERBS_ATTR_DESTROY_AH_HANDLE, h).Do(a.d.f))
		},
		"IPv4 to IPv6": func(a *rawQP, wr *provider.SendWR) { _, wr.Dest.AV = a.d.ah(a.pd, 1, gidOf(a.d, 2), 1) },
		"empty GID": func(a *rawQP, wr *provider.SendWR) {
			var plan rxe.AHPlan // without a number
			wr.Dest.AV = new(provider.AV)
			plan.Fill(wr.Dest.AV, &rxe.Way{SGIDIndex: 9})
		},
		"write":           func(_ *rawQP, wr *provider.SendWR) { wr.Opcode = provider.OpRDMAWrite },
		"with invalidate": func(_ *rawQP, wr *provider.SendWR) { wr.Opcode = provider.OpSendInvalidate },
		"local key":       func(_ *rawQP, wr *provider.SendWR) { wr.SGL[0].LKey++ },
	} {
		a := openDev(t, start(t, Options{})).ud()
		_, av := a.d.ah(a.pd, 1, gidOf(a.d, 1), 1)
		wr := a.datagram(av, a, 8)
		edit(a, &wr)
		if wc := a.do(wr); wc.Status != provider.WCLocalQPOperationError || a.state() != stateError {
			t.Errorf("%s: %v, state %d", name, wc.Status, a.state())
		}
	}
}

func TestAddressHandle(t *testing.T) {
	k := start(t, Options{})
	d := openDev(t, k)
	pd, gid := d.pd(), gidOf(d, 1)
	for _, tt := range []struct {
		name string
		edit func(c *abi.IbUverbsCreateAh)
		want unix.Errno
	}{
		{"good", func(*abi.IbUverbsCreateAh) {}, 0},
		{"port", func(c *abi.IbUverbsCreateAh) { c.Attr.PortNum = 2 }, unix.EINVAL},
		{"domain", func(c *abi.IbUverbsCreateAh) { c.PdHandle = 99 }, unix.ENOENT},
		{"not global", func(c *abi.IbUverbsCreateAh) { c.Attr.IsGlobal = 0 }, unix.EINVAL},
		{"empty GID", func(c *abi.IbUverbsCreateAh) { c.Attr.Grh.SgidIndex = 3 }, unix.ENODATA},
	} {
		c := ahAttr(pd, 1, gid, 1)
		tt.edit(&c)
		_, err := d.createAH(c, nil)
		want(t, tt.name, err, tt.want)
	}
	h, av := d.ah(pd, 1, gid, 1)
	end := cmd(uapi.PDDestroy).Destroy(abi.UVERBS_ATTR_DESTROY_PD_HANDLE, pd)
	want(t, "domain with handles", end.Do(d.f), unix.EBUSY)
	must(t, cmd(uapi.AHDestroy).Destroy(abi.UVERBS_ATTR_DESTROY_AH_HANDLE, h).Do(d.f))
	if _, next := d.ah(pd, 1, gid, 1); av.Number == 0 || next.Number == av.Number {
		t.Errorf("numbers %d and %d: they come back late", av.Number, next.Number)
	}
	if n := k.Counts().AHs; n != 2 {
		t.Errorf("%d address handles, want 2", n)
	}
}
