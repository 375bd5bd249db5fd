//go:build linux

package fakekernel

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
	"github.com/pureverbs/rdma/internal/uapi"
)

const sidrPort = "10.9.0.1:7200"

func (c channel) udp(uid uint64) uint32 {
	c.t.Helper()
	id, err := c.create(uid, abi.RDMA_PS_UDP)
	must(c.t, err)
	return id
}

func (c channel) udpListener(uid uint64, backlog uint32) uint32 {
	c.t.Helper()
	id := c.udp(uid)
	must(c.t, c.bind(id, ap(sidrPort), 0))
	must(c.t, c.listen(id, backlog))
	return id
}

func (c channel) udpDial(uid uint64) uint32 {
	c.t.Helper()
	id := c.udp(uid)
	must(c.t, c.resolve(id, ap(sidrPort), 0))
	c.next(EventAddrResolved, uid)
	must(c.t, c.route(id))
	c.next(EventRouteResolved, uid)
	return id
}

func (d *dev) udWith(qkey uint32) *rawQP {
	d.t.Helper()
	return d.build(&rawQP{pd: d.pd(), typ: typeUD, qkey: qkey}).up()
}

// TestSidr asks a service for its queue pair, and sends to it what the answer says.
func TestSidr(t *testing.T) {
	k := start(t, Options{Devices: []Device{{}, {}}})
	server, client := openCM(t, k), openCM(t, k)
	server.udpListener(100, 4)
	far, near := openNode(t, k, 0).udWith(defaultQKey), openNode(t, k, 1).ud()
	far.recv(5, far.sge(0, 100))

	id := client.udp(1)
	must(t, client.bind(id, ap("10.9.0.2:0"), 0))
	must(t, client.resolve(id, ap(sidrPort), 0))
	client.next(EventAddrResolved, 1)
	must(t, client.route(id))
	client.next(EventRouteResolved, 1)
	client.check("datagrams", id, stateInit, maskState|maskPKey|maskPort|maskQKey, 0)
	must(t, client.connect(id, abi.RdmaUcmConnParam{}, "who?"))
	e := server.next(EventConnectRequest, 100)
	if p := e.ParamUd(); p.PrivateDataLen != sidrData || string(p.PrivateData[:5]) != "who?\x00" {
		t.Errorf("request %+v", p)
	}
	must(t, server.accept(e.Id, 2, abi.RdmaUcmConnParam{QpNum: far.num, Qkey: 7}, "me"))
	a := client.next(EventEstablished, 1)
	p := a.ParamUd()
	if p.QpNum != far.num || p.Qkey != defaultQKey || p.PrivateDataLen != sidrReply || string(p.PrivateData[:3]) != "me\x00" {
		t.Errorf("answer %+v", p)
	}
	_, av := near.d.ah(near.pd, p.AhAttr.Grh.SgidIndex, p.AhAttr.Grh.Dgid, 0)
	wr := near.datagram(av, far, 9)
	wr.Dest.QPN, wr.Dest.QKey = p.QpNum, p.Qkey
	near.do(wr)
	if wc := far.next(); wc.ID != 5 || wc.ByteLen != 49 || wc.Status != provider.WCSuccess {
		t.Errorf("received %+v", wc)
	}
	server.quiet() // the service hears nothing more
	want(t, "disconnect", client.disconnect(id), 0)
	want(t, "answer again", server.accept(e.Id, 2, abi.RdmaUcmConnParam{}, ""), unix.EINVAL)
}

