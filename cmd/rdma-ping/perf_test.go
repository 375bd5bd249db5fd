//go:build linux

package main

import (
	"strings"
	"testing"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/fakekernel"
)

// perfServe starts a server of perf, which must end well with the test.
func perfServe(t *testing.T, k *fakekernel.Kernel, args ...string) *command {
	t.Helper()
	s := start(t, k, append([]string{"perf", "serve"}, args...)...)
	s.out.await(t, "listening on")
	t.Cleanup(func() {
		if status := s.stop(); status != statusOK || s.errOut.String() != "" {
			t.Errorf("perf serve: status %d, stderr %q", status, s.errOut.String())
		}
	})
	return s
}

// byHand are the arguments with which both sides meet over TCP: the address that leads to
// the program is none of the fake device.
var byHand = []string{"--tcp", "--device", "rxe0", "--gid-index", "1"}

// perfRuns are short runs of everything: mode, operation and transport, and what is special.
var perfRuns = []string{
	"lat", "lat -o write", "lat -o read", "lat -o atomic",
	"lat -t uc", "lat -t uc -o write", "lat -t ud",
	"bw", "bw -o write", "bw -o read", "bw -o atomic",
	"bw -t uc", "bw -t uc -o write", "bw -t ud -s 512",
	"bw -b", "bw -b -o write", "bw -b -o read", "bw -b -o atomic", "bw -b -t uc", "bw -b -t ud -s 1k",
	"bw --depth 1", "bw --depth 7 --batch 3", "bw --qps 3 -b --batch 64", "bw -o write --qps 3 --batch 16",
	"lat --qps 2", "lat -s 1,2,3,5000", "bw -s 1..16k", "lat --warmup 0", "bw --warmup 0",
	"lat -o write -s 1..64", "lat --poll", "bw --poll", "lat --block", "bw --block",
}

func TestPerf(t *testing.T) {
	for _, connection := range []string{"cm", "tcp"} {
		k := newKernel(t, fakekernel.Options{})
		args := []string{"-a", serverAddr}
		if connection == "tcp" {
			args = append([]string{"-a", "127.0.0.1"}, byHand...)
		}
		s := perfServe(t, k, args...)
		for _, run := range perfRuns {
			t.Run(connection+" "+run, func(t *testing.T) {
				args := append([]string{"perf"}, strings.Fields(run)...)
				args = append(args, "-c", "40", "--verify", "-W", "5s")
				if connection == "tcp" {
					args = append(append(args, byHand...), "127.0.0.1")
				} else {
					args = append(args, serverAddr)
				}
				status, out, errs := ping(t, k, args...)
				if status != statusOK || errs != "" {
					t.Fatalf("status %d, stderr %q, stdout:\n%s\nserver:\n%s", status, errs, out, s.out.String())
				}
				if testing.Verbose() {
					t.Logf("\n%s", out)
				}
			})
		}
	}
}

// TestPerfDevices: the devices of other drivers do it too, or say what they cannot.
func TestPerfDevices(t *testing.T) {
	for name, driver := range map[string]fakekernel.Device{
		"mlx5": {Driver: abi.RDMA_DRIVER_MLX5}, "siw": {Driver: abi.RDMA_DRIVER_SIW},
	} {
		k := newKernel(t, fakekernel.Options{Devices: []fakekernel.Device{driver, driver}})
		s := perfServe(t, k)
		for _, run := range perfRuns {
			t.Run(name+" "+run, func(t *testing.T) {
				args := append([]string{"perf"}, strings.Fields(run)...)
				status, out, errs := ping(t, k, append(args, "-c", "40", "--verify", "-W", "5s", serverAddr)...)
				if name == "siw" && (strings.Contains(run, "-t u") || strings.Contains(run, "atomic")) {
					if status != statusError || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, "not supported") {
						t.Errorf("status %d, stdout %q, stderr %q; want one line that says what iWARP lacks", status, out, errs)
					}
				} else if status != statusOK || errs != "" {
					t.Errorf("status %d, stderr %q, stdout:\n%s\nserver:\n%s", status, errs, out, s.out.String())
				}
			})
		}
	}
}
