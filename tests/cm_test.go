package tests

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/uverbs"
)

// The lab's addresses on the device that tests use.
const (
	labIPv4 = "10.9.0.1"
	labIPv6 = "2001:db8:9::1"
)

func limit(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// station is one end of a connection: window slots to receive into, then as many to send
// from.
type station struct {
	conn *rdmacm.Conn
	mr   *uverbs.MR
	size int
}

const window = 8

// prepare registers memory and posts a receive into each slot.
func (s *station) prepare(c *rdmacm.Conn) (err error) {
	s.conn = c
	if s.mr, err = c.AllocMR(2*window*s.size, uverbs.AccessLocalWrite); err != nil {
		return err
	}
	for i := range window {
		if err := s.post(i); err != nil {
			return err
		}
	}
	return nil
}

func (s *station) slot(i int) []byte { return s.mr.Bytes()[i*s.size:][:s.size] }
func (s *station) out(i int) []byte  { return s.slot(window + i) }

func (s *station) post(slot int) error {
	_, err := s.conn.QP().PostRecv([]uverbs.RecvWR{{ID: uint64(slot), SGL: []uverbs.SGE{s.mr.SGE(slot*s.size, s.size)}}})
	return err
}

// send sends slots with one doorbell and waits until their memory is free again.
func (s *station) send(ctx context.Context, slots, lengths []int) error {
	wrs := make([]uverbs.SendWR, len(slots))
	for i, slot := range slots {
		wrs[i] = uverbs.SendWR{ID: uint64(slot), Opcode: uverbs.OpSend, SGL: []uverbs.SGE{s.mr.SGE(slot*s.size, lengths[i])}}
	}
	wrs[len(wrs)-1].Flags = uverbs.SendSignaled
	if _, err := s.conn.QP().PostSend(wrs); err != nil {
		return err
	}
	_, err := one(ctx, s.conn.SendCQ())
	return err
}

func one(ctx context.Context, cq *uverbs.CQ) (uverbs.WC, error) {
	var wcs [1]uverbs.WC
	if _, err := cq.Wait(ctx, wcs[:]); err != nil {
		return wcs[0], err
	}
	return wcs[0], wcs[0].Err()
}

func (s *station) close() error { return s.conn.Close() }

// echo serves one connection until it ends.
func echo(ctx context.Context, s *station) {
	wcs := make([]uverbs.WC, window)
	for {
		n, err := s.conn.RecvCQ().Wait(ctx, wcs)
		if err != nil {
			return
		}
		slots, lengths := make([]int, n), make([]int, n)
		for i := range wcs[:n] {
			if wcs[i].Err() != nil {
				return
			}
			slots[i], lengths[i] = int(wcs[i].ID), int(wcs[i].ByteLen)
		}
		// The receives are posted again before the answer lets the client send on: iWARP
		// knows no receiver that is not ready.
		for i, slot := range slots {
			copy(s.out(slot), s.slot(slot)[:lengths[i]])
			if s.post(slot) != nil {
				return
			}
			slots[i] = window + slot
		}
		if s.send(ctx, slots, lengths) != nil {
			return
		}
	}
}

// echoServer accepts connections and echoes on each. It is over when the test is.
func echoServer(t *testing.T, address string, size int) netip.AddrPort {
	t.Helper()
	ctx := limit(t, 5*time.Minute)
	l, err := rdmacm.Listen(ctx, address, nil)
	testutil.Must(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			r, err := l.Next(ctx)
			if err != nil {
				return
			}
			wg.Go(func() {
				s := &station{size: size}
				if _, err := r.Accept(ctx, &rdmacm.Options{Prepare: s.prepare}); err != nil {
					t.Errorf("accept: %v", err)
					return
				}
				echo(ctx, s)
				if err := s.close(); err != nil {
					t.Errorf("server: %v", err)
				}
			})
		}
	})
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("close listener: %v", err)
		}
		wg.Wait()
	})
	return l.Addr()
}

