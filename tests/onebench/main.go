//go:build linux

// Command onebench measures what a message costs where both ends are in this process, on one
// goroutine: posting it and polling for its completion, this module and the kernel together. It
// is tests/c/onebench.c in Go, step by step, and prints the same.
//
//	onebench [-cpuprofile FILE -only NAME] rxe|siw ADDRESS COUNT
package main

import (
	"context"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/pureverbs/rdma/tests/profile"
)

func main() {
	file := flag.String("cpuprofile", "", "file for a profile of where the time goes")
	only := flag.String("only", "", "measure only what has this in its name")
	flag.Parse()
	if flag.NArg() != 3 {
		fmt.Fprintln(os.Stderr, "usage: onebench [-cpuprofile FILE -only NAME] rxe|siw ADDRESS COUNT")
		os.Exit(2)
	}
	err := profile.Run(*file, func() error { return run(flag.Arg(0), flag.Arg(1), flag.Arg(2), *only) })
	if err != nil {
		fmt.Fprintln(os.Stderr, "onebench:", err)
		os.Exit(1)
	}
}

func run(device, address, number, only string) error {
	count, err := strconv.Atoi(number)
	if err != nil {
		return err
	}
	addr, err := netip.ParseAddr(address)
	if err != nil {
		return err
	}
	runtime.LockOSThread() // as C: one thread, which gives the CPU up when it has nothing to do
	p, err := connect(context.Background(), netip.AddrPortFrom(addr, port))
	if err != nil {
		return err
	}
	for _, batch := range []int{1, slots} {
		for _, l := range p.loops() {
			name := fmt.Sprintf("one-%s-%s-b%d", device, l.name, batch)
			if !strings.Contains(name, only) {
				continue
			}
			took, err := p.measure(l, batch, count)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			fmt.Printf("sample %s go %.3f\n", name, took)
		}
	}
	return nil
}
