package howto

import (
	"fmt"
	"os"

	"github.com/pureverbs/rdma/uverbs"
)

// FirstDevice is the device that tests use, or why there is none.
func FirstDevice(opts ...uverbs.Option) (*uverbs.Device, error) {
	devices, err := uverbs.Devices(opts...)
	if err != nil {
		return nil, err // no module, with what to do
	}
	for _, d := range devices {
		if d.Usable() == nil && d.Reachable() == nil {
			return d, nil
		}
	}
	return nil, fmt.Errorf("none of %d RDMA devices can be used here: see rdma-ping doctor", len(devices))
}

// tester is what FirstDevice's error goes to: a *testing.T.
type tester interface {
	Helper()
	Skip(args ...any)
	Fatal(args ...any)
}

// NeedDevice is for the tests of a program: without a device they are skipped, or fail where
// RDMA_TEST_REQUIRE=1 says that there has to be one, as the lab does.
func NeedDevice(t tester, opts ...uverbs.Option) *uverbs.Device {
	t.Helper()
	d, err := FirstDevice(opts...)
	switch {
	case err == nil:
		return d
	case os.Getenv("RDMA_TEST_REQUIRE") == "1":
		t.Fatal(err)
	default:
		t.Skip(err)
	}
	return nil
}