func dial(t testing.TB, ctx context.Context, address string, size int) *station {
	t.Helper()
	s := &station{size: size}
	_, err := rdmacm.Dial(ctx, address, &rdmacm.Options{Prepare: s.prepare})
	testutil.Must(t, err)
	// Also after a failure: the server waits for the end of its connections.
	t.Cleanup(func() { s.close() })
	return s
}

// trip sends messages of the given lengths and compares what comes back, in order.
func (s *station) trip(ctx context.Context, seed uint64, lengths ...int) error {
	slots := make([]int, len(lengths))
	for i, n := range lengths {
		slots[i] = window + i
		testutil.Fill(s.out(i)[:n], seed+uint64(i))
	}
	if err := s.send(ctx, slots, lengths); err != nil {
		return err
	}
	for i, n := range lengths {
		wc, err := s.answer(ctx)
		if err != nil {
			return err
		}
		if got := s.slot(int(wc.ID))[:wc.ByteLen]; !bytes.Equal(got, s.out(i)[:n]) {
			return fmt.Errorf("message %d of %d bytes came back changed, with %d bytes", seed+uint64(i), n, len(got))
		}
		if err := s.post(int(wc.ID)); err != nil {
			return err
		}
	}
	return nil
}

// answer waits for a message. While siw accepts a connection it answers the client first, and
// only then watches for what it sends (up to Linux 7.2 at least): a first message in between
// is not seen until another one comes. An empty write is one that nobody notices.
func (s *station) answer(ctx context.Context) (uverbs.WC, error) {
	if os.Getenv("RDMA_LAB_DEVICE") == "siw" {
		short, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		wc, err := one(short, s.conn.RecvCQ())
		if !errors.Is(err, context.DeadlineExceeded) {
			return wc, err
		}
		if _, err := s.conn.QP().PostSend([]uverbs.SendWR{{Opcode: uverbs.OpRDMAWrite}}); err != nil {
			return wc, err
		}
	}
	return one(ctx, s.conn.RecvCQ())
}

func TestEchoOverBothFamilies(t *testing.T) {
	for _, host := range []string{labIPv4, labIPv6} {
		t.Run(host, func(t *testing.T) {
			testutil.NoLeaks(t)
			testutil.Device(t)
			addr := echoServer(t, netip.AddrPortFrom(netip.MustParseAddr(host), 0).String(), 1024)
			ctx := limit(t, time.Minute)
			s := dial(t, ctx, addr.String(), 1024)
			if s.conn.RemoteAddr() != addr {
				t.Errorf("remote address is %v, want %v", s.conn.RemoteAddr(), addr)
			}
			for i := range 20 {
				testutil.Must(t, s.trip(ctx, uint64(i), i*50))
			}
			testutil.Must(t, s.close())
		})
	}
}

// TestManyMessages sends messages of changing size and verifies the contents of each.
func TestManyMessages(t *testing.T) {
	n := 100_000
	if testing.Short() {
		n = 5000
	}
	testutil.NoLeaks(t)
	testutil.Device(t)
	const size = 4096
	addr := echoServer(t, labIPv4+":0", size)
	ctx := limit(t, 10*time.Minute)
	s := dial(t, ctx, addr.String(), size)
	lengths := make([]int, window)
	for i := 0; i < n; i += 2 * window { // they go there and back
		for j := range lengths {
			lengths[j] = (i*37 + j*1013) % (size + 1)
		}
		testutil.Must(t, s.trip(ctx, uint64(i), lengths...))
	}
	testutil.Must(t, s.close())
}

// TestManyConnections has 64 connections at once on the server's one event channel.
func TestManyConnections(t *testing.T) {
	testutil.NoLeaks(t)
	testutil.Device(t)
	addr := echoServer(t, labIPv4+":0", 256)
	ctx := limit(t, 2*time.Minute)
	var wg sync.WaitGroup
	ready := make(chan struct{})
	var up sync.WaitGroup
	for i := range 64 {
		up.Add(1)
		wg.Go(func() {
			s := &station{size: 256}
			_, err := rdmacm.Dial(ctx, addr.String(), &rdmacm.Options{Prepare: s.prepare})
			up.Done()
			if err != nil {
				t.Errorf("connection %d: %v", i, err)
				return
			}
			<-ready // all are up at once
			for j := range 10 {
				if err := s.trip(ctx, uint64(i*100+j), 200); err != nil {
					t.Errorf("connection %d: %v", i, err)
				}
			}
			if err := s.close(); err != nil {
				t.Errorf("connection %d: %v", i, err)
			}
		})
	}
	up.Wait()
	close(ready)
	wg.Wait()
}

