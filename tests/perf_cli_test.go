//go:build linux

package tests

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/pureverbs/rdma/internal/testutil"
)

// perfToolRuns are what rdma-ping perf is asked for, less the address. Emulation is slow: the
// sizes are small.
var perfToolRuns = []string{
	"lat", "lat -o write", "lat -o read", "lat -o atomic", "lat -s 2..16k", "lat --poll", "lat --block", "lat --qps 2",
	"lat -t uc", "lat -t uc -o write", "lat -t ud",
	"bw", "bw -o write", "bw -o read", "bw -o atomic", "bw -s 2..64k", "bw --qps 3 -b --batch 16",
	"bw -b", "bw -b -o write", "bw -b -o read", "bw --poll", "bw --block", "bw --depth 1", "bw --depth 7 --batch 3",
	"bw -t uc", "bw -t uc -o write", "bw -t ud -s 1k", "bw -t ud -b -s 1k",
}

// perfToolArgs makes a run short.
func perfToolArgs(run string) []string {
	if strings.HasPrefix(run, "bw") && !strings.Contains(run, "-s ") && !strings.Contains(run, "atomic") {
		run += " -s 4k"
	}
	return append([]string{"perf"}, strings.Fields(run+" -c 60 --warmup 10")...)
}

// iWARPLacks tells whether iWARP cannot do a run.
func iWARPLacks(run string) bool {
	return strings.Contains(run, "-t u") || strings.Contains(run, "atomic") || strings.Contains(run, "--tcp")
}

// TestPerfTool has rdma-ping perf measure everything, over rdma_cm and by hand over TCP,
// with the data checked.
func TestPerfTool(t *testing.T) {
	sameObjects(t)
	iw := testutil.Device(t).Protocol() == "iw"
	for _, how := range []string{"", "--tcp"} {
		server := start(t, "listening", "rdma-ping", strings.Fields("perf serve -a "+labIPv4+" "+how)...)
		for _, run := range perfToolRuns {
			run := strings.TrimSpace(run + " " + how)
			t.Run(run, func(t *testing.T) {
				args := append(perfToolArgs(run), "--verify", labIPv4)
				if iw && iWARPLacks(run) {
					says(t, args, "not supported", "iWARP")
					return
				}
				t.Log("\n" + client(t, "rdma-ping", args...))
			})
			if iw && how != "" {
				break // it says the same each time
			}
		}
		t.Log(server.interrupt(t))
	}
}

// TestPerfToolJSON reads the machine-readable forms.
func TestPerfToolJSON(t *testing.T) {
	sameObjects(t)
	server := start(t, "listening", "rdma-ping", "perf", "serve")
	defer server.interrupt(t)
	out := client(t, "rdma-ping", strings.Fields("perf bw --json -c 50 -s 1k,4k "+labIPv4)...)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 3 {
		t.Fatalf("%d objects, want 3:\n%s", len(lines), out)
	}
	for _, line := range lines[1:] {
		var v struct {
			Bytes, Messages int
			Seconds         float64
			Gbits           float64 `json:"gbit_per_s"`
			MiB             float64 `json:"mib_per_s"`
		}
		testutil.Must(t, json.Unmarshal([]byte(line), &v))
		want := float64(v.Bytes*v.Messages) / v.Seconds
		if v.Messages != 50 || v.Gbits < 0.99*want*8/1e9 || v.Gbits > 1.01*want*8/1e9 || v.MiB < 0.99*want/(1<<20) || v.MiB > 1.01*want/(1<<20) {
			t.Errorf("%s: the figures do not fit together", line)
		}
	}
	if out := client(t, "rdma-ping", strings.Fields("perf lat --csv -c 50 -s 1k,4k "+labIPv4)...); strings.Count(out, "\n") != 3 {
		t.Errorf("csv:\n%s", out)
	}
}

// perftestGames are perftest's programs that rdma-ping perf speaks with.
var perftestGames = []struct{ op, more string }{
	{"send", "-s 64"}, {"send", "-s 5000"}, {"write", "-s 64"}, {"write", "-s 5000"}, {"read", "-s 64"}, {"atomic", ""},
}

// TestPerfToolPerftestClient: the client is the C program.
func TestPerfToolPerftestClient(t *testing.T) {
	perftestGame(t, func(t *testing.T, op, more string, port int) error {
		size := strings.NewReplacer("-s", "--size").Replace(more)
		server := start(t, "listening", "rdma-ping", strings.Fields(fmt.Sprintf("perf serve -a %s -p %d --perftest --op %s --count 300 %s", labIPv4, port, op, size))...)
		out, err := perftestC(t, op, fmt.Sprintf("-p %d -n 300 %s %s", port, more, labIPv4))
		said := server.interrupt(t)
		t.Logf("C:\n%s\nGo:\n%s", out, said)
		if err == nil && !strings.Contains(said, "left: ib_"+op+"_lat") {
			err = errors.New("the server does not say that the client left in order")
		}
		return err
	})
}

