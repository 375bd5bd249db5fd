//go:build linux

package fakekernel

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
	"github.com/pureverbs/rdma/internal/uapi"
)

// iwEnds is a kernel with a listener and a queue pair for each side.
type iwEnds struct {
	server, client channel
	listener       uint32
	a, b           *siwRawQP
}

func iwStart(t testing.TB, opts Options) (*Kernel, *iwEnds) {
	t.Helper()
	k := startSiw(t, opts)
	e := &iwEnds{server: openCM(t, k), client: openCM(t, k), a: openSiw(t, k).qp(), b: openSiw(t, k).qp()}
	e.listener = e.server.listener(listenUID, siwAddr)
	return k, e
}

// request sends a request and fetches it at the other end.
func (e *iwEnds) request(t testing.TB, data string) (id, child uint32, seen *abi.RdmaUcmConnParam) {
	t.Helper()
	id = e.client.dial(activeUID, siwAddr)
	must(t, e.client.connect(id, abi.RdmaUcmConnParam{QpNum: e.a.num, ResponderResources: 5, InitiatorDepth: 3}, data))
	ev := e.server.next(EventConnectRequest, listenUID)
	p := *ev.ParamConn()
	return id, ev.Id, &p
}

func data(p *abi.RdmaUcmConnParam) string { return string(p.PrivateData[:p.PrivateDataLen]) }

func status(t testing.TB, what string, e abi.RdmaUcmEventResp, errno unix.Errno, private string) {
	t.Helper()
	if p := e.ParamConn(); int32(e.Status) != -int32(errno) || data(p) != private {
		t.Errorf("%s: status %d, data %q; want %d, %q", what, int32(e.Status), data(p), -int32(errno), private)
	}
}

// TestIWHandshake walks a connection from the first request to its end.
func TestIWHandshake(t *testing.T) {
	_, e := iwStart(t, Options{})
	const (
		begin  = maskState | maskAccess | maskPort
		access = abi.IB_UVERBS_ACCESS_REMOTE_WRITE | abi.IB_UVERBS_ACCESS_REMOTE_READ
	)
	id := e.client.dial(9, siwAddr)
	for _, state := range []uint32{stateInit, stateRTR, stateRTS, stateError} {
		e.client.check("before connecting", id, state, begin, 0)
	}
	want(t, "notify before connecting", e.client.notify(id), unix.EINVAL)
	id, child, p := e.request(t, "hello\x00")
	if p.QpNum != 0 || p.InitiatorDepth != 5 || p.ResponderResources != 3 || data(p) != "hello\x00" {
		t.Errorf("request %+v", p)
	}
	e.client.check("request sent", id, stateInit, begin, access)
	e.server.check("request received", child, stateRTR, begin, access)
	e.server.check("request received", child, stateRTS, maskPort, 0)
	_, err := e.server.qpAttr(child, stateSQD)
	want(t, "SQD", err, unix.EINVAL)
	e.client.quiet()

	// It reads no more than the peer answers, and answers all that the peer reads.
	must(t, e.server.accept(child, passiveUID, abi.RdmaUcmConnParam{QpNum: e.b.num, ResponderResources: 1, InitiatorDepth: 9}, "welcome"))
	ev := e.server.next(EventEstablished, passiveUID)
	if p := ev.ParamConn(); p.InitiatorDepth != 3 || p.ResponderResources != 5 || p.PrivateDataLen != 0 {
		t.Errorf("passive side %+v", p)
	}
	ev = e.client.next(EventEstablished, activeUID)
	if p := ev.ParamConn(); p.InitiatorDepth != 5 || p.ResponderResources != 3 || data(p) != "welcome" {
		t.Errorf("active side %+v", p)
	}
	if a, b := e.a.query(), e.b.query(); a.QpState != stateRTS || b.QpState != stateRTS ||
		a.MaxRdAtomic != 8 || a.MaxDestRdAtomic != 4 || b.MaxRdAtomic != 4 || b.MaxDestRdAtomic != 8 {
		t.Errorf("active %+v\npassive %+v", a, b)
	}
	want(t, "notify", e.server.notify(child), 0)
	want(t, "establish", e.client.establish(id), unix.EINVAL)
	want(t, "accept twice", e.server.accept(child, passiveUID, abi.RdmaUcmConnParam{QpNum: e.b.num}, ""), unix.EINVAL)
	var route abi.RdmaUcmQueryRouteResp
	must(t, e.client.call(abi.RDMA_USER_CM_CMD_QUERY_ROUTE, bytesOf(&abi.RdmaUcmQuery{Id: id}), 0, bytesOf(&route)))
	if route.NumPaths != 0 || route.PortNum != 1 {
		t.Errorf("route %+v", route)
	}
	e.a.recv(1)
	e.b.recv(2)
	must(t, e.client.disconnect(id))
	e.client.next(EventDisconnected, activeUID)
	e.server.next(EventDisconnected, passiveUID)
	if a, b := e.a.query().QpState, e.b.query().QpState; a != stateSQD || b != stateError {
		t.Errorf("states %d and %d", a, b)
	}
	same(t, "active", e.a.cq.ended(), []ended{{1, provider.WCFlushError}})
	same(t, "passive", e.b.cq.ended(), []ended{{2, provider.WCFlushError}})
	must(t, e.client.disconnect(id))
	must(t, e.server.disconnect(child))
	time.Sleep(10 * time.Millisecond)
	e.client.quiet()
	e.server.quiet()
	e.client.check("after all", id, stateRTS, maskPort, 0)
}

