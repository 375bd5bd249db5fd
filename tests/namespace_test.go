//go:build linux

package tests

import (
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/uverbs"
)

// elsewhere runs f on a thread in a network namespace of its own, with the address
// 10.9.9.1 on an interface without RDMA, over which all traffic goes. The thread ends with
// it.
func elsewhere(t *testing.T, f func()) {
	t.Helper()
	var wg sync.WaitGroup
	wg.Go(func() {
		runtime.LockOSThread() // and never unlocked: nobody else gets this thread
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Errorf("new namespace: %v", err)
			return
		}
		for _, args := range []string{"link set lo up", "link add w1 type dummy", "addr add 10.9.9.1/24 dev w1", "link set w1 up", "route add default dev w1"} {
			// A child is made by this thread, so it is in the same namespace.
			if out, err := exec.Command(testutil.Command(t, "ip"), strings.Fields(args)...).CombinedOutput(); err != nil {
				t.Errorf("ip %s: %v\n%s", args, err, out)
				return
			}
		}
		f()
	})
	wg.Wait()
}

// TestRW01NoInterfaceHere: a device whose interface is in another network namespace is
// marked so, and what cannot work because of it says so.
func TestRW01NoInterfaceHere(t *testing.T) {
	testutil.Lab(t, "RW01")
	testutil.NoLeaks(t)
	elsewhere(t, func() {
		devs, err := uverbs.Devices()
		if err != nil || len(devs) == 0 {
			t.Errorf("%d devices, %v", len(devs), err)
			return
		}
		for _, d := range devs {
			if err := d.Reachable(); d.Usable() != nil || err == nil || !strings.Contains(err.Error(), "namespace") {
				t.Errorf("%s: usable %v, reachable %v; want that its interface is elsewhere", d.Name(), d.Usable(), err)
			}
		}
		ctx := limit(t, 20*time.Second)
		_, err = rdmacm.Dial(ctx, labIPv4+":7471", nil)
		if !errors.Is(err, syscall.ENODEV) || !strings.Contains(err.Error(), "namespace") {
			t.Errorf("dial over an interface without RDMA: got %v, want ENODEV and what it means", err)
		}
		byHand(t, devs[0])
	})
}

// byHand tries to connect a queue pair by hand: it works, or the error says why it does not.
func byHand(t *testing.T, d *uverbs.Device) {
	if d.Driver() != "rxe" {
		return
	}
	c, err := d.Open()
	testutil.Must(t, err)
	pd, err := c.AllocPD()
	testutil.Must(t, err)
	cq, err := c.CreateCQ(4, nil)
	testutil.Must(t, err)
	qp, err := pd.CreateQP(&uverbs.QPInitAttr{SendCQ: cq, Cap: uverbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}})
	testutil.Must(t, err)
	table, err := c.GIDTable()
	testutil.Must(t, err)
	testutil.Must(t, qp.Modify(&uverbs.QPAttr{State: uverbs.StateInit, PortNum: 1},
		uverbs.QPAttrState|uverbs.QPAttrPKeyIndex|uverbs.QPAttrPort|uverbs.QPAttrAccessFlags))
	if len(table) > 0 {
		e := table[len(table)-1]
		err := qp.Modify(&uverbs.QPAttr{
			State: uverbs.StateRTR, PathMTU: uverbs.MTU1024, DestQPNum: qp.Num(), MinRNRTimer: 12,
			AH: uverbs.AHAttr{DGID: e.GID, SGIDIndex: uint8(e.Index), IsGlobal: true, HopLimit: 64, PortNum: 1},
		}, uverbs.QPAttrState|uverbs.QPAttrAV|uverbs.QPAttrPathMTU|uverbs.QPAttrDestQPN|uverbs.QPAttrRQPSN|uverbs.QPAttrMaxDestRDAtomic|uverbs.QPAttrMinRNRTimer)
		t.Logf("by hand, with the address %v of the other namespace: %v", e.GID, err)
		if errors.Is(err, syscall.ENODEV) && !strings.Contains(err.Error(), "namespace") {
			t.Errorf("by hand: got %v, want the reason", err)
		}
	}
	testutil.Must(t, errors.Join(qp.Close(), cq.Close(), pd.Close(), c.Close()))
}

// TestRW01ListenerPerNamespace: a listener belongs to the namespace of the goroutine's
// thread, whatever other goroutines do meanwhile.
func TestRW01ListenerPerNamespace(t *testing.T) {
	testutil.Lab(t, "RW01")
	testutil.NoLeaks(t)
	here, err := rdmacm.Listen(limit(t, time.Minute), "0.0.0.0:7471", nil)
	testutil.Must(t, err)
	defer here.Close()
	rounds := 1000
	if testing.Short() {
		rounds = 100
	}
	elsewhere(t, func() {
		// Package rdmacm looks through the GID tables for interfaces of this namespace, to say
		// what is wrong or if there is anything to listen on, which takes seconds here: once.
		ctx := limit(t, time.Minute)
		_, err := rdmacm.Listen(ctx, "10.9.9.1:0", nil)
		if !errors.Is(err, syscall.ENODEV) {
			t.Errorf("listen on an address without RDMA: got %v, want ENODEV", err)
		}
		there, err := rdmacm.Listen(ctx, "0.0.0.0:7471", nil) // the same port, another namespace
		if err != nil {
			t.Errorf("listen on all addresses: %v", err)
			return
		}
		testutil.Must(t, there.Close())
		defer busy(2)()
		for i := range rounds {
			if err := stillThere(); err != nil {
				t.Errorf("round %d: %v", i, err)
				return
			}
		}
	})
}

// busy has n goroutines run now and then, until it is told to stop.
func busy(n int) (stop func()) {
	end := make(chan struct{})
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for {
				select {
				case <-end:
					return
				case <-time.After(100 * time.Microsecond):
				}
			}
		})
	}
	return func() {
		close(end)
		wg.Wait()
	}
}

// stillThere makes calls that would go another way in the first namespace: the port is free,
// and the address is not there.
func stillThere() error {
	ch, err := rdmacm.NewEventChannel()
	if err != nil {
		return err
	}
	defer ch.Close()
	id, err := ch.NewID(rdmacm.PortSpaceTCP)
	if err != nil {
		return err
	}
	defer id.Close()
	if err := id.Bind(labAddr(labIPv4, 0)); !errors.Is(err, syscall.EADDRNOTAVAIL) {
		return fmt.Errorf("bind to an address of the other namespace: got %q, want EADDRNOTAVAIL", fmt.Sprint(err))
	}
	if err := id.Bind(netip.MustParseAddrPort("0.0.0.0:7471")); err != nil {
		return err
	}
	return id.Listen(1)
}
