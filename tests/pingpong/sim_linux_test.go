//go:build amd64 || arm64

package main

import (
	"os"
	"testing"

	"github.com/pureverbs/rdma/internal/fakekernel/sim/simtest"
)

func TestMain(m *testing.M) { simtest.Main(m) }

// TestSimulated runs the tests against the C programs, and those of Go against Go, on a
// simulated mlx5 device.
func TestSimulated(t *testing.T) {
	switch {
	case os.Getenv("RDMA_SIM") == "1":
		t.Skip("this is on the simulated device already")
	case os.Getenv("RDMA_LAB") == "1":
		t.Skip("the lab has devices of its own")
	}
	cmd := simtest.Command(t.Context(), t, "/proc/self/exe", "-test.run=Interop|GoToGo", "-test.v")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}
