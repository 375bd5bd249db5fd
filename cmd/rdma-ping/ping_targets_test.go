//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pureverbs/rdma/internal/fakekernel"
	"github.com/pureverbs/rdma/internal/testutil"
)

// silentAddr is that of a host which does not answer.
var silentAddr = netip.MustParseAddr("10.9.0.77")

// TestPingSeveral pings two devices and a silent host at the same time: what cannot be pinged
// is one line that names it, and the others go on.
func TestPingSeveral(t *testing.T) {
	k := newKernel(t, fakekernel.Options{Devices: []fakekernel.Device{{}, {}}, Silent: []netip.Addr{silentAddr}})
	serve(t, k)
	const (
		good  = "-c 3 -i 0 10.9.0.1 [2001:db8:9::1]:7174 10.9.0.2:7174"
		reply = `(56 bytes from (10\.9\.0\.1|10\.9\.0\.2|2001:db8:9::1): seq=[1-3] time=` + num + ` us\n|PING [^\n]* over rxe[01]: 56 bytes of data\n){12}`
		sum   = ` rdma-ping statistics ---\n3 sent, 3 received, 0 lost \(0\.0%\)[^\n]*\nrtt [^\n]*\np50/p99 [^\n]*\n\n`
		title = `target +sent +received +loss +min us +avg us +max us\n`
		row   = ` +3 +3 +0\.0% +` + num + ` +` + num + ` +` + num + `\n`
	)
	status, out, errs := ping(t, k, strings.Fields(good)...)
	if status != statusOK || errs != "" {
		t.Errorf("status %d, stderr %q", status, errs)
	}
	mustMatch(t, "stdout", out, reply+`\n--- 10\.9\.0\.1`+sum+`--- \[2001:db8:9::1\]:7174`+sum+`--- 10\.9\.0\.2:7174`+sum+
		title+`10\.9\.0\.1 `+row+`\[2001:db8:9::1\]:7174`+row+`10\.9\.0\.2:7174`+row)

	status, out, errs = ping(t, k, "-q", "-c", "3", "-i", "0", "10.9.0.77", "10.9.0.1", "10.9.0.1:99")
	if status != statusLost {
		t.Errorf("one of three: status %d", status)
	}
	for _, want := range []string{`10\.9\.0\.77: [^\n]*the peer does not answer[^\n]*`, `10\.9\.0\.1:99: nobody listens on 10\.9\.0\.1:99 [^\n]*`} {
		mustMatch(t, "stderr", errs, `(|.*\n)rdma-ping: `+want+`\n.*`)
	}
	if strings.Count(errs, "\n") != 2 {
		t.Errorf("one of three: stderr %q, want two lines", errs)
	}
	mustMatch(t, "stdout", out, `PING [^\n]*\n\n--- 10\.9\.0\.1`+sum+
		title+`10\.9\.0\.77    could not be pinged\n10\.9\.0\.1  `+row+`10\.9\.0\.1:99  could not be pinged\n`)

	status, out, errs = ping(t, k, "10.9.0.77", "10.9.0.1:99")
	if status != statusError || out != "" || strings.Count(errs, "\n") != 2 {
		t.Errorf("none: status %d, stdout %q, stderr %q", status, out, errs)
	}
}

// TestPingPorts: lines name the port where the user did.
func TestPingPorts(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	serve(t, k)
	serve(t, k, "-p", "99")
	status, out, errs := ping(t, k, "-c", "2", "-i", "0", serverAddr, serverAddr+":99")
	if status != statusOK || errs != "" || strings.Count(out, "from 10.9.0.1: seq=") != 2 || strings.Count(out, "from 10.9.0.1:99: seq=") != 2 {
		t.Errorf("status %d, stderr %q, stdout:\n%s", status, errs, out)
	}
}

// TestPingSeveralJSON: each object names its target.
func TestPingSeveralJSON(t *testing.T) {
	k := newKernel(t, fakekernel.Options{Silent: []netip.Addr{silentAddr}})
	serve(t, k)
	status, out, _ := ping(t, k, "--json", "-D", "-c", "2", "-i", "0", serverAddr, "2001:db8:9::1", "10.9.0.77")
	if status != statusLost {
		t.Errorf("status %d", status)
	}
	got := map[string]string{}
	for line := range strings.Lines(out) {
		var v struct {
			Type, Target, Reason string
			Timestamp            float64 `json:"timestamp_s"`
		}
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		got[v.Target] += v.Type + " "
		if (v.Type == "reply") != (v.Timestamp > 1.6e9) || (v.Type == "failed") != strings.Contains(v.Reason, "does not answer") {
			t.Errorf("line %s", line)
		}
	}
	for target, want := range map[string]string{
		serverAddr: "start reply reply summary ", "2001:db8:9::1": "start reply reply summary ", "10.9.0.77": "failed ",
	} {
		if got[target] != want {
			t.Errorf("%s: %q, want %q", target, got[target], want)
		}
	}
}

