package apt

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParsePackages(t *testing.T) {
	got := parsePackages(`Package: linux-image-7.2.4+deb14-amd64
Version: 7.2.4-1
Depends: linux-binary-7.2.4+deb14-amd64 (= 7.2.4-1), kmod, linux-base (>= 4.12~) | other, perl:any
Size: 1234
Description: Depends: on nothing
 Size: 99

Package: b
Version: 1:2
`)
	want := []Package{
		{Name: "linux-image-7.2.4+deb14-amd64", Version: "7.2.4-1", Size: 1234, Depends: []Dependency{
			{"linux-binary-7.2.4+deb14-amd64", "7.2.4-1"}, {"kmod", ""}, {"linux-base", ""}, {"perl", ""},
		}},
		{Name: "b", Version: "1:2"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("want - got +\n%s", d)
	}
}

func TestParseSimulation(t *testing.T) {
	got := parseSimulation("Reading package lists...\nInst libcrypt1 (1:4.4.18-4 Debian:11.11/oldoldstable [amd64]) []\n" +
		"Inst a (1 X [s390x])\nConf a (1 X [s390x])\nInst b [1] (2 X)\nInst\n")
	want := []Package{{Name: "libcrypt1", Version: "1:4.4.18-4"}, {Name: "a", Version: "1"}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("want - got +\n%s", d)
	}
}
