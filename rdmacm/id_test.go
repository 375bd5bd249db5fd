package rdmacm

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/discover"
	"github.com/pureverbs/rdma/uverbs"
)

// mustBe checks cause and words of an error.
func mustBe(t *testing.T, what string, err, cause error, words ...string) {
	t.Helper()
	if !errors.Is(err, cause) {
		t.Errorf("%s: got error %v, want one that is %v", what, err, cause)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s: got error %q, want it to say %q", what, err, w)
		}
	}
}

func TestCreateID(t *testing.T) {
	s := newScript(t)
	ch := s.channel(nil)
	id := mustID(t, ch)
	in := as[abi.RdmaUcmCreateId](s.sent(abi.RDMA_USER_CM_CMD_CREATE_ID)[0])
	if in.Uid != id.uid || in.Uid == 0 || in.Ps != 0x106 || in.QpType != 2 {
		t.Errorf("got uid %#x, port space %#x and type %d, want %#x, 0x106 and 2", in.Uid, in.Ps, in.QpType, id.uid)
	}
	if id.kid != 0 || id.Channel() != ch || id.QP() != nil || id.PortNum() != 0 || id.LocalAddr().IsValid() {
		t.Error("a new id is not as it should be")
	}
	_, err := ch.NewID(7)
	mustBe(t, "port space 7", err, ErrInvalid, "port space 0x7")
	s.fail[abi.RDMA_USER_CM_CMD_CREATE_ID] = syscall.ENOMEM
	_, err = ch.NewID(PortSpaceTCP)
	mustBe(t, "new id", err, syscall.ENOMEM, "create id: ")
	if n := ch.ids.len(); n != 1 {
		t.Errorf("%d ids are in the table after a failure, want 1", n)
	}
}

