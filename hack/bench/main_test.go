package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestReport(t *testing.T) {
	const both = "sample x c 10\nsample x go 12\nsample x c 20\nsample x go 18\nsample x c 30\nsample x go 60\n"
	const all = both + "sample x cgo 120\nsample x cgo 90\nsample x cgo 60\n"
	medians := table{kind: "ratio", value: ofMedians, spread: extremes, unit: nanoseconds}
	single := table{kind: "ratio", value: ofRatios, spread: extremes, unit: nanoseconds}
	for name, tt := range map[string]struct {
		text  string
		table table
		want  string // the end of what is reported; empty: an error
	}{
		"of medians":       {both, medians, "\nratio x 0.900 0.900 2.000\n"},
		"of ratios":        {both, single, "\nratio x 1.200 0.900 2.000\n"},
		"clock":            {both, timed(1, 1).table, "\nclock x 1.200 1.050 1.600\n"},
		"cgo":              {all, single, "\nratio x 1.200 0.900 2.000\nratio-cgo x 0.200 0.100 1.000\n"},
		"nothing":          {"hello\nsample x c y\n", medians, ""},
		"a side is absent": {"sample x c 10\n", medians, ""},
		"cgo lacks rounds": {both + "sample x cgo 1\n", medians, ""},
	} {
		s := samples{}
		s.collect(strings.NewReader(tt.text), io.Discard)
		var b bytes.Buffer
		switch err := tt.table.report(&b, s); {
		case tt.want == "" && err == nil:
			t.Errorf("%s: no error, but %q", name, b.String())
		case tt.want != "" && (err != nil || !strings.HasSuffix(b.String(), tt.want)):
			t.Errorf("%s: got %q, %v; want it to end in %q", name, b.String(), err, tt.want)
		}
	}
}

func TestCollectPassesOn(t *testing.T) {
	var others bytes.Buffer
	samples{}.collect(strings.NewReader("PASS\nsample x c 1\nsample x c one\n"), &others)
	if want := "PASS\nsample x c one\n"; others.String() != want {
		t.Errorf("got %q, want %q", others.String(), want)
	}
}

func TestQuartiles(t *testing.T) {
	for _, tt := range []struct {
		of        []float64
		low, high float64
	}{
		{[]float64{3}, 3, 3},
		{[]float64{4, 1, 2, 3}, 1.5, 3.5},
		{[]float64{5, 4, 3, 2, 1}, 2, 4},
	} {
		if low, high := quartiles(tt.of); low != tt.low || high != tt.high {
			t.Errorf("quartiles of %v: got %v and %v, want %v and %v", tt.of, low, high, tt.low, tt.high)
		}
	}
}

func TestUnits(t *testing.T) {
	for name, want := range map[string]string{
		"start-rxe": "thousand instructions of the client's process", "start-rxe-kB": "kB of the client",
		"cmtime-rxe-kB": "kB of the client a connection", "one-rxe-send-64-b1": "thousand instructions an iteration",
	} {
		if got := instructions(name); got != want {
			t.Errorf("%s is in %q, want %q", name, got, want)
		}
	}
}

// TestScripts: the shell reads them, and no function has the name of a program that a game runs,
// which would be called in its place.
func TestScripts(t *testing.T) {
	share := t.TempDir()
	if err := os.CopyFS(share, scripts); err != nil {
		t.Fatal(err)
	}
	names, _ := filepath.Glob(filepath.Join(share, "*.sh"))
	if len(names) != 3 {
		t.Errorf("%d scripts, want games, lab and clock", len(names))
	}
	for _, name := range names {
		if out, err := exec.Command("sh", "-n", name).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if f := regexp.MustCompile(`(?m)^(rping|cmtime|gocmtime|pingpong|onebench|spent|rdma|timeout)\(\)`).Find(text); f != nil {
			t.Errorf("%s hides the program %s", filepath.Base(name), f)
		}
	}
}
