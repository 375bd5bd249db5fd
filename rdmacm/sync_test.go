package rdmacm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/discover"
	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/uverbs"
)

// options makes the synchronous layer use the script.
func (s *script) options(files map[string]string) *Options {
	testutil.NoLeaks(s.t)
	s.t.Cleanup(func() {
		select {
		case <-s.closed:
		default:
			s.t.Error("the event channel is open")
		}
		if len(s.uids) > 0 {
			s.t.Errorf("%d ids are left in the kernel", len(s.uids))
		}
	})
	sys := s.system(files)
	return &Options{System: []Option{WithSystem(sys)}}
}

// on runs f when the kernel gets that command.
func (s *script) on(cmd uint32, f func(kid uint32)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hooks == nil {
		s.hooks = map[uint32]func(uint32){}
	}
	s.hooks[cmd] = f
}

func TestDialFailsToResolve(t *testing.T) {
	for _, tt := range []struct {
		name  string
		setup func(*script)
		cause error
		words string
	}{
		{"refused at once", func(s *script) { s.fail[abi.RDMA_USER_CM_CMD_RESOLVE_ADDR] = syscall.ENODEV },
			syscall.ENODEV, "resolve address 10.9.0.2:7174: no such device"},
		{"no device", func(s *script) {
			s.on(abi.RDMA_USER_CM_CMD_RESOLVE_ADDR, func(kid uint32) { s.put(kid, EventAddrError, -19) })
		}, syscall.ENODEV, "resolve address 10.9.0.2:7174: no such device"},
		{"route refused at once", func(s *script) {
			s.on(abi.RDMA_USER_CM_CMD_RESOLVE_ADDR, func(kid uint32) { s.put(kid, EventAddrResolved, 0) })
			s.fail[abi.RDMA_USER_CM_CMD_RESOLVE_ROUTE] = syscall.EINVAL
		}, syscall.EINVAL, "resolve route"},
		{"no route", func(s *script) {
			s.on(abi.RDMA_USER_CM_CMD_RESOLVE_ADDR, func(kid uint32) { s.put(kid, EventAddrResolved, 0) })
			s.on(abi.RDMA_USER_CM_CMD_RESOLVE_ROUTE, func(kid uint32) { s.put(kid, EventRouteError, -110) })
		}, syscall.ETIMEDOUT, "resolve route 10.9.0.2:7174: connection timed out"},
		{"device node missing", func(s *script) {
			s.local = netip.MustParseAddrPort("10.9.0.1:1")
			s.on(abi.RDMA_USER_CM_CMD_RESOLVE_ADDR, func(kid uint32) { s.put(kid, EventAddrResolved, 0) })
			s.on(abi.RDMA_USER_CM_CMD_RESOLVE_ROUTE, func(kid uint32) { s.put(kid, EventRouteResolved, 0) })
		}, discover.ErrNoNode, "/dev/infiniband/uverbs0"},
		{"device removed", func(s *script) {
			s.on(abi.RDMA_USER_CM_CMD_RESOLVE_ADDR, func(kid uint32) { s.put(kid, EventDeviceRemoval, 0) })
		}, ErrDeviceRemoved, "10.9.0.2:7174"},
		{"event channel fails", func(s *script) { s.fail[abi.RDMA_USER_CM_CMD_GET_EVENT] = syscall.EACCES },
			syscall.EACCES, "change them before the program starts"},
		{"no id", func(s *script) { s.fail[abi.RDMA_USER_CM_CMD_CREATE_ID] = syscall.ENOMEM }, syscall.ENOMEM, "create id"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newScript(t)
			o := s.options(scriptTree("  eth0: 1 2\n"))
			tt.setup(s)
			_, err := Dial(context.Background(), "10.9.0.2:7174", o)
			mustBe(t, "dial", err, tt.cause, tt.words)
		})
	}
}

func TestDialEndsWithContext(t *testing.T) {
	for _, route := range []bool{false, true} {
		s := newScript(t)
		o := s.options(nil)
		ctx, cancel := context.WithCancel(context.Background())
		if route {
			s.on(abi.RDMA_USER_CM_CMD_RESOLVE_ADDR, func(kid uint32) { s.put(kid, EventAddrResolved, 0) })
			s.on(abi.RDMA_USER_CM_CMD_RESOLVE_ROUTE, func(uint32) { cancel() })
		} else {
			s.on(abi.RDMA_USER_CM_CMD_RESOLVE_ADDR, func(uint32) { cancel() })
		}
		_, err := Dial(ctx, "10.9.0.2:7174", o)
		mustBe(t, "dial", err, context.Canceled, "10.9.0.2:7174")
		cancel()
	}
}

