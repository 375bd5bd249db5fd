package uverbs_test

import (
	"testing"

	"github.com/pureverbs/rdma/internal/fakekernel"
	"github.com/pureverbs/rdma/internal/verbstest"
)

// BenchmarkHotPath measures posting, polling and arming on the fake kernel, and fails if
// any of them allocates. The fake's own work is part of the time, so compare allocations
// and changes, not devices.
func BenchmarkHotPath(b *testing.B) {
	_, device := fake(b, fakekernel.Options{})
	for name, run := range verbstest.HotPath(b, device) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				run()
			}
		})
	}
}

// TestHotPathAllocatesNothing is the promise of the benchmark as a test.
func TestHotPathAllocatesNothing(t *testing.T) {
	_, device := fake(t, fakekernel.Options{})
	for name, run := range verbstest.HotPath(t, device) {
		if n := testing.AllocsPerRun(50, run); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
