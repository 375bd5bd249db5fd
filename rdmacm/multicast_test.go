package rdmacm

import (
	"net"
	"net/netip"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/uverbs"
)

var testGroup = netip.MustParseAddr("239.9.0.1")

// mustUD is an id for datagrams with a device.
func mustUD(t *testing.T, s *script, ch *EventChannel) *ID {
	t.Helper()
	s.local = netip.MustParseAddrPort("10.9.0.1:1024")
	id, err := ch.NewID(PortSpaceUDP)
	if err != nil {
		t.Fatal(err)
	}
	if err := id.Bind(s.local); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := id.Close(); err != nil {
			t.Errorf("close id: %v", err)
		}
	})
	return id
}

var (
	groupGID  = uverbs.GID{10: 0xff, 11: 0xff, 12: 239, 13: 9, 15: 1}
	kernelUD  = abi.IbUverbsAhAttr{Grh: abi.IbUverbsGlobalRoute{Dgid: groupGID, FlowLabel: 5, SgidIndex: 3, HopLimit: 64, TrafficClass: 2}, Dlid: 0xc001, Sl: 1, StaticRate: 4, IsGlobal: 1, PortNum: 1}
	libraryUD = uverbs.AHAttr{DGID: groupGID, FlowLabel: 5, SGIDIndex: 3, HopLimit: 64, TrafficClass: 2, IsGlobal: true, DLID: 0xc001, SL: 1, StaticRate: 4, PortNum: 1}
)

// putUD makes an event with the parameters of datagrams.
func (s *script) putUD(kid uint32, typ EventType, status int32, p abi.RdmaUcmUdParam) {
	s.mu.Lock()
	r := &abi.RdmaUcmEventResp{Uid: s.uids[kid], Id: kid, Event: uint32(typ), Status: uint32(status)}
	s.mu.Unlock()
	*r.ParamUd() = p
	s.events <- r
}

func TestJoinMulticast(t *testing.T) {
	s := newScript(t)
	ch := s.channel(nil)
	id := mustUD(t, s, ch)
	if err := id.JoinMulticast(testGroup, JoinFull, "mine"); err != nil {
		t.Fatal(err)
	}
	if err := id.JoinMulticast(netip.MustParseAddr("ff0e::9"), JoinSendOnly, nil); err != nil {
		t.Fatal(err)
	}
	sent := s.sent(abi.RDMA_USER_CM_CMD_JOIN_MCAST)
	var v4, v6 abi.KernelSockaddrStorage
	putSockaddr(&v4, netip.AddrPortFrom(testGroup, 0))
	putSockaddr(&v6, netip.MustParseAddrPort("[ff0e::9]:0"))
	for i, want := range []abi.RdmaUcmJoinMcast{
		{Uid: id.groups[0].uid, AddrSize: 16, JoinFlags: 0, Addr: v4}, {Uid: id.groups[1].uid, AddrSize: 28, JoinFlags: 1, Addr: v6},
	} {
		got := as[abi.RdmaUcmJoinMcast](sent[i])
		got.Response = 0
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("join (-want +got):\n%s", diff)
		}
	}
	if a, b := id.groups[0].uid, id.groups[1].uid; a == 0 || b == 0 || a == b || a == id.uid || b == id.uid {
		t.Errorf("got uids %#x and %#x beside the id's %#x, want three", a, b, id.uid)
	}
	s.putUD(id.groups[0].kid, EventMulticastJoin, 0, abi.RdmaUcmUdParam{QpNum: 0xffffff, Qkey: 0x01234567, AhAttr: kernelUD})
	ev := next(t, ch)
	if ev.Type != EventMulticastJoin || ev.ID != id || ev.Context != "mine" || ev.Err != nil {
		t.Fatalf("got %+v, want the group joined", ev)
	}
	if diff := cmp.Diff(UDInfo{AH: libraryUD, QPNum: MulticastQPNum, QKey: DefaultQKey}, ev.UD); diff != "" {
		t.Errorf("where to send to (-want +got):\n%s", diff)
	}
	s.putUD(id.groups[1].kid, EventMulticastError, -110, abi.RdmaUcmUdParam{})
	ev = next(t, ch)
	mustBe(t, "group of IPv6", ev.Err, syscall.ETIMEDOUT, "join multicast group")
	if ev.Type != EventMulticastError || ev.Context != nil {
		t.Errorf("got %v for %v, want an error for no context", ev.Type, ev.Context)
	}
}

