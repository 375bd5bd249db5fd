package tests

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pureverbs/rdma/internal/testutil"
)

// TestPingSeveralTargets pings two at the same time, and a port on which nobody listens.
func TestPingSeveralTargets(t *testing.T) {
	sameObjects(t)
	server := start(t, "listening", "rdma-ping", "serve")
	defer server.interrupt(t)
	good := append(wildcardHosts(), labIPv4+":7174")
	out := client(t, "rdma-ping", append([]string{"-D", "-c", "5", "-i", "20ms"}, good...)...)
	t.Log("\n" + out)
	if n := strings.Count(out, "5 sent, 5 received, 0 lost"); n != len(good) || !strings.Contains(out, "\ntarget ") {
		t.Errorf("%d summaries of %d, or no table", n, len(good))
	}
	p := start(t, "", "rdma-ping", "-q", "-c", "5", "-i", "20ms", labIPv4, labIPv4+":7999")
	out, err := p.end()
	t.Log("\n" + out)
	if p.cmd.ProcessState.ExitCode() != 1 || !strings.Contains(out, "rdma-ping: "+labIPv4+":7999: nobody listens on") || !strings.Contains(out, "5 received") {
		t.Errorf("with a target that cannot be pinged: %v", err)
	}
}

// TestPingFlood floods, asks for the progress meanwhile, and draws what came of it.
func TestPingFlood(t *testing.T) {
	sameObjects(t)
	server := start(t, "listening", "rdma-ping", "serve")
	defer server.interrupt(t)
	p := start(t, "PING", "rdma-ping", "-f", "--histogram", labIPv4)
	for range 5 {
		time.Sleep(200 * time.Millisecond)
		testutil.Must(t, p.cmd.Process.Signal(syscall.SIGQUIT))
	}
	out := p.interrupt(t)
	t.Log("\n" + out)
	if strings.Contains(out, "goroutine") || !strings.Contains(out, " packets, 0% loss, min/avg/ewma/max = ") ||
		!strings.Contains(out, " 0 lost (0.0%)") || !strings.Contains(out, "\nrtt in us, "+labIPv4) {
		t.Error("no progress, no summary, or no histogram")
	}
	// A second each would be too late for the deadline.
	if out := client(t, "rdma-ping", "-f", "-c", "100", "-w", "50", labIPv4); !strings.Contains(out, "100 sent, 100 received") {
		t.Errorf("no flood:\n%s", out)
	}
}

// TestPingDeadline: -w ends a ping that goes well with status 0, and -c that it cuts short
// with 1.
func TestPingDeadline(t *testing.T) {
	sameObjects(t)
	server := start(t, "listening", "rdma-ping", "serve")
	defer server.interrupt(t)
	for count, want := range map[int]int{1: 0, 1000: 1} {
		p := start(t, "PING", "rdma-ping", "-q", "-w", "5", "-i", "50", "-c", fmt.Sprint(count), labIPv4)
		out, err := p.end()
		if p.cmd.ProcessState.ExitCode() != want || !strings.Contains(out, "1 sent, 1 received") {
			t.Errorf("-c %d: %v, want status %d\n%s", count, err, want, out)
		}
	}
}
