//go:build linux

package main

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/pureverbs/rdma/internal/fakekernel"
)

const num = `[0-9]+\.[0-9]`

// TestPing runs client and server against each other, in both protocols and both ways of
// waiting, with sizes around the limits.
func TestPing(t *testing.T) {
	for name, args := range map[string]string{
		"events":       "",
		"poll":         "--poll",
		"block":        "--block",
		"no data":      "-s 0",
		"one byte":     "-s 1",
		"large":        "-s 256k",
		"rping":        "--rping",
		"rping poll":   "--rping --poll",
		"rping block":  "--rping --block",
		"rping 1 byte": "--rping -s 1",
		"rping large":  "--rping -s 65535",
	} {
		t.Run(name, func(t *testing.T) {
			k := newKernel(t, fakekernel.Options{})
			s := serve(t, k)
			args := append(strings.Fields(args), "-c", "20", "-i", "0", serverAddr)
			status, out, errs := ping(t, k, args...)
			if status != statusOK || errs != "" {
				t.Fatalf("status %d, stderr %q, stdout:\n%s\nserver:\n%s", status, errs, out, s.out.String())
			}
			mustMatch(t, "stdout", out, `PING 10\.9\.0\.1 \(10\.9\.0\.1:7174\) over rxe0: \d+ bytes? of data(, rping protocol)?\n`+
				`(\d+ bytes? from 10\.9\.0\.1: seq=\d+ time=`+num+` us\n){20}`+
				`\n--- 10\.9\.0\.1 rdma-ping statistics ---\n`+
				`20 sent, 20 received, 0 lost \(0\.0%\), time \d+\.\d\d s\n`+
				`rtt min/avg/max/stddev = `+num+`/`+num+`/`+num+`/`+num+` us\n`+
				`p50/p99 = `+num+`/`+num+` us\n`)
			s.out.await(t, "left: 20 answered")
		})
	}
}

// TestRW16Orders changes when work requests are carried out and in which order the two
// completions of a message come.
func TestRW16Orders(t *testing.T) {
	for name, opts := range map[string]fakekernel.Options{
		"deferred":              {Deferred: true},
		"send first":            {AckFirst: true},
		"deferred, send first":  {Deferred: true, AckFirst: true},
		"deferred, send behind": {Deferred: true, AckDelay: time.Millisecond},
	} {
		for _, args := range []string{"", "--poll", "--rping"} {
			k := newKernel(t, opts)
			serve(t, k)
			status, out, errs := ping(t, k, append(strings.Fields(args), "-q", "-c", "200", "-i", "0", "-s", "4000", serverAddr)...)
			if status != statusOK || errs != "" {
				t.Errorf("%s, %q: status %d, stderr %q, stdout:\n%s", name, args, status, errs, out)
			}
		}
	}
}

// TestPingIPv6 goes to all kinds of addresses, through the wildcard listener.
func TestPingIPv6(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	serve(t, k, "-p", "99")
	for _, args := range []string{"2001:db8:9::1 -p 99", "[2001:db8:9::1]:99", "10.9.0.1:99", "fe80::a:1%2 -p 99"} {
		status, out, errs := ping(t, k, append(strings.Fields(args), "-c", "2", "-i", "0")...)
		if status != statusOK || errs != "" {
			t.Errorf("%s: status %d, stderr %q, stdout:\n%s", args, status, errs, out)
		}
	}
}

func TestPingJSON(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	serve(t, k)
	status, out, errs := ping(t, k, "--json", "-c", "3", "-i", "1ms", serverAddr)
	if status != statusOK || errs != "" {
		t.Fatalf("status %d, stderr %q", status, errs)
	}
	var types []string
	for line := range strings.Lines(out) {
		var v struct{ Type string }
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		types = append(types, v.Type)
	}
	if got := strings.Join(types, " "); got != "start reply reply reply summary" {
		t.Errorf("objects %s", got)
	}
}

