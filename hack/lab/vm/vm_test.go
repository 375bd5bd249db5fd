//go:build linux

package vm

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"
)

func TestArgs(t *testing.T) {
	base := Config{Arch: "amd64", Kernel: "k", Initrd: "i", Words: []string{"a=b"}, SMP: 2, Memory: "512M", Console: "c",
		Shares: []Share{{Tag: "host", Path: "/a,b"}, {Tag: "src", Path: "/s", ReadOnly: true}}}
	for name, tt := range map[string]struct {
		change      func(*Config)
		want, never string
	}{
		"tcg":    {func(*Config) {}, "-accel tcg,thread=multi -cpu max", "icount"},
		"kvm":    {func(c *Config) { c.KVM = true }, "-accel kvm -cpu host", "tcg"},
		"icount": {func(c *Config) { c.ICount, c.KVM = true, true }, "-accel tcg,thread=single -icount shift=0,sleep=off", "kvm"},
		"shares": {func(*Config) {}, "local,path=/a,,b,mount_tag=host,security_model=none,multidevs=remap -virtfs local,path=/s,", "x"},
		"arm64":  {func(c *Config) { c.Arch = "arm64" }, "-append console=ttyAMA0 quiet", "isa-debug-exit"},
		"s390x":  {func(c *Config) { c.Arch = "s390x" }, "-device virtio-serial-ccw", "-pci"},
		"amd64":  {func(*Config) {}, "-serial chardev:console -device isa-debug-exit", "ccw"},
		"words":  {func(*Config) {}, "-append console=ttyS0 quiet panic=-1 cryptomgr.notests rodata=off a=b", "zzz"},
	} {
		c := base
		tt.change(&c)
		got := strings.Join(c.args(), " ")
		if !strings.Contains(got, tt.want) || (tt.never != "x" && strings.Contains(got, tt.never)) {
			t.Errorf("%s: want %q, never %q, in\n%s", name, tt.want, tt.never, got)
		}
	}
	if a := base.args(); slices.Index(a, "-virtfs") < 0 || strings.Count(strings.Join(a, " "), "readonly=on") != 1 {
		t.Errorf("one of two shares is read-only: %q", a)
	}
}

func TestProbeHeader(t *testing.T) {
	b := probe()
	word := func(i int) uint32 { return binary.LittleEndian.Uint32(b[4*i:]) }
	if word(0)+word(1)+word(2) != 0 {
		t.Errorf("checksum: %#x %#x %#x do not add up to 0", word(0), word(1), word(2))
	}
	if entry, load := word(7), word(4); int(entry-load) != len(b)-8 {
		t.Errorf("the entry is at %d, the program of 8 bytes begins at %d", entry-load, len(b)-8)
	}
}