func TestSidrRefused(t *testing.T) {
	k := start(t, Options{CMTimeout: time.Millisecond})
	server, client := openCM(t, k), openCM(t, k)
	unreachable := func(uid uint64, status int32, data string) {
		t.Helper()
		e := client.next(EventUnreachable, uid)
		if p := e.ParamUd(); int32(e.Status) != status || !strings.HasPrefix(string(p.PrivateData[:]), data) {
			t.Errorf("status %d, data %q; want %d, %q", int32(e.Status), p.PrivateData[:4], status, data)
		}
	}
	ask := func(uid uint64) {
		t.Helper()
		must(t, client.connect(client.udpDial(uid), abi.RdmaUcmConnParam{}, ""))
	}
	ask(1)
	unreachable(1, sidrUnsupported, "")
	l := server.udpListener(100, 1)
	ask(2)
	child := server.next(EventConnectRequest, 100).Id
	want(t, "long answer", server.reject(child, 0, strings.Repeat("x", sidrReply+1)), unix.EINVAL)
	must(t, server.reject(child, 0, "no"))
	unreachable(2, sidrReject, "no")
	want(t, "twice", server.reject(child, 0, ""), unix.EINVAL)

	ask(3)
	child = server.next(EventConnectRequest, 100).Id
	want(t, "an answer that is too long", server.accept(child, 2, abi.RdmaUcmConnParam{}, strings.Repeat("x", sidrReply+1)), unix.EINVAL)
	unreachable(3, sidrReject, "")
	ask(4)
	must(t, errOf(server.destroy(server.next(EventConnectRequest, 100).Id)))
	unreachable(4, sidrReject, "")
	ask(5)
	ask(6) // no slot
	unreachable(6, sidrReject, "")
	must(t, errOf(server.destroy(l)))
	unreachable(5, sidrReject, "")

	server.udpListener(100, 4)
	for m, uid := range map[CMMessage]uint64{CMServiceRequest: 7, CMServiceReply: 8} {
		mend := k.LoseCM(func(got CMMessage, _ CMID) bool { return got == m })
		ask(uid)
		if m == CMServiceReply {
			must(t, server.accept(server.next(EventConnectRequest, 100).Id, 3, abi.RdmaUcmConnParam{QpNum: 1}, ""))
		}
		unreachable(uid, -int32(unix.ETIMEDOUT), "")
		mend()
	}
	id := client.udpDial(9)
	want(t, "181 bytes", client.connect(id, abi.RdmaUcmConnParam{}, strings.Repeat("x", sidrData+1)), unix.EINVAL)
	want(t, "180 bytes", client.connect(id, abi.RdmaUcmConnParam{}, strings.Repeat("x", sidrData)), 0)
}

func (c channel) join(id uint32, group string, flags uint16) (uint32, error) {
	in := abi.RdmaUcmJoinMcast{Id: id, Uid: uint64(id) + 1000, JoinFlags: flags}
	in.AddrSize = putAddr(bytesOf(&in.Addr), ap(group), 0)
	var r abi.RdmaUcmCreateIdResp
	err := c.call(abi.RDMA_USER_CM_CMD_JOIN_MCAST, bytesOf(&in), 0, bytesOf(&r))
	return r.Id, err
}

func (c channel) leave(group uint32) (uint32, error) {
	var r abi.RdmaUcmDestroyIdResp
	err := c.call(abi.RDMA_USER_CM_CMD_LEAVE_MCAST, bytesOf(&abi.RdmaUcmDestroyId{Id: group}), 0, bytesOf(&r))
	return r.EventsReported, err
}

