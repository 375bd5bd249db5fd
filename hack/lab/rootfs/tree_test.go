package rootfs

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLook(t *testing.T) {
	tr := tree{t.TempDir()}
	for _, p := range []string{"sbin/tc", "usr/bin/rping", "bin/rping", "bin/data"} {
		mode := os.FileMode(0o755)
		if p == "bin/data" {
			mode = 0o644
		}
		touch(t, tr, p, mode)
	}
	for name, want := range map[string]string{"tc": "/sbin/tc", "rping": "/usr/bin/rping", "data": "", "gone": ""} {
		got, err := tr.look(name)
		if strings.TrimPrefix(got, tr.root) != want || (err == nil) != (want != "") {
			t.Errorf("%s: got %q, %v; want %q", name, got, err, want)
		}
	}
}

func TestLibrary(t *testing.T) {
	tr := tree{t.TempDir()}
	for _, p := range []string{"lib/s390x-linux-gnu/libc.so.6", "usr/lib/s390x-linux-gnu/libmnl.so.0", "lib/ld64.so.1", "usr/lib/ld-linux-aarch64.so.1"} {
		touch(t, tr, p, 0o644)
	}
	for name, want := range map[string]string{
		"libc.so.6": "/lib/s390x-linux-gnu/libc.so.6", "libmnl.so.0": "/usr/lib/s390x-linux-gnu/libmnl.so.0",
		"/lib/ld64.so.1": "/lib/ld64.so.1", "/lib/ld-linux-aarch64.so.1": "/usr/lib/ld-linux-aarch64.so.1", "libgone.so.1": "",
	} {
		got, err := tr.library(name)
		if strings.TrimPrefix(got, tr.root) != want || (err == nil) != (want != "") {
			t.Errorf("%s: got %q, %v; want %q", name, got, err, want)
		}
	}
}

// The test's machine has programs: what ldd says of one is what its files say.
func TestClosureAgreesWithLdd(t *testing.T) {
	const program = "/bin/dash"
	want, err := ldd([]string{program})
	if runtime.GOOS != "linux" || err != nil || len(want) == 0 {
		t.Skipf("ldd cannot judge here: %v, %q", err, want)
	}
	got, err := tree{}.closure([]string{program})
	if err != nil {
		t.Fatal(err)
	}
	names := func(paths []string) map[string]bool {
		out := map[string]bool{}
		for _, p := range paths {
			out[filepath.Base(p)] = true
		}
		return out
	}
	if d := cmp.Diff(names(want), names(got)); d != "" {
		t.Errorf("ldd - ours +\n%s", d)
	}
}

func touch(t *testing.T, tr tree, p string, mode os.FileMode) {
	t.Helper()
	p = filepath.Join(tr.root, p)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p, nil, mode); err != nil {
		t.Fatal(err)
	}
}