// TestRW29PrivateData: what was sent is a prefix of what arrives, the rest is zero.
func TestRW29PrivateData(t *testing.T) {
	sameObjects(t)
	testutil.NoLeaks(t)
	ctx := limit(t, time.Minute)
	l, err := rdmacm.Listen(ctx, labIPv4+":0", nil)
	testutil.Must(t, err)
	defer l.Close()
	data, most := bytes.Repeat([]byte{0xa5}, 300), 56
	if testutil.Device(t).Protocol() == "iw" {
		most = 251
	}
	for _, tt := range []struct{ ask, answer int }{{0, 0}, {1, 1}, {40, 100}, {56, 196}} {
		var server *rdmacm.Conn
		done := make(chan error, 1)
		go func() {
			r, err := l.Next(ctx)
			if err == nil {
				padded(t, "request", r.PrivateData(), data[:tt.ask])
				server, err = r.Accept(ctx, &rdmacm.Options{ConnParam: rdmacm.ConnParam{PrivateData: data[:tt.answer]}})
			}
			done <- err
		}()
		client, err := rdmacm.Dial(ctx, l.Addr().String(), &rdmacm.Options{ConnParam: rdmacm.ConnParam{PrivateData: data[:tt.ask]}})
		testutil.Must(t, err)
		testutil.Must(t, <-done)
		padded(t, "answer", client.PrivateData(), data[:tt.answer])
		testutil.Must(t, errors.Join(client.Close(), server.Close()))
	}
	go func() {
		if r, err := l.Next(ctx); err == nil {
			r.Reject(data[:5])
		}
	}()
	_, err = rdmacm.Dial(ctx, l.Addr().String(), nil)
	var rejected *rdmacm.RejectedError
	if !errors.As(err, &rejected) {
		t.Fatalf("got %v, want a RejectedError", err)
	}
	padded(t, "rejection", rejected.PrivateData, data[:5])
	_, err = rdmacm.Dial(ctx, l.Addr().String(), &rdmacm.Options{ConnParam: rdmacm.ConnParam{PrivateData: data[:most+1]}})
	if !errors.Is(err, rdmacm.ErrInvalid) {
		t.Errorf("%d bytes of private data: got %v, want ErrInvalid: the limit is %d", most+1, err, most)
	}
}

func padded(t *testing.T, what string, got, sent []byte) {
	t.Helper()
	if len(got) < len(sent) || !bytes.Equal(got[:len(sent)], sent) || len(bytes.Trim(got[len(sent):], "\x00")) > 0 {
		t.Errorf("%s: got %x, sent %x", what, got, sent)
	}
}

// TestNobodyListens tells a refusal from other failures.
func TestNobodyListens(t *testing.T) {
	testutil.NoLeaks(t)
	testutil.Device(t)
	_, err := rdmacm.Dial(limit(t, time.Minute), labIPv4+":9", nil)
	var rejected *rdmacm.RejectedError
	switch {
	case errors.As(err, &rejected) && rejected.Reason == 8: // invalid service id
	case os.Getenv("RDMA_LAB_DEVICE") == "siw" && errors.Is(err, syscall.ECONNREFUSED): // from TCP
	default:
		t.Errorf("got %v, want a rejection with reason 8, or on iWARP ECONNREFUSED", err)
	}
}