func TestLeaveMulticast(t *testing.T) {
	s := newScript(t)
	ch := s.channel(nil)
	id := mustUD(t, s, ch)
	if err := id.JoinMulticast(testGroup, JoinFull, 1); err != nil {
		t.Fatal(err)
	}
	m := id.groups[0]
	late := &abi.RdmaUcmEventResp{Uid: m.uid, Id: m.kid, Event: uint32(EventMulticastJoin)}
	if err := id.LeaveMulticast(netip.MustParseAddr("::ffff:239.9.0.1")); err != nil {
		t.Fatal(err)
	}
	if in := as[abi.RdmaUcmDestroyId](s.sent(abi.RDMA_USER_CM_CMD_LEAVE_MCAST)[0]); in.Id != m.kid {
		t.Errorf("left %d, want %d", in.Id, m.kid)
	}
	s.events <- late
	quiet(t, ch)
	mustBe(t, "leave again", id.LeaveMulticast(testGroup), ErrInvalid, "leave multicast group 239.9.0.1")
	// And in once more.
	if err := id.JoinMulticast(testGroup, JoinFull, 2); err != nil {
		t.Fatal(err)
	}
	s.events <- late
	s.putUD(id.groups[0].kid, EventMulticastJoin, 0, abi.RdmaUcmUdParam{})
	if ev := next(t, ch); ev.Context != 2 {
		t.Errorf("got an event of membership %v, want 2", ev.Context)
	}
	s.fail[abi.RDMA_USER_CM_CMD_LEAVE_MCAST] = syscall.EIO
	mustBe(t, "leave", id.LeaveMulticast(testGroup), syscall.EIO)
	s.fail[abi.RDMA_USER_CM_CMD_LEAVE_MCAST] = syscall.ENXIO
	if err := id.LeaveMulticast(testGroup); err != nil {
		t.Errorf("leave what went with the device: %v", err)
	}
}

func TestMulticastErrors(t *testing.T) {
	s := newScript(t)
	ch := s.channel(nil)
	id := mustUD(t, s, ch)
	fresh, err := ch.NewID(PortSpaceUDP)
	if err != nil {
		t.Fatal(err)
	}
	mustBe(t, "no device", fresh.JoinMulticast(testGroup, JoinFull, nil), ErrInvalid, "no device")
	fresh.Close()
	mustBe(t, "closed", fresh.JoinMulticast(testGroup, JoinFull, nil), net.ErrClosed)
	mustBe(t, "connected", mustID(t, ch).JoinMulticast(testGroup, JoinFull, nil), ErrInvalid, "port spaces")
	mustBe(t, "unicast", id.JoinMulticast(netip.MustParseAddr("10.9.0.1"), JoinFull, nil), ErrInvalid, "join multicast group 10.9.0.1")
	mustBe(t, "no address", id.JoinMulticast(netip.Addr{}, JoinFull, nil), ErrInvalid)
	mustBe(t, "flags", id.JoinMulticast(testGroup, 2, nil), ErrInvalid)
	for errno, want := range map[syscall.Errno]error{
		syscall.ENOSYS: ErrNotSupported, errnoNotSupp: ErrNotSupported, syscall.ENODEV: syscall.ENODEV,
	} {
		s.fail[abi.RDMA_USER_CM_CMD_JOIN_MCAST] = errno
		mustBe(t, "join", id.JoinMulticast(testGroup, JoinFull, nil), want)
	}
	if len(id.groups) != 0 || len(ch.ids.slots)-len(ch.ids.free) != 2 {
		t.Error("a failed attempt is left behind")
	}
	delete(s.fail, abi.RDMA_USER_CM_CMD_JOIN_MCAST)
	if err := id.JoinMulticast(testGroup, JoinFull, nil); err != nil {
		t.Fatal(err)
	}
	mustBe(t, "twice", id.JoinMulticast(testGroup, JoinFull, nil), ErrInvalid, "already")
	if n := ch.ids.len(); n != 2 {
		t.Errorf("%d ids are open, want 2: a membership is none", n)
	}
}

// A kernel that mixes the numbers of ids and memberships up.
func TestMulticastWrongUID(t *testing.T) {
	s := newScript(t)
	ch := s.channel(nil)
	id := mustUD(t, s, ch)
	if err := id.JoinMulticast(testGroup, JoinFull, nil); err != nil {
		t.Fatal(err)
	}
	m := id.groups[0]
	for _, r := range []*abi.RdmaUcmEventResp{
		{Uid: id.uid, Event: uint32(EventMulticastJoin)}, {Uid: id.uid, Event: uint32(EventMulticastError)},
		{Uid: m.uid, Event: uint32(EventEstablished)}, {Uid: m.uid, Event: uint32(EventConnectRequest), Id: 77},
	} {
		s.events <- r
	}
	quiet(t, ch)
}

