//go:build linux

package main

import (
	"bytes"
	"encoding/json"
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
	"github.com/pureverbs/rdma/internal/uapi"
)

// surroundings are a system for the doctor: a fake kernel, and what is broken around it.
type surroundings struct {
	kernel  fakekernel.Options
	files   map[string]string        // of /proc and /sys, beside the usual ones; "" for none
	deny    map[string]syscall.Errno // nodes that may not be used
	netlink syscall.Errno            // what a socket of RDMA netlink gives
	noSysfs bool
}

const (
	pidNS  = "proc/self/ns/pid"
	userNS = "proc/self/ns/user"

	inContainer   = "pid:[4026532001]"
	fewLocked     = "Max locked memory         65536                unlimited            bytes\n"
	anyLocked     = "Max locked memory         unlimited            unlimited            bytes\n"
	seccompFilter = "CapEff:\t0000000000000000\nSeccomp:\t2\n"
)

// build makes the system.
func (s surroundings) build(t *testing.T) (*fakekernel.Kernel, *discover.System) {
	t.Helper()
	s.kernel.Root = t.TempDir()
	k := newKernel(t, s.kernel)
	files := map[string]string{
		"proc/sys/kernel/osrelease": "6.1.0-fake\n",
		"proc/modules":              "rdma_ucm 1 0 - Live 0x0\nrdma_cm 1 1 rdma_ucm, Live 0x0\nib_uverbs 1 1 - Live 0x0\nib_core 1 4 - Live 0x0\n",
		"proc/self/status":          "Uid:\t1000\t1000\t1000\t1000\nCapEff:\t0000000000000000\nSeccomp:\t0\n",
		"proc/self/limits":          anyLocked,
		pidNS:                       "pid:[4026531836]",
		userNS:                      "user:[4026531837]",
	}
	for path, text := range s.files {
		files[path] = text
	}
	if s.noSysfs {
		must(t, os.RemoveAll(filepath.Join(s.kernel.Root, "sys")))
	}
	for path, text := range files {
		path = filepath.Join(s.kernel.Root, path)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		if strings.Contains(path, "/ns/") {
			must(t, os.Symlink(text, path))
			continue
		}
		must(t, os.WriteFile(path, []byte(text), 0o644))
	}
	sys := k.System()
	sys.Opener = denying{sys.Opener, s.deny}
	if s.netlink != 0 {
		sys.Netlink = func() (discover.Transport, error) { return nil, s.netlink }
	}
	return k, sys
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// denying is a /dev where some nodes may not be used.
type denying struct {
	uapi.Opener
	nodes map[string]syscall.Errno
}

func (d denying) Stat(path string) (uint64, error) {
	if errno, ok := d.nodes[path]; ok {
		return 0, &os.PathError{Op: "access", Path: path, Err: errno}
	}
	return d.Opener.Stat(path)
}

func denyUverbs0(errno syscall.Errno) map[string]syscall.Errno {
	return map[string]syscall.Errno{"/dev/infiniband/uverbs0": errno, "/dev/char/231:192": errno}
}

// breakages are what the doctor has to name first, with the fix that it has to print, and
// the system as it is when that is applied.
var breakages = []struct {
	name   string
	broken surroundings
	args   []string
	want   doctor.Code
	object string
	fix    string
	mended surroundings
	still  doctor.Code // that is left, although ping works
}{
	{
		name: "no-node", want: doctor.NoNode, object: "device rxe0",
		broken: surroundings{kernel: fakekernel.Options{Devices: []fakekernel.Device{{NoNode: true}}}, files: map[string]string{pidNS: inContainer}},
		fix:    "docker run --device /dev/infiniband/uverbs0 IMAGE",
	},
	{
		name: "no-permission", want: doctor.NoPermission, object: "device rxe0",
		broken: surroundings{deny: denyUverbs0(syscall.EACCES)},
		fix:    "chmod 666 /dev/infiniband/uverbs0",
	},
	{
		name: "no-cm-node", want: doctor.NoNode, object: "rdma_cm",
		broken: surroundings{kernel: fakekernel.Options{NoCMNode: true}},
		fix:    "mkdir -p /dev/infiniband && mknod -m 666 /dev/infiniband/rdma_cm c 10 58",
	},
	{
		name: "no-module", want: doctor.NoModule, object: "module ib_core",
		broken: surroundings{netlink: syscall.EPROTONOSUPPORT, noSysfs: true, files: map[string]string{"proc/modules": "loop 1 0 - Live 0x0\n"}},
		fix:    "modprobe rdma_ucm",
	},
	{
		name: "no-device", want: doctor.NoDevice, object: "devices",
		broken: surroundings{kernel: fakekernel.Options{Devices: []fakekernel.Device{}}},
		fix:    "modprobe rdma_rxe && rdma link add rxe0 type rxe netdev INTERFACE",
	},
	{
		name: "foreign-namespace", want: doctor.ForeignNamespace, object: "device rxe0", args: []string{"10.9.0.1"},
		broken: surroundings{kernel: fakekernel.Options{Devices: []fakekernel.Device{{Foreign: true}}}, files: map[string]string{pidNS: inContainer}},
		fix:    "docker run --network host IMAGE",
	},
	{
		name: "port-down", want: doctor.PortDown, object: "device rxe0", args: []string{"10.9.0.1"},
		broken: surroundings{kernel: fakekernel.Options{Devices: []fakekernel.Device{{Down: true}, {NoNode: true}}}},
		fix:    "ip link set eth0 up",
	},
	{
		name: "memlock", want: doctor.Memlock, object: "memory", args: []string{"-s", "1M", "10.9.0.1"},
		broken: surroundings{files: map[string]string{"proc/self/limits": fewLocked}},
		fix:    "ulimit -l unlimited",
	},
	{
		name: "netlink-refused", want: doctor.NetlinkRefused, object: "netlink",
		broken: surroundings{netlink: syscall.EPERM, noSysfs: true, files: map[string]string{"proc/self/status": seccompFilter, pidNS: inContainer}},
		fix:    "mount -t sysfs -o ro sysfs /sys",
		mended: surroundings{netlink: syscall.EPERM, files: map[string]string{"proc/self/status": seccompFilter, pidNS: inContainer}},
		still:  doctor.NetlinkRefused,
	},
	{
		name: "unknown-driver", want: doctor.UnknownDriver, object: "device mlx4_0",
		broken: surroundings{kernel: fakekernel.Options{Devices: []fakekernel.Device{{Name: "mlx4_0", Driver: abi.RDMA_DRIVER_MLX4}}}},
		fix:    "modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0",
		mended: surroundings{kernel: fakekernel.Options{Devices: []fakekernel.Device{{}, {Name: "mlx4_0", Driver: abi.RDMA_DRIVER_MLX4}}}},
	},
	{
		name: "driver-abi", want: doctor.DriverABI, object: "device rxe0",
		broken: surroundings{kernel: fakekernel.Options{Devices: []fakekernel.Device{{ABI: 9}}}},
		fix:    "use a newer release of this program, or of the kernel, whichever has the lower version",
	},
	{
		name: "no-gid", want: doctor.NoGID, object: "device rxe0",
		broken: surroundings{kernel: fakekernel.Options{Devices: []fakekernel.Device{{Addrs: fakekernel.DefaultAddrs(0)[:1]}}}},
		fix:    "ip addr add ADDRESS/PREFIX dev eth0",
	},
}

// TestDoctor breaks one thing at a time. What is printed is compared with testdata/doctor;
// go test -run TestDoctor -update writes it anew.
func TestDoctor(t *testing.T) {
	for _, b := range breakages {
		t.Run(b.name, func(t *testing.T) {
			_, sys := b.broken.build(t)
			r := examine(t, sys, b.name, b.args, statusFindings)
			first := r.Findings[0]
			if first.Code != b.want || first.Object != b.object || first.Severity != doctor.Error {
				t.Errorf("first comes %+v, want the error %s of %s", first, b.want, b.object)
			}
			if !slices.ContainsFunc(first.Fixes, func(f doctor.Fix) bool { return f.Command == b.fix }) {
				t.Errorf("fixes are %q, want %q among them", first.Fixes, b.fix)
			}
			k, sys := b.mended.build(t)
			status := statusOK
			if b.still != "" {
				status = statusFindings
			}
			if r := examine(t, sys, "", b.args, status); b.still != "" && (len(r.Findings) != 1 || r.Findings[0].Code != b.still) {
				t.Errorf("mended: got %+v, want %s only", r.Findings, b.still)
			}
			serve(t, k)
			if status, _, errs := ping(t, k, "-c", "2", "-i", "0", serverAddr); status != statusOK {
				t.Errorf("mended: ping has status %d: %s", status, errs)
			}
		})
	}
}

// TestDoctorHealthy shows what there is to see where nothing is wrong.
func TestDoctorHealthy(t *testing.T) {
	two := fakekernel.Options{Devices: []fakekernel.Device{{V1: true}, {NoNode: true}, {Driver: abi.RDMA_DRIVER_SIW}}}
	for _, tt := range []struct {
		name string
		s    surroundings
		args []string
	}{
		{"healthy", surroundings{}, nil},
		{"healthy-address", surroundings{}, []string{"10.9.0.1"}},
		{"healthy-others", surroundings{kernel: two, files: map[string]string{pidNS: inContainer}}, []string{"10.9.0.1:7174"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, sys := tt.s.build(t)
			examine(t, sys, tt.name, tt.args, statusOK)
		})
	}
}

func TestDoctorHelp(t *testing.T) {
	var out, errs bytes.Buffer
	if status := run(t.Context(), []string{"doctor", "--help"}, &out, &errs, nil); status != statusOK || errs.Len() > 0 {
		t.Errorf("status %d, stderr %q", status, errs.String())
	}
	compare(t, "testdata/help-doctor.txt", out.String())
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"10.9.0.1", "10.9.0.2"}, "one address only"},
		{[]string{"-s", "4q"}, "unknown unit"},
		{[]string{"--nonsense"}, "unknown flag"},
		{[]string{"fe80::1"}, "name the interface"},
		{[]string{""}, "address is empty"},
	} {
		var out, errs bytes.Buffer
		status := run(t.Context(), append([]string{"doctor"}, tt.args...), &out, &errs, nil)
		if got := errs.String(); status != statusError || out.Len() > 0 || !strings.Contains(got, tt.want) || strings.Count(got, "\n") != 2 {
			t.Errorf("%q: status %d, stdout %q, stderr %q; want 2 and one line with %q", tt.args, status, out.String(), got, tt.want)
		}
	}
}

