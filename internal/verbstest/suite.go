//go:build linux

// Package verbstest is the test suite of the verbs: what every device must do, whoever plays
// it. It runs on the fake kernel in the tests of package uverbs, and on real kernels in
// tests/.
package verbstest

import (
	"testing"

	"github.com/pureverbs/rdma/uverbs"
)

// Suite runs on the device that Device returns; each test opens it anew.
type Suite struct {
	Device func(testing.TB) *uverbs.Device
}

// Run runs all tests, each as a subtest.
func (u *Suite) Run(t *testing.T) {
	for _, test := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"RCOperations", u.rcOperations},
		{"RW18NoPieces", u.rw18NoPieces},
		{"RW23InlinePieces", u.rw23InlinePieces},
		{"RW25NoWakeupLost", u.rw25NoWakeupLost},
		{"RW25EachTakesOne", u.rw25EachTakesOne},
		{"RW27CloseWakesWaiters", u.rw27CloseWakesWaiters},
		{"WaitDeadline", u.waitDeadline},
		{"CloseOrder", u.closeOrder},
		{"RW44StaleCompletions", u.rw44StaleCompletions},
		{"ErrorCompletions", u.errorCompletions},
		{"RW41RNRTimer", u.rw41RNRTimer},
		{"Queries", u.queries},
		{"RW28ReadOnlyMemory", u.rw28ReadOnlyMemory},
		{"GoHeapMemory", u.goHeapMemory},
	} {
		t.Run(test.name, test.run)
	}
}