func TestDatagramEvents(t *testing.T) {
	s := newScript(t)
	ch := s.channel(scriptTree("  eth0: 1 2\n"))
	param := abi.RdmaUcmUdParam{QpNum: 17, Qkey: 0x01234567, AhAttr: kernelUD, PrivateDataLen: 2, PrivateData: [256]uint8{'h', 'i'}}
	listener, client := mustUD(t, s, ch), mustUD(t, s, ch)

	// A request: who asks has no queue pair for us.
	s.mu.Lock()
	kid := s.next
	s.next++
	s.uids[kid] = 0
	s.mu.Unlock()
	r := &abi.RdmaUcmEventResp{Uid: listener.uid, Id: kid, Event: uint32(EventConnectRequest)}
	*r.ParamUd() = param
	s.events <- r
	req := next(t, ch)
	if string(req.PrivateData) != "hi" || req.UD != (UDInfo{}) || req.ID.PortSpace() != PortSpaceUDP || req.Conn != (ConnInfo{}) {
		t.Fatalf("got %+v, want a request with private data alone", req)
	}
	mustBe(t, "accept without a queue pair", req.ID.Accept(ConnParam{}), ErrInvalid, "no queue pair")
	mustBe(t, "accept with a Q_Key", req.ID.Accept(ConnParam{QPNum: 9, QKey: 1}), ErrInvalid, "the kernel chooses")
	mustBe(t, "accept", req.ID.Accept(ConnParam{QPNum: 9, PrivateData: make([]byte, 137)}), ErrInvalid, "up to 136")
	if err := req.ID.Accept(ConnParam{QPNum: 9, PrivateData: make([]byte, 136)}); err != nil {
		t.Fatal(err)
	}
	in := as[abi.RdmaUcmAccept](s.sent(abi.RDMA_USER_CM_CMD_ACCEPT)[0])
	if in.ConnParam.QpNum != 9 || in.ConnParam.Valid != 1 || in.ConnParam.PrivateDataLen != 136 || in.Uid != req.ID.uid {
		t.Errorf("got %+v, want queue pair 9", in)
	}
	if err := req.ID.Close(); err != nil {
		t.Error(err)
	}

	// The client's side.
	mustBe(t, "connect", client.Connect(ConnParam{PrivateData: make([]byte, 181)}), ErrInvalid, "up to 180")
	if err := client.Connect(ConnParam{PrivateData: make([]byte, 180)}); err != nil {
		t.Fatal(err)
	}
	s.putUD(client.kid, EventEstablished, 0, param)
	ev := next(t, ch)
	want := UDInfo{AH: libraryUD, QPNum: 17, QKey: 0x01234567}
	if ev.Type != EventEstablished || string(ev.PrivateData) != "hi" {
		t.Errorf("got %+v, want established with private data", ev)
	}
	if diff := cmp.Diff(want, ev.UD); diff != "" {
		t.Errorf("where to send to (-want +got):\n%s", diff)
	}
}

// What becomes of a datagram id that nobody answers as it hoped.
func TestDatagramFailures(t *testing.T) {
	for _, tt := range []struct {
		typ    EventType
		status int32
		is     error
		words  string
	}{
		{EventUnreachable, 1, syscall.ECONNREFUSED, "connection rejected: nobody listens on that port (reason 1)"},
		{EventUnreachable, 2, syscall.ECONNREFUSED, "the peer's program said no (reason 2)"},
		{EventUnreachable, 6, syscall.ECONNREFUSED, "reason 6"},
		{EventUnreachable, -110, syscall.ETIMEDOUT, "the peer does not answer"},
		{EventAddrError, -22, syscall.EINVAL, "connect"},
	} {
		s := newScript(t)
		ch := s.channel(nil)
		id := mustUD(t, s, ch)
		if err := id.Connect(ConnParam{}); err != nil {
			t.Fatal(err)
		}
		s.putUD(id.kid, tt.typ, tt.status, abi.RdmaUcmUdParam{PrivateDataLen: 1, PrivateData: [256]uint8{'x'}})
		ev := next(t, ch)
		mustBe(t, tt.words, ev.Err, tt.is, tt.words)
		if ev.Type != tt.typ || ev.UD != (UDInfo{}) {
			t.Errorf("%s: got %v to %+v", tt.words, ev.Type, ev.UD)
		}
		s.putUD(id.kid, tt.typ, tt.status, abi.RdmaUcmUdParam{})
		quiet(t, ch) // the end is reported once
	}
}
