package doctor_test

import (
	"context"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/doctor"
	"github.com/pureverbs/rdma/internal/discover"
	"github.com/pureverbs/rdma/internal/fakekernel"
	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/internal/uapi"
)

// What rdma-ping doctor prints of the twelve usual faults is in cmd/rdma-ping/testdata/doctor.
// Here are the rest of the findings, and how they are put in order.

func addrs(texts ...string) []netip.Addr {
	out := make([]netip.Addr, len(texts))
	for i, s := range texts {
		out[i] = netip.MustParseAddr(s)
	}
	return out
}

// patched is a system with another way to nodes, netlink or the network.
type patched struct {
	uapi.Opener
	stat, open error
}

func (p patched) Stat(path string) (uint64, error) {
	if p.stat != nil && strings.Contains(path, "uverbs") || p.stat != nil && strings.Contains(path, "/char/231") {
		return 0, &fs.PathError{Op: "access", Path: path, Err: p.stat}
	}
	return p.Opener.Stat(path)
}

func (p patched) Open(path string) (uapi.File, error) {
	if p.open != nil && strings.Contains(path, "uverbs") {
		return nil, &fs.PathError{Op: "open", Path: path, Err: p.open}
	}
	return p.Opener.Open(path)
}

// wrongNode is another device in the node's place.
type wrongNode struct{ uapi.Opener }

func (w wrongNode) Stat(path string) (uint64, error) {
	switch {
	case strings.Contains(path, "uverbs"):
		return uint64(discover.MakeDev(1, 3)), nil
	case strings.HasPrefix(path, "/dev/char/"):
		return 0, &fs.PathError{Op: "stat", Path: path, Err: fs.ErrNotExist}
	}
	return w.Opener.Stat(path)
}

// elsewhere is a network that leads to everything over an interface without RDMA.
type elsewhere struct{ discover.Network }

func (elsewhere) Source(netip.Addr) (netip.Addr, error) {
	return netip.MustParseAddr("192.0.2.1"), nil
}

