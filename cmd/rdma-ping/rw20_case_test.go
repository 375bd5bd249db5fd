//go:build linux

package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/fakekernel"
)

// rw20Commands are the commands that have to tell the situations apart: list, server and
// client, of ping and of perf. HERE stands for an address.
var rw20Commands = []string{
	"devices", "devices --json", "devices -v",
	"serve", "serve -a HERE", "-c 1 HERE", "perf serve", "perf serve -a HERE", "perf lat HERE", "perf bw -d 1s HERE", "doctor", "doctor HERE",
}

// rw20 are the situations, and words that have to be in what server and client say: what is
// missing, and the next step to take.
var rw20 = []struct {
	name   string
	system surroundings
	addr   string
	want   []string
	listed bool // there are devices to list
	server bool // without an address it can serve
	reason string
}{
	{
		name: "a: modules are not loaded", addr: "10.9.0.1",
		system: surroundings{netlink: syscall.EPROTONOSUPPORT, noSysfs: true, files: map[string]string{"proc/modules": "loop 1 0 - Live 0x0\n"}},
		want:   []string{"module ib_core is not loaded", "modprobe ib_core"}, reason: "no-module",
	},
	{
		name: "a: the connection manager's module is not loaded", addr: "10.9.0.1",
		system: surroundings{kernel: fakekernel.Options{NoCM: true}, files: map[string]string{"proc/modules": "ib_uverbs 1 1 - Live 0x0\nib_core 1 4 - Live 0x0\n"}},
		want:   []string{"module rdma_ucm is not loaded", "modprobe rdma_ucm"}, listed: true, reason: "no-module",
	},
	{
		name: "b: no device", addr: "10.9.0.1",
		system: surroundings{kernel: fakekernel.Options{Devices: []fakekernel.Device{}}},
		want:   []string{"no RDMA devices", "rdma-ping link add"}, reason: "no-device",
	},
	{
		name: "c: the port is down", addr: "10.9.0.1",
		system: surroundings{kernel: fakekernel.Options{Devices: []fakekernel.Device{{Down: true}}}},
		want:   []string{"rxe0 has no active port", "ip link set eth0 up"}, listed: true, reason: "port-down",
	},
	{
		name: "c: the interface is elsewhere", addr: "10.9.0.1",
		system: surroundings{kernel: fakekernel.Options{Devices: []fakekernel.Device{{Foreign: true}}}},
		want:   []string{"no interface of this device in this network namespace", "ip link set DEV netns NS"}, listed: true, reason: "foreign-namespace",
	},
	{
		name: "c: the node is missing", addr: "10.9.0.1",
		system: surroundings{kernel: fakekernel.Options{Devices: []fakekernel.Device{{NoNode: true}}}},
		want:   []string{"/dev/infiniband/uverbs0 is not here"}, listed: true, reason: "no-node",
	},
	{
		name: "c: the node may not be opened", addr: "10.9.0.1",
		system: surroundings{deny: denyUverbs0(syscall.EACCES)},
		want:   []string{"/dev/infiniband/uverbs0", "permission"}, listed: true, reason: "no-permission",
	},
	{
		name: "c: nobody drives the device", addr: "10.9.0.1",
		system: surroundings{kernel: fakekernel.Options{Devices: []fakekernel.Device{{ABI: 99}}}},
		want:   []string{"driver rxe has ABI version 99, want 1 to 2"}, listed: true, reason: "driver-abi",
	},
	{
		name: "d: an address of nobody", addr: "192.0.2.1", want: []string{"192.0.2.1"}, listed: true, server: true, reason: "no-route",
	},
	{
		name: "d: an address of an interface without RDMA", addr: "127.0.0.1", want: []string{"127.0.0.1"}, listed: true, server: true, reason: "not-rdma",
	},
}

