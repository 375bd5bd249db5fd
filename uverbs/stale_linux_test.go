package uverbs_test

import (
	"testing"

	"github.com/pureverbs/rdma/internal/fakekernel"
	"github.com/pureverbs/rdma/internal/testutil"
)

// TestRW44NumbersRepeat: a thousand queue pairs come and go on one completion queue, while
// others poll it. siw gives the number of the one that went to the one that comes.
func TestRW44NumbersRepeat(t *testing.T) {
	for name, devices := range map[string][]fakekernel.Device{"rxe": rxe, "siw": siw, "mlx5": mlx5} {
		t.Run(name, func(t *testing.T) {
			testutil.NoLeaks(t)
			suite(t, fakekernel.Options{Devices: devices}).NumbersRepeat(t, 1000)
		})
	}
}
