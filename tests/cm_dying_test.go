//go:build linux

package tests

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/rdmacm"
)

// The two ends of the lab's wire.
const (
	wireServer = "10.5.0.1"
	wireClient = "10.5.0.2"
)

// dyingChild holds, in a process that is to be killed, the address to dial, the number of
// the first client and how many there are.
const dyingChild = "RDMA_TEST_DYING_CHILD"

// wireDial dials across the wire.
func wireDial(ctx context.Context, address string, o rdmacm.Options) (*rdmacm.Conn, error) {
	o.Source = netip.AddrPortFrom(netip.MustParseAddr(wireClient), 0)
	return rdmacm.Dial(ctx, address, &o)
}

// dialAs dials across the wire and tells the server a number.
func dialAs(ctx context.Context, address string, number uint64) (*rdmacm.Conn, error) {
	return wireDial(ctx, address, rdmacm.Options{
		ConnParam: rdmacm.ConnParam{PrivateData: binary.BigEndian.AppendUint64(nil, number)},
	})
}

// netem spoils the wire, either way, and heals it at the end of the test. nil: the kernel has no
// such thing (Debian's 7.2).
func netem(t testing.TB) (lose func(share string)) {
	t.Helper()
	tc := testutil.Command(t, "tc")
	each := func(args string) (err error) {
		for _, dev := range []string{"va", "vb"} {
			out, e := exec.Command(tc, strings.Fields(strings.ReplaceAll(args, "DEV", dev))...).CombinedOutput()
			if e != nil {
				err = fmt.Errorf("tc %s: %w: %s", args, e, out)
			}
		}
		return err
	}
	t.Cleanup(func() { _ = each("qdisc del dev DEV root") }) // fails if nothing was lost
	switch err := each("qdisc replace dev DEV root netem"); {
	case err == nil:
	case strings.Contains(err.Error(), "qdisc kind is unknown"):
		return nil
	default:
		t.Fatal(err)
	}
	return func(share string) {
		t.Helper()
		testutil.Must(t, each("qdisc replace dev DEV root netem loss "+share))
	}
}

// impatientTCP has TCP, which siw stands on, give an address up after three seconds and not
// after two minutes: siw waits for that in the call that connects, and what a client made is
// closed only behind it.
func impatientTCP(t testing.TB) {
	t.Helper()
	const file = "/proc/sys/net/ipv4/tcp_syn_retries"
	old, err := os.ReadFile(file)
	testutil.Must(t, err)
	testutil.Must(t, os.WriteFile(file, []byte("1"), 0o644))
	t.Cleanup(func() { testutil.Must(t, os.WriteFile(file, old, 0o644)) })
}

// rough is a server that does to its clients all that a server may.
type rough struct {
	l    *rdmacm.Listener
	wg   sync.WaitGroup
	stop context.CancelFunc

	patience atomic.Int64 // how long it waits for a client to confirm, at most, in ns
	heard    sync.Map     // of the requests by number: chan struct{}, closed when it has come

	rejected, dropped, gone, served atomic.Int64
}

func newRough(t *testing.T, l *rdmacm.Listener) *rough {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &rough{l: l, stop: cancel}
	r.patience.Store(int64(10 * time.Second))
	for range 16 {
		r.wg.Go(func() { r.serve(ctx) })
	}
	t.Cleanup(r.end)
	return r
}

// hears returns a channel that is closed when the server has the request with a number.
func (r *rough) hears(number uint64) <-chan struct{} {
	c := make(chan struct{})
	r.heard.Store(number, c)
	return c
}

func (r *rough) hear(private []byte) {
	if len(private) >= 8 {
		if c, ok := r.heard.LoadAndDelete(binary.BigEndian.Uint64(private)); ok {
			close(c.(chan struct{}))
		}
	}
}

// end returns when all that it serves is closed.
func (r *rough) end() {
	r.stop()
	r.wg.Wait()
}

func (r *rough) serve(ctx context.Context) {
	for {
		req, err := r.l.Next(ctx)
		if err != nil {
			return
		}
		r.hear(req.PrivateData())
		switch rand.IntN(8) {
		case 0:
			_ = req.Reject([]byte("no"))
			r.rejected.Add(1)
		case 1:
			_ = req.Close()
			r.dropped.Add(1)
		default:
			r.accept(ctx, req)
		}
	}
}