func TestDialArguments(t *testing.T) {
	s := newScript(t)
	sys := &Options{System: []Option{WithSystem(s.system(nil))}}
	_, err := Dial(context.Background(), "nowhere", sys)
	var noPort *net.AddrError
	if !errors.As(err, &noPort) || !strings.Contains(err.Error(), "dial nowhere: ") {
		t.Errorf("no port: got error %v", err)
	}
	_, err = Dial(context.Background(), "10.9.0.2:7174", &Options{SendCQ: new(uverbs.CQ)})
	mustBe(t, "queue without domain", err, ErrInvalid, "no protection domain")
	_, err = Listen(context.Background(), "10.9.0.2:7174", &Options{RecvCQ: new(uverbs.CQ)})
	mustBe(t, "queue without domain", err, ErrInvalid, "no protection domain")
	_, err = Listen(context.Background(), "nowhere", sys)
	if !errors.As(err, &noPort) || !strings.Contains(err.Error(), "listen nowhere: ") {
		t.Errorf("no port: got error %v", err)
	}
}

// RW-15: a link-local address without its zone is refused with the cure.
func TestRW15DialWithoutZone(t *testing.T) {
	s := newScript(t)
	_, err := Dial(context.Background(), "[fe80::1]:7174", s.options(nil))
	mustBe(t, "dial", err, ErrInvalid, "needs a zone")
	s = newScript(t)
	_, err = Listen(context.Background(), "[fe80::1]:7174", s.options(nil))
	mustBe(t, "listen", err, ErrInvalid, "needs a zone")
}

// RW-20: what is missing is said as it is.
func TestRW20NothingThere(t *testing.T) {
	s := newScript(t)
	_, err := Listen(context.Background(), ":7174", s.options(nil))
	mustBe(t, "no device", err, syscall.ENODEV, "this system has no RDMA device")

	s = newScript(t)
	_, err = Listen(context.Background(), ":7174", s.options(scriptTree("  eth0: 1 2\n")))
	mustBe(t, "no node of the device", err, discover.ErrNoNode, "/dev/infiniband/uverbs0")

	s = newScript(t)
	sys := s.system(nil)
	sys.Root = t.TempDir()
	for name, dial := range map[string]func() error{
		"dial": func() error {
			_, err := Dial(context.Background(), "10.9.0.2:1", &Options{System: []Option{WithSystem(sys)}})
			return err
		},
		"listen": func() error {
			_, err := Listen(context.Background(), "10.9.0.2:1", &Options{System: []Option{WithSystem(sys)}})
			return err
		},
	} {
		mustBe(t, name, dial(), discover.ErrNoModule, "modprobe")
	}
}

func TestListenFails(t *testing.T) {
	for _, cmd := range []uint32{abi.RDMA_USER_CM_CMD_CREATE_ID, abi.RDMA_USER_CM_CMD_BIND, abi.RDMA_USER_CM_CMD_LISTEN} {
		s := newScript(t)
		o := s.options(nil)
		s.fail[cmd] = syscall.EADDRINUSE
		_, err := Listen(context.Background(), "10.9.0.1:7174", o)
		mustBe(t, fmt.Sprintf("command %d", cmd), err, syscall.EADDRINUSE)
	}
}

func mustListen(t *testing.T, s *script, o *Options) *Listener {
	t.Helper()
	s.local = netip.MustParseAddrPort("10.9.0.1:7174")
	l, err := Listen(context.Background(), "10.9.0.1:7174", o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("close listener: %v", err)
		}
	})
	return l
}

