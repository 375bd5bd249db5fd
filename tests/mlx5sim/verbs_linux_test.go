//go:build amd64 || arm64

package main

import (
	"os"
	"strings"
	"testing"

	"github.com/pureverbs/rdma/internal/fakekernel/sim/simtest"
	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/internal/verbstest"
)

// TestVerbs runs the suite of the verbs in a process of its own, on a device that is all there
// from /sys to doorbells.
func TestVerbs(t *testing.T) {
	if os.Getenv("RDMA_SIM") == "1" {
		d := testutil.Device(t)
		s := &verbstest.Suite{
			Device: testutil.Device, Kernel: testutil.MustKernel(os.Getenv("MLX5SIM_KERNEL")),
			Addr: testutil.Address(t, d), Short: testing.Short(),
		}
		s.Run(t)
		return
	}
	runSuite(t, "6.12", nil)
}

// TestVerbsModes leaves out what takes long, and says nothing of the device.
func TestVerbsModes(t *testing.T) {
	if testing.Short() {
		t.Skip("TestVerbs does")
	}
	for _, mode := range []struct{ kernel, flags string }{
		{"5.10", "-static-uars"}, {"7.2", ""}, {"6.12", "-cqe0"}, {"6.12", "-no-blueflame"},
	} {
		t.Run(mode.kernel+mode.flags, func(t *testing.T) {
			runSuite(t, mode.kernel, append(strings.Fields(mode.flags), self, "-test.skip=/(Stress|RW44)"))
		})
	}
}

func runSuite(t *testing.T, kernel string, args []string) {
	if len(args) == 0 {
		args = []string{self}
	}
	args = append([]string{"-v", "-kernel", kernel}, args...)
	cmd := simtest.Command(t.Context(), t, append(args, "-test.run=^TestVerbs$", "-test.v", "-test.short")...)
	cmd.Env = append(cmd.Env, "MLX5SIM_KERNEL="+kernel)
	o := finish(t, cmd)
	o.good(t)
}
