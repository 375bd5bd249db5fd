package rdmacm

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pureverbs/rdma/abi"
)

// tryNext is TryEvent that has to have an event, or not.
func tryNext(t *testing.T, ch *EventChannel, want bool) *Event {
	t.Helper()
	ev, err := ch.TryEvent()
	if err != nil || (ev != nil) != want {
		t.Fatalf("got event %v and error %v, want an event: %v", ev, err, want)
	}
	return ev
}

func TestTryEvent(t *testing.T) {
	s := newScript(t)
	ch := s.channel(nil)
	id := mustID(t, ch)
	tryNext(t, ch, false)
	s.putUID(12345, 0, EventEstablished, 0) // of nobody
	s.put(id.kid, EventAddrResolved, 0)
	if ev := tryNext(t, ch, true); ev.ID != id || ev.Type != EventAddrResolved {
		t.Errorf("got %v, want that the address is resolved", ev.Type)
	}
	tryNext(t, ch, false)
	s.fail[abi.RDMA_USER_CM_CMD_GET_EVENT] = syscall.EACCES
	_, err := ch.TryEvent()
	mustBe(t, "try", err, syscall.EACCES, "wait for event: ", "each thread of a Go program has its own")
}

// While somebody waits TryEvent leaves the events to that one, and does not wait itself.
func TestTryEventBesideNextEvent(t *testing.T) {
	s := newScript(t)
	ch := s.channel(nil)
	id := mustID(t, ch)
	got := make(chan *Event)
	go func() {
		ev, _ := ch.NextEvent(context.Background())
		got <- ev
	}()
	<-s.waiting
	tryNext(t, ch, false)
	s.put(id.kid, EventAddrChange, 0)
	if ev := <-got; ev == nil || ev.ID != id {
		t.Errorf("got %v, want the event", ev)
	}
}

func TestTryEventClosed(t *testing.T) {
	s := newScript(t)
	ch := s.channel(nil)
	if err := ch.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := ch.TryEvent()
	mustBe(t, "try", err, net.ErrClosed)
	link(s)
	_, err = ch.SyscallConn()
	mustBe(t, "descriptor", err, net.ErrClosed)
}

func TestSyscallConn(t *testing.T) {
	s := newScript(t)
	ch := s.channel(nil)
	link(newScript(t), s)
	rc, err := ch.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var fd uintptr
	if err := rc.Control(func(n uintptr) { fd = n }); err != nil || fd != 1 {
		t.Errorf("got descriptor %d and error %v, want 1", fd, err)
	}
	file := ch.file
	defer func() { ch.file = file }()
	ch.file = &hostileCM{}
	_, err = ch.SyscallConn()
	mustBe(t, "a file that has none", err, ErrNotSupported)
}

// A pause stops who waits in the kernel, keeps others out, and is over.
func TestPause(t *testing.T) {
	s := newScript(t)
	ch := s.channel(nil)
	id := mustID(t, ch)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	const readers = 3
	events := make(chan *Event)
	errs := make(chan error, readers)
	for range readers {
		go func() {
			for {
				ev, err := ch.NextEvent(ctx)
				if err != nil {
					errs <- err
					return
				}
				events <- ev
			}
		}()
	}
	for range 20 {
		<-s.waiting
		resume := ch.reader.pause()
		s.put(id.kid, EventAddrChange, 0)
		tryNext(t, ch, false) // the pause has the turn
		select {
		case ev := <-events:
			t.Fatalf("got %v during the pause", ev.Type)
		case <-time.After(time.Millisecond):
		}
		resume()
		<-events
	}
	cancel()
	for range readers {
		mustBe(t, "reader", <-errs, context.Canceled)
	}
}

// A reader with contexts of many kinds, while others pause it: none of its deadlines is lost,
// and no pause shows.
func TestPauseKeepsDeadlines(t *testing.T) {
	s := newScript(t)
	ch := s.channel(nil)
	stop := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				ch.reader.pause()()
				time.Sleep(100 * time.Microsecond)
			}
		}
	})
	cause := errors.New("enough")
	for i := range 40 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		want := context.DeadlineExceeded
		if i%2 == 0 {
			c, cancelCause := context.WithCancelCause(ctx)
			time.AfterFunc(time.Millisecond/2, func() { cancelCause(cause) })
			ctx = c
			want = nil // either may come first
		}
		_, err := ch.NextEvent(ctx)
		if want != nil {
			mustBe(t, "next event", err, want)
		} else if err == nil || ctx.Err() == nil {
			t.Errorf("got error %v before the end of the context", err)
		}
		cancel()
	}
	close(stop)
	all.Wait()
}

func TestPauseOfClosedChannel(t *testing.T) {
	s := newScript(t)
	ch := s.channel(nil)
	errs := make(chan error)
	go func() {
		_, err := ch.NextEvent(context.Background())
		errs <- err
	}()
	<-s.waiting
	if err := ch.Close(); err != nil {
		t.Fatal(err)
	}
	ch.reader.pause()()
	mustBe(t, "next event", <-errs, net.ErrClosed)
}
