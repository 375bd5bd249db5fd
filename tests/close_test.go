//go:build linux

package tests

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/uverbs"
)

// rounds are how often the tests of RW-27 do the same. The first round takes longer than the
// others, to be sure that all waiters are parked.
func rounds(t *testing.T, n int, round func(park time.Duration) (took time.Duration)) {
	if testing.Short() {
		n = 10
	}
	park, worst := 50*time.Millisecond, time.Duration(0)
	for range n {
		worst = max(worst, round(park))
		park = 2 * time.Millisecond
	}
	t.Logf("%d rounds; the slowest took %v to close and to wake all", n, worst.Round(time.Microsecond))
}

// TestRW27CloseWakesCM: whoever waits for the connection manager is woken by Close.
func TestRW27CloseWakesCM(t *testing.T) {
	sameObjects(t)
	testutil.NoLeaks(t)
	rounds(t, 1000, func(park time.Duration) time.Duration { return closeWakesCM(t, park) })
}

func closeWakesCM(t *testing.T, park time.Duration) time.Duration {
	t.Helper()
	errs := make(chan error)
	const waiters = 50
	l, err := rdmacm.Listen(context.Background(), labIPv4+":0", nil)
	testutil.Must(t, err)
	ch, err := rdmacm.NewEventChannel()
	testutil.Must(t, err)
	for range waiters {
		go func() {
			_, err := l.Accept(context.Background())
			errs <- err
		}()
		go func() {
			_, err := ch.NextEvent(context.Background())
			errs <- err
		}()
	}
	time.Sleep(park) // the outcome does not depend on it
	start := time.Now()
	testutil.Must(t, errors.Join(l.Close(), ch.Close()))
	testutil.ExpectClosed(t, errs, 2*waiters)
	return time.Since(start)
}

// TestRW27CloseWakesConn: closing a connection wakes those who wait for its completions.
func TestRW27CloseWakesConn(t *testing.T) {
	sameObjects(t)
	testutil.NoLeaks(t)
	addr := echoServer(t, labIPv4+":0", 256)
	rounds(t, 1000, func(park time.Duration) time.Duration { return closeWakesConn(t, addr.String(), park) })
}

func closeWakesConn(t *testing.T, address string, park time.Duration) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := rdmacm.Dial(ctx, address, nil)
	testutil.Must(t, err)
	errs := make(chan error)
	const waiters = 20
	for range waiters {
		go func() {
			_, err := c.RecvCQ().Wait(context.Background(), make([]uverbs.WC, 1))
			errs <- err
		}()
	}
	time.Sleep(park)
	start := time.Now()
	testutil.Must(t, c.Close())
	testutil.ExpectClosed(t, errs, waiters)
	took := time.Since(start)
	if !errors.Is(c.Err(), net.ErrClosed) {
		t.Errorf("the connection ended with %v, want net.ErrClosed", c.Err())
	}
	return took
}

// TestRW39CloseInHandler: one loop serves several connections and closes each id as soon as
// it hears that the peer has gone, before anything else.
func TestRW39CloseInHandler(t *testing.T) {
	testutil.NoLeaks(t)
	testutil.Device(t)
	ctx := limit(t, time.Minute)
	ch, err := rdmacm.NewEventChannel()
	testutil.Must(t, err)
	listener, err := ch.NewID(rdmacm.PortSpaceTCP)
	testutil.Must(t, err)
	testutil.Must(t, listener.Bind(netip.MustParseAddrPort(labIPv4+":0")))
	testutil.Must(t, listener.Listen(8))
	closed := make(chan time.Duration, 8)
	loop := make(chan error, 1)
	go func() { loop <- serveIDs(ctx, ch, closed) }()
	dialAll := func(n int) (conns []*rdmacm.Conn) {
		for range n {
			c, err := rdmacm.Dial(ctx, listener.LocalAddr().String(), nil)
			testutil.Must(t, err)
			conns = append(conns, c)
		}
		return conns
	}
	for _, n := range []int{4, 1} {
		for _, c := range dialAll(n) {
			testutil.Must(t, c.Close())
		}
		for range n {
			select {
			case took := <-closed:
				if took > 5*time.Second {
					t.Errorf("closing an id from its handler took %v", took)
				}
			case <-ctx.Done():
				t.Fatal("an id was not closed")
			}
		}
	}
	testutil.Must(t, listener.Close())
	testutil.Must(t, ch.Close())
	if err := <-loop; !errors.Is(err, net.ErrClosed) {
		t.Errorf("the loop ended with %v, want net.ErrClosed", err)
	}
}

