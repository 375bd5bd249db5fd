package discover

import (
	"errors"
	"io/fs"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/netlink"
	"github.com/mdlayher/netlink/nltest"

	"github.com/pureverbs/rdma/abi"
)

// present is a /dev with the nodes of so many devices and of rdma_cm.
func present(count uint32) nodes {
	n := nodes{"/dev/infiniband/rdma_cm": MakeDev(10, 126)}
	for i := range count {
		n["/dev/infiniband/uverbs"+utoa(i)] = MakeDev(231, 192+i)
	}
	return n
}

func TestDevices(t *testing.T) {
	k := &fakeNL{t: t, devs: []fakeDev{rxe(1, "rxe1", "eth1"), rxe(0, "rxe0", "eth0")}}
	got, err := k.system(present(2), nil).Devices()
	if err != nil {
		t.Fatal(err)
	}
	want := []Device{
		{
			Index: 0, Name: "rxe0", NodeGUID: 0x505400fffe000000, Ports: 1, NodeType: abi.RDMA_NODE_IB_CA,
			Protocol: "roce", Driver: abi.RDMA_DRIVER_RXE, NetDevs: []string{"eth0"},
			CharDev: CharDev{SysName: "uverbs0", Node: "/dev/infiniband/uverbs0", Dev: MakeDev(231, 192), ABI: 2},
		},
		{
			Index: 1, Name: "rxe1", NodeGUID: 0x505400fffe000001, Ports: 1, NodeType: abi.RDMA_NODE_IB_CA,
			Protocol: "roce", Driver: abi.RDMA_DRIVER_RXE, NetDevs: []string{"eth1"},
			CharDev: CharDev{SysName: "uverbs1", Node: "/dev/infiniband/uverbs1", Dev: MakeDev(231, 193), ABI: 2},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Devices: (-want +got)\n%s", diff)
	}
	if k.open != 0 {
		t.Errorf("sockets left open: got %d, want 0", k.open)
	}
}

// TestRW09NothingIsOpened: the fake nodes cannot be opened, so a device that
// comes out usable was judged without opening its node.
func TestRW09NothingIsOpened(t *testing.T) {
	k := &fakeNL{t: t, devs: []fakeDev{rxe(0, "rxe0", "eth0")}, cm: &fakeDev{chardev: "rdma_cm", dev: MakeDev(10, 126)}}
	s := k.system(present(1), nil)
	devs, err := s.Devices()
	if err != nil || len(devs) != 1 || devs[0].Reason != nil {
		t.Errorf("Devices: got %+v, %v, want one usable device", devs, err)
	}
	if cd, err := s.CM(); err != nil || cd.Reason != nil {
		t.Errorf("CM: got %+v, %v, want a usable node", cd, err)
	}
	if k.open != 0 {
		t.Errorf("sockets left open: got %d, want 0", k.open)
	}
}

func TestRW20EmptySystemIsNoError(t *testing.T) {
	got, err := (&fakeNL{t: t}).system(nil, nil).Devices()
	if err != nil || got == nil || len(got) != 0 {
		t.Errorf("Devices: got %v, %v, want an empty list and no error", got, err)
	}
}

func TestRW20NoModule(t *testing.T) {
	_, err := refusing(t, syscall.EPROTONOSUPPORT, nil, nil).Devices()
	mustError(t, err, ErrNoModule, "list RDMA devices", "ib_core is not loaded", "modprobe")
	if !errors.Is(err, syscall.EPROTONOSUPPORT) {
		t.Errorf("got %v, want the cause to be kept", err)
	}
	_, err = refusing(t, syscall.EPERM, nil, nil).Devices()
	mustError(t, err, ErrNoPermission, "netlink is refused", "seccomp")
}

func TestRW20NoUverbsModule(t *testing.T) {
	d := rxe(0, "rxe0", "eth0")
	d.failCD = syscall.EOPNOTSUPP
	k := &fakeNL{t: t, devs: []fakeDev{d}}

	devs, err := k.system(nil, nil).Devices()
	if err != nil || len(devs) != 1 {
		t.Fatalf("Devices: got %v, %v, want one device", devs, err)
	}
	mustError(t, devs[0].Reason, ErrNoModule, "rxe0", "ib_uverbs is not loaded", "modprobe ib_uverbs")

	devs, err = k.system(nil, map[string]string{"sys/class/infiniband_verbs/abi_version": "6\n"}).Devices()
	if err != nil || len(devs) != 1 {
		t.Fatalf("Devices: got %v, %v, want one device", devs, err)
	}
	mustError(t, devs[0].Reason, ErrNoVerbs, "rxe0", "offers nothing to programs")
}

// TestRW22RenameWhileListing renames and reorders devices while the list is
// made: each is there exactly once, with either name.
func TestRW22RenameWhileListing(t *testing.T) {
	k := &fakeNL{t: t, devs: []fakeDev{rxe(0, "rxe0", "eth0"), rxe(1, "rxe1", "eth1")}}
	names := [2][2]string{{"rxe0", "ibp0s4f1"}, {"rxe1", "uverbs0"}}
	turn := 0
	k.before = func(uint16) {
		turn++
		for i := range k.devs {
			k.devs[i].name = names[k.devs[i].index][turn%2]
		}
		k.devs[0], k.devs[1] = k.devs[1], k.devs[0]
	}
	s := k.system(present(2), nil)
	for range 50 {
		devs, err := s.Devices()
		if err != nil {
			t.Fatal(err)
		}
		if len(devs) != 2 || devs[0].Index != 0 || devs[1].Index != 1 {
			t.Fatalf("got %+v, want the devices 0 and 1", devs)
		}
		for i, d := range devs {
			if d.Reason != nil || d.SysName != "uverbs"+utoa(uint32(i)) || (d.Name != names[i][0] && d.Name != names[i][1]) {
				t.Errorf("device %d: got %q, %q, %v", i, d.Name, d.SysName, d.Reason)
			}
		}
	}
}

func TestRW22DuplicateInDump(t *testing.T) {
	k := &fakeNL{t: t, devs: []fakeDev{rxe(0, "old", "eth0"), rxe(1, "rxe1", "eth1"), rxe(0, "new", "eth0")}}
	devs, err := k.system(present(2), nil).Devices()
	if err != nil || len(devs) != 2 || devs[0].Name != "new" {
		t.Errorf("got %+v, %v, want 2 devices, the first with its later name", devs, err)
	}
}

func TestRW22InterruptedDumpIsReadAgain(t *testing.T) {
	k := &fakeNL{t: t, devs: []fakeDev{rxe(0, "rxe0", "eth0"), rxe(1, "rxe1", "eth1")}, interrupted: 3}
	devs, err := k.system(present(2), nil).Devices()
	if err != nil || len(devs) != 2 {
		t.Errorf("got %+v, %v, want 2 devices", devs, err)
	}
	k.interrupted = 1 << 20
	if _, err := k.system(present(2), nil).Devices(); err == nil || !strings.Contains(err.Error(), "changed") {
		t.Errorf("dump that is always interrupted: got error %v, want one that says so", err)
	}
}

// TestRW22DeviceVanishes deletes a device between the list and its node.
func TestRW22DeviceVanishes(t *testing.T) {
	k := &fakeNL{t: t, devs: []fakeDev{rxe(0, "rxe0", "eth0"), rxe(1, "rxe1", "eth1")}}
	k.before = func(op uint16) {
		if op == abi.RDMA_NLDEV_CMD_GET_CHARDEV && len(k.devs) == 2 {
			k.devs = k.devs[1:]
		}
	}
	devs, err := k.system(present(2), nil).Devices()
	if err != nil || len(devs) != 1 || devs[0].Name != "rxe1" || devs[0].Reason != nil {
		t.Errorf("got %+v, %v, want rxe1 alone and usable", devs, err)
	}
}

func TestRW22FindByOldName(t *testing.T) {
	devs := []Device{{Name: "ibp0s4f1"}, {Name: "siw0"}}
	if d, err := Find(devs, "siw0"); err != nil || d != &devs[1] {
		t.Errorf("Find(siw0): got %v, %v, want the second", d, err)
	}
	_, err := Find(devs, "rxe0")
	mustError(t, err, ErrNoDevice, "rxe0", "no such device", "ibp0s4f1, siw0")
	_, err = Find(nil, "rxe0")
	mustError(t, err, ErrNoDevice, "no RDMA device at all", "rdma link add")
}

// TestRW47SomeNodesOnly has four devices of which two have a usable node: all
// are listed, the others with a reason that names the node.
func TestRW47SomeNodesOnly(t *testing.T) {
	k := &fakeNL{t: t}
	for i := range uint32(8) {
		k.devs = append(k.devs, rxe(i, "rxe"+utoa(i), "eth"+utoa(i)))
	}
	n := present(8)
	delete(n, "/dev/infiniband/uverbs1")
	n["/dev/infiniband/uverbs3"] = syscall.EACCES
	n["/dev/infiniband/uverbs4"] = MakeDev(231, 250)
	n["/dev/infiniband/uverbs5"] = syscall.EIO
	n["/dev/infiniband/uverbs6"] = syscall.EPERM
	n["/dev/infiniband/uverbs7"] = fs.ErrInvalid

	devs, err := k.system(n, nil).Devices()
	if err != nil || len(devs) != 8 {
		t.Fatalf("got %+v, %v, want 8 devices", devs, err)
	}
	for _, i := range []int{0, 2} {
		if devs[i].Reason != nil {
			t.Errorf("%s: got %v, want it to be usable", devs[i].Name, devs[i].Reason)
		}
	}
	mustError(t, devs[1].Reason, ErrNoNode, "rxe1", "/dev/infiniband/uverbs1 is not here", "--device /dev/infiniband/uverbs1")
	mustError(t, devs[1].Reason, fs.ErrNotExist)
	mustError(t, devs[3].Reason, ErrNoPermission, "rxe3", "/dev/infiniband/uverbs3 may not be read and written", "chmod 666")
	mustError(t, devs[4].Reason, ErrWrongNode, "/dev/infiniband/uverbs4 is device 231:250, the kernel says 231:196", "mknod -m 666 /dev/infiniband/uverbs4 c 231 196")
	mustError(t, devs[5].Reason, syscall.EIO, "rxe5", "/dev/infiniband/uverbs5")
	mustError(t, devs[6].Reason, ErrNoPermission, "rxe6", "cgroup", "--device /dev/infiniband/uverbs6")
	mustError(t, devs[7].Reason, ErrWrongNode, "rxe7", "/dev/infiniband/uverbs7 is no character device")
	for _, i := range []int{1, 3, 4, 5, 6, 7} {
		var e *Error
		if !errors.As(devs[i].Reason, &e) || e.Node != devs[i].Node {
			t.Errorf("%s: got %#v, want an *Error with the node", devs[i].Name, devs[i].Reason)
		}
	}
}

func TestRW47SecondLook(t *testing.T) {
	k := &fakeNL{t: t, devs: []fakeDev{rxe(0, "rxe0", "eth0"), rxe(1, "rxe1", "eth1")}}
	n := nodes{
		"/dev/char/231:192":       MakeDev(231, 192), // udev renamed the node
		"/dev/infiniband/uverbs1": syscall.EACCES,
		"/dev/char/231:193":       MakeDev(1, 3), // and here something else is in the way
	}
	devs, err := k.system(n, nil).Devices()
	if err != nil || len(devs) != 2 {
		t.Fatalf("got %+v, %v, want 2 devices", devs, err)
	}
	if devs[0].Reason != nil || devs[0].Node != "/dev/char/231:192" {
		t.Errorf("rxe0: got %q, %v, want the link of /dev/char", devs[0].Node, devs[0].Reason)
	}
	mustError(t, devs[1].Reason, ErrNoPermission, "/dev/infiniband/uverbs1")
}

// TestRW38RealErrorsAreNotMasked: sysfs would have an answer, but netlink's error
// is none of those that mean "not here".
func TestRW38RealErrorsAreNotMasked(t *testing.T) {
	files := sysfsFiles("rxe0", "uverbs0", "231:192")
	for _, errno := range []syscall.Errno{syscall.ENOMEM, syscall.EINVAL, syscall.ENOBUFS, syscall.EMFILE} {
		k := &fakeNL{t: t, fail: map[uint16]error{abi.RDMA_NLDEV_CMD_GET: errno}}
		if _, err := k.system(present(1), files).Devices(); !errors.Is(err, errno) {
			t.Errorf("dump fails with %v: got error %v, want it", errno, err)
		}
		if _, err := refusing(t, errno, present(1), files).Devices(); !errors.Is(err, errno) {
			t.Errorf("socket fails with %v: got error %v, want it", errno, err)
		}
		k = &fakeNL{t: t, fail: map[uint16]error{abi.RDMA_NLDEV_CMD_GET_CHARDEV: errno, abi.RDMA_NLDEV_CMD_SYS_GET: errno}}
		if _, err := k.system(present(1), files).CM(); !errors.Is(err, errno) {
			t.Errorf("CM: rdma_cm fails with %v: got error %v, want it", errno, err)
		}
		if _, err := k.system(present(1), files).Mode(); !errors.Is(err, errno) {
			t.Errorf("Mode: fails with %v: got error %v, want it", errno, err)
		}
	}
	d := rxe(0, "rxe0", "eth0")
	d.failCD = syscall.ENOMEM
	devs, err := (&fakeNL{t: t, devs: []fakeDev{d, rxe(1, "rxe1", "eth1")}}).system(present(2), files).Devices()
	if err != nil || len(devs) != 2 || !errors.Is(devs[0].Reason, syscall.ENOMEM) || devs[1].Reason != nil {
		t.Errorf("one device fails: got %+v, %v, want ENOMEM as its reason and the other usable", devs, err)
	}
}

func TestDriverFromSysfsWhenTheKernelDoesNotTell(t *testing.T) {
	d := rxe(0, "whatever", "eth0")
	d.driver = 0
	k := &fakeNL{t: t, devs: []fakeDev{d}}
	devs, err := k.system(present(1), map[string]string{"sys/class/infiniband/whatever/node_desc": "rxe\n"}).Devices()
	if err != nil || len(devs) != 1 || devs[0].Driver != abi.RDMA_DRIVER_RXE {
		t.Errorf("got %+v, %v, want driver rxe", devs, err)
	}
}

func TestBadAnswers(t *testing.T) {
	good := rxe(0, "rxe0", "eth0")
	for name, payload := range map[string][]byte{
		"cut short":   good.get(t)[:13],
		"empty":       {},
		"no name":     encoded(t, func(ae *netlink.AttributeEncoder) { ae.Uint32(abi.RDMA_NLDEV_ATTR_DEV_INDEX, 1) }),
		"wrong width": encoded(t, func(ae *netlink.AttributeEncoder) { ae.Uint64(abi.RDMA_NLDEV_ATTR_DEV_INDEX, 1) }),
		"path as name": encoded(t, func(ae *netlink.AttributeEncoder) {
			ae.Uint32(abi.RDMA_NLDEV_ATTR_DEV_INDEX, 1)
			ae.String(abi.RDMA_NLDEV_ATTR_DEV_NAME, "../../etc")
		}),
		"index out of range": encoded(t, func(ae *netlink.AttributeEncoder) {
			ae.Uint32(abi.RDMA_NLDEV_ATTR_DEV_INDEX, 1<<31)
			ae.String(abi.RDMA_NLDEV_ATTR_DEV_NAME, "rxe0")
		}),
	} {
		s := &System{Root: t.TempDir(), Opener: present(1), Netlink: canned(abi.RDMA_NLDEV_CMD_GET, payload)}
		if devs, err := s.Devices(); err == nil {
			t.Errorf("%s: got %+v, want an error", name, devs)
		}
	}
	s := &System{Root: t.TempDir(), Opener: present(1), Netlink: canned(abi.RDMA_NLDEV_CMD_RES_GET, good.get(t))}
	if _, err := s.Devices(); err == nil || !strings.Contains(err.Error(), "message type") {
		t.Errorf("answer to another question: got error %v, want one that says so", err)
	}
	s = &System{Root: t.TempDir(), Opener: present(1), Netlink: canned(abi.RDMA_NLDEV_CMD_GET_CHARDEV)}
	if _, err := s.CM(); err == nil || !strings.Contains(err.Error(), "0 messages") {
		t.Errorf("no answer: got error %v, want one that says so", err)
	}
}

// canned answers every request with the payloads, as messages of the operation.
func canned(op uint16, payloads ...[]byte) func() (Transport, error) {
	return func() (Transport, error) { return cannedNL{op, payloads}, nil }
}

type cannedNL struct {
	op       uint16
	payloads [][]byte
}

func (c cannedNL) Execute(netlink.Message) (replies []netlink.Message, err error) {
	for _, b := range c.payloads {
		typ := netlink.HeaderType(abi.RDMA_NL_GET_TYPE(abi.RDMA_NL_NLDEV, c.op))
		replies = append(replies, netlink.Message{Header: netlink.Header{Type: typ}, Data: b})
	}
	return replies, nil
}

func (cannedNL) Close() error { return nil }

// TestThroughConn runs the list through the real connection type: end of a dump,
// sequence numbers and errors in a message are its work.
func TestThroughConn(t *testing.T) {
	k := &fakeNL{t: t, devs: []fakeDev{rxe(0, "rxe0", "eth0"), rxe(1, "rxe1", "eth1")}}
	fail := false
	s := k.system(present(2), nil)
	s.Netlink = func() (Transport, error) {
		return nltest.Dial(func(reqs []netlink.Message) ([]netlink.Message, error) {
			if len(reqs) == 0 {
				return nil, nil
			}
			if fail {
				reqs[0].Header.Flags = 0 // they mean something else in an answer
				return nltest.Error(int(syscall.EBUSY), reqs)
			}
			replies, err := k.Execute(reqs[0])
			for i := range replies {
				replies[i].Header.Sequence, replies[i].Header.PID = reqs[0].Header.Sequence, reqs[0].Header.PID
			}
			if reqs[0].Header.Flags&netlink.Dump == netlink.Dump {
				done := netlink.Message{Header: reqs[0].Header, Data: make([]byte, 4)}
				done.Header.Type = netlink.Done
				return nltest.Multipart(append(replies, done))
			}
			return replies, err
		}), nil
	}
	devs, err := s.Devices()
	if err != nil || len(devs) != 2 || devs[1].Reason != nil {
		t.Errorf("got %+v, %v, want 2 usable devices", devs, err)
	}
	fail = true
	if _, err := s.Devices(); !errors.Is(err, syscall.EBUSY) && runtime.GOOS == "linux" {
		t.Errorf("error message: got %v, want EBUSY", err)
	}
}
