package rdmacm_test

import (
	"context"
	"errors"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/pureverbs/rdma/internal/fakekernel"
	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/uverbs"
)

func mustChannel(t *testing.T, k *fakekernel.Kernel) *rdmacm.EventChannel {
	t.Helper()
	ch, err := rdmacm.NewEventChannel(on(k))
	if err != nil {
		t.Fatal(err)
	}
	closeLater(t, "event channel", ch.Close)
	return ch
}

// listenRaw is a listening id at the server's address.
func listenRaw(t *testing.T, ch *rdmacm.EventChannel) *rdmacm.ID {
	t.Helper()
	id, err := ch.NewID(rdmacm.PortSpaceTCP)
	if err != nil {
		t.Fatal(err)
	}
	closeLater(t, "listener", id.Close)
	if err := id.Bind(netip.MustParseAddrPort(server)); err != nil {
		t.Fatal(err)
	}
	if err := id.Listen(16); err != nil {
		t.Fatal(err)
	}
	return id
}

// An acceptor hands each connection to a loop of its own, as a server with a goroutine for
// each core does: before the request is accepted, and a live one.
func TestMigrateConnection(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	acceptor, worker, other := mustChannel(t, k), mustChannel(t, k), mustChannel(t, k)
	listenRaw(t, acceptor)
	clients, client := rawClient(t, k)
	if err := client.Connect(rdmacm.ConnParam{}); err != nil {
		t.Fatal(err)
	}
	conn := expect(t, acceptor, rdmacm.EventConnectRequest).ID
	closeLater(t, "server's id", conn.Close)
	if err := conn.Migrate(worker); err != nil {
		t.Fatal(err)
	}
	mustQP(t, conn)
	if err := conn.Accept(rdmacm.ConnParam{}); err != nil {
		t.Fatal(err)
	}
	expect(t, clients, rdmacm.EventEstablished)
	expect(t, worker, rdmacm.EventEstablished)
	if err := client.Disconnect(); err != nil {
		t.Fatal(err)
	}
	// The event waits on the one channel and is received on the other.
	if err := conn.Migrate(other); err != nil {
		t.Fatal(err)
	}
	expect(t, other, rdmacm.EventDisconnected)
	if err := conn.Disconnect(); err != nil {
		t.Fatal(err)
	}
	expect(t, clients, rdmacm.EventDisconnected)
	mustBe(t, "command on the old channel", acceptor.Close(), rdmacm.ErrBusy) // its listener
	if err := worker.Close(); err != nil {
		t.Errorf("close a channel that the id has left: %v", err)
	}
}

