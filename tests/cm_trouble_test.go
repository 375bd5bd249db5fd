//go:build linux

package tests

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/internal/discover"
	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/rdmacm"
)

// What can go wrong around connections, made to go wrong on the kernel that runs.

// ip runs the ip command.
func ip(t testing.TB, args string) {
	t.Helper()
	out, err := exec.Command(testutil.Command(t, "ip"), strings.Fields(args)...).CombinedOutput()
	if err != nil {
		t.Errorf("ip %s: %v\n%s", args, err, out)
	}
}

// astray has what goes to the server's end of the wire arrive nowhere, because its link-layer
// address is another one, until it is healed.
func astray(t *testing.T) (heal func()) {
	t.Helper()
	va, err := net.InterfaceByName("va")
	testutil.Must(t, err)
	set := func(mac string) { ip(t, "neigh replace "+wireServer+" lladdr "+mac+" dev vb nud permanent") }
	heal = func() { set(va.HardwareAddr.String()) }
	t.Cleanup(heal)
	set("02:00:00:00:00:99")
	return heal
}

// TestRW46NeighbourMoves: when the link-layer address of a peer changes, kernels from 6.0 on
// call its established connections of RoCE unreachable. That ends them, once, and those of
// nobody else.
func TestRW46NeighbourMoves(t *testing.T) {
	testutil.Lab(t, "RW46")
	sameObjects(t)
	testutil.NoLeaks(t)
	ctx := limit(t, time.Minute)
	l, err := rdmacm.Listen(ctx, wireServer+":0", nil)
	own(t, l, err)
	other, err := rdmacm.Listen(ctx, "[2001:db8:5::1]:0", nil)
	own(t, other, err)
	bystander, s := echoed(t, other), echoed(t, l)
	testutil.Must(t, errors.Join(bystander.trip(ctx, 1, 100), s.trip(ctx, 2, 100)))
	c := newCoupleAt(t, wireServer, nil)
	c.accept()
	d, id := c.a, c.from

	heal := astray(t)
	told := !iwarp(t) && testutil.RunningKernel().AtLeast(testutil.MustKernel("6.0"))
	if told {
		if ev := d.expect(rdmacm.EventDisconnected); ev.Err == nil || errors.Is(ev.Err, rdmacm.ErrDisconnected) {
			t.Errorf("the end came with %v, want that the path broke", ev.Err)
		}
		select {
		case <-s.conn.Done():
		case <-ctx.Done():
			t.Fatal("the connection did not end")
		}
		if err := s.conn.Err(); errors.Is(err, rdmacm.ErrDisconnected) || !strings.Contains(err.Error(), "path") {
			t.Errorf("the connection ended with %v, want that the path broke", err)
		}
	}
	d.quiet(300 * time.Millisecond)
	testutil.Must(t, bystander.trip(ctx, 3, 100))
	heal()
	d.quiet(300 * time.Millisecond)
	if !told {
		if err := s.conn.Err(); err != nil {
			t.Fatalf("the connection ended with %v", err)
		}
		testutil.Must(t, s.trip(ctx, 4, 100))
		testutil.Must(t, id.Disconnect())
		c.b.expect(rdmacm.EventDisconnected)
		testutil.Must(t, c.to.Close()) // which answers
		d.expect(rdmacm.EventDisconnected)
	}
	start := time.Now()
	testutil.Must(t, errors.Join(s.close(), id.Close()))
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("closing took %v", took)
	}
	testutil.Must(t, bystander.trip(ctx, 5, 100))
	testutil.Must(t, echoed(t, l).trip(ctx, 6, 100))
}

// echoed connects to a listener that echoes. The client cannot always tell the server that it
// closes: at the end of the test the server does as well, by itself.
func echoed(t *testing.T, l *rdmacm.Listener) *station {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	server, accepted := &station{size: 256}, make(chan error, 1)
	go func() {
		r, err := l.Next(ctx)
		if err == nil {
			_, err = r.Accept(ctx, &rdmacm.Options{Prepare: server.prepare})
		}
		accepted <- err
	}()
	s := dial(t, ctx, l.Addr().String(), 256)
	testutil.Must(t, <-accepted)
	var wg sync.WaitGroup
	wg.Go(func() { echo(ctx, server) })
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		if err := server.close(); err != nil {
			t.Errorf("server: %v", err)
		}
	})
	return s
}

// island makes a device of its own, on an interface of its own, and waits until it can be
// listened on at that address.
func island(t *testing.T, name, addr string) {
	t.Helper()
	ip(t, "link add "+name+"d type dummy")
	t.Cleanup(func() { ip(t, "link del "+name+"d") })
	ip(t, "addr add "+addr+"/24 dev "+name+"d")
	ip(t, "link set "+name+"d up")
	testutil.Must(t, discover.Host().AddLink(name, testutil.Device(t).Driver(), name+"d"))
	t.Cleanup(func() { _ = discover.Host().DelLink(name) }) // where the test has not
	serves(t, addr)
}