// TestJoin joins a group, attaches to it as the event says, and receives.
func TestJoin(t *testing.T) {
	k := start(t, Options{Devices: []Device{{}, {}}})
	c := openCM(t, k)
	a, b := openNode(t, k, 0).udWith(defaultQKey), openNode(t, k, 1).udWith(defaultQKey)
	var to *abi.RdmaUcmUdParam
	for i, q := range []*rawQP{a, b} {
		id := c.udp(uint64(i + 1))
		must(t, c.bind(id, ap([]string{"10.9.0.1:0", "10.9.0.2:0"}[i]), 0))
		g, err := c.join(id, "239.1.2.3:0", uint16(1-i)) // a sends only
		must(t, err)
		e := c.next(EventMulticastJoin, uint64(id)+1000)
		if to = e.ParamUd(); e.Id != g || to.QpNum != multicastQPN || to.Qkey != defaultQKey || to.AhAttr.Grh.Dgid != group4 {
			t.Fatalf("event %+v, %+v; want group %d", e, to, g)
		}
		if i == 1 {
			must(t, q.attach(to.AhAttr.Grh.Dgid, 0))
			q.recv(9, q.sge(0, 100))
		}
	}
	_, av := a.d.ah(a.pd, to.AhAttr.Grh.SgidIndex, to.AhAttr.Grh.Dgid, 0)
	wr := a.datagram(av, b, 4)
	wr.Dest.QPN = to.QpNum
	a.do(wr)
	if wc := b.next(); wc.ID != 9 || wc.SrcQP != a.num || wc.ByteLen != 44 {
		t.Errorf("received %+v", wc)
	}
}

func TestJoinRules(t *testing.T) {
	k := start(t, Options{})
	c, other := openCM(t, k), openCM(t, k)
	id := c.udp(1)
	want(t, "no device", errOf(c.join(id, "239.1.2.3:0", 0)), unix.EINVAL)
	must(t, c.bind(id, ap("10.9.0.1:0"), 0))
	want(t, "IPv6", errOf(c.join(id, "[ff0e::7]:0", 0)), notSupported)
	want(t, "flags", errOf(c.join(id, "239.1.2.3:0", 2)), unix.EINVAL)
	want(t, "wildcard", errOf(c.join(id, "0.0.0.0:0", 0)), unix.EINVAL)
	first, err := c.join(id, "239.1.2.3:0", 0)
	must(t, err)
	second, err := c.join(id, "239.1.2.3:0", 0)
	must(t, err)
	if first == second {
		t.Errorf("both are group %d", first)
	}
	c.next(EventMulticastJoin, uint64(id)+1000)
	want(t, "of another file", errOf(other.leave(first)), unix.EINVAL)
	for g, events := range map[uint32]uint32{first: 1, second: 0} {
		if n, err := c.leave(g); err != nil || n != events {
			t.Errorf("leave: %d events, %v; want %d", n, err, events)
		}
		want(t, "twice", errOf(c.leave(g)), unix.ENOENT)
	}
	c.quiet()
	third, err := c.join(id, "239.1.2.3:0", 0)
	must(t, err)
	if n, err := c.destroy(id); err != nil || n != 1 {
		t.Errorf("destroy: %d events, %v; want 1", n, err)
	}
	want(t, "after the id", errOf(c.leave(third)), unix.ENOENT)

	id = c.udp(1)
	must(t, c.bind(id, ap("10.9.0.1:0"), 0))
	in := abi.RdmaUcmJoinIpMcast{Id: id, Uid: 4}
	putAddr(bytesOf(&in.Addr), ap("239.9.9.9:0"), 0)
	var r abi.RdmaUcmCreateIdResp
	must(t, c.call(abi.RDMA_USER_CM_CMD_JOIN_IP_MCAST, bytesOf(&in), 0, bytesOf(&r)))
	if e := c.next(EventMulticastJoin, 4); e.Id != r.Id {
		t.Errorf("group %d, want %d", e.Id, r.Id)
	}
	k.Unplug("rxe0")
	c.next(EventDeviceRemoval, 1)
	want(t, "leave a group of a device that is gone", errOf(c.leave(r.Id)), unix.ENXIO)
}