// TestDoctorCannotRun: what keeps the doctor from working has the status of all such trouble.
func TestDoctorCannotRun(t *testing.T) {
	_, sys := surroundings{netlink: syscall.ENOBUFS}.build(t)
	var out, errs bytes.Buffer
	if status := run(t.Context(), []string{"doctor"}, &out, &errs, sys); status != statusError || out.Len() > 0 || strings.Count(errs.String(), "\n") != 1 {
		t.Errorf("status %d, stdout %q, stderr %q; want 2 and one line", status, out.String(), errs.String())
	}
}

// examine runs the doctor for people and for programs, and compares with the golden files of
// that name, if any.
func examine(t *testing.T, sys *discover.System, golden string, args []string, status int) (r doctor.Report) {
	t.Helper()
	for _, form := range []string{"txt", "json"} {
		all := append([]string{"doctor"}, args...)
		if form == "json" {
			all = append(all, "--json")
		}
		var out, errs bytes.Buffer
		if got := run(t.Context(), all, &out, &errs, sys); got != status || errs.Len() > 0 {
			t.Fatalf("%q: status %d, want %d; stderr %q\n%s", all, got, status, errs.String(), out.String())
		}
		if golden != "" {
			compare(t, filepath.Join("testdata/doctor", golden+"."+form), out.String())
		}
		if form == "json" {
			must(t, json.Unmarshal(out.Bytes(), &r))
		}
	}
	return r
}

func compare(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		must(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	must(t, err)
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}