// serves waits until an address belongs to a device: the kernel gives a new one its GIDs a
// moment later.
func serves(t *testing.T, addr string) {
	t.Helper()
	for ctx := limit(t, 10*time.Second); ; time.Sleep(20 * time.Millisecond) {
		l, err := rdmacm.Listen(ctx, addr+":0", nil)
		if err == nil {
			testutil.Must(t, l.Close())
			return
		}
		if !errors.Is(err, syscall.ENODEV) || ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}

// TestDeviceGoes: deleting a device ends the connections on it, at both ends, and the
// listener; who waits is woken by closing; and when all is closed the device is gone. The
// kernel takes one end after the other, and the second may hear first that the other is closed.
func TestDeviceGoes(t *testing.T) {
	testutil.Lab(t, "DeviceGoes")
	sameObjects(t)
	testutil.NoLeaks(t)
	island(t, "x7", "10.7.0.1")
	ctx := limit(t, time.Minute)
	l, err := rdmacm.Listen(ctx, "10.7.0.1:0", nil)
	own(t, l, err)
	client, server := meet(t, l, l.Addr().String(), nil)
	woken := make(chan error, 1)
	go func() {
		_, err := one(ctx, client.RecvCQ())
		woken <- err
	}()
	done := deleted("x7")
	removed := 0
	for end, c := range map[string]*rdmacm.Conn{"client": client, "server": server} {
		select {
		case <-c.Done():
		case <-ctx.Done():
			t.Fatalf("the %s does not hear of it", end)
		}
		switch err := c.Err(); {
		case errors.Is(err, rdmacm.ErrDeviceRemoved):
			removed++
		case !errors.Is(err, rdmacm.ErrDisconnected):
			t.Errorf("the %s ended with %v, want ErrDeviceRemoved", end, err)
		}
	}
	if removed == 0 {
		t.Error("no end heard of the device")
	}
	if _, err := l.Accept(ctx); !errors.Is(err, rdmacm.ErrDeviceRemoved) {
		t.Errorf("accept: got %v, want ErrDeviceRemoved", err)
	}
	testutil.Must(t, errors.Join(client.Close(), server.Close(), l.Close()))
	soon(t, done, "deleting a device whose connections are closed")
	select {
	case err := <-woken:
		if err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the waiter got %v, want that the queue is closed", err)
		}
	case <-ctx.Done():
		t.Error("the waiter was not woken")
	}
}

// TestSilentHost: a context cuts a connection attempt to a host that is there, and has nobody
// who would answer. On iWARP, where no answer means that packets are lost, the kernel goes on
// trying for a while behind our back.
func TestSilentHost(t *testing.T) {
	testutil.Lab(t, "SilentHost")
	testutil.NoLeaks(t)
	if iwarp(t) {
		impatientTCP(t)
		astray(t)
	} else {
		const peer = "rxea"
		testutil.Must(t, discover.Host().DelLink(peer))
		t.Cleanup(func() {
			testutil.Must(t, discover.Host().AddLink(peer, "rxe", "va"))
			serves(t, wireServer)
		})
	}
	for _, want := range []error{context.DeadlineExceeded, context.Canceled} {
		ctx, cancel := context.WithCancel(context.Background())
		if want == context.DeadlineExceeded { //nolint:errorlint // it is one of two
			ctx, cancel = context.WithTimeout(ctx, time.Second)
		} else {
			time.AfterFunc(time.Second, cancel)
		}
		start := time.Now()
		_, err := rdmacm.Dial(ctx, wireServer+":7190", &rdmacm.Options{Source: labAddr(wireClient, 0)})
		took := time.Since(start)
		cancel()
		if !errors.Is(err, want) || !strings.Contains(err.Error(), "connect") || took > 3*time.Second {
			t.Errorf("after %v: got %v, want %v of connecting, after a second", took, err, want)
		}
	}
}

// troubleChild says, in a process of a test's own, which part it plays.
const troubleChild = "RDMA_TEST_TROUBLE_CHILD"

// child is a process for a part.
func child(t *testing.T, part string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	testutil.Must(t, err)
	cmd := exec.Command(exe, "-test.run", "^TestTroubleChild$", "-test.v")
	cmd.Env = append(os.Environ(), troubleChild+"="+part)
	return cmd
}

// TestTroubleChild is the process.
func TestTroubleChild(t *testing.T) {
	var part, address string
	var n int
	_, _ = fmt.Sscan(os.Getenv(troubleChild), &part, &address, &n)
	switch part {
	case "": // see the tests below
	case "setuid":
		testutil.Must(t, syscall.Setuid(65534))
		everybodyTalks(t)
	case "nobody":
		if n := everybodyTalks(t); n > 0 {
			t.Errorf("%d were refused", n)
		}
	case "signals":
		dialOn(t, address, n)
	}
}

