package rdmacm_test

import (
	"errors"
	"math"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"

	"github.com/pureverbs/rdma/internal/fakekernel"
	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/rdmacm"
)

// TestControl: each id is set up before anything else is done with it, and what fails there ends
// the attempt without a trace.
func TestControl(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	var mu sync.Mutex
	var ids []*rdmacm.ID
	note := rdmacm.Options{Control: func(id *rdmacm.ID) error {
		mu.Lock()
		defer mu.Unlock()
		ids = append(ids, id)
		if id.RemoteAddr().IsValid() { // it came with a request
			return nil
		}
		if id.LocalAddr().IsValid() {
			t.Errorf("the id is bound to %v already", id.LocalAddr())
		}
		return id.SetTOS(0x20)
	}}
	l := mustListen(t, k, server, &note)
	s, c := connect(t, k, l, note, note)
	mu.Lock()
	if len(ids) != 3 {
		t.Errorf("called for %d ids, want those of listener, client and request", len(ids))
	}
	mu.Unlock()
	testutil.Must(t, errors.Join(s.Close(), c.Close()))

	no := errors.New("no")
	refuse := &rdmacm.Options{Control: func(*rdmacm.ID) error { return no }}
	_, err := rdmacm.Dial(testContext(t), server, options(k, refuse))
	mustBe(t, "dial", err, no, "set up id: no")
	_, err = rdmacm.Listen(testContext(t), ":7175", options(k, refuse))
	mustBe(t, "listen", err, no)
	_, err = rdmacm.ListenDatagram(testContext(t), server, options(k, refuse))
	mustBe(t, "listen for datagrams", err, no)
	_, err = rdmacm.JoinMulticast(testContext(t), "239.1.2.3", options(k, refuse))
	mustBe(t, "join", err, no)

	dialled := make(chan error)
	go func() {
		_, err := rdmacm.Dial(testContext(t), server, options(k, nil))
		dialled <- err
	}()
	r, err := l.Next(testContext(t))
	testutil.Must(t, err)
	_, err = r.Accept(testContext(t), refuse)
	mustBe(t, "accept", err, no)
	if err := <-dialled; !errors.As(err, new(*rdmacm.RejectedError)) {
		t.Errorf("client got %v, want to be rejected", err)
	}
}

// TestBacklogBounds: no number makes Listen panic, or take memory for it.
func TestBacklogBounds(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	for _, n := range []int{-1, math.MinInt, math.MaxInt32, math.MaxInt} {
		l, err := rdmacm.Listen(testContext(t), server, options(k, &rdmacm.Options{Backlog: n}))
		testutil.Must(t, err)
		testutil.Must(t, l.Close())
	}
}

// TestAllocMRBesideClose: a region is closed with its connection, whenever it was made.
func TestAllocMRBesideClose(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	l := mustListen(t, k, server, nil)
	for range 30 {
		_, c := connect(t, k, l, rdmacm.Options{}, rdmacm.Options{})
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 20 {
					if _, err := c.AllocMR(64, 0); err != nil && !errors.Is(err, net.ErrClosed) {
						t.Error(err)
					}
				}
			})
		}
		wg.Go(func() { testutil.Must(t, c.Close()) })
		wg.Wait()
	}
}

// TestListenerEnds: a loop that goes on after all errors but net.ErrClosed ends with its device,
// and learns why.
func TestListenerEnds(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	l := mustListen(t, k, server, nil)
	k.Unplug("rxe0")
	_, err := l.Accept(testContext(t))
	mustBe(t, "accept", err, net.ErrClosed, "accept 10.9.0.1:7174: ")
	mustBe(t, "accept", err, rdmacm.ErrDeviceRemoved)
	_, err = l.Next(testContext(t))
	mustBe(t, "next", err, net.ErrClosed)
}

// TestNoPeer: an id that only has an address of its own has no peer, which errors would name.
func TestNoPeer(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	ch := mustChannel(t, k)
	id, err := ch.NewID(rdmacm.PortSpaceTCP)
	testutil.Must(t, err)
	defer id.Close()
	testutil.Must(t, id.Bind(netip.MustParseAddrPort(server)))
	if got := id.RemoteAddr(); got.IsValid() {
		t.Errorf("the peer is %v, want none", got)
	}
	mustBe(t, "connect", id.Connect(rdmacm.ConnParam{}), syscall.EINVAL, "connect: ", "address has to be resolved")
	mustBe(t, "resolve route", id.ResolveRoute(0), syscall.EINVAL, "resolve route: ", "address has to be resolved")
}

// TestDisconnectUnanswered: a peer that does not answer has not ended the connection in order.
func TestDisconnectUnanswered(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	l := mustListen(t, k, server, nil)
	_, c := connect(t, k, l, rdmacm.Options{}, rdmacm.Options{})
	defer k.LoseCM(func(fakekernel.CMMessage, fakekernel.CMID) bool { return true })()
	testutil.Must(t, c.Disconnect())
	err := ended(t, c)
	mustBe(t, "the end", err, syscall.ETIMEDOUT, "disconnect 10.9.0.1:7174: the peer does not answer")
	if errors.Is(err, rdmacm.ErrDisconnected) {
		t.Errorf("got %v, which says that the peer disconnected", err)
	}
}