func (n elsewhere) Interfaces() ([]discover.Interface, error) {
	list, err := n.Network.Interfaces()
	return append(list, discover.Interface{Name: "wan0", Up: true, MTU: 1500,
		Addrs: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24")}}), err
}

// finding is what a test compares: severity, code, object.
func findings(r *doctor.Report) (list []string) {
	for _, f := range r.Findings {
		list = append(list, string(f.Severity)+" "+string(f.Code)+" "+f.Object)
	}
	return list
}

func devices(d ...fakekernel.Device) fakekernel.Options { return fakekernel.Options{Devices: d} }

// faults are a system each, and what is to be found there.
var faults = []struct {
	name  string
	opts  fakekernel.Options
	patch func(t *testing.T, s *discover.System, k *fakekernel.Kernel)
	addr  string
	want  []string
	says  string // in the first finding or its fixes
}{
	{name: "device cgroup", patch: func(_ *testing.T, s *discover.System, _ *fakekernel.Kernel) {
		s.Opener = patched{s.Opener, syscall.EPERM, nil}
	}, want: []string{"error device-cgroup device rxe0"}, says: "DeviceAllow=/dev/infiniband/uverbs0 rw"},
	{name: "another device's node", patch: func(_ *testing.T, s *discover.System, _ *fakekernel.Kernel) {
		s.Opener = wrongNode{s.Opener}
	}, want: []string{"error wrong-node device rxe0"}, says: "mknod -m 666 /dev/infiniband/uverbs0 c 231 192"},
	{name: "nodev", patch: func(_ *testing.T, s *discover.System, _ *fakekernel.Kernel) {
		s.Opener = patched{s.Opener, nil, syscall.EACCES}
	}, want: []string{"error no-permission device rxe0"}, says: "remount,dev"},
	{name: "exclusive mode", patch: func(_ *testing.T, s *discover.System, _ *fakekernel.Kernel) {
		s.Opener = patched{s.Opener, nil, syscall.EPERM}
	}, want: []string{"error foreign-namespace device rxe0"}, says: "rdma dev set rxe0 netns"},
	{name: "device is gone", patch: func(_ *testing.T, s *discover.System, _ *fakekernel.Kernel) {
		s.Opener = patched{s.Opener, nil, syscall.ENXIO}
	}, want: []string{"error not-opened device rxe0"}, says: "no such device"},
	{name: "no GID table", patch: func(_ *testing.T, _ *discover.System, k *fakekernel.Kernel) {
		k.Fail(fakekernel.Method(abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_QUERY_GID_TABLE), syscall.EIO)
	}, want: []string{"error not-opened device rxe0"}, says: "query GID table"},
	{name: "no uverbs", opts: devices(fakekernel.Device{NoVerbs: true}), want: []string{"error no-verbs device rxe0"}, says: "offers nothing"},
	{name: "no rdma_ucm", opts: fakekernel.Options{NoCM: true}, patch: func(t *testing.T, s *discover.System, _ *fakekernel.Kernel) {
		testutil.Must(t, os.RemoveAll(filepath.Join(s.Root, "sys/class/misc/rdma_cm")))
	}, want: []string{"error no-module module rdma_ucm"}, says: "modprobe rdma_ucm"},
	{name: "rdma_cm is stuck", patch: func(_ *testing.T, _ *discover.System, k *fakekernel.Kernel) {
		k.Fail(func(c fakekernel.Call) bool {
			return c.Kind == fakekernel.CallOpen && strings.HasSuffix(c.Path, "rdma_cm")
		}, syscall.ENODEV)
	}, want: []string{"error not-opened rdma_cm"}},
	{name: "link-local only", opts: devices(fakekernel.Device{Addrs: addrs("fe80::1")}, fakekernel.Device{NoNode: true}),
		want: []string{"error no-gid device rxe0", "note no-node device rxe1"}, says: "ip addr add ADDRESS/PREFIX dev eth0"},
	{name: "link-local peer", opts: devices(fakekernel.Device{Addrs: addrs("fe80::1")}), addr: "fe80::1%2"},
	{name: "iWARP without address", opts: devices(fakekernel.Device{Driver: abi.RDMA_DRIVER_SIW, Addrs: addrs("fe80::1")}),
		want: []string{"error no-gid device siw0"}},
	{name: "small MTU", opts: devices(fakekernel.Device{MTU: 1}), want: []string{"warning small-mtu device rxe0"}, says: "ip link set eth0 mtu 1500"},
	{name: "the nearest counts", opts: devices(fakekernel.Device{NoNode: true}, fakekernel.Device{Down: true}, fakekernel.Device{Driver: abi.RDMA_DRIVER_EFA, Name: "efa"}),
		want: []string{"error port-down device rxe1", "note unknown-driver device efa", "note no-node device rxe0"}},
	{name: "the way counts", opts: devices(fakekernel.Device{NoNode: true}, fakekernel.Device{}), addr: "10.9.0.1",
		want: []string{"error no-node device rxe0"}},
	{name: "one that works is enough", opts: devices(fakekernel.Device{}, fakekernel.Device{Foreign: true}),
		want: []string{"note foreign-namespace device rxe1"}},
	{name: "no route", addr: "198.51.100.1", want: []string{"error no-route address 198.51.100.1"}, says: "ip route add 198.51.100.1"},
	{name: "other interface", addr: "198.51.100.1", patch: func(_ *testing.T, s *discover.System, k *fakekernel.Kernel) {
		s.Network = elsewhere{s.Network}
		k.Fail(fakekernel.CMCommand(abi.RDMA_USER_CM_CMD_RESOLVE_ADDR), syscall.ENODEV)
	}, want: []string{"error not-rdma address 198.51.100.1"}, says: "over interface wan0"},
	{name: "loopback", addr: "127.0.0.1", patch: func(_ *testing.T, s *discover.System, k *fakekernel.Kernel) {
		k.Fail(fakekernel.CMCommand(abi.RDMA_USER_CM_CMD_RESOLVE_ROUTE), syscall.ENODEV)
	}, want: []string{"error not-rdma address 127.0.0.1"}, says: "rxe0 on eth0"},
	{name: "nobody answers", addr: "10.9.0.77", want: []string{"error not-resolved address 10.9.0.77"}, says: "ip neigh show 10.9.0.77"},
	{name: "deaf", patch: func(_ *testing.T, _ *discover.System, k *fakekernel.Kernel) { k.Cut(true) },
		want: []string{"error no-loopback device rxe0"}, says: "rdma link delete rxe0 && rdma link add rxe0 type rxe netdev eth0"},
	{name: "no memory", opts: fakekernel.Options{Memlock: 4096}, want: []string{"error not-registered memory"}},
	{name: "netlink refused, /sys is there", patch: func(t *testing.T, s *discover.System, _ *fakekernel.Kernel) {
		s.Netlink = func() (discover.Transport, error) { return nil, syscall.EACCES }
		testutil.Must(t, os.MkdirAll(filepath.Join(s.Root, "sys/module/ib_core/parameters"), 0o755))
		testutil.Must(t, os.WriteFile(filepath.Join(s.Root, "sys/module/ib_core/parameters/netns_mode"), []byte("Y\n"), 0o644))
	}, want: []string{"warning netlink-refused netlink"}, says: "SELinux"},
	{name: "netlink refused and no module", opts: fakekernel.Options{Devices: []fakekernel.Device{}}, patch: func(t *testing.T, s *discover.System, _ *fakekernel.Kernel) {
		s.Netlink = func() (discover.Transport, error) { return nil, syscall.EPERM }
		testutil.Must(t, os.RemoveAll(filepath.Join(s.Root, "sys/class/infiniband_verbs")))
	}, want: []string{"error no-module module ib_core", "warning netlink-refused netlink"}},
}

func TestFindings(t *testing.T) {
	for _, tt := range faults {
		t.Run(tt.name, func(t *testing.T) {
			tt.opts.Root = t.TempDir()
			k := fakekernel.New(tt.opts)
			defer k.Close()
			s := k.System()
			if tt.patch != nil {
				tt.patch(t, s, k)
			}
			o := doctor.Options{System: s}
			if tt.addr != "" {
				o.Addr = netip.MustParseAddr(tt.addr)
			}
			r, err := doctor.Examine(t.Context(), o)
			testutil.Must(t, err)
			if diff := cmp.Diff(tt.want, findings(r)); diff != "" {
				t.Fatalf("findings (-want +got):\n%s\n%+v", diff, r)
			}
			if diff := cmp.Diff(fakekernel.Counts{}, k.Counts()); diff != "" {
				t.Errorf("the kernel holds (-want +got):\n%s", diff)
			}
			if healthy := !slices.ContainsFunc(tt.want, func(s string) bool { return !strings.HasPrefix(s, "note") }); healthy != r.Healthy() {
				t.Errorf("healthy is %v, want %v", r.Healthy(), healthy)
			}
			for _, f := range r.Findings {
				if f.What == "" || f.Why == "" || f.Fixes == nil {
					t.Errorf("%s: %+v lacks something", f.Code, f)
				}
			}
			if tt.says == "" {
				return
			}
			text := r.Findings[0].What
			for _, f := range r.Findings[0].Fixes {
				text += "\n" + f.Command
			}
			if !strings.Contains(text, tt.says) {
				t.Errorf("want %q in:\n%s", tt.says, text)
			}
		})
	}
}

// TestLeavesNothing: the devices are not kept open, and nothing of the connection to itself is
// left.
func TestLeavesNothing(t *testing.T) {
	testutil.NoLeaks(t)
	k := fakekernel.New(fakekernel.Options{Root: t.TempDir(), Devices: []fakekernel.Device{{}, {Down: true}, {Driver: abi.RDMA_DRIVER_SIW}}})
	defer k.Close()
	r, err := doctor.Examine(t.Context(), doctor.Options{System: k.System(), Addr: netip.MustParseAddr("10.9.0.1")})
	testutil.Must(t, err)
	if !r.Healthy() {
		t.Errorf("got %+v", r.Findings)
	}
	if diff := cmp.Diff(fakekernel.Counts{}, k.Counts()); diff != "" {
		t.Errorf("the kernel holds (-want +got):\n%s", diff)
	}
}

// TestTriesWhatWorks: memory and loopback are tried with the device that is well.
func TestTriesWhatWorks(t *testing.T) {
	k := fakekernel.New(fakekernel.Options{Root: t.TempDir(), Devices: []fakekernel.Device{{Down: true}, {}}})
	defer k.Close()
	r, err := doctor.Examine(t.Context(), doctor.Options{System: k.System()})
	testutil.Must(t, err)
	i := slices.IndexFunc(r.Checks, func(c doctor.Check) bool { return c.Name == "loopback" })
	if i < 0 || r.Checks[i].Object != "rxe1" || !r.Checks[i].OK {
		t.Errorf("want a loopback of rxe1, got %+v", r.Checks)
	}
}

func TestNoExamination(t *testing.T) {
	k := fakekernel.New(fakekernel.Options{})
	defer k.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := doctor.Examine(ctx, doctor.Options{System: k.System()}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that the context has ended", err)
	}
	s := k.System()
	s.Netlink = func() (discover.Transport, error) { return nil, uapi.ErrNotLinux }
	if _, err := doctor.Examine(t.Context(), doctor.Options{System: s}); !errors.Is(err, uapi.ErrNotLinux) {
		t.Errorf("got %v, want that it needs Linux", err)
	}
}
