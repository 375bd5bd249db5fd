//go:build linux

package tests

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/uverbs"
)

// crowd is one end of many connections. They share a protection domain, a shared receive
// queue and one completion queue for sends and receives, whose completions are told apart by
// the number of the queue pair.
type crowd struct {
	pd  *uverbs.PD
	cq  *uverbs.CQ
	srq *uverbs.SRQ
	mr  *uverbs.MR // a slot to receive into for each connection, then one to send from
	n   int

	mu    sync.Mutex
	conns []*rdmacm.Conn // by number
	byQP  map[uint32]int
}

// crowdSlot is the size of a message: its number, and what depends on that.
const crowdSlot = 64

func newCrowd(t *testing.T, n int) *crowd {
	t.Helper()
	c := &crowd{n: n, conns: make([]*rdmacm.Conn, n), byQP: make(map[uint32]int, n)}
	ctx, err := testutil.Device(t).Open()
	own(t, ctx, err)
	c.pd, err = ctx.AllocPD()
	own(t, c.pd, err)
	ch, err := ctx.NewCompChannel()
	own(t, ch, err)
	c.cq, err = ctx.CreateCQ(2*n, ch)
	own(t, c.cq, err)
	c.srq, err = c.pd.CreateSRQ(&uverbs.SRQInitAttr{MaxWR: uint32(n), MaxSGE: 1})
	own(t, c.srq, err)
	c.mr, err = c.pd.AllocMR(2*n*crowdSlot, uverbs.AccessLocalWrite)
	own(t, c.mr, err)
	for i := range n {
		_, err := c.srq.PostRecv([]uverbs.RecvWR{{ID: uint64(i), SGL: []uverbs.SGE{c.mr.SGE(i*crowdSlot, crowdSlot)}}})
		testutil.Must(t, err)
	}
	t.Cleanup(func() { c.close(t) }) // before what it stands on
	return c
}

// own closes what the test has opened at its end.
func own(t testing.TB, c interface{ Close() error }, err error) {
	t.Helper()
	testutil.Must(t, err)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close %v: %v", c, err)
		}
	})
}

// options are those of each of its connections.
func (c *crowd) options(number int) *rdmacm.Options {
	return &rdmacm.Options{
		SendCQ: c.cq, RecvCQ: c.cq, SRQ: c.srq, Backlog: c.n,
		QP:        uverbs.QPCap{MaxSendWR: 1, MaxSendSGE: 1},
		ConnParam: rdmacm.ConnParam{PrivateData: binary.BigEndian.AppendUint32(nil, uint32(number))},
	}
}

// add takes a connection, which belongs to the crowd from now on.
func (c *crowd) add(number int, conn *rdmacm.Conn) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if number >= c.n || c.conns[number] != nil {
		return errors.Join(fmt.Errorf("there are two connections with the number %d, or fewer than that", number), conn.Close())
	}
	c.conns[number], c.byQP[conn.QP().Num()] = conn, number
	return nil
}

// dial makes the connection with a number.
func (c *crowd) dial(ctx context.Context, address string, number int) error {
	conn, err := rdmacm.Dial(ctx, address, c.options(number))
	if err != nil {
		return fmt.Errorf("connection %d: %w", number, err)
	}
	return c.add(number, conn)
}

// accept takes one connection, whose number the client sends along.
func (c *crowd) accept(ctx context.Context, l *rdmacm.Listener) error {
	conn, err := l.Accept(ctx)
	if err != nil {
		return err
	}
	if len(conn.PrivateData()) < 4 {
		return errors.Join(errors.New("a client without a number"), conn.Close())
	}
	return c.add(int(binary.BigEndian.Uint32(conn.PrivateData())), conn)
}

// send sends one message on a connection.
func (c *crowd) send(number int, seed uint64) error {
	slot := c.n + number
	b := c.mr.Bytes()[slot*crowdSlot:][:crowdSlot]
	crowdMessage(b, number, seed)
	_, err := c.conns[number].QP().PostSend([]uverbs.SendWR{{
		ID: uint64(slot), Opcode: uverbs.OpSend, Flags: uverbs.SendSignaled, SGL: []uverbs.SGE{c.mr.SGE(slot*crowdSlot, crowdSlot)},
	}})
	return err
}

func crowdMessage(b []byte, number int, seed uint64) {
	binary.BigEndian.PutUint32(b, uint32(number))
	testutil.Fill(b[4:], uint64(number)+seed)
}

