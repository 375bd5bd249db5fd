package kernel

import (
	"os/exec"
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
		s, err := Select(kernel)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, imageNames(s[0], all)); d != "" {
			t.Errorf("%s: want - got +\n%s", kernel, d)
		}
	}
}

func TestSelect(t *testing.T) {
	if s, err := Select("all"); len(s) != 4 || err != nil {
		t.Errorf("all: got %v, %v", s, err)
	}
	if _, err := Select("4.19"); err == nil {
		t.Error("4.19 was accepted")
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
