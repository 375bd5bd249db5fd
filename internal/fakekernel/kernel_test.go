//go:build linux

package fakekernel

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/discover"
	"github.com/pureverbs/rdma/internal/provider"
	"github.com/pureverbs/rdma/internal/uapi"
)

// TestCloseLeavesNothing: goroutines end, waiters wake, whatever was left open.
func TestCloseLeavesNothing(t *testing.T) {
	before := runtime.NumGoroutine()
	k := New(Options{})
	a, b := pair(t, k)
	a.send(provider.SendWR{Opcode: provider.OpSend}) // waits for a receive that never comes
	c := openCM(t, k)
	errs := make(chan error)
	go func() { _, err := b.d.async.Read(context.Background(), make([]byte, 16)); errs <- err }()
	go func() {
		_, err := c.f.Write(context.Background(), append(bytesOf(&abi.RdmaUcmCmdHdr{Cmd: abi.RDMA_USER_CM_CMD_GET_EVENT, In: 8, Out: 336}), make([]byte, 8)...))
		errs <- err
	}()
	time.Sleep(2 * time.Millisecond)
	k.Close()
	k.Close()
	for range 2 {
		if err := <-errs; !errors.Is(err, net.ErrClosed) {
			t.Errorf("waiter got %v, want net.ErrClosed", err)
		}
	}
	if c := k.Counts(); c != (Counts{Maps: 6}) {
		t.Errorf("left: %+v, want the mappings that the user holds", c)
	}
	for deadline := time.Now().Add(time.Second); runtime.NumGoroutine() > before && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	if n := runtime.NumGoroutine(); n > before {
		t.Errorf("%d goroutines, %d before", n, before)
	}
	_, err := k.System().Opener.Open("/dev/infiniband/uverbs0")
	want(t, "open after Close", err, unix.ENXIO)
}

// TestDiscover: the devices as discover finds them, by netlink and by sysfs.
func TestDiscover(t *testing.T) {
	k := start(t, Options{
		Root:    t.TempDir(),
		Devices: []Device{{}, {Name: "roce7", NetDev: "ib7", GUID: 7, NoNode: true}, {NoVerbs: true}},
	})
	devs, err := k.System().Devices()
	must(t, err)
	if len(devs) != 3 {
		t.Fatalf("%d devices, want 3", len(devs))
	}
	d := devs[0]
	if d.Name != "rxe0" || d.Index != 0 || d.Ports != 1 || d.Driver != abi.RDMA_DRIVER_RXE || d.ABI != 2 || d.Protocol != "roce" ||
		d.Reason != nil || d.NetReason != nil || len(d.NetDevs) != 1 || d.NetDevs[0] != "eth0" || d.Node != "/dev/infiniband/uverbs0" {
		t.Errorf("first device: %+v", d)
	}
	if d := devs[1]; d.Name != "roce7" || d.NodeGUID != 7 || !errors.Is(d.Reason, discover.ErrNoNode) {
		t.Errorf("device without a node: %+v, %v", d, d.Reason)
	}
	if devs[2].Reason == nil {
		t.Error("device without ib_uverbs has no reason")
	}
	cm, err := k.System().CM()
	if err != nil || cm.Reason != nil || cm.ABI != 4 {
		t.Errorf("rdma_cm: %+v, %v", cm, err)
	}
	mode, err := k.System().Mode()
	if err != nil || mode.Exclusive || !mode.CopyOnFork {
		t.Errorf("mode %+v, %v", mode, err)
	}
	key, err := k.System().PKey(&devs[0], 1, 0)
	if err != nil || key != 0xffff {
		t.Errorf("P_Key %#x, %v", key, err)
	}
	sys := k.System()
	sys.Netlink = func() (discover.Transport, error) { return nil, unix.EPERM }
	devs, err = sys.Devices()
	if err != nil || len(devs) != 3 || devs[0].Name != "rxe0" || devs[0].Driver != abi.RDMA_DRIVER_RXE || devs[0].NodeGUID != k.devices[0].GUID {
		t.Errorf("by sysfs: %+v, %v", devs, err)
	}
	_, err = start(t, Options{NoCM: true}).System().CM()
	if !errors.Is(err, discover.ErrNoModule) {
		t.Errorf("without rdma_ucm: %v", err)
	}
	none, err := start(t, Options{Devices: []Device{}}).System().Devices()
	if err != nil || len(none) != 0 {
		t.Errorf("without devices: %v, %v", none, err)
	}
}

