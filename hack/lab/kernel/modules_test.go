package kernel

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fakeSource has every required module, and those of the map with dependencies.
type fakeSource struct {
	deps    map[string][]string
	builtin []string
}

func (f fakeSource) has(n string) bool {
	return f.deps[n] != nil || f.isBuiltin(n) || slices.Contains(required, n)
}
func (f fakeSource) isBuiltin(n string) bool { return slices.Contains(f.builtin, n) }
func (f fakeSource) load(n string) (*module, error) {
	if !f.has(n) {
		return nil, fmt.Errorf("no module %s", n)
	}
	return &module{name: n, path: "m/" + n + ".ko", depends: f.deps[n]}, nil
}

func TestCollectOrder(t *testing.T) {
	s, err := collect(fakeSource{
		deps: map[string][]string{
			"rdma_ucm": {"ib_uverbs", "rdma_cm"}, "rdma_cm": {"ib_cm", "ib_core"}, "ib_cm": {"ib_core"},
			"ib_uverbs": {"ib_core"}, "ib_core": {"libcrc32c"}, "rdma_rxe": {"ib_uverbs", "ib_core"},
		},
		builtin: []string{"libcrc32c", "virtio_pci", "virtio_console"},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"m/ib_core.ko", "m/ib_uverbs.ko", "m/ib_cm.ko", "m/rdma_cm.ko", "m/rdma_ucm.ko"}
	if d := cmp.Diff(want, s.group["rdma"]); d != "" {
		t.Errorf("group rdma: want - got +\n%s", d)
	}
	if d := cmp.Diff([]string{"m/ib_core.ko", "m/ib_uverbs.ko", "m/rdma_rxe.ko"}, s.group["rxe"]); d != "" {
		t.Errorf("group rxe: want - got +\n%s", d)
	}
	if d := cmp.Diff([]string{"m/9pnet_virtio.ko", "m/9p.ko"}, s.group["boot"]); d != "" {
		t.Errorf("group boot: want - got +\n%s", d)
	}
	dep := s.modulesDep("m/")
	line := "rdma_ucm.ko: rdma_cm.ko ib_cm.ko ib_uverbs.ko ib_core.ko\n"
	if !strings.Contains(dep, line) {
		t.Errorf("modules.dep has no %q:\n%s", line, dep)
	}
}

func TestCollectShared(t *testing.T) {
	s, err := collect(fakeSource{deps: map[string][]string{"9p": {"netfs"}, "dummy": {"netfs"}, "netfs": {"9p"}}})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, m := range s.all {
		if m.name == "netfs" {
			n++
		}
	}
	if n != 1 {
		t.Errorf("a module of two groups is packed %d times", n)
	}
	if !slices.Contains(s.group["net"], "m/netfs.ko") {
		t.Errorf("group net lacks what it shares with boot: %q", s.group["net"])
	}
}

func TestCollectMissing(t *testing.T) {
	if _, err := collect(fakeSource{deps: map[string][]string{"rdma_rxe": {"gone"}}}); err == nil {
		t.Error("a missing dependency was accepted")
	}
	if _, err := collect(&tree{}); err == nil {
		t.Error("a kernel without rxe was accepted")
	}
}

func TestOpenTree(t *testing.T) {
	root := t.TempDir()
	for p, text := range map[string]string{
		"usr/lib/modules/7.2/kernel/a/snd-pcm.ko.xz":   "",
		"usr/lib/modules/7.2/kernel/b/crc32c-intel.ko": "",
		"lib/modules/7.2/modules.builtin":              "kernel/drivers/virtio/virtio_pci.ko\n",
		"lib/modules/7.2/modules.order":                "",
	} {
		write(t, filepath.Join(root, p), text)
	}
	tr, err := openTree(root, "7.2")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"snd_pcm":      "usr/lib/modules/7.2/kernel/a/snd-pcm.ko.xz",
		"crc32c_intel": "usr/lib/modules/7.2/kernel/b/crc32c-intel.ko",
	}
	if d := cmp.Diff(want, tr.files); d != "" || !tr.isBuiltin("virtio_pci") {
		t.Errorf("builtin %v, files: want - got +\n%s", tr.builtin, d)
	}
	if _, err := openTree(root, "6.1"); err == nil {
		t.Error("a release without modules was accepted")
	}
}

func TestParseModinfo(t *testing.T) {
	got := parseModinfo([]byte("license=GPL\x00depends=ib_core,ip6-udp-tunnel\x00name=x\x00"))
	if d := cmp.Diff([]string{"ib_core", "ip6_udp_tunnel"}, got); d != "" {
		t.Errorf("want - got +\n%s", d)
	}
	if got := parseModinfo([]byte("depends=\x00")); got != nil {
		t.Errorf("no dependencies: got %q", got)
	}
}

func TestFindKernel(t *testing.T) {
	for name, tt := range map[string]struct {
		files   []string
		release string // "": an error
	}{
		"before 7.0": {[]string{"boot/vmlinuz-6.1.0-50-amd64"}, "6.1.0-50-amd64"},
		"since 7.0":  {[]string{"usr/lib/modules/7.2.13+deb14-amd64/vmlinuz"}, "7.2.13+deb14-amd64"},
		"none":       {[]string{"boot/config-6.1"}, ""},
		"two":        {[]string{"boot/vmlinuz-6.1", "boot/vmlinuz-6.2"}, ""},
	} {
		root := t.TempDir()
		for _, p := range tt.files {
			write(t, filepath.Join(root, p), "")
		}
		path, release, err := findKernel(root)
		if release != tt.release || (err == nil) != (tt.release != "") || (err == nil && path != filepath.Join(root, tt.files[0])) {
			t.Errorf("%s: got %q, %q, %v; want release %q", name, path, release, err, tt.release)
		}
	}
}

func write(t *testing.T, p, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
