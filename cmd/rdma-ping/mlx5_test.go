//go:build linux

package main

import (
	"strings"
	"testing"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/fakekernel"
)

// TestMLX5: devices of mlx5 are listed as usable, and they are.
func TestMLX5(t *testing.T) {
	d := fakekernel.Device{Driver: abi.RDMA_DRIVER_MLX5}
	k := newKernel(t, fakekernel.Options{Devices: []fakekernel.Device{d, d}})
	serve(t, k)
	for _, mode := range []string{"", "--rping"} {
		if status, out, errs := ping(t, k, append(strings.Fields(mode), "-c", "3", "-i", "0", serverAddr)...); status != statusOK {
			t.Errorf("ping %s: status %d, stderr %q, stdout:\n%s", mode, status, errs, out)
		}
	}
	status, out, errs := ping(t, k, "devices")
	if status != statusOK || errs != "" || !strings.Contains(out, "mlx5_0: usable, driver mlx5, protocol roce") {
		t.Errorf("devices: status %d, stderr %q, stdout:\n%s", status, errs, out)
	}
}
