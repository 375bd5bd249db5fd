//go:build linux

package tests

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/internal/testutil"
)

// TestRW15Perf: the zone of a link-local address, by name and by number, in perf, whose queue
// pairs are also connected by hand.
func TestRW15Perf(t *testing.T) {
	dev := testutil.Device(t)
	sameObjects(t)
	ifi, addr := linkLocal(t, dev.NetDevs())
	server := start(t, "listening", "rdma-ping", "perf", "serve", "-a", fmt.Sprintf("%v%%%s", addr, ifi.Name))
	for _, zone := range []string{ifi.Name, fmt.Sprint(ifi.Index)} {
		for _, run := range []string{"lat", "bw -o write -s 4k", "lat -t ud"} {
			args := append(perfToolArgs(run), "--verify", fmt.Sprintf("%v%%%s", addr, zone))
			if dev.Protocol() == "iw" && iWARPLacks(run) {
				continue
			}
			client(t, "rdma-ping", args...)
		}
	}
	says(t, []string{"perf", "lat", addr.String()}, "name the interface")
	says(t, []string{"perf", "serve", "-a", addr.String()}, "name the interface")
	says(t, []string{"perf", "lat", addr.String() + "%no-such-if0"}, "no-such-if0")
	says(t, []string{"-c", "1", addr.String() + "%no-such-if0"}, "no-such-if0")
	server.interrupt(t)
}

// TestRW20OtherAddresses: what is no address of a device is refused by each command.
func TestRW20OtherAddresses(t *testing.T) {
	testutil.Device(t)
	for _, addr := range []string{"198.51.100.1", "127.0.0.1", "::1"} {
		for _, line := range []string{"serve -a", "perf serve -a", "perf lat", "-c 1 -W 2s", "perf bw -t ud"} {
			says(t, append(strings.Fields(line), addr), addr)
		}
	}
	says(t, []string{"-c", "1", "-I", "198.51.100.1", labIPv4}, "198.51.100.1")
}

// TestRW20PortDown: the device is there, its port is down. Server and client say so at once,
// and nothing is tried that would make rxe deaf for good.
func TestRW20PortDown(t *testing.T) {
	testutil.Lab(t, "RW20")
	dev := testutil.Device(t)
	p := newPod(t, "rdma_cm", filepath.Base(dev.Path()))
	down := true
	up := func() {
		if down {
			down = false
			ip(t, "link set dum0 up")
			ip(t, "addr replace "+labIPv6+"/64 dev dum0") // which went with the link
		}
	}
	t.Cleanup(up)
	ip(t, "link set dum0 down")
	for _, line := range []string{"serve", "serve -a " + labIPv4, "-c 1 " + labIPv4, "perf serve", "perf lat " + labIPv4} {
		out, err := p.command(strings.Fields(line)...).CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 2 || strings.Count(string(out), "\n") != 1 ||
			!strings.Contains(string(out), dev.Name()+" has no active port") || !strings.Contains(string(out), "ip link set dum0 up") {
			t.Errorf("%s: %v, want status 2 and one line that names the port:\n%s", line, err, out)
		}
	}
	if out, err := p.command("devices").CombinedOutput(); err != nil || !strings.Contains(string(out), "port 1: down") {
		t.Errorf("devices: %v\n%s", err, out)
	}
	up()
	p.works(labIPv4)
}

// TestRW31Perf: perf with less memory than it wants says so; the server sees a client leave.
func TestRW31Perf(t *testing.T) {
	testutil.Lab(t, "RW31")
	server := start(t, "listening", "rdma-ping", "perf", "serve")
	var old unix.Rlimit
	testutil.Must(t, unix.Getrlimit(unix.RLIMIT_MEMLOCK, &old))
	testutil.Must(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: memlockBytes, Max: old.Max}))
	defer unix.Setrlimit(unix.RLIMIT_MEMLOCK, &old)
	perf := func(args string) (string, error) {
		cmd := exec.Command(testutil.Command(t, "rdma-ping"), append(strings.Fields("perf "+args), labIPv4)...)
		out, err := nobody(cmd).CombinedOutput()
		return string(out), err
	}
	if out, err := perf("lat -c 50"); err != nil {
		t.Errorf("perf lat needs more than %d bytes: %v\n%s", memlockBytes, err, out)
	}
	for _, run := range []string{"lat -s 1M -c 5", "bw -o write -s 1M -c 5"} {
		out, err := perf(run)
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 2 || strings.Count(out, "\n") != 1 || !strings.Contains(out, "RLIMIT_MEMLOCK is 65536 bytes") {
			t.Errorf("perf %s: %v, want status 2 and one line that names the limit:\n%s", run, err, out)
		}
	}
	if out, err := perf("lat -c 50"); err != nil {
		t.Errorf("after the failures: %v\n%s", err, out)
	}
	said := server.interrupt(t)
	if n := strings.Count(said, "dropped: the peer closed the connection"); n != 2 {
		t.Errorf("want two clients that left:\n%s", said)
	}
}
