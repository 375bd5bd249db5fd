//go:build linux

package verbstest

import (
	"testing"

	"github.com/pureverbs/rdma/internal/testutil"
)

// feature is something that not every device on every kernel has.
type feature int

const (
	byHand             feature = iota // queue pairs are connected by Modify
	unreliable                        // queue pairs of type UC
	datagrams                         // queue pairs of type UD, address handles
	multicast                         // groups
	immediate                         // 32 bits along with a message
	multiRead                         // an RDMA READ into several pieces
	atomics                           // compare and swap, fetch and add
	atomicWrite                       // OpAtomicWrite
	flushing                          // OpFlush
	windows                           // memory windows
	remoteInvalidate                  // OpSendInvalidate
	tellsInvalidate                   // and the completion names the key
	invalidatesRegions                // OpSendInvalidate takes the key of a region away
	tellsErrors                       // a responder tells the requester what is wrong
	remoteReadGuard                   // peers read only what the access flags let them
	sharedResize                      // shared receive queues change their size
	cqResize                          // completion queues change theirs
	rereg                             // regions change domain and access
	onDemand                          // advice on memory regions
	solicited                         // only solicited messages raise an event, if asked for
	partitions                        // partition keys
	readOnlyShared                    // read-only memory of a shared file mapping can be registered
	drained                           // state SQD
	reregMemory                       // regions change their memory
	numFeatures
)

// availability says which driver has a feature, from which kernel on; "" is never.
type availability struct{ name, rxe, siw, mlx5 string }

// The truth about the drivers, from their sources and, of the two that are software, from
// asking them (tests/kernel_test.go). 5.10 stands for "always": it is the oldest kernel that
// counts.
var features = [numFeatures]availability{
	byHand:             {"connecting by hand", "5.10", "", "5.10"},
	unreliable:         {"UC queue pairs", "5.10", "", "5.10"},
	datagrams:          {"UD queue pairs", "5.10", "", "5.10"},
	multicast:          {"multicast", "5.10", "", "5.10"},
	immediate:          {"immediate data", "5.10", "", "5.10"},
	multiRead:          {"RDMA READ into several pieces", "5.10", "", "5.10"},
	atomics:            {"atomics", "5.10", "", "5.10"},
	atomicWrite:        {"ATOMIC WRITE", "6.3", "", ""},
	flushing:           {"FLUSH", "6.3", "", ""},
	windows:            {"memory windows", "5.14", "", "5.10"},
	remoteInvalidate:   {"SEND with invalidate", "5.10", "5.10", "5.10"},
	tellsInvalidate:    {"keys in completions", "5.10", "", "5.10"},
	invalidatesRegions: {"remote invalidation of regions", "", "5.10", ""},
	tellsErrors:        {"answers to bad requests", "5.14", "5.10", "5.10"},
	remoteReadGuard:    {"a guard of remote reads", "5.10", "", "5.10"},
	sharedResize:       {"resizing of shared receive queues", "5.10", "", ""},
	cqResize:           {"resizing of completion queues", "5.10", "", "5.10"},
	rereg:              {"re-registration", "6.3", "", "5.10"},
	onDemand:           {"advice on memory regions", "6.15", "", ""},
	solicited:          {"solicited events", "5.10", "", "5.10"},
	partitions:         {"partition keys", "5.10", "", "5.10"},
	readOnlyShared:     {"read-only shared mappings", "6.2", "6.2", "6.2"},
	drained:            {"state SQD", "5.10", "", ""},
	reregMemory:        {"re-registration of other memory", "", "", "5.10"},
}

func (f feature) String() string { return features[f].name }

// has tells whether the device must have a feature.
func (u *Suite) has(t testing.TB, f feature) bool {
	t.Helper()
	var since string
	switch d := u.driver(t); d {
	case "rxe":
		since = features[f].rxe
	case "siw":
		since = features[f].siw
	case "mlx5":
		since = features[f].mlx5
	default:
		t.Fatalf("the table of features knows nothing of driver %s", d)
	}
	return since != "" && u.Kernel.AtLeast(testutil.MustKernel(since))
}

// needs returns if the device must have a feature. Otherwise the test is skipped, after a
// look that the library refuses the feature as it should.
func (u *Suite) needs(t *testing.T, f feature) {
	t.Helper()
	if u.has(t, f) {
		return
	}
	u.refused(t, f)
	if !t.Failed() {
		t.Skipf("%s of Linux %v has no %v; it is refused as it should be", u.driver(t), u.Kernel, f)
	}
	t.FailNow()
}
