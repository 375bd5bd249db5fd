package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestHelp compares the help texts with testdata; go test -run TestHelp -update writes them.
func TestHelp(t *testing.T) {
	for name, args := range map[string][]string{
		"help":         {"--help"},
		"help-serve":   {"serve", "--help"},
		"help-devices": {"devices", "-h"},
		"help-version": {"help", "version"},

		"help-link":       {"link", "--help"},
		"help-link-add":   {"link", "add", "-h"},
		"help-link-del":   {"help", "link", "del"},
		"help-completion": {"completion", "--help"},
	} {
		var out, errs bytes.Buffer
		if status := run(t.Context(), args, &out, &errs, nil); status != statusOK || errs.Len() > 0 {
			t.Errorf("%v: status %d, stderr %q", args, status, errs.String())
		}
		path := filepath.Join("testdata", name+".txt")
		if *update {
			if err := os.WriteFile(path, out.Bytes(), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), out.String()); diff != "" {
			t.Errorf("%v (-want +got):\n%s", args, diff)
		}
		for line := range strings.Lines(out.String()) {
			if len(line) > 121 {
				t.Errorf("%v: line of %d characters: %s", args, len(line), line)
			}
		}
	}
}

// TestUsageErrors checks status and text of what is wrong before any device is looked for.
func TestUsageErrors(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{}, "no address"},
		{[]string{"10.9.0.1", "fe80::1", "10.9.0.2"}, "name the interface, like fe80::1%eth0"},
		{[]string{"10.9.0.1", "10.9.0.2:x"}, "want HOST:PORT"},
		{[]string{"10.9.0.1", ""}, "address is empty"},
		{[]string{"10.9.0.1", "fd00::1", "-I", "10.9.0.3"}, "not of one family"},
		{[]string{"-s", "x", "10.9.0.1"}, "unknown unit"},
		{[]string{"-i", "-1", "10.9.0.1"}, "must be between 0s and"},
		{[]string{"-i", "x", "10.9.0.1"}, "no duration, like 0.2"},
		{[]string{"-w", "-1", "10.9.0.1"}, "must be between 0s and"},
		{[]string{"-c", "0", "10.9.0.1"}, "at least 1"},
		{[]string{"--histogram=maybe", "10.9.0.1"}, "not auto, true or false"},
		{[]string{"--histogram", "--json", "10.9.0.1"}, "exclude each other"},
		{[]string{"--size", "4q", "10.9.0.1"}, "unknown unit"},
		{[]string{"-s", "1G", "10.9.0.1"}, "at most 256 MiB"},
		{[]string{"-c", "x", "10.9.0.1"}, "whole number"},
		{[]string{"-i", "-1s", "10.9.0.1"}, "must be between"},
		{[]string{"-W", "0", "10.9.0.1"}, "must be between"},
		{[]string{"--nonsense", "10.9.0.1"}, "unknown flag"},
		{[]string{"fe80::1"}, "name the interface, like fe80::1%eth0"},
		{[]string{"-I", "here", "10.9.0.1"}, "not an IP address"},
		{[]string{"-I", "fd00::1", "10.9.0.1"}, "not of one family"},
		{[]string{"--rping", "-s", "0", "10.9.0.1"}, "at least 1"},
		{[]string{"serve", "extra"}, "takes no arguments"},
		{[]string{"serve", "--max-clients", "0"}, "at least one"},
		{[]string{"serve", "-a", "somewhere"}, "needs an IP address"},
		{[]string{"devices", "extra"}, "takes no arguments"},
		{[]string{"version", "extra"}, "takes no arguments"},
	} {
		var out, errs bytes.Buffer
		status := run(t.Context(), tt.args, &out, &errs, nil)
		if status != statusError || out.Len() > 0 {
			t.Errorf("%v: status %d, stdout %q, want 2 and nothing", tt.args, status, out.String())
		}
		if got := errs.String(); !strings.Contains(got, tt.want) || !strings.HasPrefix(got, "rdma-ping: ") ||
			!strings.HasSuffix(got, "\nTry 'rdma-ping --help'.\n") || strings.Count(got, "\n") != 2 {
			t.Errorf("%v: stderr %q, want one line with %q and a pointer to --help", tt.args, got, tt.want)
		}
	}
}

func TestVersion(t *testing.T) {
	var out, errs bytes.Buffer
	if status := run(t.Context(), []string{"version"}, &out, &errs, nil); status != statusOK || errs.Len() > 0 {
		t.Errorf("status %d, stderr %q", status, errs.String())
	}
	if got := out.String(); !strings.HasPrefix(got, "rdma-ping ") || !strings.Contains(got, "protocol 1") {
		t.Errorf("version prints %q", got)
	}
}