// TestResolveMulticast: a group is resolved at once, over the interface that the id is bound to,
// else over the first, and can be joined then.
func TestResolveMulticast(t *testing.T) {
	k := start(t, Options{Devices: make([]Device, 2), CMTimeout: time.Hour})
	c := openCM(t, k)
	for _, tt := range []struct{ from, group, src string }{
		{"", "239.1.2.3:0", "10.9.0.1"},
		{"10.9.0.2:0", "239.1.2.3:0", "10.9.0.2"},
		{"0.0.0.0:0", "224.0.0.1:7174", "10.9.0.1"},
		{"", "[ff0e::7]:0", "2001:db8:9::1"},
		{"[2001:db8:9::2]:0", "[ff0e::7]:0", "2001:db8:9::2"},
	} {
		id := c.udp(1)
		if tt.from != "" {
			must(t, c.bind(id, ap(tt.from), 0))
		}
		must(t, c.resolve(id, ap(tt.group), 0))
		c.next(EventAddrResolved, 1)
		i := slices.IndexFunc(k.CM().IDs(), func(e CMID) bool { return e.ID == id })
		if got := k.CM().IDs()[i]; got.Src.Addr() != netip.MustParseAddr(tt.src) || got.State != "addr_resolved" {
			t.Errorf("%s from %q: got %+v, want it resolved from %s", tt.group, tt.from, got, tt.src)
		}
		if ap(tt.group).Addr().Is4() {
			_, err := c.join(id, tt.group, 0)
			must(t, err)
			c.next(EventMulticastJoin, uint64(id)+1000)
		}
		want(t, "destroy", errOf(c.destroy(id)), 0)
	}
	id := c.udp(2)
	want(t, "link-local group without scope", c.resolve(id, ap("[ff02::7]:0"), 0), unix.EINVAL)
	must(t, c.resolve(id, ap("[ff02::7]:0"), 3))
	c.next(EventAddrResolved, 2)
	if got := k.CM().IDs()[0].Src.Addr(); got != netip.MustParseAddr("fe80::a:2") {
		t.Errorf("got source %v, want that of the interface of the scope", got)
	}
	k = start(t, Options{Devices: []Device{}})
	c = openCM(t, k)
	want(t, "no interface", c.resolve(c.udp(1), ap("239.1.2.3:0"), 0), unix.ENETUNREACH)
}

// TestQueryPathRoom: a record needs its room, and before 6.1 a byte more.
func TestQueryPathRoom(t *testing.T) {
	const head, record = 8, 72
	for kernel, spare := range map[string]int{"5.10": 1, "6.1": 0, "7.2": 0} {
		c := openCM(t, start(t, Options{Kernel: kernel}))
		id := c.dial(1, ap("10.9.0.1:1"))
		for room, full := range map[int]bool{
			head: false, head + record - 1: false, head + record: spare == 0, head + record + spare: true, head + 2*record: true,
		} {
			out := make([]byte, room, head+2*record)
			in := abi.RdmaUcmQuery{Id: id, Option: abi.RDMA_USER_CM_QUERY_PATH}
			must(t, c.call(abi.RDMA_USER_CM_CMD_QUERY, bytesOf(&in), 0, out))
			if n := load[uint32](out); n != 1 {
				t.Errorf("%s, room %d: %d paths, want 1", kernel, room, n)
			}
			if flags := out[:head+1][head]; (flags == pathFlags) != full {
				t.Errorf("%s, room %d: flags %#x, want a record: %v", kernel, room, flags, full)
			}
		}
	}
}