func (c channel) notify(id uint32) error {
	return c.call(abi.RDMA_USER_CM_CMD_NOTIFY, bytesOf(&abi.RdmaUcmNotify{Id: id, Event: asyncCommEst}), uapi.NoResponse, nil)
}

// TestIWRefusals: what the active side hears, and what becomes of its queue pair.
func TestIWRefusals(t *testing.T) {
	long := strings.Repeat("x", 251)
	for _, tt := range []struct {
		name   string
		data   string // of the request
		do     func(e *iwEnds, child uint32) error
		event  uint32
		errno  unix.Errno
		answer string
	}{
		{"rejected", "", func(e *iwEnds, child uint32) error { return e.server.reject(child, 0, "no\x00") }, EventRejected, unix.ECONNRESET, "no\x00"},
		{"much data", long, func(e *iwEnds, child uint32) error { return e.server.reject(child, 0, long) }, EventRejected, unix.ECONNRESET, long},
		{"too much data", "", func(e *iwEnds, child uint32) error { return e.server.reject(child, 0, long+"x") }, EventConnectError, unix.EINVAL, ""},
		{"child destroyed", "", func(e *iwEnds, child uint32) error { return errOf(e.server.destroy(child)) }, EventRejected, unix.ECONNRESET, ""},
		{"server killed", "", func(e *iwEnds, _ uint32) error { return e.server.f.Close() }, EventRejected, unix.ECONNRESET, ""},
		{"established by the wrong side", "", func(e *iwEnds, child uint32) error {
			want(t, "accept without parameters", e.server.establish(child), unix.EINVAL)
			return nil
		}, EventRejected, unix.ECONNRESET, ""},
		{"accepted without a queue pair", "", func(e *iwEnds, child uint32) error {
			want(t, "accept", e.server.accept(child, passiveUID, abi.RdmaUcmConnParam{QpNum: 77}, ""), unix.EINVAL)
			return nil
		}, EventRejected, unix.ECONNRESET, ""},
		{"accepted with one in error", "", func(e *iwEnds, child uint32) error {
			must(t, e.b.modify(stateError))
			want(t, "accept", e.server.accept(child, passiveUID, abi.RdmaUcmConnParam{QpNum: e.b.num}, ""), unix.EINVAL)
			return nil
		}, EventRejected, unix.ECONNRESET, ""},
		{"accepted with too many READs", "", func(e *iwEnds, child uint32) error {
			want(t, "accept", e.server.accept(child, passiveUID, abi.RdmaUcmConnParam{QpNum: e.b.num, InitiatorDepth: 129}, ""), unix.EINVAL)
			return nil
		}, EventRejected, unix.ECONNRESET, ""},
		{"own queue pair in error", "", func(e *iwEnds, child uint32) error {
			must(t, e.a.modify(stateError))
			return e.server.accept(child, passiveUID, abi.RdmaUcmConnParam{QpNum: e.b.num}, "x")
		}, EventConnectError, unix.EINVAL, "x"},
		{"too much data in the answer", "", func(e *iwEnds, child uint32) error {
			return e.server.accept(child, passiveUID, abi.RdmaUcmConnParam{QpNum: e.b.num}, long+"x")
		}, EventConnectError, unix.EINVAL, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, e := iwStart(t, Options{})
			e.a.recv(1)
			id, child, _ := e.request(t, tt.data)
			must(t, tt.do(e, child))
			status(t, "refusal", e.client.next(tt.event, activeUID), tt.errno, tt.answer)
			if s := e.a.query().QpState; s != stateError {
				t.Errorf("state %d, want error", s)
			}
			same(t, "flushed", e.a.cq.ended(), []ended{{1, provider.WCFlushError}})
			want(t, "connect again", e.client.connect(id, abi.RdmaUcmConnParam{QpNum: e.a.num}, ""), unix.EINVAL)
			must(t, e.client.disconnect(id))
			e.client.quiet()
		})
	}
}