// wholeLines complains of what is not written line by line.
type wholeLines struct {
	output
	broken []string
}

func (w *wholeLines) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(p) == 0 || p[len(p)-1] != '\n' {
		w.broken = append(w.broken, string(p))
	}
	return w.b.Write(p)
}

// TestPingWholeLines has six targets answer as fast as they can, in either form.
func TestPingWholeLines(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	serve(t, k)
	for form, want := range map[string]int{"-D": 6 * (1 + 50 + 5), "--json": 6 * (1 + 50 + 1)} {
		var out wholeLines
		var errs output
		args := []string{form, "-c", "50", "-i", "0", serverAddr, serverAddr, serverAddr, "2001:db8:9::1", "2001:db8:9::1", "fe80::a:1%2"}
		if status := run(t.Context(), args, &out, &errs, k.System()); status != statusOK || errs.String() != "" {
			t.Errorf("%s: status %d, stderr %q", form, status, errs.String())
		}
		if form == "-D" {
			want += 1 + 1 + 6 // the table
		}
		if n := strings.Count(out.String(), "\n"); n != want || out.broken != nil {
			t.Errorf("%s: %d lines, want %d; written in pieces: %q", form, n, want, out.broken)
		}
	}
}

// TestPingQuit sends this process SIGQUIT while it pings, again and again: that makes lines,
// and pinging goes on.
func TestPingQuit(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	serve(t, k)
	late := make(chan os.Signal, 1) // the last one may come when nobody pings any more
	signal.Notify(late, syscall.SIGQUIT)
	defer signal.Stop(late)
	// At first there may be no answer yet.
	const figures = `\d+/\d+ packets, 0% loss(, min/avg/ewma/max = ` + num + `/` + num + `/` + num + `/` + num + ` us)?\n`
	for args, want := range map[string]string{
		"-q -i 0 10.9.0.1":               `(` + figures + `)+`,
		"-q -i 0 10.9.0.1 2001:db8:9::1": `(10\.9\.0\.1: ` + figures + `2001:db8:9::1: ` + figures + `)+`,
	} {
		c := start(t, k, strings.Fields(args)...)
		c.out.await(t, "PING")
		for n := 1; n <= 5; n++ {
			eventually(t, func() string {
				testutil.Must(t, syscall.Kill(syscall.Getpid(), syscall.SIGQUIT))
				if got := strings.Count(c.errOut.String(), "ewma"); got < n {
					return fmt.Sprintf("%d lines of %d", got, n)
				}
				return ""
			})
		}
		if status := c.stop(); status != statusOK || !strings.Contains(c.out.String(), " 0 lost (0.0%)") {
			t.Errorf("%s: status %d, stdout:\n%s", args, status, c.out.String())
		}
		mustMatch(t, args, c.errOut.String(), want)
	}
}

// TestPingDeadline: -w ends whatever is under way.
func TestPingDeadline(t *testing.T) {
	k := newKernel(t, fakekernel.Options{Silent: []netip.Addr{silentAddr}, CMTimeout: time.Hour})
	status, out, errs := ping(t, k, "-w", "0.2", silentAddr.String())
	if status != statusError || out != "" {
		t.Errorf("no connection: status %d, stdout %q", status, out)
	}
	mustMatch(t, "stderr", errs, `rdma-ping: connect 10\.9\.0\.77:7174: the deadline \(-w\) has come\n`)

	serve(t, k)
	for args, want := range map[string]int{"": statusOK, "-c 1": statusOK, "-c 2": statusLost} {
		status, out, errs := ping(t, k, append(strings.Fields(args), "-i", "50s", "-w", "2", serverAddr)...)
		if status != want || errs != "" || !strings.Contains(out, "1 sent, 1 received, 0 lost") {
			t.Errorf("%q: status %d, want %d, stderr %q, stdout:\n%s", args, status, want, errs, out)
		}
	}

	hung := newKernel(t, fakekernel.Options{})
	oddServer(t, hung, func(seq uint64, slot int, _ []byte) []int {
		if seq == 3 {
			return nil
		}
		return []int{slot}
	})
	status, out, errs = ping(t, hung, "-i", "0", "-W", "1h", "-w", "2", serverAddr)
	if status != statusLost || errs != "" {
		t.Errorf("hung: status %d, stderr %q", status, errs)
	}
	mustMatch(t, "stdout", out, `.*no answer from 10\.9\.0\.1: seq=3 \(the deadline has come\)\n.*3 sent, 2 received, 1 lost .*`)
}

