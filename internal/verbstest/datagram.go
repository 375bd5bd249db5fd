//go:build linux

package verbstest

import (
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/uverbs"
)

func (u *Suite) datagramTests() []test {
	return []test{
		{"Datagrams", u.datagrams},
		{"DatagramAnswer", u.datagramAnswer},
		{"DatagramRefused", u.datagramRefused},
		{"DatagramWrongQKey", u.datagramWrongQKey},
		{"AddressHandles", u.addressHandles},
		{"Multicast", u.multicast},
	}
}

// qkey is of every datagram queue pair here.
const qkey = 0x1234567

// toDatagrams brings a datagram queue pair to RTS.
func (s *side) toDatagrams(t testing.TB, key uint32) {
	t.Helper()
	testutil.Must(t, s.qp.Modify(&uverbs.QPAttr{State: uverbs.StateInit, PortNum: 1, QKey: key}, toInitUD))
	testutil.Must(t, s.qp.Modify(&uverbs.QPAttr{State: uverbs.StateRTR}, uverbs.QPAttrState))
	testutil.Must(t, s.qp.Modify(&uverbs.QPAttr{State: uverbs.StateRTS}, uverbs.QPAttrState|uverbs.QPAttrSQPSN))
}

// handle is an address handle that lives as long as the test.
func (h *host) handle(t testing.TB, attr uverbs.AHAttr) *uverbs.AH {
	t.Helper()
	ah, err := h.pd.CreateAH(&attr)
	testutil.Must(t, err)
	t.Cleanup(func() { closeAll(t, ah) })
	return ah
}

// datagrams: bytes, immediate data and the routing header arrive.
func (u *Suite) datagrams(t *testing.T) {
	u.needs(t, datagrams)
	a, b := u.pairOf(t, uverbs.QPTypeUD, 4096)
	ah := a.handle(t, a.way(t, b.host))
	for i, op := range []uverbs.Opcode{uverbs.OpSend, uverbs.OpSendImm} {
		for _, n := range []int{0, 1, 1000} {
			testutil.Fill(a.mr.Bytes(), uint64(i+n))
			clear(b.mr.Bytes())
			b.recv(t, 7, 0, uverbs.GRHSize+n)
			a.send(t, uverbs.SendWR{
				ID: 6, Opcode: op, Flags: uverbs.SendSignaled, SGL: []uverbs.SGE{a.mr.SGE(0, n)}, Imm: 0xa1b2c3d4,
				Dest: ah.Dest(b.qp.Num(), qkey),
			})
			a.ok(t, 6, uverbs.WCSend)
			wc := b.ok(t, 7, uverbs.WCRecv)
			if int(wc.ByteLen) != uverbs.GRHSize+n || wc.SrcQP != a.qp.Num() || !wc.HasGRH() {
				t.Errorf("%v of %d bytes: received %+v, want %d bytes from %d", op, n, wc, uverbs.GRHSize+n, a.qp.Num())
			}
			if wc.HasImm() != op.HasImm() || wc.HasImm() && wc.Imm != 0xa1b2c3d4 {
				t.Errorf("%v: immediate %v %#x", op, wc.HasImm(), wc.Imm)
			}
			if string(b.mr.Bytes()[uverbs.GRHSize:][:n]) != string(a.mr.Bytes()[:n]) {
				t.Errorf("%v of %d bytes: the message changed", op, n)
			}
			grh, err := uverbs.ParseGRH(b.mr.Bytes())
			if err != nil || grh.SGID != a.routable(t).GID || grh.DGID != b.routable(t).GID {
				t.Errorf("routing header %+v, %v; want from %v to %v", grh, err, a.routable(t).GID, b.routable(t).GID)
			}
		}
	}
}

