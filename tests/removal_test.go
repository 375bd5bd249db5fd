//go:build linux

package tests

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pureverbs/rdma/internal/discover"
	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/uverbs"
)

// extraLink makes one more device, on the loopback interface, and deletes it if the test has
// not.
func extraLink(t *testing.T, name string) *uverbs.Device {
	t.Helper()
	sys := discover.Host()
	testutil.Must(t, sys.AddLink(name, testutil.Device(t).Driver(), "lo"))
	t.Cleanup(func() { sys.DelLink(name) })
	devs, err := uverbs.Devices()
	testutil.Must(t, err)
	for _, d := range devs {
		if d.Name() == name {
			return d
		}
	}
	t.Fatalf("device %s is not listed", name)
	return nil
}

// deleted deletes a link, beside the test.
func deleted(name string) <-chan error {
	done := make(chan error, 1)
	go func() { done <- discover.Host().DelLink(name) }()
	return done
}

func soon(t *testing.T, done <-chan error, what string) {
	t.Helper()
	select {
	case err := <-done:
		testutil.Must(t, err)
	case <-time.After(10 * time.Second):
		t.Fatalf("%s does not end", what)
	}
}

// openNodes are the device nodes of uverbs that this process has open.
func openNodes(t *testing.T) (nodes []string) {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	testutil.Must(t, err)
	for _, n := range names {
		to, err := os.Readlink(filepath.Join("/proc/self/fd", n.Name()))
		if err == nil && strings.Contains(to, "uverbs") {
			nodes = append(nodes, to)
		}
	}
	return nodes
}

// TestRW09OthersMayGo: who has listed all devices, and holds a connection on one, does not
// keep another from being deleted; nor its own, once it is done.
func TestRW09OthersMayGo(t *testing.T) {
	testutil.Lab(t, "RW09")
	testutil.NoLeaks(t)
	const name = "x9"
	other := extraLink(t, name)
	addr := echoServer(t, labIPv4+":0", 256)
	ctx := limit(t, time.Minute)
	s := dial(t, ctx, addr.String(), 256)
	testutil.Must(t, s.trip(ctx, 1, 100))
	if _, err := rdmacm.Dial(limit(t, time.Second), labIPv4+":9", nil); err == nil { // also a failure opens nothing for good
		t.Error("somebody listens on port 9")
	}
	for _, node := range openNodes(t) {
		if node == other.Path() {
			t.Errorf("%s is open, nobody asked for it", node)
		}
	}
	soon(t, deleted(name), "deleting a device that nobody uses")
	testutil.Must(t, s.trip(ctx, 2, 100))

	own := extraLink(t, name)
	c, err := own.Open()
	testutil.Must(t, err)
	pd, err := c.AllocPD()
	testutil.Must(t, err)
	mr, err := pd.AllocMR(4096, uverbs.AccessLocalWrite)
	testutil.Must(t, err)
	testutil.Must(t, errors.Join(mr.Close(), pd.Close(), c.Close()))
	soon(t, deleted(name), "deleting a device whose context is closed")
	testutil.Must(t, s.close())
}

// TestDeletedInUse: deleting a software device waits until all that is on it is closed, and
// all of it can be.
func TestDeletedInUse(t *testing.T) {
	testutil.Lab(t, "DeletedInUse")
	testutil.NoLeaks(t)
	const name = "x8"
	d := extraLink(t, name)
	c, err := d.Open()
	testutil.Must(t, err)
	pd, err := c.AllocPD()
	testutil.Must(t, err)
	ch, err := c.NewCompChannel()
	testutil.Must(t, err)
	cq, err := c.CreateCQ(16, ch)
	testutil.Must(t, err)
	mr, err := pd.AllocMR(4096, uverbs.AccessLocalWrite)
	testutil.Must(t, err)
	qp, err := pd.CreateQP(&uverbs.QPInitAttr{SendCQ: cq, Cap: uverbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1}})
	testutil.Must(t, err)
	done := deleted(name)
	select {
	case err := <-done:
		t.Errorf("the device was deleted under its context: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	testutil.Must(t, errors.Join(qp.Close(), mr.Close(), cq.Close(), ch.Close(), pd.Close(), c.Close()))
	soon(t, done, "deleting a device whose context is closed")
}
