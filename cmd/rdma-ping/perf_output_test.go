//go:build linux

package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pureverbs/rdma/internal/fakekernel"
)

// sample is a run with figures that are known.
func sample(mode perfMode, transport perfTransport) (*perfTarget, []*perfResult) {
	plan := &perfPlan{mode: mode, op: perfSend, transport: transport, cm: true, size: 1 << 20, qps: 2, depth: 1, batch: 1}
	if mode == perfBW {
		plan.depth, plan.batch, plan.bidirectional = 64, 16, true
	}
	times := newPerfTimes()
	for i := range 1000 {
		times.add(time.Duration(i+1) * time.Microsecond)
	}
	t := &perfTarget{
		plan: plan, addr: netip.MustParseAddrPort("10.9.0.1:18515"), device: "rxe0", connection: "rdma_cm", sizes: []int{64, 1 << 20},
	}
	return t, []*perfResult{
		{size: 64, messages: 1000, took: time.Second, rate: 1000, times: times},
		{size: 1 << 20, messages: 2000, took: 500 * time.Millisecond, rate: 4000, times: times, lost: 3, corrupt: true},
	}
}

// TestPerfOutput compares all forms with testdata, exactly.
func TestPerfOutput(t *testing.T) {
	for _, mode := range []perfMode{perfLat, perfBW} {
		for _, transport := range []perfTransport{perfRC, perfUD} {
			for form, o := range map[string]perfOptions{"table": {}, "json": {json: true}, "csv": {csv: true}} {
				var b bytes.Buffer
				target, results := sample(mode, transport)
				out := newPerfReporter(&b, &o)
				out.start(target)
				for _, r := range results {
					out.result(r)
				}
				out.end()
				golden(t, fmt.Sprintf("perf-%v-%v-%s.txt", mode, strings.ToLower(transport.String()), form), b.String())
			}
		}
	}
}

// TestPerfForms runs each form from end to end, with the figures replaced.
func TestPerfForms(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	perfServe(t, k)
	figure := regexp.MustCompile(`\b\d+\.\d+(e[+-]\d+)?\b`)
	for _, mode := range []string{"lat", "bw"} {
		for _, form := range []string{"", "--json", "--csv"} {
			args := append([]string{"perf", mode}, strings.Fields(form)...)
			status, out, errs := ping(t, k, append(args, "-c", "20", "-s", "64,4k", serverAddr)...)
			if status != statusOK || errs != "" {
				t.Fatalf("%s %s: status %d, stderr %q", mode, form, status, errs)
			}
			lines := strings.Split(strings.TrimSpace(out), "\n")
			switch form {
			case "--json":
				for _, line := range lines {
					var v map[string]any
					if err := json.Unmarshal([]byte(line), &v); err != nil || v["type"] == nil {
						t.Errorf("%s: %q: %v", mode, line, err)
					}
				}
			case "--csv":
				if table, err := csv.NewReader(strings.NewReader(out)).ReadAll(); err != nil || len(table) != 3 {
					t.Errorf("%s: %d lines, %v:\n%s", mode, len(table), err, out)
				}
			}
			out = strings.ReplaceAll(out, serverAddr, "ADDR")
			out = regexp.MustCompile(` +`).ReplaceAllString(figure.ReplaceAllString(out, "N"), " ")
			out = regexp.MustCompile(`(?m) \d+$`).ReplaceAllString(out, " N") // messages/s of the table
			out = regexp.MustCompile(`"(min|avg|p[0-9_]+|max|\w+_per_s|seconds)":[0-9.e+]+`).ReplaceAllString(out, `"$1":N`)
			golden(t, "perf-run-"+mode+strings.ReplaceAll(form, "--", "-")+".txt", out)
		}
	}
}

func TestPerfProgress(t *testing.T) {
	o := defaultPerfOptions(perfBW)
	o.sizes = []int{64 << 10, 1 << 20}
	p := newProgress(new(bytes.Buffer), &o)
	if p.w != nil {
		t.Error("a buffer counts as a terminal")
	}
	p.round = 1
	for want, r := range map[string]*perfRound{
		"64 KiB (1 of 2):  25%, 250 messages/s, 0.131 Gb/s, 3s left": {size: 64 << 10, count: 1000},
		"64 KiB (1 of 2):  10%, 250 messages/s, 0.131 Gb/s, 9s left": {size: 64 << 10, duration: 10 * time.Second},
	} {
		if got := p.line(r, 250, time.Second); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	o.plan.mode = perfLat
	if got, want := p.line(&perfRound{size: 64, count: 1000}, 0, 0), "64 bytes (1 of 2):   0%, 0 messages/s"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	var b output
	p.w, p.every = &b, time.Millisecond
	crew := &perfCrew{round: &perfRound{size: 1 << 20, count: 10}, lanes: []*perfLane{{}}}
	stop := p.watch(crew)
	b.await(t, "1 MiB (2 of 2)")
	if stop(); !strings.HasSuffix(b.String(), "\r\x1b[K") {
		t.Errorf("%q is left behind", b.String())
	}
}

func TestPerfTimes(t *testing.T) {
	a, b := newPerfTimes(), newPerfTimes()
	for i := range 100 {
		a.add(time.Duration(i+1) * time.Millisecond)
		b.add(time.Duration(i+101) * time.Millisecond)
	}
	b.merge(newPerfTimes())
	b.merge(nil)
	b.merge(a)
	if b.n != 200 || b.min != time.Millisecond || b.max != 200*time.Millisecond || b.mean() != 100500*time.Microsecond {
		t.Errorf("%d times from %v to %v, mean %v", b.n, b.min, b.max, b.mean())
	}
	if p := b.percentile(50); p < 99*time.Millisecond || p > 101*time.Millisecond {
		t.Errorf("p50 is %v", p)
	}
	if none := newPerfTimes(); none.mean() != 0 || none.percentile(99.9) != 0 {
		t.Error("no times have a mean")
	}
}