// datagramAnswer: the completion and the routing header lead back to the sender.
func (u *Suite) datagramAnswer(t *testing.T) {
	u.needs(t, datagrams)
	a, b := u.pairOf(t, uverbs.QPTypeUD, 4096)
	for _, way := range a.ways(t, b.host) {
		ah := a.handle(t, way)
		b.recv(t, 1, 0, 256)
		a.recv(t, 2, 0, 256)
		a.send(t, uverbs.SendWR{ID: 3, Opcode: uverbs.OpSend, Flags: uverbs.SendSignaled, Dest: ah.Dest(b.qp.Num(), qkey)})
		a.ok(t, 3, uverbs.WCSend)
		wc := b.ok(t, 1, uverbs.WCRecv)
		attr, err := b.ctx.AHAttrFromWC(&wc, b.mr.Bytes()[:uverbs.GRHSize], 1)
		testutil.Must(t, err)
		if attr.DGID != way.DGID && attr.SGIDIndex != way.SGIDIndex { // one host: the way back is the way here
			t.Errorf("the way back is %+v, the way here was %+v", attr, way)
		}
		back, err := b.pd.CreateAHFromWC(&wc, b.mr.Bytes()[:uverbs.GRHSize], 1)
		testutil.Must(t, err)
		b.send(t, uverbs.SendWR{ID: 4, Opcode: uverbs.OpSend, Flags: uverbs.SendSignaled, Dest: back.Dest(wc.SrcQP, qkey)})
		b.ok(t, 4, uverbs.WCSend)
		a.ok(t, 2, uverbs.WCRecv)
		closeAll(t, back)
	}
}

// ways are those to a peer over each address of both.
func (h *host) ways(t *testing.T, peer *host) (all []uverbs.AHAttr) {
	t.Helper()
	table, err := h.ctx.GIDTable()
	testutil.Must(t, err)
	for _, e := range table {
		if e.Type == uverbs.GIDTypeRoCEv1 || e.GID.Addr().IsLinkLocalUnicast() {
			continue
		}
		all = append(all, uverbs.AHAttr{DGID: e.GID, SGIDIndex: uint8(e.Index), IsGlobal: true, HopLimit: 64, PortNum: 1})
	}
	if len(all) < 2 {
		t.Errorf("only %d addresses in %v", len(all), table)
	}
	return all
}

// datagramRefused: what cannot work is refused before it is posted.
func (u *Suite) datagramRefused(t *testing.T) {
	u.needs(t, datagrams)
	a, b := u.pairOf(t, uverbs.QPTypeUD, 1<<16)
	foreign := b.handle(t, b.way(t, a.host))
	ah := a.handle(t, a.way(t, b.host))
	port, err := a.ctx.QueryPort(1)
	testutil.Must(t, err)
	mtu := port.ActiveMTU.Bytes()
	to := ah.Dest(b.qp.Num(), qkey)
	for what, wr := range map[string]uverbs.SendWR{
		"no destination":     {Opcode: uverbs.OpSend},
		"another domain":     {Opcode: uverbs.OpSend, Dest: foreign.Dest(b.qp.Num(), qkey)},
		"more than a packet": {Opcode: uverbs.OpSend, Dest: to, SGL: []uverbs.SGE{a.mr.SGE(0, mtu+1)}},
	} {
		if n, err := a.qp.PostSend([]uverbs.SendWR{wr}); n != 0 || !errors.Is(err, uverbs.ErrInvalid) {
			t.Errorf("%s: posted %d, %v; want ErrInvalid", what, n, err)
		}
	}
	for _, op := range []uverbs.Opcode{uverbs.OpRDMAWrite, uverbs.OpRDMARead, uverbs.OpCompareSwap, uverbs.OpSendInvalidate} {
		refusedByType(t, a, uverbs.SendWR{Opcode: op, Dest: to})
	}
	b.recv(t, 1, 0, uverbs.GRHSize+mtu)
	a.send(t, uverbs.SendWR{ID: 2, Opcode: uverbs.OpSend, Flags: uverbs.SendSignaled, Dest: to, SGL: []uverbs.SGE{a.mr.SGE(0, mtu)}})
	a.ok(t, 2, uverbs.WCSend)
	if wc := b.ok(t, 1, uverbs.WCRecv); int(wc.ByteLen) != uverbs.GRHSize+mtu {
		t.Errorf("a whole packet: received %d bytes, want %d", wc.ByteLen, uverbs.GRHSize+mtu)
	}
}

// datagramWrongQKey: a datagram with another Q_Key is dropped, the next arrives.
func (u *Suite) datagramWrongQKey(t *testing.T) {
	u.needs(t, datagrams)
	a, b := u.pairOf(t, uverbs.QPTypeUD, 4096)
	ah := a.handle(t, a.way(t, b.host))
	b.recv(t, 1, 0, 256)
	for i, key := range []uint32{qkey + 1, qkey} {
		a.send(t, uverbs.SendWR{
			ID: uint64(i), Opcode: uverbs.OpSend, Flags: uverbs.SendSignaled | uverbs.SendInline,
			Inline: [][]byte{{byte(i)}}, Dest: ah.Dest(b.qp.Num(), key),
		})
		a.ok(t, uint64(i), uverbs.WCSend)
	}
	b.ok(t, 1, uverbs.WCRecv)
	if got := b.mr.Bytes()[uverbs.GRHSize]; got != 1 {
		t.Errorf("received datagram %d, want 1: the one with the right key", got)
	}
	b.quiet(t)
}

