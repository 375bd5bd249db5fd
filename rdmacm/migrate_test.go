package rdmacm

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pureverbs/rdma/abi"
)

// twoChannels are two event channels with descriptors.
func twoChannels(t *testing.T) (a, b *EventChannel, sa, sb *script) {
	t.Helper()
	sa, sb = newScript(t), newScript(t)
	a, b = sa.channel(nil), sb.channel(nil)
	link(sa, sb)
	return a, b, sa, sb
}

func TestMigrate(t *testing.T) {
	a, b, sa, sb := twoChannels(t)
	id, stays := mustID(t, a), mustID(t, a)
	sa.put(id.kid, EventAddrResolved, 0)
	sa.put(stays.kid, EventAddrChange, 0)
	if err := id.Migrate(b); err != nil {
		t.Fatal(err)
	}
	in := as[abi.RdmaUcmMigrateId](sb.sent(abi.RDMA_USER_CM_CMD_MIGRATE_ID)[0])
	if in.Id != id.kid || in.Fd != sa.fd {
		t.Errorf("got id %d of descriptor %d, want %d of %d", in.Id, in.Fd, id.kid, sa.fd)
	}
	if id.Channel() != b || a.ids.len() != 1 || b.ids.len() != 1 {
		t.Errorf("got %d and %d ids, want one on each channel", a.ids.len(), b.ids.len())
	}
	if ev := next(t, b); ev.ID != id || ev.Type != EventAddrResolved {
		t.Errorf("got %v, want the event that moved along", ev.Type)
	}
	if ev := next(t, a); ev.ID != stays {
		t.Error("the event of another id is not where it was")
	}
	// From now on it talks to the other channel.
	if err := id.Disconnect(); err != nil {
		t.Error(err)
	}
	if n, m := len(sa.sent(abi.RDMA_USER_CM_CMD_DISCONNECT)), len(sb.sent(abi.RDMA_USER_CM_CMD_DISCONNECT)); n != 0 || m != 1 {
		t.Errorf("%d commands went to the old channel, %d to the new one, want 0 and 1", n, m)
	}
	// And back, and to itself.
	for _, to := range []*EventChannel{b, a, a} {
		if err := id.Migrate(to); err != nil {
			t.Fatal(err)
		}
	}
	if a.ids.get(id.uid) != id || b.ids.get(id.uid) != nil || b.ids.len() != 0 {
		t.Error("the id is not back where it was")
	}
}

// The kernel does not wake who waits on the new channel for the events that moved.
func TestMigrateWakesReader(t *testing.T) {
	a, b, sa, sb := twoChannels(t)
	id := mustID(t, a)
	got := make(chan *Event)
	go func() {
		ev, _ := b.NextEvent(context.Background())
		got <- ev
	}()
	<-sb.waiting
	sa.put(id.kid, EventAddrChange, 0)
	if err := id.Migrate(b); err != nil {
		t.Fatal(err)
	}
	if ev := <-got; ev == nil || ev.ID != id {
		t.Errorf("got %v, want the event that moved", ev)
	}
}

// Readers on both sides and ids that go to and fro: each event arrives, once.
func TestMigrateWhileReading(t *testing.T) {
	a, b, sa, sb := twoChannels(t)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	const ids, rounds = 4, 50
	type report struct {
		id     *ID
		status int32
	}
	reports := make(chan report, ids*rounds)
	var readers sync.WaitGroup
	for _, ch := range []*EventChannel{a, b} {
		readers.Go(func() {
			for {
				ev, err := ch.NextEvent(ctx)
				if err != nil {
					return
				}
				reports <- report{ev.ID, ev.Status}
			}
		})
	}
	var movers sync.WaitGroup
	for i := range ids {
		from, to := a, b
		if i%2 == 1 {
			from, to = b, a
		}
		id := mustID(t, from)
		movers.Go(func() {
			for n := range rounds {
				s := sa
				if id.Channel() == b {
					s = sb
				}
				s.put(id.kid, EventAddrChange, int32(n))
				if err := id.Migrate(to); err != nil {
					t.Error(err)
				}
				from, to = to, from
			}
		})
	}
	movers.Wait()
	seen := map[report]bool{}
	for range ids * rounds {
		select {
		case r := <-reports:
			if seen[r] || r.status < 0 || r.status >= rounds {
				t.Errorf("got event %d twice, or never put", r.status)
			}
			seen[r] = true
		case <-ctx.Done():
			t.Fatal("an event is lost")
		}
	}
	cancel()
	readers.Wait()
	if len(seen) != ids*rounds {
		t.Errorf("got %d events, want %d", len(seen), ids*rounds)
	}
}

