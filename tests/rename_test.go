//go:build linux

package tests

import (
	"os/exec"
	"testing"
	"time"

	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/uverbs"
)

// rename gives a device another name.
func rename(t testing.TB, from, to string) {
	t.Helper()
	out, err := exec.Command(testutil.Command(t, "rdma"), "dev", "set", from, "name", to).CombinedOutput()
	if err != nil {
		t.Fatalf("rename %s to %s: %v\n%s", from, to, err, out)
	}
}

// TestRW22Rename: a name is a label. What runs goes on under whatever name, lists show each
// device once under either, and any name that the kernel allows works.
func TestRW22Rename(t *testing.T) {
	testutil.Lab(t, "RW22")
	testutil.NoLeaks(t)
	before := testutil.Device(t)
	name, other := before.Name(), "ibp0s4f1"
	addr := echoServer(t, labIPv4+":0", 256)
	ctx := limit(t, time.Minute)
	s := dial(t, ctx, addr.String(), 256)
	stop, flipped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(flipped)
		from, to := name, other
		for {
			rename(t, from, to)
			from, to = to, from
			select {
			case <-stop:
				if from != name {
					rename(t, from, name)
				}
				return
			default:
			}
		}
	}()
	for i := range 200 {
		devs, err := uverbs.Devices()
		testutil.Must(t, err)
		seen := map[int]string{}
		for _, d := range devs {
			if was, twice := seen[d.Index()]; twice {
				t.Errorf("device %d is listed as %s and as %s", d.Index(), was, d.Name())
			}
			seen[d.Index()] = d.Name()
		}
		if got := seen[before.Index()]; got != name && got != other {
			t.Errorf("device %d is listed as %q, want %s or %s", before.Index(), got, name, other)
		}
		if i%20 == 0 {
			testutil.Must(t, s.trip(ctx, uint64(i), 100))
			fresh := dial(t, ctx, addr.String(), 256) // connections by address do not care
			testutil.Must(t, fresh.trip(ctx, uint64(i), 100))
			testutil.Must(t, fresh.close())
		}
	}
	close(stop)
	<-flipped
	testutil.Must(t, s.trip(ctx, 1000, 100))
	testutil.Must(t, s.close())
	c, err := before.Open() // as it was listed, long ago
	testutil.Must(t, err)
	testutil.Must(t, c.Close())
}
