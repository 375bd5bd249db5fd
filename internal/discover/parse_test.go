package discover

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/mdlayher/netlink"

	"github.com/pureverbs/rdma/abi"
)

func TestDev(t *testing.T) {
	for _, tt := range []struct {
		dev          Dev
		major, minor uint32
		text         string
	}{
		{0xe7c0, 231, 192, "231:192"},
		{0xa7e, 10, 126, "10:126"},
		{0x1000e700, 231, 0x10000, "231:65536"},
		{0xffffffff, 0xfff, 0xfffff, "4095:1048575"},
		{0, 0, 0, "0:0"},
	} {
		if tt.dev.Major() != tt.major || tt.dev.Minor() != tt.minor || tt.dev.String() != tt.text {
			t.Errorf("%#x: got %d, %d, %v, want %s", uint64(tt.dev), tt.dev.Major(), tt.dev.Minor(), tt.dev, tt.text)
		}
		if got := MakeDev(tt.major, tt.minor); got != tt.dev {
			t.Errorf("MakeDev(%s): got %#x, want %#x", tt.text, uint64(got), uint64(tt.dev))
		}
		if got, err := parseDev(tt.text); got != tt.dev || err != nil {
			t.Errorf("parseDev(%s): got %#x, %v, want %#x", tt.text, uint64(got), err, uint64(tt.dev))
		}
	}
	for _, text := range []string{"", ":", "231", "231:", ":1", "4096:0", "0:1048576", "-1:0", "231:192:1", "0x1:1"} {
		if d, err := parseDev(text); err == nil {
			t.Errorf("parseDev(%q): got %v, want an error", text, d)
		}
	}
}

func TestErrorText(t *testing.T) {
	err := error(&Error{
		Op: "use", Object: "device rxe1", Node: "/dev/x", Kind: ErrNoNode, Detail: "not here", Next: "bind it", Err: syscall.ENOENT,
	})
	if got, want := err.Error(), "use device rxe1: not here: "+syscall.ENOENT.Error()+"; bind it"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if !errors.Is(err, ErrNoNode) || errors.Is(err, ErrNoModule) || !errors.Is(err, syscall.ENOENT) {
		t.Error("kind and cause are not found, or another kind is")
	}
	for k := ErrNoModule; k <= ErrNoInterface; k++ {
		if k.Error() == "" || k.Error() == Kind(0).Error() {
			t.Errorf("kind %d has no text", k)
		}
	}
	if Kind(200).Error() != Kind(0).Error() {
		t.Errorf("kind out of range: got %q", Kind(200).Error())
	}
}

// FuzzParseDevice gives the parsers of netlink answers any bytes. They must not
// panic, and what they accept must be fit for use: names that are safe in a
// path, numbers in range.
func FuzzParseDevice(f *testing.F) {
	d := rxe(1, "rxe1", "eth0")
	f.Add(d.get(f))
	f.Add(d.charDev(f))
	f.Add(d.portGet(f)[0])
	f.Add(encoded(f, func(ae *netlink.AttributeEncoder) {
		ae.Uint8(abi.RDMA_NLDEV_SYS_ATTR_NETNS_MODE, 1)
		ae.Uint8(abi.RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK, 1)
	}))
	f.Add(d.get(f)[:17])
	f.Add([]byte{0, 0, 1, 0})
	f.Add([]byte{3, 0, 1, 0, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		if d, err := parseDevice(b); err == nil && (validName(d.Name) != nil || d.Index < 0 || d.Ports < 0) {
			t.Errorf("device %+v was accepted", d)
		}
		if cd, _, err := parseCharDev(b); err == nil && (cd.SysName == "" || strings.ContainsAny(cd.SysName, "/\x00")) {
			t.Errorf("character device %+v was accepted", cd)
		}
		if name, err := parsePort(b); err == nil && strings.ContainsAny(name, "/\x00") {
			t.Errorf("interface %q was accepted", name)
		}
		_, _ = parseMode(b)
		s := &System{Root: t.TempDir(), Opener: nodes{}, Netlink: canned(abi.RDMA_NLDEV_CMD_GET, b)}
		if devs, err := s.Devices(); err == nil && len(devs) == 1 && devs[0].Reason == nil {
			t.Errorf("device %+v came out usable though there is no node", devs[0])
		}
	})
}

// FuzzSysfsValues does the same for the texts of sysfs and /proc.
func FuzzSysfsValues(f *testing.F) {
	f.Add("231:192")
	f.Add("5054:00ff:fe12:3456")
	f.Add("fe80:0000:0000:0000:5054:00ff:fe12:3456")
	f.Add("fe80000000000000505400fffe123456")
	f.Fuzz(func(t *testing.T, text string) {
		if d, err := parseDev(text); err == nil && (d.Major() > 0xfff || d.Minor() > 0xfffff) {
			t.Errorf("device number %v was accepted", d)
		}
		if _, err := parseGUID(text); err == nil && len(text) != 19 {
			t.Errorf("GUID %q was accepted", text)
		}
		if _, err := parseGID(text); err == nil && len(text) != 39 {
			t.Errorf("GID %q was accepted", text)
		}
		if _, ok := parseInet6(text); ok && len(text) != 32 {
			t.Errorf("address %q was accepted", text)
		}
	})
}