// TestMigrate moves a listener, with a request that nobody has fetched, and an id that joined.
func TestMigrate(t *testing.T) {
	k := start(t, Options{})
	old, fresh, client := openCM(t, k), openCM(t, k), openCM(t, k)
	l := old.listener(100, ap("10.9.0.1:7174"))
	bystander := old.dial(5, ap("10.9.0.1:7174"))
	id := client.dial(1, ap("10.9.0.1:7174"))
	for _, uid := range []uint64{2, 3} {
		must(t, client.connect(client.dial(uid, ap("10.9.0.1:7174")), abi.RdmaUcmConnParam{}, ""))
	}
	first := old.next(EventConnectRequest, 100).Id
	fd := uint32(old.f.(*cmFile).fd)
	migrate := func(c channel, id, fd uint32) (uint32, error) {
		var r abi.RdmaUcmMigrateResp
		err := c.call(abi.RDMA_USER_CM_CMD_MIGRATE_ID, bytesOf(&abi.RdmaUcmMigrateId{Id: id, Fd: fd}), 0, bytesOf(&r))
		return r.EventsReported, err
	}
	want(t, "no file", errOf(migrate(fresh, l, 1<<20)), unix.ENOENT)
	want(t, "no rdma_cm", errOf(migrate(fresh, l, 0)), unix.EINVAL)
	want(t, "id of another file", errOf(migrate(fresh, id, fd)), unix.EINVAL)
	if n, err := migrate(fresh, l, fd); err != nil || n != 1 {
		t.Errorf("%d events reported, %v; want 1", n, err)
	}
	old.quiet()
	second := fresh.next(EventConnectRequest, 100).Id
	want(t, "the child stays where it was", old.reject(second, 0, ""), 0)
	want(t, "the first too", old.reject(first, 0, ""), 0)
	must(t, client.connect(id, abi.RdmaUcmConnParam{}, ""))
	third := fresh.next(EventConnectRequest, 100).Id
	want(t, "what comes then is born there", fresh.reject(third, 0, ""), 0)
	want(t, "bystander", errOf(old.destroy(bystander)), 0)
	if n, err := fresh.destroy(l); err != nil || n != 3 {
		t.Errorf("destroy: %d events, %v; want 3", n, err)
	}
}

// TestPoll: the descriptor is readable as long as there are events, and names the file.
func TestPoll(t *testing.T) {
	k := start(t, Options{})
	c, fresh := openCM(t, k), openCM(t, k)
	rc, err := c.f.(*cmFile).SyscallConn()
	must(t, err)
	var fd int
	must(t, rc.Control(func(n uintptr) { fd = int(n) }))
	readable := func() bool {
		t.Helper()
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		must(t, err)
		return n > 0
	}
	if readable() {
		t.Error("readable without events")
	}
	id := c.id(1)
	must(t, c.resolve(id, ap("10.9.0.1:1"), 0))
	if !readable() {
		t.Error("not readable with an event")
	}
	var r abi.RdmaUcmMigrateResp
	must(t, fresh.call(abi.RDMA_USER_CM_CMD_MIGRATE_ID, bytesOf(&abi.RdmaUcmMigrateId{Id: id, Fd: uint32(fd)}), 0, bytesOf(&r)))
	if readable() {
		t.Error("readable after its event has moved")
	}
	fresh.next(EventAddrResolved, 1)
	must(t, c.f.Close())
	if err := rc.Control(func(uintptr) {}); err == nil {
		t.Error("a closed file has a descriptor")
	}
	if _, err := c.f.(*cmFile).SyscallConn(); err == nil {
		t.Error("a closed file has a connection")
	}
}

// TestNewCommands: what came after 6.12.
func TestNewCommands(t *testing.T) {
	for kernel, errno := range map[string]unix.Errno{"6.12": unix.EINVAL, "7.2": 0} {
		k := start(t, Options{Kernel: kernel})
		c := openCM(t, k)
		in := abi.RdmaUcmWriteCmEvent{Id: c.id(9), Event: EventUser, Status: 3}
		*in.ParamArg() = 77
		want(t, kernel, c.call(abi.RDMA_USER_CM_CMD_WRITE_CM_EVENT, bytesOf(&in), uapi.NoResponse, nil), errno)
		if errno == 0 {
			if e := c.next(EventUser, 9); e.Status != 3 || load[uint64](bytesOf(e.ParamArg32())) != 77 {
				t.Errorf("event %+v", e)
			}
		}
		must(t, c.bind(in.Id, ap("10.9.0.1:0"), 0))
		svc := abi.RdmaUcmResolveIbService{Id: in.Id}
		if errno == 0 {
			errno = unix.EOPNOTSUPP
		}
		want(t, kernel, c.call(abi.RDMA_USER_CM_CMD_RESOLVE_IB_SERVICE, bytesOf(&svc), uapi.NoResponse, nil), errno)
	}
}
