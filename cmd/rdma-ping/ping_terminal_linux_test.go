package main

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/internal/fakekernel"
	"github.com/pureverbs/rdma/internal/testutil"
)

// onTerminal runs the program with its output on a terminal of some width, and returns what
// that gets.
func onTerminal(t *testing.T, k *fakekernel.Kernel, width uint16, args ...string) string {
	t.Helper()
	screen, tty := terminal(t)
	testutil.Must(t, unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: width}))
	shown := make(chan string)
	go func() {
		var text strings.Builder
		b := make([]byte, 4096)
		for !strings.HasSuffix(text.String(), "THE END\r\n") {
			n, err := screen.Read(b)
			if err != nil {
				break
			}
			text.Write(b[:n])
		}
		shown <- strings.ReplaceAll(text.String(), "\r\n", "\n")
	}()
	var errs output
	if status := run(t.Context(), args, tty, &errs, k.System()); status != statusOK || errs.String() != "" {
		t.Errorf("%v: status %d, stderr %q", args, status, errs.String())
	}
	_, err := tty.WriteString("THE END\n")
	testutil.Must(t, err)
	select {
	case text := <-shown:
		return strings.TrimSuffix(text, "THE END\n")
	case <-time.After(10 * time.Second):
		t.Fatal("the terminal stays silent")
		return ""
	}
}

// TestPingTerminal: on a terminal a flood shows dots that go, and there is a histogram if
// there is something to see, as wide as the terminal.
func TestPingTerminal(t *testing.T) {
	t.Setenv("LC_ALL", "C.UTF-8")
	k := newKernel(t, fakekernel.Options{})
	serve(t, k)
	const figures = `\n--- [^\n]* ---\n30 sent, 30 received, [^\n]*\nrtt [^\n]*\np50[^\n]*\n`
	flood := onTerminal(t, k, 100, "-f", "-c", "30", serverAddr)
	mustMatch(t, "flood", flood, `PING [^\n]*\n(\.\x08 \x08){30}`+figures+`\nrtt in us, 10\.9\.0\.1: 30\n( *[0-9.]+ - +[0-9.]+ [^\n]*\n)+`)
	lines := strings.Split(strings.TrimSpace(flood), "\n")
	longest := 0
	for _, line := range lines[6:] {
		longest = max(longest, len([]rune(line)))
	}
	if longest < 88 || longest > 100 { // a bar leaves room for its marks
		t.Errorf("the longest line has %d characters, on a terminal of 100:\n%s", longest, flood)
	}
	mustMatch(t, "no histogram", onTerminal(t, k, 80, "-q", "-i", "0", "--histogram=false", "-c", "30", serverAddr), `PING [^\n]*\n`+figures)
	mustMatch(t, "no dots", onTerminal(t, k, 80, "-f", "-q", "--histogram=false", "-c", "30", serverAddr), `PING [^\n]*\n`+figures)
	for _, args := range []string{"-c 19", "-c 30 --json"} {
		out := onTerminal(t, k, 80, append(strings.Fields(args), "-f", serverAddr)...)
		if strings.Contains(out, "rtt in us") || strings.Contains(args, "json") && strings.Contains(out, "\b") {
			t.Errorf("%s: a terminal shows\n%s", args, out)
		}
	}
	t.Setenv("LC_ALL", "C")
	if out := onTerminal(t, k, 80, "-q", "--histogram", "-c", "1", serverAddr); !strings.HasSuffix(out, "# p50 p99\n") {
		t.Errorf("without UTF-8 a terminal shows\n%s", out)
	}
}

// TestPerfHistogram: of one size on a terminal, of all if that is asked for.
func TestPerfHistogram(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	perfServe(t, k)
	for args, want := range map[string]int{
		"perf lat -c 30": 1, "perf lat -c 19": 0, "perf lat -c 30 --histogram=false": 0, "perf lat -c 30 --csv": 0, "perf lat -c 30 --json": 0,
		"perf lat -s 64,4k -c 30": 0, "perf lat -s 64,4k -c 30 --histogram": 2, "perf bw -c 30 -s 4k": 0,
	} {
		out := onTerminal(t, k, 80, append(strings.Fields(args), serverAddr)...)
		if got := strings.Count(out, "\nhalf round trip in us, "); got != want {
			t.Errorf("%s: %d histograms, want %d:\n%s", args, got, want, out)
		}
	}
	status, out, errs := ping(t, k, "perf", "lat", "-o", "read", "-c", "30", "--histogram", serverAddr)
	if status != statusOK || errs != "" || strings.Count(out, "\n\nround trip in us, 64 bytes: 30\n") != 1 {
		t.Errorf("in a pipe: status %d, stderr %q, stdout:\n%s", status, errs, out)
	}

	serving := start(t, k, strings.Fields("perf serve --perftest -p 99 --op send --size 64 --count 30")...)
	serving.out.await(t, "listening")
	status, out, errs = ping(t, k, "perf", "lat", "--perftest", "-p", "99", "-c", "30", "--histogram", serverAddr)
	if serving.stop(); status != statusOK || errs != "" || strings.Count(out, "\n\nhalf round trip in us, 64 bytes: 30\n") != 1 {
		t.Errorf("as perftest: status %d, stderr %q, stdout:\n%s", status, errs, out)
	}
}
