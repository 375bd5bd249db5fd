//go:build linux

package fakekernel

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
)

// channel is an open rdma_cm file.
type channel struct {
	t testing.TB
	f uapi.File
}

func openCM(t testing.TB, k *Kernel) channel {
	t.Helper()
	return channel{t, open(t, k, "/dev/infiniband/rdma_cm")}
}

func (c channel) call(cmd uint32, in []byte, respOff int, out []byte) error {
	return uapi.Call(nil, c.f, cmd, in, respOff, out) //nolint:staticcheck // a single attempt
}

func (c channel) create(uid uint64, ps uint16) (uint32, error) {
	var r abi.RdmaUcmCreateIdResp
	err := c.call(abi.RDMA_USER_CM_CMD_CREATE_ID, bytesOf(&abi.RdmaUcmCreateId{Uid: uid, Ps: ps}), 8, bytesOf(&r))
	return r.Id, err
}

func (c channel) id(uid uint64) uint32 {
	c.t.Helper()
	id, err := c.create(uid, abi.RDMA_PS_TCP)
	must(c.t, err)
	return id
}

func (c channel) destroy(id uint32) (reported uint32, err error) {
	var r abi.RdmaUcmDestroyIdResp
	err = c.call(abi.RDMA_USER_CM_CMD_DESTROY_ID, bytesOf(&abi.RdmaUcmDestroyId{Id: id}), 0, bytesOf(&r))
	return r.EventsReported, err
}

func (c channel) bind(id uint32, a netip.AddrPort, scope uint32) error {
	in := abi.RdmaUcmBind{Id: id}
	in.AddrSize = putAddr(bytesOf(&in.Addr), a, scope)
	return c.call(abi.RDMA_USER_CM_CMD_BIND, bytesOf(&in), uapi.NoResponse, nil)
}

func (c channel) listen(id, backlog uint32) error {
	return c.call(abi.RDMA_USER_CM_CMD_LISTEN, bytesOf(&abi.RdmaUcmListen{Id: id, Backlog: backlog}), uapi.NoResponse, nil)
}

func (c channel) resolve(id uint32, a netip.AddrPort, scope uint32) error {
	in := abi.RdmaUcmResolveAddr{Id: id, TimeoutMs: 20}
	in.DstSize = putAddr(bytesOf(&in.DstAddr), a, scope)
	return c.call(abi.RDMA_USER_CM_CMD_RESOLVE_ADDR, bytesOf(&in), uapi.NoResponse, nil)
}

func (c channel) route(id uint32) error {
	return c.call(abi.RDMA_USER_CM_CMD_RESOLVE_ROUTE, bytesOf(&abi.RdmaUcmResolveRoute{Id: id, TimeoutMs: 20}), uapi.NoResponse, nil)
}

func (c channel) connect(id uint32, p abi.RdmaUcmConnParam, data string) error {
	p.Valid, p.PrivateDataLen = 1, uint8(copy(p.PrivateData[:], data))
	return c.call(abi.RDMA_USER_CM_CMD_CONNECT, bytesOf(&abi.RdmaUcmConnect{Id: id, ConnParam: p}), uapi.NoResponse, nil)
}

func (c channel) accept(id uint32, uid uint64, p abi.RdmaUcmConnParam, data string) error {
	p.Valid, p.PrivateDataLen = 1, uint8(copy(p.PrivateData[:], data))
	return c.call(abi.RDMA_USER_CM_CMD_ACCEPT, bytesOf(&abi.RdmaUcmAccept{Id: id, Uid: uid, ConnParam: p}), uapi.NoResponse, nil)
}

func (c channel) establish(id uint32) error {
	return c.call(abi.RDMA_USER_CM_CMD_ACCEPT, bytesOf(&abi.RdmaUcmAccept{Id: id}), uapi.NoResponse, nil)
}

func (c channel) reject(id uint32, reason uint8, data string) error {
	in := abi.RdmaUcmReject{Id: id, Reason: reason}
	in.PrivateDataLen = uint8(copy(in.PrivateData[:], data))
	return c.call(abi.RDMA_USER_CM_CMD_REJECT, bytesOf(&in), uapi.NoResponse, nil)
}

