package kernel

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestImageNames(t *testing.T) {
	all := []string{
		"linux-image-amd64", "linux-image-rt-amd64", "linux-image-cloud-amd64",
		"linux-image-6.1.0-57-amd64", "linux-image-6.1.0-9-amd64", "linux-image-6.1.0-57-amd64-unsigned",
		"linux-image-6.1.0-57-amd64-dbg", "linux-image-6.1.0-57-cloud-amd64", "linux-image-6.1.0-57-rt-amd64",
		"linux-image-6.12.117+deb13-amd64", "linux-image-6.12.117+deb13-rt-amd64", "linux-image-6.12.117+deb13-cloud-amd64",
		"linux-image-7.2-amd64", "linux-image-7.2.4+deb14-amd64", "linux-image-7.2~rc3-amd64", "linux-image-5.10.0-31-amd64",
		"linux-image-6.1.0-57-686", "linux-image-generic",
	}
	for kernel, want := range map[string][]string{
		"5.10":   {"linux-image-5.10.0-31-amd64"},
		"6.1":    {"linux-image-6.1.0-57-amd64", "linux-image-6.1.0-9-amd64"},
		"6.12":   {"linux-image-6.12.117+deb13-amd64"},
		"newest": {"linux-image-6.1.0-57-amd64", "linux-image-6.1.0-9-amd64", "linux-image-6.12.117+deb13-amd64", "linux-image-7.2-amd64", "linux-image-7.2.4+deb14-amd64", "linux-image-7.2~rc3-amd64", "linux-image-5.10.0-31-amd64"},
	} {
		if d := cmp.Diff(want, imageNames(selectOne(t, "amd64", kernel), all)); d != "" {
			t.Errorf("%s: want - got +\n%s", kernel, d)
		}
	}
}

func selectOne(t *testing.T, arch, kernel string) Suite {
	t.Helper()
	s, err := Select(arch, kernel)
	if err != nil || len(s) != 1 {
		t.Fatalf("select %s %s: got %v, %v", arch, kernel, s, err)
	}
	return s[0]
}

func TestImageNamesOfArchitectures(t *testing.T) {
	all := []string{
		"linux-image-arm64-16k", "linux-image-6.12.117+deb13-arm64", "linux-image-6.12.117+deb13-arm64-16k", "linux-image-6.12.117+deb13-rt-arm64-16k",
		"linux-image-6.12.117+deb13-arm64-16k-unsigned", "linux-image-s390x", "linux-image-6.12.107+deb13-s390x", "linux-image-6.12.107+deb13-s390x-dbg",
	}
	for arch, want := range map[string]string{"arm64": "linux-image-6.12.117+deb13-arm64-16k", "s390x": "linux-image-6.12.107+deb13-s390x"} {
		if d := cmp.Diff([]string{want}, imageNames(selectOne(t, arch, ""), all)); d != "" {
			t.Errorf("%s: want - got +\n%s", arch, d)
		}
	}
}

func TestSelect(t *testing.T) {
	for in, want := range map[[2]string]string{
		{"amd64", "all"}: "5.10 6.1 6.12 newest", {"amd64", ""}: "6.1", {"amd64", "newest"}: "newest",
		{"arm64", ""}: "6.12", {"s390x", "all"}: "6.12",
		{"amd64", "4.19"}: "error", {"arm64", "6.1"}: "error", {"mips", ""}: "error", {"", "all"}: "error",
	} {
		suites, err := Select(in[0], in[1])
		var names []string
		for _, s := range suites {
			names = append(names, s.Kernel)
		}
		if err != nil {
			names = []string{"error"}
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%v: got %q, %v; want %q", in, got, err, want)
		}
	}
	if d := cmp.Diff([]string{"amd64", "arm64", "s390x"}, Architectures()); d != "" {
		t.Errorf("architectures: want - got +\n%s", d)
	}
}

func TestCompareVersions(t *testing.T) {
	if _, err := exec.LookPath("dpkg"); err != nil {
		t.Skip("no dpkg here: not a Debian machine")
	}
	for _, tt := range []struct {
		a, b string
		want int
	}{{"6.1.9-1", "6.1.10-1", -1}, {"7.2~rc3-1", "7.2-1", -1}, {"6.1.176-1", "6.1.170-3", 1}, {"1", "1", 0}} {
		if got := compareVersions(tt.a, tt.b); got != tt.want {
			t.Errorf("compare %s, %s: got %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}