// exchange waits until each connection has received its message and sent its own, which
// received may do.
func (c *crowd) exchange(ctx context.Context, seed uint64, received func(number int) error) error {
	wcs := make([]uverbs.WC, 64)
	heard := make(map[int]bool, c.n)
	for left := 2 * c.n; left > 0; {
		n, err := c.cq.Wait(ctx, wcs)
		if err != nil {
			return fmt.Errorf("%d completions are missing: %w", left, err)
		}
		left -= n
		for i := range wcs[:n] {
			if err := wcs[i].Err(); err != nil {
				return err
			}
			if wcs[i].ID >= uint64(c.n) {
				continue // a send
			}
			number, err := c.message(&wcs[i], seed)
			if err == nil && heard[number] {
				err = fmt.Errorf("connection %d has two messages", number)
			}
			if err == nil {
				heard[number] = true
				err = received(number)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// message verifies that a message is the one of the connection that it came on.
func (c *crowd) message(wc *uverbs.WC, seed uint64) (int, error) {
	number, ok := c.byQP[wc.QPNum]
	if !ok {
		return 0, fmt.Errorf("a message came on queue pair %#x, which is nobody's", wc.QPNum)
	}
	var want [crowdSlot]byte
	crowdMessage(want[:], number, seed)
	got := c.mr.Bytes()[int(wc.ID)*crowdSlot:][:wc.ByteLen]
	if string(got) != string(want[:]) {
		return 0, fmt.Errorf("connection %d received %x, want %x", number, got, want)
	}
	return number, nil
}

func (c *crowd) close(t *testing.T) {
	t.Helper()
	err := inParallel(c.n, func(i int) error {
		conn := c.conns[i]
		if c.conns[i] = nil; conn == nil {
			return nil
		}
		return conn.Close()
	})
	if err != nil {
		t.Errorf("close: %v", err)
	}
}

// inParallel does something for each number below n, a few at a time: the kernel's
// connection manager drops what it cannot queue, and repeats it after seconds. It returns the
// first error, after which it begins nothing more.
func inParallel(n int, do func(i int) error) error {
	var next atomic.Int64
	var wg sync.WaitGroup
	failed := make(chan error, 1)
	for range min(n, 16) {
		wg.Go(func() {
			for len(failed) == 0 {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := do(i); err != nil {
					select {
					case failed <- err:
					default:
					}
				}
			}
		})
	}
	wg.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// memory is what this process takes, in bytes.
type memory struct{ heap, stacks, resident int }

func memoryNow(t testing.TB) memory {
	t.Helper()
	debug.FreeOSMemory() // collects as well
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	b, err := os.ReadFile("/proc/self/statm")
	testutil.Must(t, err)
	var size, resident int
	if _, err := fmt.Sscan(string(b), &size, &resident); err != nil {
		t.Fatalf("/proc/self/statm: %v", err)
	}
	return memory{int(m.HeapAlloc), int(m.StackInuse), resident * os.Getpagesize()}
}

// each says what n of something take that were not there before.
func (m memory) each(before memory, n int) string {
	per := func(now, before int) string { return fmt.Sprintf("%.1f kB", float64(now-before)/float64(n)/1e3) }
	return strings.Join([]string{
		per(m.heap, before.heap) + " of Go heap", per(m.stacks, before.stacks) + " of stacks",
		per(m.resident, before.resident) + " resident in all",
	}, ", ")
}

// held is what is there at a moment, of the kernel's objects and of this process.
type held struct {
	objects           string
	goroutines, files int
}

func holdings(t testing.TB) held {
	t.Helper()
	return held{kernelObjects(t), runtime.NumGoroutine(), testutil.Files()}
}

// again waits until no more is there than was. Connections take a moment to end.
func (h held) again(t testing.TB) {
	t.Helper()
	var now held
	for range 400 {
		if now = holdings(t); now.objects == h.objects && now.goroutines <= h.goroutines && now.files <= h.files {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Errorf("%d goroutines run and %d files are open, before it was %d and %d; the kernel holds:\n%s\nbefore it was:\n%s",
		now.goroutines, now.files, h.goroutines, h.files, now.objects, h.objects)
}

// TestManyAtOnce: a thousand connections, or 200 in the short form, are up at once, both ends of
// them in this process and the accepted ones on one event channel; each carries a message there
// and one back; and when they are closed nothing is left.
func TestManyAtOnce(t *testing.T) {
	sameObjects(t)
	testutil.NoLeaks(t)
	n := 1000
	if testing.Short() {
		n = 200
	}
	ctx := limit(t, 5*time.Minute)
	server, client := newCrowd(t, n), newCrowd(t, n)
	l, err := rdmacm.Listen(ctx, labIPv4+":0", server.options(0))
	own(t, l, err)

	there := holdings(t)
	before, start := memoryNow(t), time.Now()
	accepted := make(chan error, 1)
	go func() { accepted <- inParallel(n, func(int) error { return server.accept(ctx, l) }) }()
	err = inParallel(n, func(i int) error { return client.dial(ctx, l.Addr().String(), i) })
	if err != nil {
		l.Close() // nobody else comes
	}
	testutil.Must(t, errors.Join(err, <-accepted))
	up := time.Since(start)
	now := memoryNow(t)
	t.Logf("%d connections are up after %v; both ends of one take %s", n, up.Round(time.Millisecond), now.each(before, n))
	t.Logf("the kernel holds:\n%s", kernelObjects(t))

	answered := make(chan error, 1)
	go func() {
		answered <- server.exchange(ctx, 1, func(number int) error { return server.send(number, 2) })
	}()
	for i := range n {
		testutil.Must(t, client.send(i, 1))
	}
	err = client.exchange(ctx, 2, func(int) error { return nil })
	testutil.Must(t, errors.Join(err, <-answered))

	start = time.Now()
	client.close(t)
	server.close(t)
	there.again(t)
	t.Logf("closed after %v", time.Since(start).Round(time.Millisecond))
}