// TestRW17ClientGone: clients that give up before a slow server answers are that request's
// trouble only, whatever the answer; and one that waits is served.
func TestRW17ClientGone(t *testing.T) {
	clients := 500
	if testing.Short() {
		clients = 30
	}
	for name, answer := range map[string]func(*late, *rdmacm.Request){"accept": (*late).accept, "reject": (*late).reject} {
		t.Run(name, func(t *testing.T) {
			sameObjects(t)
			testutil.NoLeaks(t)
			s := newLate(t, answer)
			gone := clientsThatGo(t, s.l.Addr().String(), clients)
			ctx := limit(t, time.Minute)
			c, err := rdmacm.Dial(ctx, s.l.Addr().String(), &rdmacm.Options{ConnParam: rdmacm.ConnParam{PrivateData: []byte(stays)}})
			testutil.Must(t, err)
			testutil.Must(t, c.Close())
			s.end(t)
			t.Logf("of %d clients %d gave up; the server heard %d, found %d gone, served %d, refused %d",
				clients, gone, s.heard.Load(), s.gone.Load(), s.served.Load(), s.refused.Load())
			if gone < clients/2 || s.heard.Load() < int64(clients/2) {
				t.Error("that is too few")
			}
		})
	}
}

// late is a server that takes 200 ms for each answer.
type late struct {
	t      *testing.T
	l      *rdmacm.Listener
	answer func(*late, *rdmacm.Request)
	cancel context.CancelFunc
	wg     sync.WaitGroup

	heard, gone, served, refused atomic.Int64
}

// stays is what a client that does not give up sends along.
const stays = "I wait"

func newLate(t *testing.T, answer func(*late, *rdmacm.Request)) *late {
	t.Helper()
	l, err := rdmacm.Listen(limit(t, time.Minute), labIPv4+":0", nil)
	testutil.Must(t, err)
	s := &late{t: t, l: l, answer: answer}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.wg.Go(func() { s.serve(ctx) })
	t.Cleanup(func() { s.end(t) })
	return s
}

func (s *late) serve(ctx context.Context) {
	for {
		r, err := s.l.Next(ctx)
		if err != nil {
			if ctx.Err() == nil {
				s.t.Errorf("the listener ended with %v", err)
			}
			return
		}
		s.heard.Add(1)
		s.wg.Go(func() {
			time.Sleep(200 * time.Millisecond)
			if bytes.HasPrefix(r.PrivateData(), []byte(stays)) {
				s.accept(r)
				return
			}
			s.answer(s, r)
		})
	}
}

// accept: that the client is gone is an error of its own. A farewell that crossed our answer
// shows by the deadline alone: nobody will ever confirm.
func (s *late) accept(r *rdmacm.Request) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	c, err := r.Accept(ctx, nil)
	switch {
	case err == nil:
		s.served.Add(1)
		if err := c.Close(); err != nil {
			s.t.Errorf("close: %v", err)
		}
	case errors.Is(err, rdmacm.ErrRequestGone), errors.Is(err, context.DeadlineExceeded):
		s.gone.Add(1)
	default:
		s.t.Errorf("accept: %v", err)
	}
}

// reject: that the client is gone is success.
func (s *late) reject(r *rdmacm.Request) {
	s.refused.Add(1)
	if err := r.Reject([]byte("too late")); err != nil {
		s.t.Errorf("reject: %v", err)
	}
}

// end returns when all requests are answered.
func (s *late) end(t *testing.T) {
	s.cancel()
	s.wg.Wait()
	if err := s.l.Close(); err != nil {
		t.Errorf("close listener: %v", err)
	}
}

// clientsThatGo dials n times, and waits 5 ms for each answer. It returns how many of them
// gave up.
func clientsThatGo(t *testing.T, address string, n int) int {
	var left, gone atomic.Int64
	left.Store(int64(n))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				err := goSoon(address)
				switch {
				case errors.Is(err, context.Canceled):
					gone.Add(1)
				case err != nil && !errors.Is(err, syscall.ECONNREFUSED):
					t.Errorf("dial: %v", err)
				}
			}
		})
	}
	wg.Wait()
	return int(gone.Load())
}

// goSoon dials and gives up 5 ms after it has asked for the connection.
func goSoon(address string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	c, err := rdmacm.Dial(ctx, address, &rdmacm.Options{Prepare: func(*rdmacm.Conn) error {
		time.AfterFunc(5*time.Millisecond, cancel)
		return nil
	}})
	if err != nil {
		return err
	}
	return c.Close()
}