func (c channel) disconnect(id uint32) error {
	return c.call(abi.RDMA_USER_CM_CMD_DISCONNECT, bytesOf(&abi.RdmaUcmDisconnect{Id: id}), uapi.NoResponse, nil)
}

func (c channel) qpAttr(id, state uint32) (a abi.IbUverbsQpAttr, err error) {
	err = c.call(abi.RDMA_USER_CM_CMD_INIT_QP_ATTR, bytesOf(&abi.RdmaUcmInitQpAttr{Id: id, QpState: state}), 0, bytesOf(&a))
	return a, err
}

// next waits for an event and checks what it is.
func (c channel) next(typ uint32, uid uint64) abi.RdmaUcmEventResp {
	c.t.Helper()
	var e abi.RdmaUcmEventResp
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	must(c.t, uapi.Call(ctx, c.f, abi.RDMA_USER_CM_CMD_GET_EVENT, bytesOf(&abi.RdmaUcmGetEvent{}), 0, bytesOf(&e)))
	if e.Event != typ || e.Uid != uid {
		c.t.Fatalf("event %d of %d (status %d), want %d of %d", e.Event, e.Uid, int32(e.Status), typ, uid)
	}
	return e
}

func (c channel) quiet() {
	c.t.Helper()
	var e abi.RdmaUcmEventResp
	err := c.call(abi.RDMA_USER_CM_CMD_GET_EVENT, bytesOf(&abi.RdmaUcmGetEvent{}), 0, bytesOf(&e))
	if err != unix.EAGAIN {
		c.t.Errorf("event %d of %d, %v; want none", e.Event, e.Uid, err)
	}
}

