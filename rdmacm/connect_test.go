package rdmacm

import (
	"net/netip"
	"syscall"
	"testing"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/uverbs"
)

func TestRW29PrivateDataLimits(t *testing.T) {
	s := newScript(t)
	s.local, s.remote = netip.MustParseAddrPort("10.9.0.1:7174"), netip.MustParseAddrPort("10.9.0.2:9")
	ch := s.channel(scriptTree("  eth0: 1 2\n"))
	depths := func(n int) ConnParam {
		return ConnParam{PrivateData: make([]byte, n), ResponderResources: None, InitiatorDepth: None}
	}
	client, listener := mustID(t, ch), mustID(t, ch)
	s.put(client.kid, EventRouteResolved, 0)
	next(t, ch)
	mustBe(t, "connect", client.Connect(depths(57)), ErrInvalid, "57 bytes of private data, the transport carries up to 56 here")
	if err := client.Connect(depths(56)); err != nil {
		t.Error(err)
	}
	for range 2 {
		s.request(listener)
	}
	first, second := next(t, ch).ID, next(t, ch).ID
	defer first.Close()
	defer second.Close()
	mustBe(t, "accept", first.Accept(depths(197)), ErrInvalid, "up to 196")
	if err := first.Accept(depths(196)); err != nil {
		t.Error(err)
	}
	mustBe(t, "reject", second.Reject(make([]byte, 149)), ErrInvalid, "up to 148")
	if err := second.Reject(make([]byte, 148)); err != nil {
		t.Error(err)
	}
	if n := len(s.sent(abi.RDMA_USER_CM_CMD_REJECT)) + len(s.sent(abi.RDMA_USER_CM_CMD_ACCEPT)); n != 2 {
		t.Errorf("%d answers reached the kernel, want 2", n)
	}
}

func TestPrivateDataLimitIWARP(t *testing.T) {
	s := newScript(t)
	s.local = netip.MustParseAddrPort("10.9.0.1:7174")
	files := scriptTree("  eth0: 1 2\n")
	files["sys/class/infiniband/rxe0/node_type"] = "4: RNIC\n"
	id := mustID(t, s.channel(files))
	s.put(id.kid, EventRouteResolved, 0)
	next(t, id.ch)
	p := ConnParam{PrivateData: make([]byte, 256), ResponderResources: None, InitiatorDepth: None}
	mustBe(t, "connect", id.Connect(p), ErrInvalid, "up to 251")
	p.PrivateData = p.PrivateData[:251]
	if err := id.Connect(p); err != nil {
		t.Error(err)
	}
}

func TestConnParamDefaults(t *testing.T) {
	for _, tt := range []struct {
		name string
		p    ConnParam
		want abi.RdmaUcmConnParam
	}{
		{"zero", ConnParam{}, abi.RdmaUcmConnParam{ResponderResources: 3, InitiatorDepth: 4, RetryCount: 7, RnrRetryCount: 7, Valid: 1}},
		{"none", ConnParam{RetryCount: None, RNRRetryCount: None},
			abi.RdmaUcmConnParam{ResponderResources: 3, InitiatorDepth: 4, Valid: 1}},
		{"all", ConnParam{PrivateData: []byte("x"), FlowControl: true, RetryCount: 1, RNRRetryCount: 2, QPNum: 17, SRQ: true},
			abi.RdmaUcmConnParam{QpNum: 17, PrivateData: [256]byte{'x'}, PrivateDataLen: 1, Srq: 1, ResponderResources: 3,
				InitiatorDepth: 4, FlowControl: 1, RetryCount: 1, RnrRetryCount: 2, Valid: 1}},
	} {
		if got := tt.p.kernel(depths{3, 4}); got != tt.want {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, tt.want)
		}
	}
	for _, tt := range []struct {
		asked  uint8
		device uint32
		want   uint8
		ok     bool
	}{{0, 16, 16, true}, {0, 1000, 254, true}, {16, 16, 16, true}, {17, 16, 17, false}, {None, 16, 0, true}, {0, 0, 0, true}} {
		got := value(tt.asked, None)
		err := fit("ResponderResources", &got, tt.asked, tt.device)
		if (err == nil) != tt.ok || got != tt.want {
			t.Errorf("%d of %d: got %d and error %v, want %d", tt.asked, tt.device, got, err, tt.want)
		}
	}
}

func TestConnectTwice(t *testing.T) {
	id := mustID(t, newScript(t).channel(nil))
	p := ConnParam{ResponderResources: None, InitiatorDepth: None}
	if err := id.Connect(p); err != nil {
		t.Fatal(err)
	}
	mustBe(t, "second connect", id.Connect(p), ErrInvalid)
	mustBe(t, "accept of no request", id.Accept(p), ErrInvalid)
	mustBe(t, "reject of no request", id.Reject(nil), ErrInvalid)
}