// TestPingInterrupted checks that Ctrl-C ends with the summary and status 0.
func TestPingInterrupted(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	serve(t, k)
	for _, interval := range []string{"0", "59s"} {
		c := start(t, k, "-i", interval, serverAddr)
		c.out.await(t, "seq=1")
		if status := c.stop(); status != statusOK || c.errOut.String() != "" {
			t.Errorf("interval %s: status %d, stderr %q", interval, status, c.errOut.String())
		}
		if out := c.out.String(); !strings.Contains(out, " 0 lost (0.0%)") {
			t.Errorf("interval %s: no summary in\n%s", interval, out)
		}
	}
	status, _, errs := ping(t, k, "-i", "1h", serverAddr)
	if status != statusError || !strings.Contains(errs, "-i 1h0m0s is too long") {
		t.Errorf("interval 1h: status %d, stderr %q, want a hint at the server's limit", status, errs)
	}
}

// TestDialInterrupted checks Ctrl-C while the connection is not there yet.
func TestDialInterrupted(t *testing.T) {
	silent := netip.MustParseAddr("10.9.0.77")
	k := newKernel(t, fakekernel.Options{Silent: []netip.Addr{silent}, CMTimeout: time.Hour})
	c := start(t, k, silent.String())
	eventually(t, func() string {
		if k.Counts().QPs == 0 {
			return "no queue pair"
		}
		return ""
	})
	if status := c.stop(); status != statusError || c.out.String() != "" {
		t.Errorf("status %d, stdout %q", status, c.out.String())
	}
	mustMatch(t, "stderr", c.errOut.String(), "rdma-ping: connect to 10.9.0.77:7174: interrupted\n")
}

// TestRW16AnswerBeforeSend has the completion of each send come long after the answer. The
// times are still those of the answers, and nothing is lost.
func TestRW16AnswerBeforeSend(t *testing.T) {
	const delay = 20 * time.Millisecond
	for _, args := range []string{"", "--poll", "--rping"} {
		k := newKernel(t, fakekernel.Options{AckDelay: delay})
		serve(t, k)
		status, out, errs := ping(t, k, append(strings.Fields(args), "--json", "-c", "40", "-i", "0", serverAddr)...)
		if status != statusOK || errs != "" {
			t.Errorf("%q: status %d, stderr %q, stdout:\n%s", args, status, errs, out)
		}
		if strings.Contains(args, "rping") {
			continue // its server waits for the completion of a read
		}
		var summary struct {
			Time float64               `json:"time_s"`
			RTT  struct{ P50 float64 } `json:"rtt_us"`
		}
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if err := json.Unmarshal([]byte(lines[len(lines)-1]), &summary); err != nil {
			t.Fatal(err)
		}
		// A slot is used again only when its send is complete, of which four fit in a delay.
		if least := 9 * delay.Seconds(); summary.Time < least {
			t.Errorf("%q: 40 requests took %v s, less than %v: slots were not waited for", args, summary.Time, least)
		}
		if p50 := summary.RTT.P50; p50 <= 0 || p50 >= float64(delay.Microseconds()) {
			t.Errorf("%q: p50 is %v us, which is the time of the send's completion", args, p50)
		}
	}
}

// TestServerGone checks the client of a server that stops: the line, the summary, status 1.
func TestServerGone(t *testing.T) {
	for _, args := range []string{"", "--rping"} {
		k := newKernel(t, fakekernel.Options{})
		s := start(t, k, "serve")
		s.out.await(t, "listening on")
		c := start(t, k, append(strings.Fields(args), "-i", "10ms", serverAddr)...)
		c.out.await(t, "seq=2")
		if status := s.stop(); status != statusOK {
			t.Errorf("serve: status %d, stderr %q", status, s.errOut.String())
		}
		if status := c.wait(); status != statusLost {
			t.Errorf("%q: status %d", args, status)
		}
		mustMatch(t, "stderr", c.errOut.String(), "rdma-ping: [^\n]*the peer closed the connection\n")
		if out := c.out.String(); !strings.Contains(out, "statistics") {
			t.Errorf("%q: no summary in\n%s", args, out)
		}
	}
}