func ap(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

// dial brings a new id to the point where it may connect.
func (c channel) dial(uid uint64, a netip.AddrPort) uint32 {
	c.t.Helper()
	id := c.id(uid)
	must(c.t, c.resolve(id, a, 2))
	c.next(EventAddrResolved, uid)
	must(c.t, c.route(id))
	c.next(EventRouteResolved, uid)
	return id
}

func (c channel) listener(uid uint64, a netip.AddrPort) uint32 {
	c.t.Helper()
	id := c.id(uid)
	must(c.t, c.bind(id, a, 2))
	must(c.t, c.listen(id, 8))
	return id
}

// check compares the masks and access flags of INIT_QP_ATTR.
func (c channel) check(what string, id, state, mask, access uint32) abi.IbUverbsQpAttr {
	c.t.Helper()
	a, err := c.qpAttr(id, state)
	if err != nil || a.QpAttrMask != mask || a.QpAccessFlags != access {
		c.t.Errorf("%s: mask %#x, access %#x, %v; want %#x, %#x", what, a.QpAttrMask, a.QpAccessFlags, err, mask, access)
	}
	return a
}

const (
	rtrBits = maskState | maskAV | maskMTU | maskDest | maskRQPSN | maskMaxDestRD | maskMinRNR
	rtsBits = maskState | maskSQPSN | maskRetry | maskRNRRetry | maskMaxRD | maskTimeout
)

// TestHandshake walks a connection from the first request to TIMEWAIT_EXIT.
func TestHandshake(t *testing.T) {
	for _, addr := range []string{"10.9.0.1:7174", "[2001:db8:9::1]:7174", "[fe80::a:1]:7174"} {
		for _, any := range []bool{false, true} {
			k := start(t, Options{})
			server, client := openCM(t, k), openCM(t, k)
			local := ap(addr)
			if any {
				local = netip.AddrPortFrom(netip.IPv6Unspecified(), 7174)
			}
			handshake(t, server, client, server.listener(1, local), ap(addr))
		}
	}
}

func handshake(t *testing.T, server, client channel, l uint32, addr netip.AddrPort) {
	t.Helper()
	write := uint32(abi.IB_UVERBS_ACCESS_REMOTE_WRITE)
	all := write | abi.IB_UVERBS_ACCESS_REMOTE_READ | abi.IB_UVERBS_ACCESS_REMOTE_ATOMIC

	a := client.dial(10, addr)
	client.check("before connecting", a, stateInit, maskState|initBits, 0)
	must(t, client.connect(a, abi.RdmaUcmConnParam{QpNum: 77, ResponderResources: 4, InitiatorDepth: 2, RetryCount: 9, RnrRetryCount: 6}, "hello"))
	_, err := client.qpAttr(a, stateRTR)
	want(t, "RTR before the answer", err, unix.EINVAL)

	e := server.next(EventConnectRequest, 1)
	p := e.ParamConn()
	if p.QpNum != 77 || p.ResponderResources != 2 || p.InitiatorDepth != 4 || p.RetryCount != 7 || p.RnrRetryCount != 6 ||
		p.PrivateDataLen != connectData || string(p.PrivateData[:6]) != "hello\x00" {
		t.Errorf("request %+v", p)
	}
	b := e.Id
	if b == l {
		t.Error("the request has the listener's id")
	}
	rtr := server.check("passive RTR", b, stateRTR, rtrBits, 0)
	rts := server.check("passive RTS", b, stateRTS, rtsBits, 0)
	server.check("passive INIT", b, stateInit, maskState|initBits, all)
	if rtr.DestQpNum != 77 || rtr.MaxDestRdAtomic != 2 || rts.MaxRdAtomic != 4 || rts.RnrRetry != 6 ||
		rtr.AhAttr.Grh.Dgid != addr.Addr().As16() || rtr.AhAttr.IsGlobal != 1 {
		t.Errorf("passive RTR %+v, RTS %+v", rtr, rts)
	}
	server.quiet()
	must(t, server.accept(b, 2, abi.RdmaUcmConnParam{QpNum: 88, ResponderResources: 2, InitiatorDepth: 1, RnrRetryCount: 7}, "welcome"))

	e = client.next(EventConnectResponse, 10)
	p = e.ParamConn()
	if p.QpNum != 88 || p.ResponderResources != 1 || p.InitiatorDepth != 2 || p.PrivateDataLen != acceptData || string(p.PrivateData[:8]) != "welcome\x00" {
		t.Errorf("response %+v", p)
	}
	client.check("active INIT", a, stateInit, maskState|initBits, all)
	artr, arts := client.check("active RTR", a, stateRTR, rtrBits, 0), client.check("active RTS", a, stateRTS, rtsBits, 0)
	if artr.DestQpNum != 88 || artr.RqPsn != rts.SqPsn || arts.SqPsn != rtr.RqPsn || arts.RnrRetry != 7 {
		t.Errorf("active RTR %+v, RTS %+v do not fit the passive's", artr, arts)
	}
	server.quiet()
	must(t, client.establish(a))
	server.next(EventEstablished, 2)
	client.quiet()

	must(t, client.disconnect(a))
	client.quiet() // the peer has not answered
	server.next(EventDisconnected, 2)
	must(t, server.disconnect(b))
	client.next(EventDisconnected, 10)
	client.next(EventTimeWaitExit, 10)
	server.next(EventTimeWaitExit, 2)
	must(t, server.disconnect(b)) // nothing to end is no error
	for _, x := range []struct {
		c        channel
		id, want uint32
	}{{client, a, 5}, {server, b, 3}, {server, l, 1}} {
		if n, err := x.c.destroy(x.id); err != nil || n != x.want {
			t.Errorf("destroy: %d events reported, %v; want %d", n, err, x.want)
		}
	}
}

func TestRejections(t *testing.T) {
	k := start(t, Options{})
	server, client := openCM(t, k), openCM(t, k)
	addr := ap("10.9.0.1:7174")
	rejected := func(id uint32, uid uint64, reason uint32, data string) {
		t.Helper()
		e := client.next(EventRejected, uid)
		p := e.ParamConn()
		if e.Status != reason || p.PrivateDataLen != rejectData || string(p.PrivateData[:len(data)]) != data {
			t.Errorf("status %d, data %q; want %d, %q", e.Status, p.PrivateData[:p.PrivateDataLen], reason, data)
		}
	}
	id := client.dial(1, addr)
	must(t, client.connect(id, abi.RdmaUcmConnParam{}, ""))
	rejected(id, 1, 8, "")
	want(t, "connect again", client.connect(id, abi.RdmaUcmConnParam{}, ""), unix.EINVAL)

	l := server.listener(100, addr)
	id = client.dial(2, addr)
	must(t, client.connect(id, abi.RdmaUcmConnParam{}, ""))
	child := server.next(EventConnectRequest, 100).Id
	want(t, "odd reason", server.reject(child, 5, ""), unix.EINVAL)
	must(t, server.reject(child, 0, "go away"))
	rejected(id, 2, 28, "go away")

	// Destroying the child, or the listener before the request was fetched, rejects too.
	id = client.dial(3, addr)
	must(t, client.connect(id, abi.RdmaUcmConnParam{}, ""))
	_, err := server.destroy(server.next(EventConnectRequest, 100).Id)
	must(t, err)
	rejected(id, 3, 28, "")
	id = client.dial(4, addr)
	must(t, client.connect(id, abi.RdmaUcmConnParam{}, ""))
	_, err = server.destroy(l)
	must(t, err)
	rejected(id, 4, 28, "")
	server.quiet()
}

func TestBacklog(t *testing.T) {
	k := start(t, Options{})
	server, client := openCM(t, k), openCM(t, k)
	addr := ap("10.9.0.1:7174")
	l := server.id(100)
	must(t, server.bind(l, addr, 0))
	must(t, server.listen(l, 1))
	var ids [3]uint32
	for i := range ids {
		ids[i] = client.dial(uint64(i+1), addr)
	}
	must(t, client.connect(ids[0], abi.RdmaUcmConnParam{}, ""))
	must(t, client.connect(ids[1], abi.RdmaUcmConnParam{}, "")) // has to wait
	server.next(EventConnectRequest, 100)                       // frees the slot
	server.next(EventConnectRequest, 100)
	must(t, client.connect(ids[2], abi.RdmaUcmConnParam{}, ""))
	server.next(EventConnectRequest, 100)
}

// TestBacklogForGood: who finds no slot for a long time gives up.
func TestBacklogForGood(t *testing.T) {
	k := start(t, Options{CMTimeout: time.Millisecond})
	server, client := openCM(t, k), openCM(t, k)
	l := server.id(100)
	must(t, server.bind(l, ap("10.9.0.1:7174"), 0))
	must(t, server.listen(l, 1))
	first, second := client.dial(1, ap("10.9.0.1:7174")), client.dial(2, ap("10.9.0.1:7174"))
	must(t, client.connect(first, abi.RdmaUcmConnParam{}, ""))
	must(t, client.connect(second, abi.RdmaUcmConnParam{}, ""))
	if e := client.next(EventUnreachable, 2); int32(e.Status) != -int32(unix.ETIMEDOUT) {
		t.Errorf("status %d, want a time-out", int32(e.Status))
	}
}

// TestClientGoes: a request whose client is gone cannot be accepted.
func TestClientGoes(t *testing.T) {
	k := start(t, Options{})
	server, client := openCM(t, k), openCM(t, k)
	l := server.listener(100, ap("10.9.0.1:7174"))
	id := client.dial(1, ap("10.9.0.1:7174"))
	must(t, client.connect(id, abi.RdmaUcmConnParam{}, ""))
	_, err := client.destroy(id)
	must(t, err)
	child := server.next(EventConnectRequest, 100).Id
	server.quiet() // the child has no uid yet
	want(t, "accept", server.accept(child, 2, abi.RdmaUcmConnParam{}, ""), unix.EINVAL)
	_, err = server.destroy(child)
	must(t, err)
	_, err = server.destroy(l)
	must(t, err)
}

// TestPeerKilled: closing the file ends its connections, and the peer hears of it.
func TestPeerKilled(t *testing.T) {
	k := start(t, Options{})
	server, client := openCM(t, k), openCM(t, k)
	server.listener(100, ap("10.9.0.1:7174"))
	id := client.dial(1, ap("10.9.0.1:7174"))
	must(t, client.connect(id, abi.RdmaUcmConnParam{}, ""))
	child := server.next(EventConnectRequest, 100).Id
	must(t, server.accept(child, 2, abi.RdmaUcmConnParam{}, ""))
	client.next(EventConnectResponse, 1)
	must(t, client.establish(id))
	server.next(EventEstablished, 2)
	must(t, client.f.Close())
	server.next(EventDisconnected, 2)
}

func TestAddressErrors(t *testing.T) {
	k := start(t, Options{Silent: []netip.Addr{netip.MustParseAddr("10.9.0.77")}, CMTimeout: 10 * time.Millisecond})
	c := openCM(t, k)
	for _, tt := range []struct {
		name string
		do   func(id uint32) error
		want syscall.Errno
	}{
		{"bind", func(id uint32) error { return c.bind(id, ap("10.9.0.1:7000"), 0) }, 0},
		{"bind again", func(id uint32) error { return c.bind(id, ap("10.9.0.1:7000"), 0) }, unix.EADDRINUSE},
		{"bind the wildcard", func(id uint32) error { return c.bind(id, ap("[::]:7000"), 0) }, unix.EADDRNOTAVAIL},
		{"bind an ephemeral port", func(id uint32) error { return c.bind(id, ap("[::]:0"), 0) }, 0},
		{"bind a foreign address", func(id uint32) error { return c.bind(id, ap("192.0.2.1:7001"), 0) }, unix.EADDRNOTAVAIL},
		{"bind loopback", func(id uint32) error { return c.bind(id, ap("127.0.0.1:7001"), 0) }, 0},
		{"bind link-local without scope", func(id uint32) error { return c.bind(id, ap("[fe80::a:1]:7001"), 0) }, unix.EINVAL},
		{"resolve link-local without scope", func(id uint32) error { return c.resolve(id, ap("[fe80::a:1]:1"), 0) }, unix.EINVAL},
		{"resolve without a route", func(id uint32) error { return c.resolve(id, ap("192.0.2.1:1"), 0) }, unix.ENETUNREACH},
		{"connect too early", func(id uint32) error { return c.connect(id, abi.RdmaUcmConnParam{}, "") }, unix.EINVAL},
		{"route too early", c.route, unix.EINVAL},
		{"other family", func(id uint32) error {
			must(t, c.bind(id, ap("10.9.0.1:0"), 0))
			return c.resolve(id, ap("[2001:db8:9::1]:1"), 0)
		}, unix.EINVAL},
	} {
		want(t, tt.name, tt.do(c.id(1)), tt.want)
	}
	id := c.id(2)
	must(t, c.resolve(id, ap("10.9.0.99:1"), 0))
	if e := c.next(EventAddrError, 2); int32(e.Status) != -int32(unix.ETIMEDOUT) {
		t.Errorf("status %d, want a time-out", int32(e.Status))
	}
	id = c.id(3)
	must(t, c.resolve(id, ap("127.0.0.1:1"), 0))
	c.next(EventAddrResolved, 3)
	want(t, "route to loopback", c.route(id), unix.ENODEV)
	id = c.dial(4, ap("10.9.0.77:1"))
	must(t, c.connect(id, abi.RdmaUcmConnParam{}, ""))
	if e := c.next(EventUnreachable, 4); int32(e.Status) != -int32(unix.ETIMEDOUT) {
		t.Errorf("status %d, want a time-out", int32(e.Status))
	}
}

func TestCMErrnos(t *testing.T) {
	k := start(t, Options{})
	c, other := openCM(t, k), openCM(t, k)
	if id := c.id(1); id != 0 {
		t.Errorf("first id is %d, want 0", id)
	}
	write := func(p []byte) error { _, err := c.f.Write(nil, p); return err } //nolint:staticcheck // a single attempt
	long := string(make([]byte, 250))
	for name, tt := range map[string]struct {
		err  error
		want syscall.Errno
	}{
		"short header":      {write(make([]byte, 7)), unix.EINVAL},
		"unknown command":   {write(bytesOf(&abi.RdmaUcmCmdHdr{Cmd: 30})), unix.EINVAL},
		"command not there": {write(bytesOf(&abi.RdmaUcmCmdHdr{Cmd: abi.RDMA_USER_CM_CMD_GET_OPTION})), unix.ENOSYS},
		"body cut":          {write(bytesOf(&abi.RdmaUcmCmdHdr{Cmd: abi.RDMA_USER_CM_CMD_LISTEN, In: 8})), unix.EINVAL},
		"port space":        {errOf(c.create(2, 5)), unix.EINVAL},
		"unknown id":        {c.route(44), unix.ENOENT},
		"id of another":     {other.route(0), unix.EINVAL},
		"no room":           {c.call(abi.RDMA_USER_CM_CMD_GET_EVENT, bytesOf(&abi.RdmaUcmGetEvent{}), 0, make([]byte, 300)), unix.ENOSPC},
		"address size": {c.call(abi.RDMA_USER_CM_CMD_BIND, bytesOf(&abi.RdmaUcmBind{AddrSize: 20}), uapi.NoResponse, nil),
			unix.EINVAL},
		"attributes without a device": {errOf(c.qpAttr(0, stateInit)), unix.EINVAL},
	} {
		want(t, name, tt.err, tt.want)
	}
	id := c.dial(7, ap("10.9.0.1:1"))
	want(t, "57 bytes of private data", c.connect(id, abi.RdmaUcmConnParam{}, long[:57]), unix.EINVAL)
	in := abi.RdmaUcmConnect{Id: id}
	want(t, "parameters not valid", c.call(abi.RDMA_USER_CM_CMD_CONNECT, bytesOf(&in), uapi.NoResponse, nil), unix.EINVAL)
	want(t, "56 bytes", c.connect(id, abi.RdmaUcmConnParam{}, long[:56]), 0)
}

func errOf[T any](_ T, err error) error { return err }

func TestQueries(t *testing.T) {
	k := start(t, Options{Devices: []Device{{}, {GUID: 0x1122334455667788}}})
	c := openCM(t, k)
	id := c.id(1)
	query := func() (r abi.RdmaUcmQueryAddrResp) {
		t.Helper()
		must(t, c.call(abi.RDMA_USER_CM_CMD_QUERY, bytesOf(&abi.RdmaUcmQuery{Id: id}), 0, bytesOf(&r)))
		return r
	}
	if r := query(); r.NodeGuid != 0 || r.SrcSize != 0 || r.DstSize != 0 {
		t.Errorf("before anything: %+v", r)
	}
	must(t, c.resolve(id, ap("10.9.0.2:99"), 0))
	c.next(EventAddrResolved, 1)
	r := query()
	if abi.BE64(r.NodeGuid).Get() != 0x1122334455667788 || r.PortNum != 1 || r.IbdevIndex != 1 || r.Pkey != 0 {
		t.Errorf("resolved: %+v", r)
	}
	dst, _, err := parseAddr(&r.DstAddr, r.DstSize)
	if err != nil || dst != ap("10.9.0.2:99") {
		t.Errorf("destination %v, %v", dst, err)
	}
	src, _, err := parseAddr(&r.SrcAddr, r.SrcSize)
	if err != nil || src.Addr() != dst.Addr() || src.Port() < 32768 {
		t.Errorf("source %v, %v", src, err)
	}
	var gid abi.RdmaUcmQueryAddrResp
	must(t, c.call(abi.RDMA_USER_CM_CMD_QUERY, bytesOf(&abi.RdmaUcmQuery{Id: id, Option: abi.RDMA_USER_CM_QUERY_GID}), 0, bytesOf(&gid)))
	if got := [16]byte(bytesOf(&gid.DstAddr)[8:24]); got != dst.Addr().As16() {
		t.Errorf("GID %v", netip.AddrFrom16(got))
	}
	var route abi.RdmaUcmQueryRouteResp
	must(t, c.call(abi.RDMA_USER_CM_CMD_QUERY_ROUTE, bytesOf(&abi.RdmaUcmQuery{Id: id}), 0, bytesOf(&route)))
	if route.NumPaths != 0 || route.IbdevIndex != 1 {
		t.Errorf("route: %+v", route)
	}
}

func TestOptions(t *testing.T) {
	k := start(t, Options{})
	c := openCM(t, k)
	opt := func(id, level, name uint32, val []byte) error {
		in := abi.RdmaUcmSetOption{Id: id, Level: level, Optname: name, Optlen: uint32(len(val)), Optval: address(t, val)}
		return c.call(abi.RDMA_USER_CM_CMD_SET_OPTION, bytesOf(&in), uapi.NoResponse, nil)
	}
	a, b := c.id(1), c.id(2)
	for _, id := range []uint32{a, b} {
		must(t, opt(id, abi.RDMA_OPTION_ID, abi.RDMA_OPTION_ID_REUSEADDR, []byte{1, 0, 0, 0}))
		must(t, c.bind(id, ap("10.9.0.1:7000"), 0))
	}
	want(t, "length", opt(a, abi.RDMA_OPTION_ID, abi.RDMA_OPTION_ID_TOS, []byte{1, 0}), unix.EINVAL)
	want(t, "name", opt(a, abi.RDMA_OPTION_ID, 77, []byte{1}), unix.ENOSYS)
	want(t, "level", opt(a, 9, 0, []byte{1}), unix.ENOSYS)
	want(t, "listen on a shared port", c.listen(a, 1), unix.EADDRINUSE)
	id := c.id(3)
	must(t, c.resolve(id, ap("10.9.0.1:1"), 0))
	c.next(EventAddrResolved, 3)
	path := abi.IbPathRecData{Flags: pathFlags}
	must(t, opt(id, abi.RDMA_OPTION_IB, abi.RDMA_OPTION_IB_PATH, bytesOf(&path)))
	c.next(EventRouteResolved, 3)
}

// TestInject: any event can be sent, and an unplugged device announces itself.
func TestInject(t *testing.T) {
	k := start(t, Options{})
	c := openCM(t, k)
	id := c.dial(5, ap("10.9.0.1:1"))
	if !k.CM().Inject(id, EventRejected, 10, []byte("x")) || k.CM().Inject(id+1, 0, 0, nil) {
		t.Error("Inject mistakes which ids there are")
	}
	if e := c.next(EventRejected, 5); e.Status != 10 || e.ParamConn().PrivateDataLen != 1 {
		t.Errorf("got %+v", e)
	}
	if ids := k.CM().IDs(); len(ids) != 1 || ids[0].UID != 5 || ids[0].Dst != ap("10.9.0.1:1") {
		t.Errorf("ids: %+v", ids)
	}
	d := openDev(t, k)
	if !k.Unplug("rxe0") || k.Unplug("rxe0") {
		t.Error("Unplug mistakes which devices there are")
	}
	c.next(EventDeviceRemoval, 5)
	want(t, "command after removal", c.route(id), unix.ENXIO)
	_, err := c.destroy(id)
	want(t, "destroy after removal", err, 0)
	var e abi.IbUverbsAsyncEventDesc
	if _, err := d.async.Read(t.Context(), bytesOf(&e)); err != nil || e.EventType != asyncDeviceFatal {
		t.Errorf("event %+v, %v; want device fatal", e, err)
	}
	want(t, "ioctl after removal", cmd(uapi.GetContext).Do(d.f), unix.EIO)
	devs, err := k.System().Devices()
	if err != nil || len(devs) != 0 {
		t.Errorf("devices %v, %v; want none", devs, err)
	}
}

// TestCMWait: a waiter ends with its context, or with Close.
func TestCMWait(t *testing.T) {
	k := start(t, Options{})
	c := openCM(t, k)
	wait := func(ctx context.Context) error {
		var e abi.RdmaUcmEventResp
		return uapi.Call(ctx, c.f, abi.RDMA_USER_CM_CMD_GET_EVENT, bytesOf(&abi.RdmaUcmGetEvent{}), 0, bytesOf(&e))
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if err := wait(ctx); err != context.DeadlineExceeded {
		t.Errorf("got %v, want a deadline", err)
	}
	errs := make(chan error)
	for range 10 {
		go func() { errs <- wait(context.Background()) }()
	}
	time.Sleep(5 * time.Millisecond)
	must(t, c.f.Close())
	must(t, c.f.Close())
	for range 10 {
		if err := <-errs; !errors.Is(err, net.ErrClosed) {
			t.Errorf("got %v, want net.ErrClosed", err)
		}
	}
	if err := wait(context.Background()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestNotify: a message that overtook the RTU establishes the connection.
func TestNotify(t *testing.T) {
	k := start(t, Options{})
	server, client := openCM(t, k), openCM(t, k)
	server.listener(100, ap("10.9.0.1:7174"))
	id := client.dial(1, ap("10.9.0.1:7174"))
	must(t, client.connect(id, abi.RdmaUcmConnParam{}, ""))
	child := server.next(EventConnectRequest, 100).Id
	must(t, server.accept(child, 2, abi.RdmaUcmConnParam{}, ""))
	client.next(EventConnectResponse, 1)
	must(t, server.call(abi.RDMA_USER_CM_CMD_NOTIFY, bytesOf(&abi.RdmaUcmNotify{Id: child, Event: asyncCommEst}), uapi.NoResponse, nil))
	server.next(EventEstablished, 2)
	must(t, client.establish(id))
	server.quiet()
}
