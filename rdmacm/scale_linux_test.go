package rdmacm_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pureverbs/rdma/internal/fakekernel"
	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/rdmacm"
)

// many is how often the tests of this file do what they do.
func many(t *testing.T) int {
	if testing.Short() {
		return 500
	}
	return 10_000
}

// TestManyIDs: one channel serves ten thousand ids, and each event finds its own.
func TestManyIDs(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	ch, err := rdmacm.NewEventChannel(on(k))
	testutil.Must(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	waiting := make(map[*rdmacm.ID]bool)
	for range many(t) {
		id, err := ch.NewID(rdmacm.PortSpaceTCP)
		testutil.Must(t, err)
		testutil.Must(t, id.ResolveAddr(netip.AddrPort{}, netip.MustParseAddrPort(server), time.Second))
		waiting[id] = true
	}
	ids := make([]*rdmacm.ID, 0, len(waiting))
	for len(waiting) > 0 {
		ev, err := ch.NextEvent(ctx)
		testutil.Must(t, err)
		if ev.Type != rdmacm.EventAddrResolved || !waiting[ev.ID] {
			t.Fatalf("got %v of an id that does not wait for it", ev.Type)
		}
		delete(waiting, ev.ID)
		ids = append(ids, ev.ID)
	}
	for _, id := range ids {
		testutil.Must(t, id.Close())
	}
	testutil.Must(t, ch.Close())
}

// TestDyingClients: a listener survives clients that die at any point, and a server that
// turns some down, and after all of that takes a client that behaves.
func TestDyingClients(t *testing.T) {
	k := newKernel(t, fakekernel.Options{CMTimeout: 5 * time.Millisecond})
	cancel := k.LoseCM(func(fakekernel.CMMessage, fakekernel.CMID) bool { return rand.IntN(50) == 0 })
	l := mustListen(t, k, server, nil)
	ctx, stop := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	for range 8 {
		serving.Go(func() { serveRoughly(ctx, l) })
	}
	var met atomic.Int64
	var dying sync.WaitGroup
	for range 16 {
		dying.Go(func() {
			for range many(t) / 16 {
				if dieSomewhere(k) {
					met.Add(1)
				}
			}
		})
	}
	dying.Wait()
	cancel()
	if met.Load() == 0 {
		t.Error("nobody was ever connected")
	}
	c, err := dialPatiently(t, k)
	testutil.Must(t, err)
	testutil.Must(t, c.Close())
	stop()
	testutil.Must(t, l.Close())
	serving.Wait()
}

// serveRoughly answers requests in all the ways there are.
func serveRoughly(ctx context.Context, l *rdmacm.Listener) {
	for {
		r, err := l.Next(ctx)
		if err != nil {
			return
		}
		switch rand.IntN(8) {
		case 0:
			_ = r.Reject([]byte("no"))
		case 1:
			_ = r.Close()
		default:
			short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
			c, err := r.Accept(short, nil)
			cancel()
			if err == nil {
				_ = c.Close()
			}
		}
	}
}

// dieSomewhere is a client whose patience ends at a random moment; it tells if that was
// after it was connected.
func dieSomewhere(k *fakekernel.Kernel) bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.IntN(int(5*time.Millisecond))))
	defer cancel()
	c, err := rdmacm.Dial(ctx, server, &rdmacm.Options{System: []rdmacm.Option{on(k)}})
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

// dialPatiently dials until it is not turned down, by a server that says no or that lost its
// patience during the handshake.
func dialPatiently(t *testing.T, k *fakekernel.Kernel) (*rdmacm.Conn, error) {
	ctx := testContext(t)
	for {
		c, err := rdmacm.Dial(ctx, server, options(k, nil))
		if err == nil || ctx.Err() != nil || !errors.As(err, new(*rdmacm.RejectedError)) && !errors.Is(err, rdmacm.ErrDisconnected) {
			return c, err
		}
	}
}