// TestRW20Situations: each situation is told apart, by each command, in one line that ends
// with the next step. The texts are those of testdata/rw20.txt.
func TestRW20Situations(t *testing.T) {
	var transcript strings.Builder
	for _, s := range rw20 {
		last := ""
		t.Run(s.name, func(t *testing.T) {
			fmt.Fprintf(&transcript, "=== %s\n", s.name)
			_, sys := s.system.build(t)
			for _, line := range rw20Commands {
				if s.server && (line == "serve" || line == "perf serve") {
					continue // it would
				}
				args := strings.Fields(strings.ReplaceAll(line, "HERE", s.addr))
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				var out, errs output
				status := run(ctx, args, &out, &errs, sys)
				if ctx.Err() != nil {
					t.Errorf("%s: had to be stopped; stdout %q", line, out.String())
				}
				cancel()
				said := fmt.Sprintf("%s%sstatus %d\n", rw20Extract(args[0], out.String()), errs.String(), status)
				if said != last { // one text for all that say the same
					transcript.WriteString(last)
				}
				fmt.Fprintf(&transcript, "$ rdma-ping %s\n", strings.Join(args, " "))
				last = said
				switch args[0] {
				case "devices":
					rw20List(t, args, s.listed, status, out.String(), errs.String())
				case "doctor":
					if !strings.Contains(out.String(), "["+s.reason+"]") && (len(args) > 1 || !s.server) {
						t.Errorf("%s: want %s in:\n%s", line, s.reason, out.String())
					}
				default:
					rw20Fails(t, line, s.want, status, out.String(), errs.String())
				}
			}
			transcript.WriteString(last + "\n")
		})
	}
	golden(t, "rw20.txt", transcript.String())
}

// rw20Extract leaves out what other goldens hold.
func rw20Extract(command, out string) string {
	if command != "doctor" || out == "" {
		lines := strings.SplitAfter(out, "\n")
		return strings.Join(lines[:min(3, len(lines))], "")
	}
	lines := slices.DeleteFunc(strings.SplitAfter(out, "\n"), func(line string) bool { return !strings.Contains(line, "]: ") })
	return strings.Join(lines, "")
}

// rw20List: a list of nothing is a success.
func rw20List(t *testing.T, args []string, listed bool, status int, out, errs string) {
	t.Helper()
	if status != statusOK || errs != "" || out == "" {
		t.Errorf("%v: status %d, stdout %q, stderr %q", args, status, out, errs)
	}
	if asJSON := slices.Contains(args, "--json"); asJSON && !listed && out != "[]\n" {
		t.Errorf("%v: got %q, want an empty list", args, out)
	} else if !asJSON && !listed && (strings.Count(out, "\n") != 1 || !strings.HasPrefix(out, "no RDMA devices: ")) {
		t.Errorf("%v: got %q, want one line", args, out)
	} else if listed && !strings.Contains(out, "rxe0") {
		t.Errorf("%v: got %q, want rxe0 in it", args, out)
	}
}

func rw20Fails(t *testing.T, line string, want []string, status int, out, errs string) {
	t.Helper()
	if status != statusError || out != "" || strings.Count(errs, "\n") != 1 || !strings.HasPrefix(errs, "rdma-ping: ") {
		t.Errorf("%s: status %d, stdout %q, stderr %q; want 2, nothing and one line", line, status, out, errs)
	}
	for _, w := range want {
		if !strings.Contains(errs, w) {
			t.Errorf("%s: %q, want %q in it", line, errs, w)
		}
	}
}

// TestRW20InterfaceDown: one of two interfaces is down, and it is the one to listen on.
func TestRW20InterfaceDown(t *testing.T) {
	k := newKernel(t, fakekernel.Options{Devices: []fakekernel.Device{{}, {Down: true}}})
	for _, line := range []string{"serve -a 10.9.0.2", "perf serve -a 2001:db8:9::2"} {
		status, out, errs := ping(t, k, strings.Fields(line)...)
		rw20Fails(t, line, []string{"interface eth1 is down", "ip link set eth1 up"}, status, out, errs)
	}
	serve(t, k) // on all addresses: the other one will do
	perfServe(t, k, "-a", serverAddr)
}

// TestRW20OnLoopback: a device may well be on the loopback interface, as siw can.
func TestRW20OnLoopback(t *testing.T) {
	k := newKernel(t, fakekernel.Options{Devices: []fakekernel.Device{{
		Driver: abi.RDMA_DRIVER_SIW, NetDev: "lo", IfIndex: 1, Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")},
	}}})
	serve(t, k, "-a", "127.0.0.1")
	perfServe(t, k, "-a", "127.0.0.2")
}