func TestPortSpaces(t *testing.T) {
	s := newScript(t)
	ch := s.channel(nil)
	for i, tt := range []struct {
		ps     PortSpace
		number uint16
		typ    uint8
		name   string
	}{
		{PortSpaceTCP, 0x106, 2, "TCP"}, {PortSpaceUDP, 0x111, 4, "UDP"}, {PortSpaceIPoIB, 0x002, 4, "IPoIB"}, {PortSpaceIB, 0x13f, 2, "IB"},
	} {
		id, err := ch.NewID(tt.ps)
		if err != nil {
			t.Fatal(err)
		}
		in := as[abi.RdmaUcmCreateId](s.sent(abi.RDMA_USER_CM_CMD_CREATE_ID)[i])
		if in.Ps != tt.number || in.QpType != tt.typ || id.PortSpace() != tt.ps || tt.ps.String() != tt.name {
			t.Errorf("got %#x, type %d, %v; want %#x, %d, %s", in.Ps, in.QpType, id.PortSpace(), tt.number, tt.typ, tt.name)
		}
		if err := id.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestCommandErrors(t *testing.T) {
	addr := netip.MustParseAddrPort("10.9.0.1:7174")
	for _, tt := range []struct {
		cmd   uint32
		errno syscall.Errno
		do    func(*ID) error
		words string
	}{
		{abi.RDMA_USER_CM_CMD_BIND, syscall.ENODEV, func(id *ID) error { return id.Bind(addr) },
			"bind 10.9.0.1:7174: no such device (the address does not belong to an RDMA interface"},
		{abi.RDMA_USER_CM_CMD_BIND, syscall.EADDRNOTAVAIL, func(id *ID) error { return id.Bind(addr) },
			"no interface in this network namespace has that address"},
		{abi.RDMA_USER_CM_CMD_BIND, syscall.EADDRNOTAVAIL, func(id *ID) error { return id.Bind(netip.MustParseAddrPort("[::]:7174")) },
			"another id listens on that port"},
		{abi.RDMA_USER_CM_CMD_BIND, syscall.EADDRINUSE, func(id *ID) error { return id.Bind(addr) }, "another id listens on that port"},
		{abi.RDMA_USER_CM_CMD_BIND, syscall.EACCES, func(id *ID) error { return id.Bind(netip.MustParseAddrPort("10.9.0.1:80")) },
			"CAP_NET_BIND_SERVICE"},
		{abi.RDMA_USER_CM_CMD_BIND, syscall.EACCES, func(id *ID) error { return id.Bind(addr) }, "each thread of a Go program has its own"},
		{abi.RDMA_USER_CM_CMD_RESOLVE_ADDR, syscall.EINVAL, func(id *ID) error { return id.ResolveAddr(addr, addr, time.Second) },
			"resolve address 10.9.0.1:7174: invalid argument"},
		{abi.RDMA_USER_CM_CMD_RESOLVE_ROUTE, syscall.ENXIO, func(id *ID) error { return id.ResolveRoute(time.Second) },
			"(the device was removed)"},
		{abi.RDMA_USER_CM_CMD_LISTEN, syscall.EINVAL, func(id *ID) error { return id.Listen(1) }, "listen: invalid argument"},
		{abi.RDMA_USER_CM_CMD_DISCONNECT, syscall.EINVAL, func(id *ID) error { return id.Disconnect() }, "disconnect: invalid argument"},
		{abi.RDMA_USER_CM_CMD_NOTIFY, syscall.EINVAL, func(id *ID) error { return id.NotifyEstablished() }, "notify: invalid argument"},
		{abi.RDMA_USER_CM_CMD_ACCEPT, syscall.EINVAL, func(id *ID) error { return id.Establish() }, "establish: invalid argument"},
		{abi.RDMA_USER_CM_CMD_CONNECT, syscall.EINVAL, func(id *ID) error {
			return id.Connect(ConnParam{ResponderResources: None, InitiatorDepth: None})
		}, "connect: invalid argument"},
		{abi.RDMA_USER_CM_CMD_INIT_QP_ATTR, syscall.EINVAL, func(id *ID) error {
			_, _, err := id.QPAttr(uverbs.StateRTR)
			return err
		}, "get queue pair attributes: invalid argument"},
	} {
		s := newScript(t)
		id := mustID(t, s.channel(scriptTree("  eth0: 1 2\n")))
		s.fail[tt.cmd] = tt.errno
		mustBe(t, tt.words, tt.do(id), tt.errno, tt.words)
		if n := len(s.sent(tt.cmd)); n != 1 {
			t.Errorf("%s: the command was issued %d times, want once", tt.words, n)
		}
	}
}

// RW-01, RW-20: what "no such device" means is told from the list of devices.
func TestRW01NoInterfaceHere(t *testing.T) {
	for name, tt := range map[string]struct {
		files map[string]string
		words string
	}{
		"no device":         {nil, "this system has no RDMA device; one in software"},
		"not in this netns": {scriptTree("    lo: 1 2\n"), "network namespace"},
		"another address":   {scriptTree("  eth0: 1 2\n"), "there is rxe0 on eth0"},
	} {
		s := newScript(t)
		id := mustID(t, s.channel(tt.files))
		s.put(id.kid, EventAddrError, -19)
		mustBe(t, name, next(t, id.ch).Err, syscall.ENODEV, tt.words)
	}
}

func TestIDAddresses(t *testing.T) {
	s := newScript(t)
	ch := s.channel(scriptTree("  eth0: 1 2\n"))
	s.local, s.remote = netip.MustParseAddrPort("[fe80::1%77]:1024"), netip.MustParseAddrPort("[fe80::2%77]:7174")
	id := mustID(t, ch)
	s.put(id.kid, EventAddrResolved, 0)
	next(t, ch)
	if id.LocalAddr() != s.local || id.RemoteAddr() != s.remote || id.PortNum() != 1 {
		t.Errorf("got %v to %v on port %d, want %v to %v on port 1", id.LocalAddr(), id.RemoteAddr(), id.PortNum(), s.local, s.remote)
	}
	dev, err := id.Device()
	if err != nil || dev.Name() != "rxe0" {
		t.Errorf("got device %v and error %v, want rxe0", dev, err)
	}
	// RW-47: the node of the device is missing.
	_, err = id.Context()
	mustBe(t, "context", err, discover.ErrNoNode, "/dev/infiniband/uverbs0")
	// One that is not in the list is one that was removed.
	id.dev.guid++
	_, err = id.Device()
	mustBe(t, "device", err, ErrDeviceRemoved)
}

func TestIDWithoutDevice(t *testing.T) {
	id := mustID(t, newScript(t).channel(nil))
	_, err := id.Context()
	mustBe(t, "context", err, ErrInvalid, "no device yet")
	_, err = id.Device()
	mustBe(t, "device", err, ErrInvalid)
	_, err = id.CreateQP(nil, nil)
	mustBe(t, "create queue pair", err, ErrInvalid, "no device yet")
	mustBe(t, "connect", id.Connect(ConnParam{}), ErrInvalid, "no device yet")
}

func TestRW39CloseFromHandler(t *testing.T) {
	s := newScript(t)
	ch := s.channel(nil)
	var ids []*ID
	for _, typ := range []EventType{EventDisconnected, EventRejected, EventRouteError, EventDeviceRemoval, EventAddrError} {
		id := mustID(t, ch)
		ids = append(ids, id)
		// More than one, so that some are in the queue when the id is closed.
		s.put(id.kid, typ, -19)
		s.put(id.kid, EventTimewaitExit, 0)
		s.put(id.kid, EventDisconnected, 0)
	}
	for range ids {
		if err := next(t, ch).ID.Close(); err != nil {
			t.Error(err)
		}
	}
	id := mustID(t, ch)
	s.put(id.kid, EventAddrResolved, 0)
	if ev := next(t, ch); ev.ID != id || ev.Type != EventAddrResolved {
		t.Errorf("got %v, want that of the new id", ev.Type)
	}
}

func TestRW27CloseWakesNextEvent(t *testing.T) {
	s := newScript(t)
	ch := s.channel(nil)
	const waiters = 200
	errs := make(chan error, waiters)
	var started sync.WaitGroup
	for range waiters {
		started.Add(1)
		go func() {
			started.Done()
			_, err := ch.NextEvent(context.Background())
			errs <- err
		}()
	}
	started.Wait()
	if err := ch.Close(); err != nil {
		t.Fatal(err)
	}
	for range waiters {
		mustBe(t, "next event", <-errs, net.ErrClosed)
	}
	_, err := ch.NextEvent(context.Background())
	mustBe(t, "next event after close", err, net.ErrClosed)
	_, err = ch.NewID(PortSpaceTCP)
	mustBe(t, "new id after close", err, net.ErrClosed)
}

func TestNextEventContext(t *testing.T) {
	s := newScript(t)
	ch := s.channel(nil)
	ctx, cancel := context.WithCancel(context.Background())
	first := make(chan error)
	go func() {
		_, err := ch.NextEvent(ctx)
		first <- err
	}()
	<-s.waiting
	// A second one that waits for the first.
	expired, cancel2 := context.WithDeadline(context.Background(), time.Unix(1, 0))
	defer cancel2()
	_, err := ch.NextEvent(expired)
	mustBe(t, "waiting for the turn", err, context.DeadlineExceeded)
	cancel()
	mustBe(t, "waiting for the kernel", <-first, context.Canceled)
}

func TestNextEventFails(t *testing.T) {
	s := newScript(t)
	ch := s.channel(nil)
	s.fail[abi.RDMA_USER_CM_CMD_GET_EVENT] = syscall.EACCES
	_, err := ch.NextEvent(context.Background())
	mustBe(t, "next event", err, syscall.EACCES, "each thread of a Go program has its own")
}

func TestCloseBusyChannel(t *testing.T) {
	s := newScript(t)
	ch := s.channel(nil)
	id := mustID(t, ch)
	mustBe(t, "close", ch.Close(), ErrBusy, "1 of its ids")
	s.put(id.kid, EventAddrResolved, 0)
	if ev := next(t, ch); ev.ID != id {
		t.Error("the channel does not work any more")
	}
}

func TestClosedID(t *testing.T) {
	s := newScript(t)
	ch := s.channel(nil)
	id := mustID(t, ch)
	for range 2 {
		if err := id.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(s.sent(abi.RDMA_USER_CM_CMD_DESTROY_ID)); n != 1 {
		t.Errorf("the id was destroyed %d times, want once", n)
	}
	addr := netip.MustParseAddrPort("10.9.0.1:7174")
	mustBe(t, "bind", id.Bind(addr), net.ErrClosed, "bind 10.9.0.1:7174")
	mustBe(t, "disconnect", id.Disconnect(), net.ErrClosed)
	ev := &Event{Type: EventDisconnected, ID: id}
	if id.handle(ev, nil) {
		t.Error("an event of a closed id was reported")
	}
}

func TestCloseIDFails(t *testing.T) {
	s := newScript(t)
	ch := s.channel(nil)
	id := mustID(t, ch)
	s.fail[abi.RDMA_USER_CM_CMD_DESTROY_ID] = syscall.EIO
	mustBe(t, "close", id.Close(), syscall.EIO, "close id: ")
	s.uids = nil // the kernel's fault
}

func TestChannelErrors(t *testing.T) {
	s := newScript(t)
	sys := s.system(map[string]string{"sys/class/misc/rdma_cm/abi_version": "3\n"})
	_, err := NewEventChannel(WithSystem(sys))
	if err == nil || !strings.Contains(err.Error(), "ABI version 3, want 4") {
		t.Errorf("got error %v, want one about the ABI version", err)
	}
	sys = s.system(map[string]string{"sys/class/misc/rdma_cm/dev": "10:127\n"})
	_, err = NewEventChannel(WithSystem(sys))
	mustBe(t, "wrong node", err, discover.ErrWrongNode, "open event channel: ")
}

func TestMilliseconds(t *testing.T) {
	for d, want := range map[time.Duration]uint32{
		-1: 0, 0: 0, 1: 1, time.Millisecond: 1, time.Millisecond + 1: 2, 2 * time.Second: 2000, 1 << 62: 1<<31 - 1,
	} {
		if got := milliseconds(d); got != want {
			t.Errorf("%v: got %d, want %d", d, got, want)
		}
	}
}
