// Package testutil holds what tests of several packages share: how to find a device or
// skip with the command that fixes it, and how to notice leaks.
package testutil

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"testing"

	"github.com/pureverbs/rdma/uverbs"
)

// Skip skips a test that lacks something, and says which command provides it. Where the
// lack is a fault (RDMA_TEST_REQUIRE=1, as in the lab and in CI), the test fails.
func Skip(t testing.TB, what, fix string) {
	t.Helper()
	if os.Getenv("RDMA_TEST_REQUIRE") == "1" {
		t.Fatalf("%s is required here; %s", what, fix)
	}
	t.Skipf("needs %s; %s", what, fix)
}

// Device returns the device named RDMA_TEST_DEVICE, or the first usable one.
func Device(t testing.TB) *uverbs.Device {
	t.Helper()
	want := os.Getenv("RDMA_TEST_DEVICE")
	devs, err := uverbs.Devices()
	for _, d := range devs {
		if d.Usable() == nil && (want == "" || d.Name() == want) {
			return d
		}
	}
	Skip(t, "an RDMA device", "run: make lab")
	t.Fatalf("no usable device (%v)", err)
	return nil
}

// Address returns an IPv4 address of a device's network interface.
func Address(t testing.TB, d *uverbs.Device) netip.Addr {
	t.Helper()
	for _, name := range d.NetDevs() {
		ifi, err := net.InterfaceByName(name)
		Must(t, err)
		addrs, err := ifi.Addrs()
		Must(t, err)
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() {
				return p.Addr()
			}
		}
	}
	t.Fatalf("device %s has no IPv4 address: its interfaces are %v", d.Name(), d.NetDevs())
	return netip.Addr{}
}

// Lab skips a test that changes devices, interfaces or namespaces, unless it runs in a
// machine made for that.
func Lab(t testing.TB, run string) {
	t.Helper()
	Device(t)
	if os.Getenv("RDMA_LAB") != "1" {
		Skip(t, "a machine whose devices may be changed", "run: make lab RUN="+run)
	}
}

// Command returns the path of a program of the C stack.
func Command(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		Skip(t, name, "run: make lab")
	}
	return path
}