// An id whose queue pair the program manages: the response is reported, Establish confirms.
func TestEstablishByHand(t *testing.T) {
	s := newScript(t)
	ch := s.channel(nil)
	id := mustID(t, ch)
	if err := id.Connect(ConnParam{QPNum: 17, ResponderResources: None, InitiatorDepth: None}); err != nil {
		t.Fatal(err)
	}
	in := as[abi.RdmaUcmConnect](s.sent(abi.RDMA_USER_CM_CMD_CONNECT)[0])
	if in.ConnParam.QpNum != 17 || in.ConnParam.Valid != 1 || in.Id != id.kid {
		t.Errorf("got %+v, want queue pair 17", in)
	}
	s.put(id.kid, EventConnectResponse, 0, 'h', 'i')
	if ev := next(t, ch); ev.Type != EventConnectResponse || string(ev.PrivateData) != "hi" {
		t.Fatalf("got %v with %q, want a response", ev.Type, ev.PrivateData)
	}
	if err := id.Establish(); err != nil {
		t.Fatal(err)
	}
	if in := as[abi.RdmaUcmAccept](s.sent(abi.RDMA_USER_CM_CMD_ACCEPT)[0]); in.ConnParam.Valid != 0 || in.Uid != 0 {
		t.Errorf("got %+v, want an ACCEPT that is not valid", in)
	}
	s.put(id.kid, EventEstablished, 0)
	quiet(t, ch)
}

func TestNotify(t *testing.T) {
	s := newScript(t)
	id := mustID(t, s.channel(nil))
	if err := id.NotifyEstablished(); err != nil {
		t.Fatal(err)
	}
	if in := as[abi.RdmaUcmNotify](s.sent(abi.RDMA_USER_CM_CMD_NOTIFY)[0]); in.Event != 4 {
		t.Errorf("got event %d, want 4, IB_EVENT_COMM_EST", in.Event)
	}
	// All others, above all the one that kernels hang of.
	for ev := range uverbs.AsyncEventType(64) {
		if ev != uverbs.EventCommEstablished {
			mustBe(t, ev.String(), id.Notify(ev), ErrInvalid, "notify: ", ev.String())
		}
	}
	if n := len(s.sent(abi.RDMA_USER_CM_CMD_NOTIFY)); n != 1 {
		t.Errorf("%d events reached the kernel, want 1", n)
	}
}

func TestRequestIDs(t *testing.T) {
	s := newScript(t)
	ch := s.channel(nil)
	s.local, s.remote = netip.MustParseAddrPort("10.9.0.1:7174"), netip.MustParseAddrPort("10.9.0.2:9")
	listener := mustID(t, ch)
	if err := listener.Bind(netip.MustParseAddrPort("0.0.0.0:7174")); err != nil {
		t.Fatal(err)
	}
	if err := listener.Listen(-1); err != nil {
		t.Fatal(err)
	}
	if in := as[abi.RdmaUcmListen](s.sent(abi.RDMA_USER_CM_CMD_LISTEN)[0]); in.Backlog != 0 {
		t.Errorf("got backlog %d, want 0, which stands for the kernel's", in.Backlog)
	}
	kid := s.request(listener, 'h', 'i')
	ev := next(t, ch)
	if ev.Type != EventConnectRequest || ev.Listener != listener || ev.ID == listener || ev.ID.kid != kid || string(ev.PrivateData) != "hi" {
		t.Fatalf("got %+v, want a request on the listener with an id of its own", ev)
	}
	if ev.ID.RemoteAddr() != s.remote {
		t.Errorf("got client %v, want %v", ev.ID.RemoteAddr(), s.remote)
	}
	if err := ev.ID.Accept(ConnParam{ResponderResources: 200, InitiatorDepth: 200}); err != nil {
		t.Fatal(err)
	}
	in := as[abi.RdmaUcmAccept](s.sent(abi.RDMA_USER_CM_CMD_ACCEPT)[0])
	if in.Uid != ev.ID.uid || in.ConnParam.Valid != 1 {
		t.Errorf("got uid %#x, valid %d; want %#x and 1", in.Uid, in.ConnParam.Valid, ev.ID.uid)
	}
	if in.ConnParam.ResponderResources != 0 || in.ConnParam.InitiatorDepth != 0 {
		t.Errorf("got %+v, want no more than the client offers, nothing", in.ConnParam)
	}
	s.put(kid, EventEstablished, 0)
	if got := next(t, ch); got.Type != EventEstablished || got.ID != ev.ID {
		t.Errorf("got %v, want established on the accepted id", got.Type)
	}
	if err := ev.ID.Close(); err != nil {
		t.Error(err)
	}
}

// A request that was read for a listener that is closed: nobody else will destroy its id.
func TestRequestOfClosedListener(t *testing.T) {
	s := newScript(t)
	ch := s.channel(nil)
	listener := mustID(t, ch)
	kid := s.request(listener)
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	quiet(t, ch)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.uids[kid]; ok {
		t.Error("the id of the request is left in the kernel")
	}
}

func TestRW17ClientHasGone(t *testing.T) {
	s := newScript(t)
	ch := s.channel(nil)
	listener := mustID(t, ch)
	s.request(listener)
	s.request(listener)
	a, b := next(t, ch).ID, next(t, ch).ID
	s.fail[abi.RDMA_USER_CM_CMD_ACCEPT] = syscall.EINVAL
	s.fail[abi.RDMA_USER_CM_CMD_REJECT] = syscall.EINVAL
	mustBe(t, "accept", a.Accept(ConnParam{ResponderResources: None, InitiatorDepth: None}), ErrRequestGone)
	if err := b.Reject(nil); err != nil {
		t.Errorf("reject: got error %v, want success", err)
	}
	for _, id := range []*ID{a, b} {
		if err := id.Close(); err != nil {
			t.Error(err)
		}
	}
}
