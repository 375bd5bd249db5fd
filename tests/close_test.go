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

// TestRW27CloseWakesCM: whoever waits for the connection manager is woken by Close.
func TestRW27CloseWakesCM(t *testing.T) {
	testutil.NoLeaks(t)
	testutil.Device(t)
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
	time.Sleep(50 * time.Millisecond) // let them park; the outcome does not depend on it
	testutil.Must(t, errors.Join(l.Close(), ch.Close()))
	testutil.ExpectClosed(t, errs, 2*waiters)
}

// TestRW27CloseWakesConn: closing a connection wakes those who wait for its completions.
func TestRW27CloseWakesConn(t *testing.T) {
	testutil.NoLeaks(t)
	testutil.Device(t)
	addr := echoServer(t, labIPv4+":0", 256)
	c, err := rdmacm.Dial(limit(t, time.Minute), addr.String(), nil)
	testutil.Must(t, err)
	errs := make(chan error)
	const waiters = 20
	for range waiters {
		go func() {
			_, err := c.RecvCQ().Wait(context.Background(), make([]uverbs.WC, 1))
			errs <- err
		}()
	}
	time.Sleep(20 * time.Millisecond)
	testutil.Must(t, c.Close())
	testutil.ExpectClosed(t, errs, waiters)
	if !errors.Is(c.Err(), net.ErrClosed) {
		t.Errorf("the connection ended with %v, want net.ErrClosed", c.Err())
	}
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
