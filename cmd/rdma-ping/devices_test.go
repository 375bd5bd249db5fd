//go:build linux

package main

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/fakekernel"
	"github.com/pureverbs/rdma/uverbs"
)

// TestDevices checks the list in all forms: a device of each kind, and those that cannot be
// used.
func TestDevices(t *testing.T) {
	k := newKernel(t, fakekernel.Options{Root: t.TempDir(), Devices: []fakekernel.Device{
		{V1: true}, {Driver: abi.RDMA_DRIVER_SIW, Down: true}, {Driver: abi.RDMA_DRIVER_MLX5}, {NoNode: true}, {Foreign: true},
	}})
	for name, args := range map[string][]string{"devices.txt": nil, "devices-v.txt": {"-v"}, "devices.json": {"--json"}} {
		status, out, errs := ping(t, k, append([]string{"devices"}, args...)...)
		if status != statusOK || errs != "" {
			t.Fatalf("%v: status %d, stderr %q", args, status, errs)
		}
		golden(t, name, out)
	}
}

// TestDevicesJSON reads it as a program does.
func TestDevicesJSON(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	_, out, _ := ping(t, k, "devices", "--json")
	var list []deviceInfo
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list) != 1 || !list[0].Usable || len(list[0].Ports) != 1 {
		t.Fatalf("%v: %s", err, out)
	}
	p := list[0].Ports[0]
	want := []gidInfo{
		{0, "fe80::a:1", "", "RoCE v2", "eth0"}, {1, "::ffff:10.9.0.1", "10.9.0.1", "RoCE v2", "eth0"},
		{2, "2001:db8:9::1", "", "RoCE v2", "eth0"},
	}
	if diff := cmp.Diff(want, p.GIDs); diff != "" {
		t.Errorf("GIDs (-want +got):\n%s", diff)
	}
	if p.Gbps != 2.5 || p.MTU != 1024 || p.State != "active" || list[0].Limits["max_cqe"] != float64(32767) {
		t.Errorf("got %g Gb/s, MTU %d, %s, at most %v completions", p.Gbps, p.MTU, p.State, list[0].Limits["max_cqe"])
	}
}

func TestNoDevices(t *testing.T) {
	empty := newKernel(t, fakekernel.Options{Devices: []fakekernel.Device{}})
	if status, out, errs := ping(t, empty, "devices", "--json"); status != statusOK || out != "[]\n" || errs != "" {
		t.Errorf("empty --json: status %d, stdout %q, stderr %q", status, out, errs)
	}
	if status, out, _ := ping(t, empty, "devices"); status != statusOK || !strings.HasPrefix(out, "no RDMA devices") {
		t.Errorf("empty: status %d, stdout %q", status, out)
	}
}

// TestForeignIndex: interfaces of two namespaces have the same index, and the GID's is not
// here.
func TestForeignIndex(t *testing.T) {
	k := newKernel(t, fakekernel.Options{Devices: []fakekernel.Device{{}, {Foreign: true, IfIndex: 2}}})
	_, out, _ := ping(t, k, "devices")
	_, second, ok := strings.Cut(out, "rxe1:")
	if !ok || strings.Contains(second, "eth0") || !strings.Contains(out, "eth0") {
		t.Errorf("want eth0 with the first device only:\n%s", out)
	}
}

// TestAllAttributes: whatever the kernel tells of a device or a port is shown.
func TestAllAttributes(t *testing.T) {
	everyField(t, func(a uverbs.DeviceAttr) any {
		return []any{valuesOf(deviceAttributes, &a), capabilities(&a), formatGUID(a.SystemGUID), formatGUID(a.NodeGUID)}
	})
	everyField(t, func(a uverbs.PortAttr) any { return describePort(1, &a) })
}

// everyField fails for fields that make no difference.
func everyField[T any](t *testing.T, show func(T) any) {
	t.Helper()
	var zero T
	for i := range reflect.TypeFor[T]().NumField() {
		var one T
		switch f := reflect.ValueOf(&one).Elem().Field(i); f.Kind() {
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Int:
			f.SetInt(1)
		default:
			f.SetUint(1)
		}
		if cmp.Equal(show(zero), show(one)) {
			t.Errorf("%T: %s is not shown", zero, reflect.TypeFor[T]().Field(i).Name)
		}
	}
}

func TestAttributeNames(t *testing.T) {
	seen := map[string]bool{}
	for _, a := range deviceAttributes {
		if seen[a.name] {
			t.Errorf("%s is there twice", a.name)
		}
		seen[a.name] = true
	}
	if got := capabilities(&uverbs.DeviceAttr{CapFlags: 1 << 1, CapFlagsEx: 1<<1 | 1<<40 | 1<<50}); !cmp.Equal(got, []string{"BAD_PKEY_CNTR", "ATOMIC_WRITE", "bit 50"}) {
		t.Errorf("capabilities are %q", got)
	}
}