// TestRW20Reasons checks that each reason for not running is named, with a next step, in one
// line, and gives status 2.
func TestRW20Reasons(t *testing.T) {
	tests := []struct {
		name string
		opts fakekernel.Options
		args string
		want string
	}{
		{"no device", fakekernel.Options{Devices: []fakekernel.Device{}}, "10.9.0.1", "no RDMA devices: .*rdma-ping link add"},
		{"no device, serve", fakekernel.Options{Devices: []fakekernel.Device{}}, "serve", "no RDMA devices: .*rdma-ping link add"},
		{"no module", fakekernel.Options{NoCM: true}, "10.9.0.1", "modprobe rdma_ucm"},
		{"no module, serve", fakekernel.Options{NoCM: true}, "serve", "modprobe rdma_ucm"},
		{"no node", fakekernel.Options{NoCMNode: true}, "10.9.0.1", "/dev/infiniband/rdma_cm"},
		{
			"no node of the only device",
			fakekernel.Options{Devices: []fakekernel.Device{{NoNode: true}}}, "10.9.0.1", "/dev/infiniband/uverbs0",
		},
		{"nobody listens", fakekernel.Options{}, "10.9.0.1", "nobody listens on 10.9.0.1:7174 .*rdma-ping serve"},
		{"no route", fakekernel.Options{}, "192.0.2.1", "192.0.2.1:7174: network is unreachable; .*ip route get 192.0.2.1"},
		{
			"silent host", fakekernel.Options{Silent: []netip.Addr{netip.MustParseAddr("10.9.0.77")}}, "10.9.0.77",
			"10.9.0.77:7174: the peer does not answer.*is the host up",
		},
		{"not our address", fakekernel.Options{}, "serve -a 192.0.2.1", "192.0.2.1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			k := newKernel(t, tt.opts)
			begin := time.Now()
			status, out, errs := ping(t, k, strings.Fields(tt.args)...)
			if status != statusError || out != "" {
				t.Errorf("status %d, stdout %q, want 2 and nothing", status, out)
			}
			mustMatch(t, "stderr", errs, "rdma-ping: [^\n]*"+tt.want+"[^\n]*\n")
			if took := time.Since(begin); took > 4*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}

// TestRW47OneDeviceWithoutNode checks that the others can be used, and which node is missing.
func TestRW47OneDeviceWithoutNode(t *testing.T) {
	k := newKernel(t, fakekernel.Options{Devices: []fakekernel.Device{{}, {NoNode: true}}})
	serve(t, k)
	if status, out, errs := ping(t, k, "-c", "2", "-i", "0", serverAddr); status != statusOK {
		t.Errorf("through rxe0: status %d, stderr %q, stdout:\n%s", status, errs, out)
	}
	status, _, errs := ping(t, k, "-c", "2", "-I", "10.9.0.2", "10.9.0.2")
	if status != statusError || !strings.Contains(errs, "/dev/infiniband/uverbs1") {
		t.Errorf("through rxe1: status %d, stderr %q, want the missing node", status, errs)
	}
	status, out, errs := ping(t, k, "devices")
	if status != statusOK || errs != "" || !strings.Contains(out, "rxe0: usable") ||
		!strings.Contains(out, "rxe1: NOT usable") || !strings.Contains(out, "/dev/infiniband/uverbs1 is not here") {
		t.Errorf("devices: status %d, stderr %q, stdout:\n%s", status, errs, out)
	}
}

// TestRW31Memlock checks that the defaults fit in 64 KiB, that more is refused with a text
// about memory and not about the connection, and that the refusal leaves nothing.
func TestRW31Memlock(t *testing.T) {
	k := newKernel(t, fakekernel.Options{Memlock: 64 << 10})
	s := serve(t, k, "--max-size", "2m")
	for _, args := range []string{"", "--rping"} {
		if status, out, errs := ping(t, k, append(strings.Fields(args), "-c", "3", "-i", "0", serverAddr)...); status != statusOK {
			t.Errorf("%q: status %d, stderr %q, stdout:\n%s", args, status, errs, out)
		}
	}
	status, out, errs := ping(t, k, "-s", "1MiB", serverAddr)
	if status != statusError || out != "" {
		t.Errorf("1 MiB: status %d, stdout %q", status, out)
	}
	mustMatch(t, "stderr", errs, "rdma-ping: [^\n]*register memory region[^\n]*cannot allocate memory[^\n]*\n")
	if strings.Contains(errs, "in use") {
		t.Errorf("1 MiB: an error that follows from the first is shown: %q", errs)
	}
	if log := s.out.String(); strings.Contains(log, "1 MiB\n") && strings.Contains(log, "connected: rdma-ping, 1 MiB") {
		t.Errorf("the server saw a client that could not be: %s", log)
	}
	if status, _, errs := ping(t, k, "-c", "3", "-i", "0", serverAddr); status != statusOK {
		t.Errorf("afterwards: status %d, stderr %q", status, errs)
	}
}