// TestIWConnect: what the command itself says. The queue pair is as good as before.
func TestIWConnect(t *testing.T) {
	k, e := iwStart(t, Options{CMTimeout: 5 * time.Millisecond, Silent: []netip.Addr{netip.MustParseAddr("10.9.0.77")}})
	try := func(id uint32, p abi.RdmaUcmConnParam, errno unix.Errno) {
		t.Helper()
		want(t, "connect", e.client.connect(id, p, ""), errno)
	}
	good := abi.RdmaUcmConnParam{QpNum: e.a.num}
	id := e.client.dial(activeUID, siwAddr)
	try(id, abi.RdmaUcmConnParam{QpNum: 99}, unix.EINVAL)
	try(id, abi.RdmaUcmConnParam{QpNum: e.a.num, InitiatorDepth: 129}, unix.ENOMEM)
	nobody := e.client.dial(8, ap("10.9.0.1:9"))
	try(nobody, good, unix.ECONNREFUSED)
	try(nobody, good, unix.ECONNREFUSED) // it can be tried again
	silent := e.client.dial(7, ap("10.9.0.77:9"))
	try(silent, good, unix.ETIMEDOUT)
	k.Cut(true)
	try(id, good, unix.ETIMEDOUT)
	k.Cut(false)
	early := e.client.id(6)
	try(early, good, unix.EINVAL)
	try(id, good, 0)
	e.server.next(EventConnectRequest, listenUID)

	// More than 251 bytes arrive broken, and the other end hangs up.
	id = e.client.dial(5, siwAddr)
	must(t, e.client.connect(id, good, strings.Repeat("x", 252)))
	status(t, "much data", e.client.next(EventRejected, 5), unix.ECONNRESET, "")
	e.server.quiet()
}

func TestIWBacklog(t *testing.T) {
	k := startSiw(t, Options{})
	server, client := openCM(t, k), openCM(t, k)
	l := server.id(listenUID)
	must(t, server.bind(l, siwAddr, 0))
	must(t, server.listen(l, 1))
	d := openSiw(t, k)
	for i, event := range []uint32{EventConnectRequest, EventRejected} {
		id := client.dial(uint64(10+i), siwAddr)
		must(t, client.connect(id, abi.RdmaUcmConnParam{QpNum: d.qp().num}, ""))
		if event == EventRejected {
			status(t, "second", client.next(event, uint64(10+i)), unix.ECONNRESET, "")
		}
	}
	server.next(EventConnectRequest, listenUID) // frees the slot
	id := client.dial(12, siwAddr)
	must(t, client.connect(id, abi.RdmaUcmConnParam{QpNum: d.qp().num}, ""))
	server.next(EventConnectRequest, listenUID)
	_, err := server.destroy(l)
	must(t, err)
	client.quiet() // those that were fetched live on
}

// TestIWGone: a client that has gone cannot be answered.
func TestIWGone(t *testing.T) {
	_, e := iwStart(t, Options{})
	for i, answer := range []func(child uint32) error{
		func(child uint32) error {
			return e.server.accept(child, passiveUID, abi.RdmaUcmConnParam{QpNum: e.b.num}, "")
		},
		func(child uint32) error { return e.server.reject(child, 0, "") },
	} {
		_, child, _ := e.request(t, "")
		must(t, e.client.f.Close())
		e.server.quiet()
		want(t, "answer", answer(child), unix.ECONNRESET)
		want(t, "disconnect", e.server.disconnect(child), 0)
		if s := e.b.query().QpState; s != stateInit {
			t.Errorf("%d: state %d, want that of before", i, s)
		}
		_, err := e.server.destroy(child)
		must(t, err)
		e.client, e.a = openCM(t, e.a.d.k), e.a.d.qp()
	}
}

