package tests

import (
	"testing"

	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/internal/verbstest"
)

// suite is the suite of the verbs on a device of this kernel.
func suite(t testing.TB) *verbstest.Suite {
	t.Helper()
	d := testutil.Device(t)
	return &verbstest.Suite{
		Device: testutil.Device, Kernel: testutil.RunningKernel(), Addr: testutil.Address(t, d), Short: testing.Short(),
	}
}

// TestVerbs runs the suite of the verbs on a device of this kernel.
func TestVerbs(t *testing.T) {
	testutil.Device(t)
	sameObjects(t)
	suite(t).Run(t)
}

// TestHotPathAllocatesNothing: posting, polling and arming cost no allocation.
func TestHotPathAllocatesNothing(t *testing.T) {
	suite(t).NoAllocs(t)
}

// BenchmarkHotPath measures posting, polling and arming on a device of this kernel.
func BenchmarkHotPath(b *testing.B) {
	suite(b).Benchmark(b)
}
