package tests

import (
	"testing"

	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/internal/verbstest"
)

// TestVerbs runs the suite of the verbs on a device of this kernel.
func TestVerbs(t *testing.T) {
	testutil.Device(t)
	(&verbstest.Suite{Device: testutil.Device}).Run(t)
}
