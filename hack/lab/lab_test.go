//go:build linux

package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestComplaints(t *testing.T) {
	quiet := "[    1.0] rdma_rxe: loaded\n[    2.0] infiniband rxe0: set active\n"
	if got := complaints(quiet); got != "" {
		t.Errorf("a healthy kernel: got %q", got)
	}
	trouble := "[    3.0] WARNING: CPU: 0 PID: 7 at drivers/x.c:1\n"
	got := complaints(quiet + trouble + strings.Repeat("after\n", 100))
	if !strings.HasPrefix(got, trouble) || strings.Count(got, "after") != 29 {
		t.Errorf("got %q", got)
	}
}

func TestStaleCode(t *testing.T) {
	for line, want := range map[string]bool{
		"[    2.930354] Oops: int3: 0000 [#1] SMP NOPTI\n":                            true,
		"[    1.0] int3: 0000 [#1] PREEMPT SMP NOPTI\n":                               true,
		"[    3.0] Oops: general protection fault: 0000 [#1] SMP\n":                   false,
		"[    3.0] BUG: kernel NULL pointer dereference\n[    3.1] Oops: 0000 [#1]\n": false,
	} {
		if got := staleCode.MatchString(line); got != want {
			t.Errorf("%s: got %v, want %v", line, got, want)
		}
	}
}

func TestTail(t *testing.T) {
	for _, tt := range []struct{ in, want string }{{"a\nb\nc", "b\nc"}, {"a", "a"}, {"", ""}} {
		if got := tail(tt.in, 2); got != tt.want {
			t.Errorf("%q: got %q, want %q", tt.in, got, tt.want)
		}
	}
}

func TestNotInstalled(t *testing.T) {
	out := "installed gcc\nnot-installed perftest\nconfig-files zstd\n"
	got := notInstalled([]string{"gcc", "perftest", "zstd", "rdma-core"}, out)
	if d := cmp.Diff([]string{"perftest", "zstd", "rdma-core"}, got); d != "" {
		t.Errorf("want - got +\n%s", d)
	}
}

func TestParsePackages(t *testing.T) {
	got := parsePackages([]byte("m/a\t/r/a\ttests\nm/b\t/r/b\t\nnoise\n"))
	want := []goPackage{{"m/a", "/r/a", true}, {"m/b", "/r/b", false}}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(goPackage{})); d != "" {
		t.Errorf("want - got +\n%s", d)
	}
}

func TestFindRoot(t *testing.T) {
	root, err := findRoot()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, "hack", "lab", "root.go")); err != nil {
		t.Errorf("%s is not the repository: %v", root, err)
	}
	if got := under(root, "tests"); got != filepath.Join(root, "tests") || under(root, "/x") != "/x" || under(root, "") != "" {
		t.Errorf("under: got %q", got)
	}
}

func TestMergeCover(t *testing.T) {
	host := t.TempDir()
	if err := os.MkdirAll(filepath.Join(host, "cover", "6.1-rxe"), 0o755); err != nil {
		t.Fatal(err)
	}
	profile := func(name, text string) {
		if err := os.WriteFile(filepath.Join(host, "cover", "6.1-rxe", name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	profile("a", "mode: set\nm/a.go:1.1,2.2 1 1\n")
	profile("b", "mode: set\nm/b.go:1.1,2.2 1 0\n")
	out := filepath.Join(host, "all")
	if err := mergeCover(context.Background(), host, out, "set"); err != nil {
		t.Fatal(err)
	}
	got, _ := os.ReadFile(out)
	if want := "mode: set\nm/a.go:1.1,2.2 1 1\nm/b.go:1.1,2.2 1 0\n"; string(got) != want {
		t.Errorf("got %q, want %q", got, want)
	}
	profile("c", "mode: atomic\nm/c.go:1.1,2.2 1 0\n")
	if err := mergeCover(context.Background(), host, out, "set"); err == nil {
		t.Error("profiles of two modes were merged")
	}
}
