//go:build linux

// Package verbstest is the test suite of the verbs: what every device must do, whoever plays
// it. It runs on the fake kernel in the tests of package uverbs, and on real kernels in
// tests/.
package verbstest

import (
	"net/netip"
	"testing"
	"time"

	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/uverbs"
)

// Suite runs on the device that Device returns; each test opens it anew.
type Suite struct {
	Device func(testing.TB) *uverbs.Device

	Kernel testutil.Kernel // what the device's driver is part of: decides what may be missing
	Addr   netip.Addr      // of the device's network interface
	CM     []rdmacm.Option // for event channels

	// Short leaves out what takes long, for runs that are one of many.
	Short bool

	blocking bool // channels block the thread of their reader
}

type test struct {
	name string
	run  func(*testing.T)
}

// Run runs all tests, each as a subtest.
func (u *Suite) Run(t *testing.T) {
	for _, group := range [][]test{
		u.rcTests(), u.datagramTests(), u.srqTests(), u.windowTests(), u.atomicTests(), u.orderTests(), u.cqTests(),
		u.memoryTests(), u.queryTests(), u.postTests(), u.pollTests(), u.waitTests(), u.stateTests(), u.lifetimeTests(),
		u.programTests(), u.stressTests(),
	} {
		for _, test := range group {
			start := time.Now()
			t.Run(test.name, func(t *testing.T) {
				testutil.NoLeaks(t)
				test.run(t)
			})
			if took := time.Since(start); took > 2*time.Second {
				t.Logf("%s took %v", test.name, took.Round(time.Millisecond))
			}
		}
	}
}

// driver is the name of the device's driver.
func (u *Suite) driver(t testing.TB) string { return u.Device(t).Driver() }

// byHand tells whether queue pairs are connected without the connection manager.
func (u *Suite) byHand(t testing.TB) bool { return u.has(t, byHand) }