// TestPerfToolPerftestServer: the server is the C program.
func TestPerfToolPerftestServer(t *testing.T) {
	perftestGame(t, func(t *testing.T, op, more string, port int) error {
		done := make(chan error, 1)
		var said string
		go func() {
			out, err := perftestC(t, op, fmt.Sprintf("-p %d -n 300 %s", port, more))
			said = out
			done <- err
		}()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		testutil.Must(t, listens(ctx, testutil.Command(t, "rdma"), port))
		args := strings.Fields(fmt.Sprintf("perf lat --perftest -p %d -o %s -c 300 %s %s", port, op, more, labIPv4))
		out, err := exec.CommandContext(ctx, testutil.Command(t, "rdma-ping"), args...).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("rdma-ping %v: %w\n%s", args, err, out)
		}
		if c := <-done; c != nil && err == nil {
			err = c
		}
		t.Logf("Go:\n%s\nC:\n%s", out, said)
		return err
	})
}

// perftestGame plays all games. One is played again for two reasons: under emulation a C
// program sometimes crashes, and siw may not hear a C client's first message.
func perftestGame(t *testing.T, play func(t *testing.T, op, more string, port int) error) {
	sameObjects(t)
	iw := testutil.Device(t).Protocol() == "iw"
	port := 18800
	for _, g := range perftestGames {
		if iw && g.op == "atomic" {
			continue
		}
		t.Run(g.op+g.more, func(t *testing.T) {
			for try := 1; ; try++ {
				port++
				err := play(t, g.op, g.more, port)
				if err == nil {
					return
				}
				if try == 4 || try == 2 && !iw {
					t.Error(err)
					return
				}
				t.Logf("trying again: %v", err)
			}
		})
	}
}

// perftestC runs a C program to its end.
func perftestC(t *testing.T, op, args string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 25*time.Second)
	defer cancel()
	name := "ib_" + op + "_lat"
	all := strings.Fields("-F -R -d " + testutil.Device(t).Name() + " " + args)
	out, err := exec.CommandContext(ctx, testutil.Command(t, name), all...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s %v: %w\n%s", name, all, err, out)
	}
	return string(out), err
}

// TestPerfToolStrangers: who speaks something else is told, or at least the operator is.
func TestPerfToolStrangers(t *testing.T) {
	sameObjects(t)
	server := start(t, "listening", "rdma-ping", "perf", "serve", "-p", "18790")
	if out, err := perftestC(t, "send", "-p 18790 "+labIPv4); err == nil {
		t.Errorf("ib_send_lat is content:\n%s", out)
	}
	says(t, []string{"-p", "18790", labIPv4}, "18790")
	out := server.interrupt(t)
	for _, want := range []string{"a program of perftest with -R? then start 'rdma-ping perf serve --perftest'", "it pings: 'rdma-ping serve' answers that"} {
		if !strings.Contains(out, want) {
			t.Errorf("the server does not say %q:\n%s", want, out)
		}
	}
	ping := start(t, "listening", "rdma-ping", "serve", "-p", "18791")
	says(t, []string{"perf", "lat", "-p", "18791", labIPv4}, "perf needs 'rdma-ping perf serve'")
	ping.interrupt(t)
	says(t, []string{"perf", "lat", "-p", "18792", labIPv4}, "nobody listens")
}

// TestPerfToolQuiet: in a pipe there is no progress.
func TestPerfToolQuiet(t *testing.T) {
	server := start(t, "listening", "rdma-ping", "perf", "serve")
	defer server.interrupt(t)
	cmd := exec.Command(testutil.Command(t, "rdma-ping"), "perf", "bw", "-d", "600ms", labIPv4)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	testutil.Must(t, cmd.Run())
	if errs.Len() > 0 {
		t.Errorf("stderr %q, want nothing", errs.String())
	}
}

// TestPerfToolLoss: of what the wire loses the reliable transport shows nothing, and the
// others show how much.
func TestPerfToolLoss(t *testing.T) {
	testutil.Lab(t, "PerfToolLoss")
	if testutil.Device(t).Protocol() == "iw" {
		return // it has nothing that loses
	}
	sameObjects(t)
	lose := netem(t)
	if lose == nil {
		t.Log("this kernel has no netem: nothing is lost")
		return
	}
	const client, server = "10.5.0.2", "10.5.0.1"
	s := start(t, "listening", "rdma-ping", "perf", "serve", "--tcp", "-a", server)
	defer s.interrupt(t)
	lose("10%")
	for _, run := range []string{"bw -t ud -s 1k", "bw -t uc -s 512", "bw -t ud -s 1k -b", "lat -t ud -W 100ms", "lat -t uc -o write -W 100ms"} {
		args := strings.Fields("perf " + run + " --json --tcp -c 100 -I " + client + " " + server)
		out, err := exec.Command(testutil.Command(t, "rdma-ping"), args...).CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 1 {
			t.Errorf("%s: %v, want status 1:\n%s", run, err, out)
			continue
		}
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		var v struct{ Lost, Messages int }
		testutil.Must(t, json.Unmarshal([]byte(lines[len(lines)-1]), &v))
		if v.Lost < 1 || v.Lost > 90 || v.Messages < 40 {
			t.Errorf("%s: %d of %d lost", run, v.Lost, v.Messages)
		}
		t.Logf("%s: %s", run, lines[len(lines)-1])
	}
}