// The kernel leaves the ids of requests that wait with the old channel.
func TestMigrateListener(t *testing.T) {
	a, b, sa, sb := twoChannels(t)
	listener := mustID(t, a)
	if err := listener.Bind(netip.MustParseAddrPort("10.9.0.1:7174")); err != nil {
		t.Fatal(err)
	}
	if err := listener.Listen(4); err != nil {
		t.Fatal(err)
	}
	first, second := sa.request(listener, '1'), sa.request(listener, '2')
	if err := listener.Migrate(b); err != nil {
		t.Fatal(err)
	}
	third := sb.request(listener, '3')
	sb.put(listener.kid, EventAddrChange, 0)
	for _, kid := range []uint32{first, second, third} {
		ev := next(t, b)
		if ev.Type != EventConnectRequest || ev.ID.kid != kid || ev.ID.Channel() != b {
			t.Fatalf("got %v of id %d, want the request of id %d", ev.Type, ev.ID.kid, kid)
		}
		if err := ev.ID.Reject(nil); err != nil {
			t.Error(err)
		}
		if err := ev.ID.Close(); err != nil {
			t.Error(err)
		}
	}
	if ev := next(t, b); ev.Type != EventAddrChange {
		t.Errorf("got %v, want what came behind the requests", ev.Type)
	}
	if n := len(sb.sent(abi.RDMA_USER_CM_CMD_REJECT)); n != 3 {
		t.Errorf("%d requests were rejected on the new channel, want 3", n)
	}
}

// Requests that were fetched and not received move on with a listener that moves on, and end
// with it.
func TestMigrateListenerAgain(t *testing.T) {
	a, b, sa, sb := twoChannels(t)
	listener := mustID(t, a)
	if err := listener.Listen(4); err != nil {
		t.Fatal(err)
	}
	kid := sa.request(listener)
	for _, to := range []*EventChannel{b, a} {
		if err := listener.Migrate(to); err != nil {
			t.Fatal(err)
		}
	}
	if len(b.pending) != 0 || len(a.pending) != 1 {
		t.Errorf("%d and %d events are pending, want 1 and 0", len(a.pending), len(b.pending))
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	quiet(t, a)
	if _, ok := sa.uids[kid]; ok || len(sb.uids) > 0 {
		t.Error("the request of a closed listener is left in the kernel")
	}
}

func TestMigrateGroups(t *testing.T) {
	a, b, sa, _ := twoChannels(t)
	id := mustUD(t, sa, a)
	if err := id.JoinMulticast(testGroup, JoinFull, "g"); err != nil {
		t.Fatal(err)
	}
	sa.putUD(id.groups[0].kid, EventMulticastJoin, 0, abi.RdmaUcmUdParam{})
	if err := id.Migrate(b); err != nil {
		t.Fatal(err)
	}
	if ev := next(t, b); ev.ID != id || ev.Context != "g" {
		t.Errorf("got %+v, want that the group is joined", ev)
	}
	if err := id.LeaveMulticast(testGroup); err != nil {
		t.Error(err)
	}
	if n := len(b.ids.adopted); n != 1 {
		t.Errorf("%d uids are adopted, want the id's", n)
	}
}

func TestMigrateErrors(t *testing.T) {
	a, b, _, sb := twoChannels(t)
	id := mustID(t, a)
	sb.fail[abi.RDMA_USER_CM_CMD_MIGRATE_ID] = syscall.ENXIO
	mustBe(t, "migrate", id.Migrate(b), syscall.ENXIO, "migrate id: ", "the device was removed")
	if id.Channel() != a || b.ids.len() != 0 || a.ids.get(id.uid) != id {
		t.Error("an id that did not migrate is not where it was")
	}
	delete(sb.fail, abi.RDMA_USER_CM_CMD_MIGRATE_ID)

	// Its number means another id there: that one keeps it.
	b.ids.first = a.ids.first
	other := mustID(t, b)
	if other.uid != id.uid {
		t.Fatalf("got uids %#x and %#x, want the same", other.uid, id.uid)
	}
	mustBe(t, "uid taken", id.Migrate(b), ErrBusy)
	if b.ids.get(id.uid) != other || a.ids.get(id.uid) != id {
		t.Error("a number has changed its owner")
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if err := id.Migrate(b); err != nil {
		t.Fatal(err)
	}
	if third := mustID(t, b); third.uid == id.uid {
		t.Error("a number was given that an id brought along")
	}

	closed := newScript(t)
	link(closed)
	ch := closed.channel(nil)
	if err := ch.Close(); err != nil {
		t.Fatal(err)
	}
	mustBe(t, "to a closed channel", id.Migrate(ch), net.ErrClosed)
	if err := id.Close(); err != nil {
		t.Fatal(err)
	}
	mustBe(t, "closed id", id.Migrate(a), net.ErrClosed, "migrate id: ")
}
