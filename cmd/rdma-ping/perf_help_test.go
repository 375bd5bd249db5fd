package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// golden compares got with a file of testdata, or with -update writes it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

func TestPerfHelp(t *testing.T) {
	for name, args := range map[string][]string{
		"help-perf":       {"perf", "--help"},
		"help-perf-lat":   {"perf", "lat", "-h"},
		"help-perf-bw":    {"perf", "bw", "-h"},
		"help-perf-serve": {"help", "perf", "serve"},
	} {
		var out, errs bytes.Buffer
		if status := run(t.Context(), args, &out, &errs, nil); status != statusOK || errs.Len() > 0 {
			t.Errorf("%v: status %d, stderr %q", args, status, errs.String())
		}
		golden(t, name+".txt", out.String())
		for line := range strings.Lines(out.String()) {
			if len(line) > 131 {
				t.Errorf("%v: line of %d characters: %s", args, len(line), line)
			}
		}
	}
}

// TestPerfUsage checks what is wrong before any device is looked for.
func TestPerfUsage(t *testing.T) {
	for args, want := range map[string]string{
		"perf":                                                    "use lat, bw or serve",
		"perf 10.9.0.1":                                           `no command "10.9.0.1"`,
		"perf lat":                                                "no address",
		"perf lat 10.9.0.1 10.9.0.2":                              "one address only",
		"perf lat --nonsense 10.9.0.1":                            "unknown flag",
		"perf lat -o echo 10.9.0.1":                               `--op "echo"`,
		"perf lat -t tcp 10.9.0.1":                                `--transport "tcp"`,
		"perf lat -o read -t uc 10.9.0.1":                         "no read, only send and write",
		"perf bw -o write -t ud 10.9.0.1":                         "no write, only send",
		"perf lat -o atomic -s 64 10.9.0.1":                       "8 bytes",
		"perf lat -s 0 10.9.0.1":                                  "from 1 byte",
		"perf lat -s 1G 10.9.0.1":                                 "from 1 byte to 256 MiB",
		"perf lat -s 4q 10.9.0.1":                                 "unknown unit",
		"perf lat -s 8..2 10.9.0.1":                               "the last is less",
		"perf lat -s 2.. 10.9.0.1":                                "not a number",
		"perf lat -c 0 10.9.0.1":                                  "a number of messages, or a duration",
		"perf lat -c -1 10.9.0.1":                                 "whole number",
		"perf lat -c 2000000000000 10.9.0.1":                      "out of range",
		"perf lat -d 1s -c 5 10.9.0.1":                            "exclude each other",
		"perf lat -d 25h 10.9.0.1":                                "must be between",
		"perf lat --warmup 99999999 10.9.0.1":                     "to warm up",
		"perf lat --json --csv 10.9.0.1":                          "exclude each other",
		"perf lat --histogram --csv 10.9.0.1":                     "exclude each other",
		"perf bw --histogram 10.9.0.1":                            "unknown flag",
		"perf lat --depth 4 10.9.0.1":                             "unknown flag",
		"perf bw --depth 0 10.9.0.1":                              "depth 0",
		"perf bw --depth 4097 10.9.0.1":                           "depth 4097",
		"perf bw --depth 4 --batch 5 10.9.0.1":                    "batch 5",
		"perf bw --qps 65 10.9.0.1":                               "65 queue pairs",
		"perf bw --device rxe0 10.9.0.1":                          "go with --tcp",
		"perf bw --tcp --gid-index 256 10.9.0.1":                  "from 0 to 255",
		"perf lat --perftest -t uc 10.9.0.1":                      "only its -R",
		"perf lat --perftest --tcp 10.9.0.1":                      "only its -R",
		"perf lat --perftest -s 1,2 10.9.0.1":                     "one size",
		"perf lat --perftest -c 4 10.9.0.1":                       "from 5",
		"perf bw --perftest 10.9.0.1":                             "unknown flag",
		"perf lat fe80::1":                                        "name the interface",
		"perf lat -I here 10.9.0.1":                               "not an IP address",
		"perf serve extra":                                        "takes no arguments",
		"perf serve --max-clients 0":                              "at least one",
		"perf serve --max-qps 99":                                 "from 1 to 64",
		"perf serve --max-size 1G":                                "at most 256 MiB",
		"perf serve --max-time 0":                                 "must be between",
		"perf serve --gid-index 3":                                "go with --tcp",
		"perf serve --tcp --gid-index -2":                         "from 0 to 255",
		"perf serve --tcp --perftest":                             "exclude each other",
		"perf serve --perftest --op echo":                         `--op "echo"`,
		"perf serve --perftest --size 0":                          "from 1",
		"perf serve --perftest --count 4":                         "from 5",
		"perf serve -a somewhere":                                 "needs an IP address",
		"perf lat -s " + strings.Repeat("1,", 128) + "1 10.9.0.1": "more than 128 sizes",
	} {
		var out, errs bytes.Buffer
		status := run(t.Context(), strings.Fields(args), &out, &errs, nil)
		if status != statusError || out.Len() > 0 {
			t.Errorf("%s: status %d, stdout %q, want 2 and nothing", args, status, out.String())
		}
		if got := errs.String(); !strings.Contains(got, want) || !strings.HasPrefix(got, "rdma-ping: ") ||
			!strings.HasSuffix(got, "\nTry 'rdma-ping --help'.\n") || strings.Count(got, "\n") != 2 {
			t.Errorf("%s: stderr %q, want one line with %q and a pointer to --help", args, got, want)
		}
	}
}

func TestPerfSizes(t *testing.T) {
	for text, want := range map[string][]int{
		"64": {64}, "2..16": {2, 4, 8, 16}, "3..20": {3, 6, 12, 20}, "1k,4..8,2M": {1024, 4, 8, 2 << 20}, "5..5": {5},
	} {
		got, err := parseSizes(text)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q is %v, %v; want %v", text, got, err, want)
		}
		shown := sizesValue{&got}.String()
		if again, err := parseSizes(shown); err != nil || !slices.Equal(again, want) {
			t.Errorf("%q is shown as %q, which is %v, %v", text, shown, again, err)
		}
	}
	if got, err := parseSizes("2..8M"); err != nil || len(got) != 23 || got[22] != 8<<20 {
		t.Errorf("the sweep is %v, %v", got, err)
	}
}