// accept keeps a connection for a moment, in which its client may die.
func (r *rough) accept(ctx context.Context, req *rdmacm.Request) {
	short, cancel := context.WithTimeout(ctx, time.Duration(rand.Int64N(r.patience.Load())))
	defer cancel()
	c, err := req.Accept(short, nil)
	if err != nil {
		r.gone.Add(1)
		return
	}
	r.served.Add(1)
	r.wg.Go(func() {
		select {
		case <-c.Done():
		case <-ctx.Done():
		case <-time.After(time.Duration(rand.IntN(4)) * 100 * time.Millisecond):
		}
		_ = c.Close()
	})
}

// dying are clients that do not wait for their server as long as it takes.
//
// On siw they wait until it has heard of them. A client whose TCP connection ends before siw
// has taken it ends the listener instead, in all kernels up to 7.2 at least: what is not taken
// yet reports to the listener that it was closed. Closing that listener then hangs the machine.
type dying struct {
	t       *testing.T
	server  *rough
	address string
	heard   bool          // they die when they were heard of, and not before
	typical time.Duration // how long a dial takes
	number  atomic.Uint64 // of the last client

	met, refused, gaveUp, failed atomic.Int64
}

// calibrate finds out how long a dial takes among others.
func (d *dying) calibrate() {
	var mu sync.Mutex
	var took []time.Duration
	ctx := limit(d.t, time.Minute)
	_ = inParallel(64, func(int) error {
		start := time.Now()
		if c, err := dialAs(ctx, d.address, 0); err == nil {
			mu.Lock()
			took = append(took, time.Since(start))
			mu.Unlock()
			_ = c.Close()
		}
		return nil
	})
	if len(took) == 0 {
		d.t.Fatal("nobody was ever connected")
	}
	slices.Sort(took)
	d.typical = took[len(took)/2]
	d.server.patience.Store(int64(2 * d.typical))
}

// once dials, and gives up at any moment of what that takes.
func (d *dying) once() {
	number := d.number.Add(1)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	heard := d.server.hears(number)
	go func() {
		if d.heard {
			select {
			case <-heard:
			case <-ctx.Done():
			}
		}
		time.AfterFunc(time.Duration(rand.Int64N(int64(2*d.typical))), cancel)
	}()
	c, err := dialAs(ctx, d.address, number)
	switch {
	case err == nil:
		d.met.Add(1)
		_ = c.Close()
	case errors.As(err, new(*rdmacm.RejectedError)):
		d.refused.Add(1)
	case errors.Is(err, context.Canceled):
		d.gaveUp.Add(1)
	default:
		if d.failed.Add(1) <= 3 {
			d.t.Logf("a dial that failed: %v", err)
		}
	}
}

func (d *dying) phase(name string, clients int, do func(n int)) {
	start, before := time.Now(), d.number.Load()
	do(clients)
	d.t.Logf("%s: %d clients in %v; of all so far %d were connected, %d refused, %d gave up, %d failed",
		name, d.number.Load()-before, time.Since(start).Round(time.Millisecond),
		d.met.Load(), d.refused.Load(), d.gaveUp.Load(), d.failed.Load())
}

// impatient are n clients that give up at a random moment.
func (d *dying) impatient(n int) {
	_ = inParallel(n, func(int) error { d.once(); return nil })
}

// killed are n clients, in processes that are killed in the middle of their dials.
func (d *dying) killed(n int) {
	for n > 0 && !d.t.Failed() {
		some := min(n, 20+rand.IntN(60))
		n -= some
		d.killSome(some)
	}
}

