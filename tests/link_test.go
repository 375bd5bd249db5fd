package tests

import (
	"os"
	"strings"
	"testing"

	"github.com/pureverbs/rdma/internal/discover"
	"github.com/pureverbs/rdma/internal/testutil"
)

// TestLinks makes a software device, finds it, and deletes it again.
func TestLinks(t *testing.T) {
	typ := testutil.Device(t).Driver()
	if os.Getenv("RDMA_LAB") != "1" {
		testutil.Skip(t, "a machine whose devices may be changed", "run: make lab RUN=Links")
	}
	const name = "any.name-0"
	sys := discover.Host()
	testutil.Must(t, sys.AddLink(name, typ, "lo"))
	if err := sys.AddLink(name, typ, "lo"); err == nil {
		t.Error("the same link was made twice")
	}
	devs, err := sys.Devices()
	testutil.Must(t, err)
	if d, err := discover.Find(devs, name); err != nil || d.Reason != nil {
		t.Errorf("found %+v, %v; want a usable device", d, err)
	}
	// Listing has opened nothing, so deleting does not have to wait for us (RW-09).
	testutil.Must(t, sys.DelLink(name))
	devs, err = sys.Devices()
	testutil.Must(t, err)
	if _, err := discover.Find(devs, name); err == nil || !strings.Contains(err.Error(), devs[0].Name) {
		t.Errorf("got %v, want an error that names what there is", err)
	}
	if err := sys.AddLink("x0", "nosuch", "lo"); err == nil {
		t.Error("a link of an unknown type was made")
	}
}