// TestRW39CloseOnBadNews: whoever receives the events of a channel closes an id as soon as it
// hears bad news of it, before anything else, and the channel goes on. RouteError is not among
// them: on Ethernet and iWARP there is nothing that could fail later than in the call.
func TestRW39CloseOnBadNews(t *testing.T) {
	testutil.Lab(t, "RW39")
	sameObjects(t)
	testutil.NoLeaks(t)
	const name = "x6"
	island(t, name, "10.6.0.1")
	ch, err := rdmacm.NewEventChannel()
	own(t, ch, err)
	var gone <-chan error
	t.Run("AddrError", func(t *testing.T) {
		d := &desk{t, ch}
		id := d.id(rdmacm.PortSpaceTCP)
		testutil.Must(t, id.ResolveAddr(labAddr(wireClient, 0), netip.MustParseAddrPort("10.5.0.77:1"), 300*time.Millisecond))
		d.closeOn(rdmacm.EventAddrError, 1)
	})
	t.Run("Rejected", func(t *testing.T) {
		d, peer := &desk{t, ch}, newDesk(t)
		listener := peer.listener(rdmacm.PortSpaceTCP, labIPv4+":0")
		for range 4 {
			d.call(listener.LocalAddr())
		}
		for range 4 {
			ev := peer.expect(rdmacm.EventConnectRequest)
			testutil.Must(t, errors.Join(ev.ID.Reject(nil), ev.ID.Close()))
		}
		d.closeOn(rdmacm.EventRejected, 4)
	})
	t.Run("DeviceRemoval", func(t *testing.T) {
		// A connection, whose two ends are on one channel, and the listener.
		d := &desk{t, ch}
		listener := d.listener(rdmacm.PortSpaceTCP, "10.6.0.1:0")
		_, client := d.call(listener.LocalAddr())
		ev := d.expect(rdmacm.EventConnectRequest)
		own(t, ev.ID, nil)
		server := newKit(t, ev.ID)
		server.take(ev.ID.CreateQP(server.pd, server.attr()))
		testutil.Must(t, ev.ID.Accept(rdmacm.ConnParam{}))
		d.expect(rdmacm.EventEstablished)
		d.expect(rdmacm.EventEstablished)
		gone = deleted(name)
		d.closeOn(rdmacm.EventDeviceRemoval, 3)
		client.close()
		server.close()
	})
	t.Run("afterwards", func(t *testing.T) {
		d := &desk{t, ch}
		id, _ := d.call(echoServer(t, labIPv4+":0", kitHalf))
		d.expect(rdmacm.EventEstablished)
		testutil.Must(t, id.Disconnect())
		d.closeOn(rdmacm.EventDisconnected, 1)
	})
	// A device on which there was something left when its last id was closed is closed when
	// another is.
	soon(t, gone, "deleting a device whose ids are closed")
}

// call asks for a connection.
func (d *desk) call(addr netip.AddrPort) (*rdmacm.ID, *kit) {
	d.t.Helper()
	id := d.id(rdmacm.PortSpaceTCP)
	d.route(id, addr)
	k := newKit(d.t, id)
	k.take(id.CreateQP(k.pd, k.attr()))
	testutil.Must(d.t, id.Connect(rdmacm.ConnParam{}))
	return id, k
}

// closeOn closes n ids, each when an event of that type is in hand. An end of a connection may
// hear that the other is closed first.
func (d *desk) closeOn(typ rdmacm.EventType, n int) {
	d.t.Helper()
	heard := 0
	for range n {
		ev, err := d.ch.NextEvent(limit(d.t, 20*time.Second))
		testutil.Must(d.t, err)
		if ev.Type != typ && ev.Type != rdmacm.EventDisconnected {
			d.t.Fatalf("event %q (%v), want %q", ev.Type, ev.Err, typ)
		}
		if ev.Type == typ {
			heard++
		}
		start := time.Now()
		testutil.Must(d.t, ev.ID.Close())
		if took := time.Since(start); took > time.Second {
			d.t.Errorf("closing an id on %q took %v", ev.Type, took)
		}
	}
	if heard == 0 {
		d.t.Errorf("no event %q", typ)
	}
}

// serveIDs accepts every request and closes every id whose peer has gone.
func serveIDs(ctx context.Context, ch *rdmacm.EventChannel, closed chan<- time.Duration) error {
	type objects struct{ undo []func() error }
	all := map[*rdmacm.ID]*objects{}
	for {
		ev, err := ch.NextEvent(ctx)
		if err != nil {
			return err
		}
		switch ev.Type {
		case rdmacm.EventConnectRequest:
			c, err := ev.ID.Context()
			if err != nil {
				return err
			}
			pd, err := c.AllocPD()
			if err != nil {
				return err
			}
			cq, err := c.CreateCQ(4, nil)
			if err != nil {
				return err
			}
			if _, err := ev.ID.CreateQP(pd, &uverbs.QPInitAttr{SendCQ: cq, Cap: uverbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}); err != nil {
				return err
			}
			all[ev.ID] = &objects{undo: []func() error{ev.ID.QP().Close, cq.Close, pd.Close}}
			if err := ev.ID.Accept(rdmacm.ConnParam{}); err != nil {
				return err
			}
		case rdmacm.EventDisconnected:
			start := time.Now()
			for _, undo := range all[ev.ID].undo {
				if err := undo(); err != nil {
					return err
				}
			}
			delete(all, ev.ID)
			if err := ev.ID.Close(); err != nil {
				return err
			}
			closed <- time.Since(start)
		}
	}
}