func TestOpener(t *testing.T) {
	k := start(t, Options{})
	o := k.System().Opener
	if _, err := o.Open("/dev/infiniband/uverbs9"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want ErrNotExist", err)
	}
	_, err := o.Adopt(3)
	want(t, "adopt", err, unix.EBADF)
	f, err := o.Open("/dev/char/231:192")
	must(t, err)
	must(t, f.Close())
	must(t, f.Close())
	if err := cmd(uapi.GetContext).Do(f); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestFaults(t *testing.T) {
	var calls []Call
	k := start(t, Options{Log: func(c Call) { calls = append(calls, c) }})
	d := openDev(t, k)
	k.Fail(Nth(2, Command(abi.IB_USER_VERBS_CMD_ALLOC_PD)), unix.ENOMEM)
	for i, errno := range []unix.Errno{0, unix.ENOMEM, 0} {
		var r abi.IbUverbsAllocPdResp
		if err := d.invoke(uapi.AllocPD, bytesOf(&abi.IbUverbsAllocPd{}), bytesOf(&r)); !is(err, errno) {
			t.Errorf("call %d: %v, want %v", i+1, err, errno)
		}
	}
	cancel := k.Fail(Method(abi.UVERBS_OBJECT_PD, abi.UVERBS_METHOD_PD_DESTROY), unix.EIO)
	end := func() error {
		return cmd(uapi.PDDestroy).Destroy(abi.UVERBS_ATTR_DESTROY_PD_HANDLE, 0).Do(d.f)
	}
	want(t, "with a fault", end(), unix.EIO)
	cancel()
	cancel()
	want(t, "without", end(), 0)
	c := openCM(t, k)
	k.Fail(CMCommand(abi.RDMA_USER_CM_CMD_CREATE_ID), unix.ENODEV)
	want(t, "rdma_cm", errOf(c.create(1, abi.RDMA_PS_TCP)), unix.ENODEV)
	k.Fail(Kind(CallOpen), unix.EPERM)
	_, err := k.System().Opener.Open("/dev/infiniband/uverbs0")
	want(t, "open", err, unix.EPERM)
	if first := calls[0]; first.Kind != CallOpen || first.Path != "/dev/infiniband/uverbs0" {
		t.Errorf("first call logged: %+v", first)
	}
}

func is(err error, errno unix.Errno) bool {
	return errno == 0 && err == nil || errno != 0 && errors.Is(err, errno)
}

func TestEventFile(t *testing.T) {
	k := start(t, Options{})
	d := openDev(t, k)
	ch, _ := d.channel()
	read := func(n int) error { _, err := ch.Read(t.Context(), make([]byte, n)); return err }
	push := func(n int) {
		k.mu.Lock()
		defer k.mu.Unlock()
		for range n {
			ch.(*eventFile).push(event{comp: true})
		}
	}
	push(1)
	want(t, "short buffer", read(7), unix.EINVAL)
	want(t, "long buffer", read(9), 0)
	errs := make(chan error)
	for range 4 {
		go func() { errs <- read(8) }()
	}
	time.Sleep(5 * time.Millisecond) // let them park
	push(3)
	for range 3 { // one event each
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	select {
	case err := <-errs:
		t.Errorf("the fourth reader got %v", err)
	case <-time.After(2 * time.Millisecond):
	}
	must(t, ch.Close())
	if err := <-errs; !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v, want net.ErrClosed", err)
	}
	if _, err := d.f.Read(t.Context(), make([]byte, 8)); err != unix.EINVAL {
		t.Errorf("read of the node: %v", err)
	}
}