// Requests that wait go along with their listener, and can be accepted although the old
// channel is closed.
func TestMigrateListenerWithRequests(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	old, fresh := mustChannel(t, k), mustChannel(t, k)
	listener := listenRaw(t, old)
	const clients = 3
	var channels []*rdmacm.EventChannel
	for range clients {
		ch, id := rawClient(t, k)
		if err := id.Connect(rdmacm.ConnParam{}); err != nil {
			t.Fatal(err)
		}
		channels = append(channels, ch)
	}
	if err := listener.Migrate(fresh); err != nil {
		t.Fatal(err)
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	for range clients {
		ev := expect(t, fresh, rdmacm.EventConnectRequest)
		if ev.Listener != listener {
			t.Error("a request of another listener")
		}
		closeLater(t, "server's id", ev.ID.Close)
		mustQP(t, ev.ID)
		if err := ev.ID.Accept(rdmacm.ConnParam{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, ch := range channels {
		expect(t, ch, rdmacm.EventEstablished)
	}
	for range clients {
		expect(t, fresh, rdmacm.EventEstablished)
	}
}

// An event loop of the program's own, on epoll, beside contexts with deadlines.
func TestOwnEventLoop(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	ch := mustChannel(t, k)
	rc, err := ch.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	ep, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	closeLater(t, "epoll", func() error { return syscall.Close(ep) })
	var ctl error
	err = rc.Control(func(fd uintptr) {
		ev := syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(fd)}
		ctl = syscall.EpollCtl(ep, syscall.EPOLL_CTL_ADD, int(fd), &ev)
	})
	if err := errors.Join(err, ctl); err != nil {
		t.Fatal(err)
	}
	ready := func(timeout time.Duration) bool {
		n, err := syscall.EpollWait(ep, make([]syscall.EpollEvent, 1), int(timeout.Milliseconds()))
		if err != nil && !errors.Is(err, syscall.EINTR) {
			t.Fatal(err)
		}
		return n > 0
	}
	if ready(0) {
		t.Error("the descriptor is readable, and nothing has happened")
	}
	short, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
	defer cancel()
	_, err = ch.NextEvent(short)
	mustBe(t, "deadline beside epoll", err, context.DeadlineExceeded)

	id, err := ch.NewID(rdmacm.PortSpaceTCP)
	if err != nil {
		t.Fatal(err)
	}
	closeLater(t, "id", id.Close)
	if err := id.ResolveAddr(netip.AddrPort{}, netip.MustParseAddrPort(server), time.Second); err != nil {
		t.Fatal(err)
	}
	var got []rdmacm.EventType
	for len(got) < 2 && ready(watchdog) {
		for {
			ev, err := ch.TryEvent()
			if err != nil {
				t.Fatal(err)
			}
			if ev == nil {
				break
			}
			got = append(got, ev.Type)
			if ev.Type == rdmacm.EventAddrResolved {
				if err := id.ResolveRoute(time.Second); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if len(got) != 2 || got[0] != rdmacm.EventAddrResolved || got[1] != rdmacm.EventRouteResolved {
		t.Errorf("got events %v, want address and route resolved", got)
	}
	if ready(0) {
		t.Error("the descriptor is readable, and all has been received")
	}
}

// What the kernel says of a resolved route, and a route that the program gives. Linux 5.10 leaves
// out a record for which there is just the room.
func TestPathOfRoute(t *testing.T) {
	for _, kernel := range []string{"5.10", "6.1", "7.2"} {
		t.Run(kernel, func(t *testing.T) { pathOfRoute(t, newKernel(t, fakekernel.Options{Kernel: kernel})) })
	}
}

func pathOfRoute(t *testing.T, k *fakekernel.Kernel) {
	ch := mustChannel(t, k)
	id := resolved(t, ch)
	paths, err := id.Path()
	if err != nil || len(paths) != 1 {
		t.Fatalf("got %d paths and error %v, want 1", len(paths), err)
	}
	local, remote, err := id.GIDs()
	if err != nil {
		t.Fatal(err)
	}
	if p := paths[0]; p.SGID != local || p.DGID != remote || p.Flags != rdmacm.PathGMP|rdmacm.PathPrimary|rdmacm.PathBidirectional {
		t.Errorf("got path %+v, want one from %v to %v", p, local, remote)
	}
	if remote != uverbs.MulticastGID(netip.MustParseAddr("10.9.0.1")) {
		t.Errorf("got GID %v of the peer", remote)
	}
	// The same path once more, in place of ResolveRoute.
	second, err := ch.NewID(rdmacm.PortSpaceTCP)
	if err != nil {
		t.Fatal(err)
	}
	closeLater(t, "id", second.Close)
	if err := second.ResolveAddr(netip.AddrPort{}, netip.MustParseAddrPort(server), time.Second); err != nil {
		t.Fatal(err)
	}
	expect(t, ch, rdmacm.EventAddrResolved)
	if p, err := second.Path(); err != nil || len(p) != 0 {
		t.Errorf("got paths %v and error %v before the route, want none", p, err)
	}
	if err := second.SetIBPath(paths); err != nil {
		t.Fatal(err)
	}
	if ev := expect(t, ch, rdmacm.EventRouteResolved); ev.ID != second {
		t.Error("the event is another id's")
	}
	again, err := second.Path()
	if err != nil || len(again) != 1 || again[0].DGID != paths[0].DGID {
		t.Errorf("got path %+v and error %v, want that to %v", again, err, paths[0].DGID)
	}
}

// What a kernel before 7.2 lacks, and 7.2 has.
func TestNewCommandsByKernel(t *testing.T) {
	for version, has := range map[string]bool{"5.10": false, "6.12": false, "7.2": true} {
		k := newKernel(t, fakekernel.Options{Kernel: version})
		ch := mustChannel(t, k)
		id, err := ch.NewID(rdmacm.PortSpaceTCP)
		if err != nil {
			t.Fatal(err)
		}
		closeLater(t, "id", id.Close)
		err = id.WriteEvent(rdmacm.EventUser, 3, 1<<40+7)
		if !has {
			mustBe(t, version+": write", err, rdmacm.ErrNotSupported, "7.2 has it")
			mustBe(t, version+": resolve", id.ResolveService(rdmacm.Service{ID: 1}), rdmacm.ErrNotSupported, "7.2 has it")
			_, err := id.ServiceRecords()
			mustBe(t, version+": records", err, rdmacm.ErrNotSupported, "7.2 has it")
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if ev := expect(t, ch, rdmacm.EventUser); ev.ID != id || ev.Status != 3 || ev.Arg != 1<<40+7 {
			t.Errorf("got %+v, want what was written", ev)
		}
		mustBe(t, "no device", id.ResolveService(rdmacm.Service{ID: 1}), syscall.EINVAL)
		if err := id.Bind(netip.MustParseAddrPort("10.9.0.1:0")); err != nil {
			t.Fatal(err)
		}
		mustBe(t, "not InfiniBand", id.ResolveService(rdmacm.Service{ID: 1}), rdmacm.ErrNotSupported, "InfiniBand")
		_, err = id.ServiceRecords()
		mustBe(t, "records", err, syscall.ENODATA)
	}
}
