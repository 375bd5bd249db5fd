//go:build linux

package main

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/pureverbs/rdma/internal/fakekernel"
)

func TestZZ(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	before := runtime.NumGoroutine()
	s := start(t, k, "serve")
	s.out.await(t, "listening")
	for _, a := range [][]string{
		{"-c", "3", "-i", "0.1", "10.9.0.1"}, {"--rping", "-c", "2", "-i", "0", "10.9.0.1"}, {"--json", "-c", "1", "10.9.0.1"},
		{"-s", "2m", "10.9.0.1"}, {"-p", "99", "10.9.0.1"}, {"192.0.2.1"}, {"-q", "-i", "0", "-c", "20000", "10.9.0.1"}, {"-q", "-i", "0", "-c", "20000", "--poll", "10.9.0.1"}, {"devices", "-v"}, {"devices", "--json"},
	} {
		st, o, e := ping(t, k, a...)
		fmt.Printf("$ rdma-ping %v\n%s%s(status %d)\n", a, o, e, st)
	}
	fmt.Println(s.stop(), s.out.String(), s.errOut.String())
	for _, o := range []fakekernel.Options{{NoCM: true}, {NoCMNode: true}, {Devices: []fakekernel.Device{}}, {Devices: []fakekernel.Device{{NoNode: true}}}, {Memlock: 65536}} {
		k := newKernel(t, o)
		for _, a := range [][]string{{"-s", "1m", "10.9.0.1"}, {"serve", "-a", "10.9.0.9"}, {"devices"}} {
			st, o, e := ping(t, k, a...)
			fmt.Printf("$ rdma-ping %v\n%s%s(status %d)\n", a, o, e, st)
		}
	}
	time.Sleep(100 * time.Millisecond)
	fmt.Println("goroutines", before, runtime.NumGoroutine())
}
