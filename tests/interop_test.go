package tests

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/uverbs"
)

// kernelObjects is what the kernel counts per device: "rxe0: pd 1 cq 1 qp 1 ...".
func kernelObjects(t testing.TB) string {
	t.Helper()
	out, err := exec.Command(testutil.Command(t, "rdma"), "resource", "show").Output()
	testutil.Must(t, err)
	return string(out)
}

// sameObjects fails the test if, at its end, the kernel holds other objects than now. The
// connection manager keeps ids for a moment after their end.
func sameObjects(t testing.TB) {
	t.Helper()
	testutil.Device(t)
	if os.Getenv("RDMA_SIM") == "1" {
		return // a simulated device, of which netlink knows nothing
	}
	before := kernelObjects(t)
	t.Cleanup(func() {
		after := ""
		for range 200 {
			if after = kernelObjects(t); after == before {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
		t.Errorf("the kernel holds:\n%s\nat the start it held:\n%s", after, before)
	})
}

// process is a program that runs beside the test.
type process struct {
	cmd *exec.Cmd
	out *bufio.Scanner
}

// start runs a program and waits for a line that holds ready; "" waits for none.
func start(t testing.TB, ready, name string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(testutil.Command(t, name), args...)}
	pipe, err := p.cmd.StdoutPipe()
	testutil.Must(t, err)
	p.cmd.Stderr = p.cmd.Stdout
	testutil.Must(t, p.cmd.Start())
	p.out = bufio.NewScanner(pipe)
	t.Cleanup(func() { p.cmd.Process.Kill() })
	for ready != "" {
		if !p.out.Scan() {
			t.Fatalf("%s ended before it said %q", name, ready)
		}
		if strings.Contains(p.out.Text(), ready) {
			break
		}
	}
	return p
}

// end reads what the program still says and returns it with its status. One that does not
// end is killed.
func (p *process) end() (string, error) {
	defer time.AfterFunc(20*time.Second, func() { p.cmd.Process.Kill() }).Stop()
	var b strings.Builder
	for p.out.Scan() {
		b.WriteString(p.out.Text() + "\n")
	}
	return b.String(), p.cmd.Wait()
}

func (p *process) interrupt(t testing.TB) string {
	t.Helper()
	testutil.Must(t, p.cmd.Process.Signal(syscall.SIGINT))
	out, err := p.end()
	if err != nil {
		t.Errorf("%s: %v\n%s", p.cmd.Path, err, out)
	}
	return out
}

// client runs a program to its end and returns what it said.
func client(t testing.TB, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, testutil.Command(t, name), args...).CombinedOutput()
	// rping closes its event channel under its own thread, at the end of all work. If that
	// thread is about to read just then, the program ends with this.
	late := name == "rping" && strings.Contains(string(out), "rdma_get_cm_event: Bad file descriptor")
	if err != nil && !late {
		t.Errorf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// wildcardHosts are where a server on all addresses is reached. siw of 5.10 cannot listen for
// both families on one port: rdma-ping takes IPv4 then, and says so.
func wildcardHosts() []string {
	if os.Getenv("RDMA_LAB_DEVICE") == "siw" && testutil.RunningKernel() == testutil.MustKernel("5.10") {
		return []string{labIPv4}
	}
	return []string{labIPv4, labIPv6}
}

// TestPing is the main job: Go to Go, over both families, sleeping and spinning.
func TestPing(t *testing.T) {
	sameObjects(t)
	server := start(t, "listening", "rdma-ping", "serve")
	for _, host := range wildcardHosts() {
		for _, mode := range [][]string{nil, {"--poll"}, {"-s", "4k"}, {"-s", "0"}} {
			args := append([]string{"-c", "5", "-i", "20ms", host}, mode...)
			out := client(t, "rdma-ping", args...)
			if !strings.Contains(out, "5 sent, 5 received, 0 lost") || !strings.Contains(out, "p50/p99") {
				t.Errorf("%v said:\n%s", args, out)
			}
		}
	}
	server.interrupt(t)
}

// TestInteropRpingClient: the C client finds its own protocol at our server.
func TestInteropRpingClient(t *testing.T) {
	sameObjects(t)
	server := start(t, "listening", "rdma-ping", "serve")
	for _, host := range wildcardHosts() {
		for _, args := range [][]string{{"-v", "-V"}, {"-S", "1000", "-V"}} {
			client(t, "rping", append([]string{"-c", "-p", "7174", "-C", "5", "-a", host}, args...)...)
		}
	}
	server.interrupt(t)
}

// TestInteropRpingServer: our client recognises that the peer is a C rping.
func TestInteropRpingServer(t *testing.T) {
	sameObjects(t)
	for i, host := range []string{labIPv4, labIPv6} {
		for _, mode := range [][]string{nil, {"--poll"}} {
			port := []string{"-p", "719" + string(rune('0'+i))}
			server := start(t, "", "rping", append([]string{"-s", "-a", host, "-V", "-C", "5"}, port...)...)
			out := retry(t, "rdma-ping", append(append([]string{"-c", "5", "-i", "20ms", host}, mode...), port...)...)
			if !strings.Contains(out, "5 sent, 5 received, 0 lost") {
				t.Errorf("over %s, %v:\n%s", host, mode, out)
			}
			server.end() //nolint:errcheck // rping's server reports the client's going as an error
		}
	}
}

// retry runs a client until its server is up: a C server does not say when it listens.
func retry(t testing.TB, name string, args ...string) string {
	t.Helper()
	var out []byte
	var err error
	for range 50 {
		if out, err = exec.Command(testutil.Command(t, name), args...).CombinedOutput(); err == nil {
			return string(out)
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Errorf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	return string(out)
}

// TestServerKilled: the client of a killed server hears of it and ends cleanly.
func TestServerKilled(t *testing.T) {
	sameObjects(t)
	testutil.NoLeaks(t)
	server := start(t, "listening", "rdma-ping", "serve")
	ping := start(t, "seq=2", "rdma-ping", "-i", "20ms", labIPv4)
	testutil.Must(t, server.cmd.Process.Kill())
	server.end() //nolint:errcheck // it was killed
	done := make(chan string, 1)
	go func() {
		out, err := ping.end()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() == 0 {
			out += "\nstatus: success"
		}
		done <- out
	}()
	select {
	case out := <-done:
		if !strings.Contains(out, "statistics") || strings.Contains(out, "status: success") {
			t.Errorf("the client said:\n%s", out)
		}
	case <-time.After(30 * time.Second):
		t.Error("the client did not end")
	}
}

// TestClientKilled: a server's connection ends, and nothing of it stays.
func TestClientKilled(t *testing.T) {
	sameObjects(t)
	testutil.NoLeaks(t)
	ctx := limit(t, 20*time.Second)
	l, err := rdmacm.Listen(ctx, labIPv4+":7177", nil)
	testutil.Must(t, err)
	defer l.Close()
	ping := start(t, "", "rdma-ping", "--rping", "-p", "7177", labIPv4)
	s := &station{size: 1024}
	r, err := l.Next(ctx)
	testutil.Must(t, err)
	c, err := r.Accept(ctx, &rdmacm.Options{Prepare: s.prepare})
	testutil.Must(t, err)
	waits := make(chan error, 1)
	go func() {
		for {
			if _, err := one(ctx, c.RecvCQ()); err != nil {
				waits <- err
				return
			}
		}
	}()
	testutil.Must(t, ping.cmd.Process.Kill())
	ping.end() //nolint:errcheck // it was killed
	select {
	case <-c.Done():
	case <-ctx.Done():
		t.Fatal("the connection did not end")
	}
	if !errors.Is(c.Err(), rdmacm.ErrDisconnected) {
		t.Errorf("the connection ended with %v, want ErrDisconnected", c.Err())
	}
	var failed *uverbs.WCError
	if err := <-waits; !errors.As(err, &failed) && !errors.Is(err, net.ErrClosed) {
		t.Errorf("the waiter got %v, want a flushed receive", err)
	}
	testutil.Must(t, s.close())
}

// TestDevicesCommand lists what the kernel has.
func TestDevicesCommand(t *testing.T) {
	out := client(t, "rdma-ping", "devices")
	if name := testutil.Device(t).Name(); !strings.Contains(out, name) {
		t.Errorf("no %s in:\n%s", name, out)
	}
	if out := client(t, "rdma-ping", "devices", "--json"); !bytes.HasPrefix([]byte(out), []byte("[")) {
		t.Errorf("not a JSON list: %s", out)
	}
}
