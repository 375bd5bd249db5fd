package uverbs_test

import (
	"testing"
	"time"

	"github.com/pureverbs/rdma/internal/fakekernel"
	"github.com/pureverbs/rdma/internal/verbstest"
	"github.com/pureverbs/rdma/uverbs"
)

// fake returns a kernel and a way to its first device.
func fake(t testing.TB, o fakekernel.Options) (*fakekernel.Kernel, func(testing.TB) *uverbs.Device) {
	t.Helper()
	o.Root = t.TempDir()
	k := fakekernel.New(o)
	t.Cleanup(func() { k.Close() })
	return k, func(t testing.TB) *uverbs.Device {
		t.Helper()
		devs, err := uverbs.Devices(uverbs.WithSystem(k.System()))
		if err != nil || len(devs) == 0 {
			t.Fatalf("%d devices, %v", len(devs), err)
		}
		return devs[0]
	}
}

// TestVerbs runs the suite of the verbs on the fake kernel, in the orders in which kernels
// carry out work and report it.
func TestVerbs(t *testing.T) {
	for name, o := range map[string]fakekernel.Options{
		"as 6.1":             {},
		"as 6.12":            {Deferred: true},
		"RW16 answers first": {AckDelay: time.Millisecond},
		"RW16 sends first":   {AckFirst: true},
		"write() refused":    {DenyWrite: true},
	} {
		t.Run(name, func(t *testing.T) {
			_, device := fake(t, o)
			(&verbstest.Suite{Device: device}).Run(t)
		})
	}
}
