package tests

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/pureverbs/rdma/internal/testutil"
)

// without skips unless the lab was booted without devices, and with or without modules.
func without(t *testing.T, modules bool, flag string) {
	_, err := os.Stat("/sys/class/infiniband")
	if os.Getenv("RDMA_LAB") != "1" || os.Getenv("RDMA_LAB_DEVICES") != "" || modules != (err == nil) {
		t.Skipf("needs a system without RDMA; run: make lab RUN=RW20, which also boots with %s", flag)
	}
}

// says runs rdma-ping, which must fail with status 2 and one line that holds all of want.
func says(t *testing.T, args []string, want ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, testutil.Command(t, "rdma-ping"), args...).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 {
		t.Errorf("rdma-ping %v: got %v, want status 2", args, err)
	}
	text, _, _ := strings.Cut(string(out), "Try 'rdma-ping --help'") // behind a mistake in usage
	if strings.Count(text, "\n") != 1 {
		t.Errorf("rdma-ping %v said more than one line:\n%s", args, out)
	}
	for _, w := range want {
		if !strings.Contains(string(out), w) {
			t.Errorf("rdma-ping %v said %q, want %q in it", args, out, w)
		}
	}
}

func listsNothing(t *testing.T) {
	t.Helper()
	out, err := exec.Command(testutil.Command(t, "rdma-ping"), "devices", "--json").Output()
	if err != nil || strings.TrimSpace(string(out)) != "[]" {
		t.Errorf("devices --json: %q, %v; want [] and success", out, err)
	}
	if out := client(t, "rdma-ping", "devices"); !strings.Contains(out, "no RDMA device") {
		t.Errorf("devices said %q", out)
	}
}

// TestRW20NoModule: the kernel has no RDMA at all.
func TestRW20NoModule(t *testing.T) {
	without(t, false, "-no-module")
	listsNothing(t)
	says(t, []string{"serve"}, "module")
	says(t, []string{"-c", "1", labIPv4}, "module")
}

// TestRW20NoDevice: the modules are there, a device is not.
func TestRW20NoDevice(t *testing.T) {
	without(t, true, "-no-device")
	listsNothing(t)
	says(t, []string{"serve"}, "no RDMA device")
	says(t, []string{"-c", "1", labIPv4}, "RDMA device")
}

// TestRW20NotAnRDMAAddress: devices are there, the address is not on one.
func TestRW20NotAnRDMAAddress(t *testing.T) {
	testutil.Device(t)
	says(t, []string{"serve", "-a", "198.51.100.1"}, "198.51.100.1")
	says(t, []string{"-c", "1", "-W", "2s", "198.51.100.1"}, "198.51.100.1")
}

// TestBusyPort: a second server on the port is told that the port is taken.
func TestBusyPort(t *testing.T) {
	sameObjects(t)
	server := start(t, "listening", "rdma-ping", "serve")
	says(t, []string{"serve"}, "7174", "another id listens on that port")
	server.interrupt(t)
}

// TestRW47MissingNodes: what has a node works, what has none is named.
func TestRW47MissingNodes(t *testing.T) {
	testutil.Device(t)
	if os.Getenv("RDMA_LAB") != "1" {
		testutil.Skip(t, "several devices and root", "run: make lab RUN=RW47")
	}
	script := `set -e
mkdir /tmp/nodes
for n in rdma_cm uverbs0 uverbs2; do cp -a /dev/infiniband/$n /tmp/nodes/; done
mount -o bind /tmp/nodes /dev/infiniband
rdma-ping devices
rdma-ping serve -q & sleep 1
for addr in 10.9.0.1 10.5.0.2 10.5.0.1; do
	rdma-ping -c 2 -i 20ms $addr 2>&1 || true
done
kill $!`
	out, err := exec.Command("unshare", "-m", "sh", "-c", script).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text := string(out)
	if strings.Count(text, "2 sent, 2 received, 0 lost") != 1 || !strings.Contains(text, "/dev/infiniband/uverbs1") {
		t.Errorf("want one target answered and uverbs1 named in:\n%s", text)
	}
	// The way to 10.5.0.1 begins at a device that can be used and ends at one that cannot.
	if !strings.Contains(text, "it cannot open the RDMA device of that address") {
		t.Errorf("want the server's refusal explained in:\n%s", text)
	}
}