func TestListenerRequests(t *testing.T) {
	s := newScript(t)
	l := mustListen(t, s, s.options(nil))
	if l.Addr() != s.local {
		t.Errorf("got address %v, want %v", l.Addr(), s.local)
	}
	s.remote = netip.MustParseAddrPort("10.9.0.2:9")
	s.request(l.ep.id, 'h', 'i')
	r, err := l.Next(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if string(r.PrivateData()) != "hi" || r.RemoteAddr() != s.remote || r.LocalAddr() != s.local || r.Conn() != (ConnInfo{}) {
		t.Errorf("got %q from %v to %v", r.PrivateData(), r.RemoteAddr(), r.LocalAddr())
	}
	if err := r.Reject([]byte("no")); err != nil {
		t.Error(err)
	}
	in := as[abi.RdmaUcmReject](s.sent(abi.RDMA_USER_CM_CMD_REJECT)[0])
	if string(in.PrivateData[:in.PrivateDataLen]) != "no" || in.Reason != 0 {
		t.Errorf("got %q with reason %d, want no and 0", in.PrivateData[:in.PrivateDataLen], in.Reason)
	}
	// Used up.
	mustBe(t, "second reject", r.Reject(nil), net.ErrClosed)
	_, err = r.Accept(context.Background(), nil)
	mustBe(t, "accept after reject", err, net.ErrClosed)
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// The backlog bounds what nobody has taken; Close rejects it.
func TestListenerBacklog(t *testing.T) {
	s := newScript(t)
	o := s.options(nil)
	o.Backlog = 2
	l := mustListen(t, s, o)
	destroyed := make(chan uint32, 8)
	s.on(abi.RDMA_USER_CM_CMD_DESTROY_ID, func(kid uint32) { destroyed <- kid })
	var kids []uint32
	for range 3 {
		kids = append(kids, s.request(l.ep.id))
	}
	if kid := <-destroyed; kid != kids[2] {
		t.Errorf("id %d was destroyed, want %d, which found no room", kid, kids[2])
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := l.Next(context.Background())
	mustBe(t, "next", err, net.ErrClosed)
}

func TestRW27ListenerCloseWakes(t *testing.T) {
	s := newScript(t)
	l := mustListen(t, s, s.options(nil))
	const waiters = 100
	errs := make(chan error, 2*waiters)
	for range waiters {
		go func() {
			_, err := l.Next(context.Background())
			errs <- err
		}()
		go func() {
			_, err := l.Accept(context.Background())
			errs <- err
		}()
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 * waiters {
		mustBe(t, "waiting", <-errs, net.ErrClosed)
	}
}

func TestListenerContext(t *testing.T) {
	s := newScript(t)
	l := mustListen(t, s, s.options(nil))
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	_, err := l.Accept(ctx)
	mustBe(t, "accept", err, context.DeadlineExceeded)
	var timeout net.Error
	if !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("%v is no timeout as package net has them", err)
	}
}

// An event channel that fails takes its listener with it.
func TestListenerChannelFails(t *testing.T) {
	s := newScript(t)
	l := mustListen(t, s, s.options(nil))
	s.mu.Lock()
	s.fail[abi.RDMA_USER_CM_CMD_GET_EVENT] = syscall.EACCES
	s.mu.Unlock()
	s.put(l.ep.id.kid, EventAddrChange, 0) // so that the next is asked for
	_, err := l.Accept(context.Background())
	mustBe(t, "accept", err, syscall.EACCES, "wait for event: ")
}

func TestListenerDeviceRemoved(t *testing.T) {
	s := newScript(t)
	l := mustListen(t, s, s.options(nil))
	s.put(l.ep.id.kid, EventDeviceRemoval, 0)
	_, err := l.Accept(context.Background())
	mustBe(t, "accept", err, ErrDeviceRemoved)
}

// Accept passes on what went wrong here, and the request does not leak.
func TestAcceptWithoutDevice(t *testing.T) {
	s := newScript(t)
	l := mustListen(t, s, s.options(scriptTree("  eth0: 1 2\n")))
	s.request(l.ep.id)
	_, err := l.Accept(context.Background())
	mustBe(t, "accept", err, discover.ErrNoNode, "/dev/infiniband/uverbs0")
	s.request(l.ep.id)
	r, err := l.Next(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.Context()
	mustBe(t, "context", err, discover.ErrNoNode)
	_, err = r.Accept(context.Background(), &Options{SendCQ: new(uverbs.CQ)})
	mustBe(t, "accept", err, ErrInvalid)
}

// An endpoint keeps the latest events for who waits, and the bad ones say why a command failed.
func TestEndpointKeepsTheLatest(t *testing.T) {
	ch := newScript(t).channel(nil)
	e := &endpoint{hub: &hub{ch: ch}, id: mustID(t, ch), steps: make(chan *Event, maxSteps), done: make(chan struct{})}
	odd := &Event{Type: 99, ID: e.id}
	for range 3 * maxSteps {
		e.handle(odd)
	}
	want := &Event{Type: EventEstablished, ID: e.id}
	e.handle(want)
	if ev, err := e.await(context.Background(), EventEstablished); ev != want || err != nil {
		t.Errorf("got %v and error %v, want the connection", ev, err)
	}
	failed, bad := errors.New("command"), errors.New("bad news")
	e.handle(odd)
	if err := e.reason(failed); !errors.Is(err, failed) {
		t.Errorf("got %v, want what the kernel said", err)
	}
	e.handle(&Event{Type: EventUnreachable, ID: e.id, Err: bad})
	e.handle(odd)
	if err := e.reason(failed); !errors.Is(err, bad) {
		t.Errorf("got %v, want the bad news", err)
	}
	e.finish(bad)
	if err := e.reason(failed); !errors.Is(err, bad) {
		t.Errorf("got %v, want why it ended", err)
	}
}
