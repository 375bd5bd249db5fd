package uverbs_test

import (
	"testing"

	"github.com/pureverbs/rdma/internal/fakekernel"
)

// BenchmarkHotPath measures posting, polling and arming on the fake kernel. The fake's own
// work is part of the time, so compare allocations and changes, not devices.
func BenchmarkHotPath(b *testing.B) {
	b.Run("rxe", suite(b, fakekernel.Options{Devices: rxe}).Benchmark)
	b.Run("siw", suite(b, fakekernel.Options{Devices: siw}).Benchmark)
}

// TestHotPathAllocatesNothing is the promise of the benchmark as a test.
func TestHotPathAllocatesNothing(t *testing.T) {
	t.Run("rxe", suite(t, fakekernel.Options{Devices: rxe}).NoAllocs)
	t.Run("siw", suite(t, fakekernel.Options{Devices: siw}).NoAllocs)
	t.Run("mlx5", suite(t, fakekernel.Options{Devices: mlx5}).NoAllocs)
}
