package cache

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/pureverbs/rdma/hack/lab/apt"
)

func TestMakeWholeOrNotAtAll(t *testing.T) {
	c := &Cache{Dir: t.TempDir()}
	trouble := errors.New("trouble")
	fill := func(dir string, err error) error {
		return errors.Join(os.WriteFile(filepath.Join(dir, "x"), nil, 0o644), err)
	}
	if _, err := c.Make("a/b", func(dir string) error { return fill(dir, trouble) }); !errors.Is(err, trouble) {
		t.Errorf("a failed build: got %v", err)
	}
	if _, err := os.Stat(filepath.Join(c.Dir, "a")); err == nil {
		t.Error("a failed build left something")
	}
	builds := 0
	for range 2 {
		dir, err := c.Make("a/b", func(dir string) error { builds++; return fill(dir, nil) })
		if _, serr := os.Stat(filepath.Join(dir, "x")); err != nil || serr != nil || dir != filepath.Join(c.Dir, "a", "b") {
			t.Errorf("got %s, %v, %v", dir, err, serr)
		}
	}
	if builds != 1 {
		t.Errorf("built %d times, want once", builds)
	}
	left, err := os.ReadDir(filepath.Join(c.Dir, "unfinished"))
	if len(left) > 0 || err != nil {
		t.Errorf("left unfinished: %v, %v", left, err)
	}
}

func TestDescribe(t *testing.T) {
	a, b := apt.Package{Name: "a", Version: "1-2", Size: 1_500_000}, apt.Package{Name: "b", Version: "3"}
	for want, pkgs := range map[string][]apt.Package{
		"a 1-2 (2 MB)": {a}, "b 3": {b}, "2 packages (2 MB)": {a, b},
	} {
		if got := describe(pkgs); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