// TestIWNoAnswer: the active side gives up in the end. Until then its id cannot be
// destroyed, and the one who tries waits.
func TestIWNoAnswer(t *testing.T) {
	k, e := iwStart(t, Options{CMTimeout: time.Millisecond})
	id, child, _ := e.request(t, "")
	status(t, "no answer", e.client.next(EventUnreachable, activeUID), unix.ETIMEDOUT, "")
	want(t, "late", e.server.accept(child, passiveUID, abi.RdmaUcmConnParam{QpNum: e.b.num}, ""), unix.ECONNRESET)
	_, err := e.client.destroy(id)
	must(t, err)

	e.a = e.a.d.qp()
	id, _, _ = e.request(t, "")
	before := time.Now()
	if n, err := e.client.destroy(id); err != nil || n != 2 || time.Since(before) < 10*time.Millisecond {
		t.Errorf("destroyed after %v, %d events, %v", time.Since(before), n, err)
	}
	e.client.quiet()

	// An answer ends the waiting as well.
	e.a = e.a.d.qp()
	k.mu.Lock()
	k.opts.CMTimeout = time.Second
	k.mu.Unlock()
	id, child, _ = e.request(t, "")
	done := make(chan error)
	go func() { done <- errOf(e.client.destroy(id)) }()
	time.Sleep(2 * time.Millisecond)
	must(t, e.server.accept(child, passiveUID, abi.RdmaUcmConnParam{QpNum: e.b.num}, ""))
	must(t, <-done)
	e.server.next(EventEstablished, passiveUID)
	e.server.next(EventDisconnected, passiveUID)
	if s := e.a.query().QpState; s != stateError {
		t.Errorf("state %d, want error", s)
	}

	// So does the end of everything.
	e.a, e.b = e.a.d.qp(), e.b.d.qp()
	id, _, _ = e.request(t, "")
	go func() { done <- errOf(e.client.destroy(id)) }()
	time.Sleep(2 * time.Millisecond)
	k.Close()
	<-done
}

// TestIWEarly: the passive side may not send before it has heard from the active one.
func TestIWEarly(t *testing.T) {
	for _, tt := range []struct {
		name    string
		lax     bool
		fetched bool
		heard   bool
		events  [][2]uint64
	}{
		{"too early", false, false, false, [][2]uint64{{activeUID, EventConnectError}, {passiveUID, EventDisconnected}}},
		{"established, but too early", false, true, false, bothGone},
		{"heard", false, true, true, nil},
		{"lax", true, true, false, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := startSiw(t, Options{LaxMPA: tt.lax})
			p := &siwPair{t: t, k: k, cm: openCM(t, k), a: openSiw(t, k).qp(), b: openSiw(t, k).qp()}
			p.cm.listener(listenUID, siwAddr)
			p.a.recv(1)
			p.ids[0] = p.cm.dial(activeUID, siwAddr)
			param := depths
			param.QpNum = p.a.num
			must(t, p.cm.connect(p.ids[0], param, ""))
			p.ids[1] = p.cm.next(EventConnectRequest, listenUID).Id
			param.QpNum = p.b.num
			must(t, p.cm.accept(p.ids[1], passiveUID, param, ""))
			p.cm.next(EventEstablished, passiveUID)
			if tt.fetched {
				p.cm.next(EventEstablished, activeUID)
			}
			if tt.heard {
				p.a.send(provider.SendWR{Opcode: provider.OpRDMAWrite})
			}
			p.b.send(provider.SendWR{ID: 2, Opcode: provider.OpSend})
			same(t, "sent", p.b.cq.ended(), []ended{{ID: 2}}) // TCP has it, whatever comes
			p.events(tt.name, tt.events...)
			if len(tt.events) > 0 {
				p.states(tt.name, stateError, stateError)
				same(t, "received", p.a.cq.ended(), []ended{{1, provider.WCFlushError}})
			}
		})
	}
}