func (d *dying) killSome(n int) {
	first := d.number.Add(uint64(n)) - uint64(n) + 1
	heard := make([]<-chan struct{}, n)
	for i := range heard {
		heard[i] = d.server.hears(first + uint64(i))
	}
	exe, err := os.Executable()
	testutil.Must(d.t, err)
	cmd := exec.Command(exe, "-test.run", "^TestDyingChild$")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %d", dyingChild, d.address, first, n))
	in, err := cmd.StdinPipe() // ends with this process, and the child with it
	testutil.Must(d.t, err)
	defer in.Close()
	testutil.Must(d.t, cmd.Start())
	enough := n
	if !d.heard {
		enough = 1 + rand.IntN(n)
	}
	timeout := time.After(3 * time.Minute)
	for _, c := range heard[:enough] {
		select {
		case <-c:
		case <-timeout:
			d.t.Errorf("the server has not heard of a client in three minutes")
		}
	}
	testutil.Must(d.t, cmd.Process.Kill())
	_ = cmd.Wait() // the kernel has closed all it had
}

// TestDyingChild is the process that is killed. It keeps every other connection.
func TestDyingChild(t *testing.T) {
	var address string
	var first uint64
	var n int
	if _, err := fmt.Sscan(os.Getenv(dyingChild), &address, &first, &n); err != nil {
		return // see TestManyDying
	}
	var mu sync.Mutex
	var kept []*rdmacm.Conn
	_ = inParallel(n, func(i int) error {
		c, err := dialAs(context.Background(), address, first+uint64(i))
		switch {
		case err != nil:
		case i%2 == 0:
			_ = c.Close()
		default:
			mu.Lock()
			kept = append(kept, c)
			mu.Unlock()
		}
		return nil
	})
	_, _ = io.Copy(io.Discard, os.Stdin)
	t.Errorf("still alive, with %d connections", len(kept))
}

// TestManyDying: a listener survives ten thousand clients that give up, are killed or turned
// down at a random moment, or whose link is lost, and then serves one that behaves; and of all of
// them nothing is left, here or in the kernel.
func TestManyDying(t *testing.T) {
	testutil.Lab(t, "ManyDying")
	sameObjects(t)
	testutil.NoLeaks(t)
	impatientTCP(t)
	lose := netem(t)
	scale := 100
	if testing.Short() {
		scale = 2
	}
	l, err := rdmacm.Listen(limit(t, time.Minute), wireServer+":0", nil)
	own(t, l, err)
	before := holdings(t)
	r := newRough(t, l)
	d := &dying{t: t, server: r, address: l.Addr().String(), heard: testutil.Device(t).Protocol() == "iw"}
	d.calibrate()
	t.Logf("a dial takes %v", d.typical.Round(time.Microsecond))
	d.phase("impatient", 40*scale, d.impatient)
	d.phase("killed", 50*scale, d.killed)
	if lose != nil {
		lose("30%")
		d.phase("a third is lost", 6*scale, d.impatient)
		lose("100%")
		d.phase("all is lost", 4*scale, d.impatient)
		lose("0%")
	} else {
		t.Log("THIS KERNEL HAS NO NETEM: no packet is lost here")
	}
	r.end()
	t.Logf("the server has rejected %d, dropped %d, lost %d while it accepted, served %d",
		r.rejected.Load(), r.dropped.Load(), r.gone.Load(), r.served.Load())
	for what, n := range map[string]int64{"connected": d.met.Load(), "refused": d.refused.Load(), "cut short": d.gaveUp.Load()} {
		if n == 0 {
			t.Errorf("no client was ever %s", what)
		}
	}
	behave(t, l)
	before.again(t) // not only when the listener's channel is closed, with all that is on it
}

// behave has a listener serve a client that behaves.
func behave(t *testing.T, l *rdmacm.Listener) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	var wg sync.WaitGroup
	wg.Go(func() { serveGently(ctx, l) })
	defer wg.Wait()
	defer cancel()
	s := &station{size: 256}
	_, err := wireDial(ctx, l.Addr().String(), rdmacm.Options{Prepare: s.prepare})
	testutil.Must(t, err)
	for i := range 10 {
		testutil.Must(t, s.trip(ctx, uint64(i), 200))
	}
	testutil.Must(t, s.close())
}

// serveGently answers all, those as well who wait in the queue and are no more.
func serveGently(ctx context.Context, l *rdmacm.Listener) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		r, err := l.Next(ctx)
		if err != nil {
			return
		}
		wg.Go(func() {
			s := &station{size: 256}
			if _, err := r.Accept(ctx, &rdmacm.Options{Prepare: s.prepare}); err == nil {
				echo(ctx, s)
				_ = s.close()
			}
		})
	}
}