// runChild runs it to its end, which has to come.
func runChild(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	cmd.WaitDelay = time.Second
	late := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	out, err := cmd.CombinedOutput()
	if !late.Stop() {
		t.Error("the process did not end")
	}
	if err != nil || !bytes.Contains(out, []byte("PASS: TestTroubleChild")) {
		t.Errorf("%v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "refused") {
			t.Log(strings.TrimSpace(line))
		}
	}
}

// everybodyTalks makes connections from many goroutines, and counts those that the kernel
// refuses because of their credentials, which has to be said.
func everybodyTalks(t *testing.T) int64 {
	var worked, refused atomic.Int64
	var wg sync.WaitGroup
	for range 12 {
		wg.Go(func() {
			err := talk()
			switch {
			case err == nil:
				worked.Add(1)
			case errors.Is(err, syscall.EACCES) && strings.Contains(err.Error(), "credentials"):
				refused.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	t.Logf("%d connections worked, %d were refused", worked.Load(), refused.Load())
	return refused.Load()
}

// talk makes a listener and a connection to it, and closes all.
func talk() error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	l, err := rdmacm.Listen(ctx, labIPv4+":0", nil)
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() {
		c, err := l.Accept(ctx)
		if err == nil {
			err = c.Close()
		}
		served <- errors.Join(err, l.Close()) // a client that still waits hears of it
	}()
	c, err := rdmacm.Dial(ctx, l.Addr().String(), nil)
	if err == nil {
		err = c.Close()
	} else {
		err = errors.Join(err, l.Close()) // nobody else comes
	}
	return errors.Join(err, <-served)
}

// TestSetuid: after the user was changed each thread has credentials of its own, and the
// kernel serves a channel to those that opened it only: what it refuses is an error that says
// so, and nothing hangs.
func TestSetuid(t *testing.T) {
	testutil.Lab(t, "Setuid")
	sameObjects(t)
	runChild(t, child(t, "setuid"))
}

// TestOtherUser: a process that was started as another user has one set of credentials, and
// is served like any.
func TestOtherUser(t *testing.T) {
	testutil.Lab(t, "OtherUser")
	sameObjects(t)
	cmd := child(t, "nobody")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	runChild(t, cmd)
}

// TestSignals: signals that hit every thread of a process, all the time, do not show. On iWARP
// they might: siw makes the TCP connection within the call, and the kernel repeats one that a
// signal has interrupted from a port that is not free yet.
func TestSignals(t *testing.T) {
	testutil.Lab(t, "Signals")
	sameObjects(t)
	testutil.NoLeaks(t)
	addr := echoServer(t, labIPv4+":0", 256)
	dials := 200
	if testing.Short() {
		dials = 20
	}
	cmd := child(t, fmt.Sprint("signals ", addr, " ", dials))
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	testutil.Must(t, err)
	testutil.Must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	out := bufio.NewScanner(pipe)
	for out.Scan() && !strings.Contains(out.Text(), "ready for signals") { // until then they would kill it
	}
	stop, sent := make(chan struct{}), make(chan int, 1)
	go func() { sent <- storm(cmd.Process.Pid, stop) }()
	text := ""
	for out.Scan() {
		text += out.Text() + "\n"
	}
	close(stop)
	n := <-sent
	if err := cmd.Wait(); err != nil || !strings.Contains(text, "PASS: TestTroubleChild") {
		t.Errorf("%v\n%s", err, text)
	}
	t.Logf("%d signals while the process made %d connections", n, dials)
	if n < 10*dials {
		t.Errorf("only %d signals", n)
	}
}

// storm sends signals to each thread of a process.
func storm(pid int, stop <-chan struct{}) (sent int) {
	for {
		select {
		case <-stop:
			return sent
		case <-time.After(200 * time.Microsecond):
		}
		tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		for _, task := range tasks {
			var tid int
			if _, err := fmt.Sscan(task.Name(), &tid); err != nil {
				continue
			}
			for _, sig := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGURG} {
				if unix.Tgkill(pid, tid, sig) == nil {
					sent++
				}
			}
		}
	}
}

// dialOn makes n connections, from several goroutines.
func dialOn(t *testing.T, address string, n int) {
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGUSR1)
	fmt.Println("ready for signals")
	ctx := limit(t, 5*time.Minute)
	err := inParallel(n, func(i int) error {
		s := &station{size: 256}
		if _, err := rdmacm.Dial(ctx, address, &rdmacm.Options{Prepare: s.prepare}); err != nil {
			return err
		}
		return errors.Join(s.trip(ctx, uint64(i), 100), s.close())
	})
	testutil.Must(t, err)
	if len(caught) == 0 {
		t.Error("no signal came")
	}
}