// TestPingFlood: no lines, and in a pipe no dots.
func TestPingFlood(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	serve(t, k)
	status, out, errs := ping(t, k, "-f", "-c", "100", serverAddr)
	if status != statusOK || errs != "" {
		t.Errorf("status %d, stderr %q", status, errs)
	}
	mustMatch(t, "stdout", out, `PING [^\n]*\n\n--- [^\n]* ---\n100 sent, 100 received, [^\n]*\nrtt [^\n]*\np50[^\n]*\n`)
	c := start(t, k, "-f", "-i", "50s", serverAddr)
	c.out.await(t, "PING")
	if status := c.stop(); status != statusOK || !strings.Contains(c.out.String(), " 0 lost") {
		t.Errorf("-i 50s: status %d, stdout %q", status, c.out.String())
	}
	if out := c.out.String(); !strings.Contains(out, "\n1 sent") && !strings.Contains(out, "\n0 sent") {
		t.Errorf("-i 50s with -f is not kept: %q", out)
	}
}

// TestPingHistogram: in a pipe there is one for each target if that is asked for.
func TestPingHistogram(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	serve(t, k)
	for choice, want := range map[string]int{"": 0, "--histogram": 2, "--histogram=false": 0} {
		status, out, errs := ping(t, k, append(strings.Fields(choice), "-q", "-i", "0", "-c", "30", serverAddr, "2001:db8:9::1")...)
		if status != statusOK || errs != "" {
			t.Errorf("%s: status %d, stderr %q", choice, status, errs)
		}
		if n := strings.Count(out, "\nrtt in us, "); n != want || strings.Count(out, " p50") != want {
			t.Errorf("%s: %d histograms, want %d:\n%s", choice, n, want, out)
		}
	}
}

func TestPingsStatus(t *testing.T) {
	did, lost := &pinging{begun: true, stats: newStats()}, &pinging{begun: true, stats: newStats()}
	did.stats.received(1)
	lost.stats.missed(false)
	none := &pinging{err: errors.New("no way"), stats: newStats()}
	for _, tt := range []struct {
		all  []*pinging
		want int
	}{
		{[]*pinging{did, did}, statusOK},
		{[]*pinging{did, lost}, statusLost},
		{[]*pinging{none, did}, statusLost},
		{[]*pinging{none, lost}, statusLost},
		{[]*pinging{none, none}, statusError},
	} {
		if got := (&pings{all: tt.all}).status(); got != tt.want {
			t.Errorf("status %d, want %d", got, tt.want)
		}
	}
}

// TestSecondInterrupt runs this program anew, as one that does not end when it should.
func TestSecondInterrupt(t *testing.T) {
	const variable = "RDMA_PING_TEST_HANGS"
	if os.Getenv(variable) != "" {
		ctx, _ := interruptible(context.Background())
		fmt.Println("ready")
		<-ctx.Done()
		fmt.Println("interrupted")
		time.Sleep(time.Hour)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestSecondInterrupt$")
	cmd.Env = append(os.Environ(), variable+"=1")
	var out output
	cmd.Stdout, cmd.Stderr = &out, &out
	testutil.Must(t, cmd.Start())
	defer time.AfterFunc(20*time.Second, func() { cmd.Process.Kill() }).Stop()
	out.await(t, "ready")
	testutil.Must(t, cmd.Process.Signal(syscall.SIGINT))
	out.await(t, "interrupted")
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case err := <-ended:
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGINT {
				t.Errorf("it ended with %v, want the signal, which is status 130 in a shell; it said:\n%s", err, out.String())
			}
			return
		case <-time.After(10 * time.Millisecond): // the handler goes a moment after the context
			cmd.Process.Signal(syscall.SIGINT) //nolint:errcheck // it may have ended
		}
	}
}