// addressHandles: errors of the kernel come through, and a domain with handles stays.
func (u *Suite) addressHandles(t *testing.T) {
	u.needs(t, datagrams)
	h := u.newHost(t, 4096)
	good := h.way(t, h)
	empty, local := good, good
	empty.SGIDIndex, local.IsGlobal = 200, false
	wrongPort := good
	wrongPort.PortNum = 9
	for what, attr := range map[string]uverbs.AHAttr{"empty GID": empty, "without GRH": local, "port 9": wrongPort} {
		if ah, err := h.pd.CreateAH(&attr); err == nil {
			t.Errorf("%s: made a handle", what)
			closeAll(t, ah)
		}
	}
	ah := h.handle(t, good)
	if ah.Attr() != good {
		t.Errorf("Attr is %+v, want %+v", ah.Attr(), good)
	}
	if err := h.pd.Close(); !errors.Is(err, uverbs.ErrBusy) {
		t.Errorf("close a domain with handles: got %v, want ErrBusy", err)
	}
	closeAll(t, ah, ah)
}

var group = uverbs.MulticastGID(netip.MustParseAddr("239.7.7.7"))

// multicast: a datagram to a group reaches each member once, and those that have left no
// more.
func (u *Suite) multicast(t *testing.T) {
	u.needs(t, multicast)
	u.join(t, group.Addr())
	a := u.newHost(t, 4096).make(t, shape{Type: uverbs.QPTypeUD})
	a.toDatagrams(t, qkey)
	var members []*side
	for range 3 {
		m := u.newHost(t, 4096).make(t, shape{Type: uverbs.QPTypeUD})
		m.toDatagrams(t, qkey)
		testutil.Must(t, m.qp.AttachMulticast(group, 0))
		testutil.Must(t, m.qp.AttachMulticast(group, 0)) // twice is once
		members = append(members, m)
	}
	way := a.way(t, a.host)
	way.DGID = group
	ah := a.handle(t, way)
	say := func(what byte, to []*side) {
		t.Helper()
		for _, m := range to {
			m.recv(t, uint64(what), 0, 256)
		}
		a.send(t, uverbs.SendWR{
			ID: 1, Opcode: uverbs.OpSend, Flags: uverbs.SendSignaled | uverbs.SendInline, Inline: [][]byte{{what}},
			Dest: ah.Dest(multicastQPN, qkey),
		})
		a.ok(t, 1, uverbs.WCSend)
		for i, m := range to {
			m.ok(t, uint64(what), uverbs.WCRecv)
			if got := m.mr.Bytes()[uverbs.GRHSize]; got != what {
				t.Errorf("member %d received %d, want %d", i, got, what)
			}
		}
	}
	say(1, members)
	testutil.Must(t, members[0].qp.DetachMulticast(group, 0))
	if err := members[0].qp.DetachMulticast(group, 0); err == nil {
		t.Error("detached twice")
	}
	members[0].recv(t, 99, 0, 256)
	say(2, members[1:])
	closeAll(t, members[1].qp) // while attached
	say(3, members[2:])
	members[0].quiet(t)
	rc := a.host.make(t, shape{})
	if err := rc.qp.AttachMulticast(group, 0); err == nil {
		t.Error("attached a queue pair of type RC")
	}
	if err := members[2].qp.AttachMulticast(a.routable(t).GID, 0); err == nil {
		t.Error("attached to a unicast address")
	}
}

// multicastQPN is where datagrams to a group go.
const multicastQPN = 0xffffff

// join makes this host a member of the group, as far as IP is concerned, where there is a
// real interface to do so.
func (u *Suite) join(t *testing.T, addr netip.Addr) {
	t.Helper()
	for _, name := range u.Device(t).NetDevs() {
		ifi, err := net.InterfaceByName(name)
		if err != nil {
			continue
		}
		c, err := net.ListenMulticastUDP("udp", ifi, &net.UDPAddr{IP: addr.AsSlice(), Port: 0})
		testutil.Must(t, err)
		t.Cleanup(func() { c.Close() })
	}
}
