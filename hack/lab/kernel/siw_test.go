//go:build linux

package kernel

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pureverbs/rdma/hack/lab/apt"
	"github.com/pureverbs/rdma/hack/lab/cpio"
)

func TestHeaderNeeds(t *testing.T) {
	got := headerNeeds(apt.Package{Depends: []apt.Dependency{
		{Name: "linux-base"}, {Name: "linux-base-7.2", Exact: "1"}, {Name: "linux-headers-7.2-common", Exact: "7.2-1"},
		{Name: "linux-image-7.2-amd64", Exact: "7.2-1"}, {Name: "linux-kbuild-7.2"}, {Name: "gcc-16-for-host"},
	}})
	want := []string{"linux-headers-7.2-common=7.2-1", "linux-kbuild-7.2", "gcc-16-for-host"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("want - got +\n%s", d)
	}
}

func TestSeries(t *testing.T) {
	for in, want := range map[string]string{"6.1.176-1": "6.1", "5.10.223-1": "5.10", "7.2-1": "7.2-1", "7": "7", "": ""} {
		if got := series(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

// archive makes one of files, in this order; a name that ends in / is a folder.
func archive(t *testing.T, names ...string) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, n := range names {
		h := &tar.Header{Name: n, Mode: 0o644, Size: int64(len(n)), Typeflag: tar.TypeReg}
		if strings.HasSuffix(n, "/") {
			h.Typeflag, h.Size = tar.TypeDir, 0
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := w.Write([]byte(n)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

func TestExtractFolder(t *testing.T) {
	for name, tt := range map[string]struct {
		files []string
		want  string // "": an error
	}{
		"in the middle": {[]string{"l/", "l/a/", "l/a/x.c", "l/a/siw/", "l/a/siw/1.c", "l/a/siw/2.h", "l/b.c", "l/a/siw/late.c"}, "1.c 2.h"},
		"no folder":     {[]string{"l/a/siwx/1.c", "l/a/siw"}, ""},
		"other depth":   {[]string{"l/z/a/siw/1.c"}, ""},
	} {
		dir := t.TempDir()
		err := extractFolder(archive(t, tt.files...), "a/siw", dir)
		left, _ := filepath.Glob(filepath.Join(dir, "*"))
		var got []string
		for _, p := range left {
			got = append(got, filepath.Base(p))
		}
		if strings.Join(got, " ") != tt.want || (err != nil) != (tt.want == "") {
			t.Errorf("%s: got %q, %v; want %q", name, got, err, tt.want)
		}
	}
	dir := t.TempDir()
	if err := extractFolder(archive(t, "l/a/siw/1.c", "l/b"), "a/siw", dir); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(filepath.Join(dir, "1.c")); string(got) != "l/a/siw/1.c" {
		t.Errorf("the file holds %q", got)
	}
	cut := archive(t, "l/a/siw/1.c", "l/a/siw/2.c", "l/b").Bytes()
	for _, n := range []int{700, 1024, 1100, 2048} {
		if err := extractFolder(bytes.NewReader(cut[:n]), "a/siw", t.TempDir()); err == nil {
			t.Errorf("an archive cut after %d bytes was accepted", n)
		}
	}
}

func TestLoadOrder(t *testing.T) {
	dep := "k/ib_core.ko: k/crc.ko\nk/crc.ko:\nk/ib-uverbs.ko: k/ib_core.ko k/crc.ko\n"
	for _, tt := range []struct{ names, want string }{
		{"ib_uverbs", "k/crc.ko k/ib_core.ko k/ib-uverbs.ko"},
		{"crc ib_core", "k/crc.ko k/ib_core.ko"},
		{"built_in", ""},
	} {
		if got := strings.Join(loadOrder(dep, strings.Fields(tt.names)), " "); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.names, got, tt.want)
		}
	}
}

func TestAddModuleRefuses(t *testing.T) {
	ko := filepath.Join(t.TempDir(), "siw.ko")
	write(t, ko, "no module")
	if err := (Image{}).AddModule(cpio.NewWriter(&bytes.Buffer{}), "siw", ko); err == nil {
		t.Error("a file that is no module was accepted")
	}
}
