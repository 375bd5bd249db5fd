//go:build linux

package main

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/fakekernel"
)

// loopback is an interface that every machine has: zones are looked up in the real system.
func loopback(t *testing.T) *net.Interface {
	t.Helper()
	list, err := net.Interfaces()
	must(t, err)
	for _, i := range list {
		if i.Flags&net.FlagLoopback != 0 {
			return &i
		}
	}
	t.Fatal("no loopback interface")
	return nil
}

// zoned is a kernel whose device has the link-local address fe80::a:1 on that interface.
func zoned(t *testing.T, driver uint32) (*fakekernel.Kernel, *net.Interface) {
	t.Helper()
	i := loopback(t)
	return newKernel(t, fakekernel.Options{Devices: []fakekernel.Device{{Driver: driver, IfIndex: uint32(i.Index), NetDev: i.Name}}}), i
}

// TestRW15Zones: a zone by name and by number gets to the kernel, from client and server, with
// and without a port, of the address and of the source, and comes back in what is printed.
func TestRW15Zones(t *testing.T) {
	for _, driver := range []uint32{abi.RDMA_DRIVER_RXE, abi.RDMA_DRIVER_SIW} {
		k, i := zoned(t, driver)
		name, number := "fe80::a:1%"+i.Name, fmt.Sprintf("fe80::a:1%%%d", i.Index)
		for n, listen := range []string{name, number, "[" + name + "]", "[" + number + "]:7003", "::", "[::]:7005", ""} {
			port := fmt.Sprint(7000 + n)
			args := []string{"-p", port}
			if listen != "" {
				args = append(args, "-a", listen)
			}
			s := serve(t, k, args...)
			for form, target := range []string{name, number, "[" + name + "]:" + port, "[" + number + "]:" + port} {
				for _, more := range []string{"", "--rping", "-I " + name, "-I " + number} {
					if form > 0 && more != "" {
						continue // one of the targets will do
					}
					args := append(strings.Fields("-c 2 -i 0 -p "+port+" "+more), target)
					status, out, errs := ping(t, k, args...)
					if status != statusOK || errs != "" || !strings.Contains(out, "(["+targetAddr(target)+"]:"+port+")") {
						t.Errorf("serve %v, ping %v: status %d, stderr %q, stdout:\n%s", listen, args, status, errs, out)
					}
				}
			}
			s.out.await(t, "[fe80::a:1%"+i.Name+"]:")
			if strings.Contains(s.out.String(), "[fe80::a:1]:") {
				t.Errorf("serve %v: an address without its zone in\n%s", listen, s.out.String())
			}
		}
	}
}

// targetAddr is the address of a target, as it was given.
func targetAddr(text string) string {
	addr, _, _ := strings.Cut(strings.Trim(text, "["), "]")
	return addr
}

// TestRW15Perf: the same for perf, whose queue pairs are also connected by hand.
func TestRW15Perf(t *testing.T) {
	k, i := zoned(t, abi.RDMA_DRIVER_RXE)
	name, number := "fe80::a:1%"+i.Name, fmt.Sprintf("fe80::a:1%%%d", i.Index)
	for n, listen := range []string{name, "[" + number + "]", "::"} {
		port := fmt.Sprint(7100 + n)
		s := perfServe(t, k, "-p", port, "-a", listen)
		for _, run := range []string{"lat", "lat -t uc -o write", "bw -t ud -s 64 -b", "lat -I " + number} {
			for _, target := range []string{name, "[" + number + "]:" + port} {
				status, out, errs := ping(t, k, append(strings.Fields("perf "+run+" -c 20 --verify -p "+port), target)...)
				if status != statusOK || errs != "" {
					t.Errorf("serve %v, %s %s: status %d, stderr %q, stdout:\n%s", listen, run, target, status, errs, out)
				}
			}
		}
		s.out.await(t, "[fe80::a:1%"+i.Name+"]:")
	}
}

// rw15Commands are all that take an address; X stands for it.
var rw15Commands = []string{
	"-c 1 X", "-c 1 --rping X", "serve -a X", "perf lat X", "perf bw X", "perf serve -a X", "perf lat --tcp X", "perf serve --tcp -a X",
}

// TestRW15NoZone: without a zone the error says that one is needed, and the kernel is not asked.
func TestRW15NoZone(t *testing.T) {
	for _, line := range append(rw15Commands, "doctor X", "-I X fe80::a:1%1", "perf lat -I X fe80::a:1%1") {
		for _, addr := range []string{"fe80::a:1", "[fe80::a:1]", "[fe80::a:1]:7174", "FE80::A:1"} {
			if strings.Contains(line, "-I") && strings.Contains(addr, "[") {
				continue // an address, no more
			}
			asked := false
			k := newKernel(t, fakekernel.Options{Log: func(fakekernel.Call) { asked = true }})
			status, out, errs := ping(t, k, strings.Fields(strings.ReplaceAll(line, "X", addr))...)
			if status != statusError || out != "" || asked {
				t.Errorf("%s, %s: status %d, stdout %q, the kernel was asked: %v", line, addr, status, out, asked)
			}
			mustMatch(t, line, errs, "rdma-ping: address fe80::a:1 is link-local: name the interface, like fe80::a:1%eth0\nTry 'rdma-ping --help'.\n")
		}
	}
}

// TestRW15WrongZone: the error names the zone that is none, or is that of another interface.
func TestRW15WrongZone(t *testing.T) {
	k, i := zoned(t, abi.RDMA_DRIVER_RXE)
	serve(t, k)
	perfServe(t, k)
	for _, zone := range []string{"no-such-if0", "0", "-1", "4294967297", "25lo", fmt.Sprint(i.Index + 1)} {
		for _, line := range append(rw15Commands, "-I X fe80::a:1%"+i.Name) {
			if zone == fmt.Sprint(i.Index+1) && strings.Contains(line, "--tcp") {
				continue // there may be such an interface
			}
			status, out, errs := ping(t, k, strings.Fields(strings.ReplaceAll(line, "X", "fe80::a:1%"+zone))...)
			if status != statusError || out != "" {
				t.Errorf("%s, zone %s: status %d, stdout %q", line, zone, status, out)
			}
			mustMatch(t, line, errs, `rdma-ping: [^\n]*[%"]`+zone+`[^\n]*\n`)
		}
	}
	for _, line := range rw15Commands { // IPv4 has none
		status, out, errs := ping(t, k, strings.Fields(strings.ReplaceAll(line, "X", "10.9.0.1%"+i.Name))...)
		if status != statusError || out != "" {
			t.Errorf("%s: status %d, stdout %q", line, status, out)
		}
		mustMatch(t, line, errs, `rdma-ping: address "10.9.0.1%`+i.Name+`"[^\n]*\nTry 'rdma-ping --help'.\n`)
	}
}
