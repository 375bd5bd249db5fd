//go:build linux

package tests

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/doctor"
	"github.com/pureverbs/rdma/internal/discover"
	"github.com/pureverbs/rdma/internal/testutil"
)

// pod is a container as a runtime would make it, with nothing in it but the program: a root
// file system of its own, /proc, /sys, the device nodes that it was given, and namespaces of
// processes, mounts and names. It shares the network unless flags say otherwise, as rxe does
// not carry data within another namespace in most kernels.
type pod struct {
	t     *testing.T
	root  string
	flags uintptr // of clone, besides
	user  *syscall.Credential
	owned bool   // in a user namespace of its own, with all capabilities there
	shell string // commands before the program, by a shell that a mended pod has been lent
}

// newPod is a container with the program of the lab in it.
func newPod(t *testing.T, nodes ...string) *pod {
	t.Helper()
	p := emptyPod(t)
	p.copy(testutil.Command(t, "rdma-ping"), "rdma-ping")
	p.furnish(nodes...)
	return p
}

func emptyPod(t *testing.T) *pod {
	t.Helper()
	root, err := os.MkdirTemp("", "pod")
	testutil.Must(t, err)
	testutil.Must(t, os.Chmod(root, 0o755))
	t.Cleanup(func() { os.RemoveAll(root) }) // last, when nothing is mounted below
	return &pod{t: t, root: root}
}

// furnish mounts what a runtime does, and binds the device nodes in.
func (p *pod) furnish(nodes ...string) {
	p.t.Helper()
	for _, dir := range []string{"proc", "sys", "dev"} {
		testutil.Must(p.t, os.Mkdir(p.path(dir), 0o755))
		typ := map[string]string{"proc": "proc", "sys": "sysfs", "dev": "tmpfs"}[dir]
		p.mount(typ, dir, typ, 0)
	}
	if len(nodes) > 0 {
		testutil.Must(p.t, os.Mkdir(p.path("dev/infiniband"), 0o755))
	}
	for _, n := range nodes {
		path := "dev/infiniband/" + n
		testutil.Must(p.t, os.WriteFile(p.path(path), nil, 0o644))
		p.mount("/"+path, path, "", unix.MS_BIND)
	}
}

func (p *pod) path(name string) string { return filepath.Join(p.root, name) }

// mount mounts until the end of the test. Whatever is left is detached, so that clearing away
// the root can never reach what was bound into it.
func (p *pod) mount(source, at, typ string, flags uintptr) {
	p.t.Helper()
	testutil.Must(p.t, unix.Mount(source, p.path(at), typ, flags, ""))
	p.t.Cleanup(func() {
		for unix.Unmount(p.path(at), unix.MNT_DETACH) == nil {
		}
	})
}

func (p *pod) copy(from, to string) {
	b, err := os.ReadFile(from)
	testutil.Must(p.t, err)
	testutil.Must(p.t, os.WriteFile(p.path(to), b, 0o755))
}

// command is a run of the program in the pod.
func (p *pod) command(args ...string) *exec.Cmd {
	cmd := exec.Command("/rdma-ping", args...)
	if p.shell != "" {
		p.copy(testutil.Command(p.t, "busybox"), "busybox")
		cmd = exec.Command("/busybox", "sh", "-c", p.shell+"; exec /rdma-ping "+strings.Join(args, " "))
	}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Chroot: p.root, Credential: p.user,
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | p.flags,
	}
	if p.owned {
		ids := []syscall.SysProcIDMap{{Size: 65536}}
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings, cmd.SysProcAttr.GidMappings = ids, ids
	}
	return cmd
}

// doctor runs the doctor, whose status has to fit.
func (p *pod) doctor(args ...string) doctor.Report {
	p.t.Helper()
	return report(p.t, p.command(append([]string{"doctor", "--json"}, args...)...))
}

func report(t *testing.T, cmd *exec.Cmd) (r doctor.Report) {
	t.Helper()
	out, err := cmd.Output()
	status := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		status = exit.ExitCode()
	}
	if json.Unmarshal(out, &r) != nil || r.Healthy() != (status == 0) || status > 1 {
		t.Fatalf("%q: %v, and the report is not one, or says otherwise:\n%s%s", cmd.Args, err, out, stderrOf(exit))
	}
	return r
}

func stderrOf(exit *exec.ExitError) []byte {
	if exit == nil {
		return nil
	}
	return exit.Stderr
}

// ping runs a server in the guest and a client in the pod.
func (p *pod) ping(args ...string) error {
	return answered(p.t, p.command(append([]string{"-c", "2", "-i", "20ms", "-W", "3s"}, args...)...))
}

// answered runs a client, with a server in the guest if there can be one.
func answered(t *testing.T, cmd *exec.Cmd) error {
	t.Helper()
	server := exec.Command(testutil.Command(t, "rdma-ping"), "serve", "-q")
	testutil.Must(t, server.Start())
	defer func() {
		server.Process.Kill()
		server.Wait()
	}()
	time.Sleep(500 * time.Millisecond)
	defer time.AfterFunc(30*time.Second, func() { cmd.Process.Kill() }).Stop()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// apply runs the command of a fix where it belongs. A pod has no shell: it is lent one.
func (p *pod) apply(f doctor.Fix, replace ...string) {
	p.t.Helper()
	command := strings.NewReplacer(replace...).Replace(f.Command)
	cmd := exec.Command("sh", "-c", command)
	if strings.HasPrefix(f.Where, "here") {
		p.copy(testutil.Command(p.t, "busybox"), "busybox")
		defer os.Remove(p.path("busybox"))
		cmd = exec.Command("/busybox", "sh", "-c", command)
		cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Chroot: p.root}
	}
	out, err := cmd.CombinedOutput()
	p.t.Logf("%s: %s: %v %s", f.Where, command, err, out)
	if err != nil {
		p.t.Fatal("the fix fails")
	}
}

// fix finds the fix of a finding whose command begins so.
func fix(t *testing.T, f doctor.Finding, begin string) doctor.Fix {
	t.Helper()
	i := slices.IndexFunc(f.Fixes, func(f doctor.Fix) bool { return strings.HasPrefix(f.Command, begin) })
	if i < 0 {
		t.Fatalf("there is no fix %q in %+v", begin, f)
	}
	return f.Fixes[i]
}

// first is the finding that comes first, which must be that one.
func first(t *testing.T, r doctor.Report, code doctor.Code, object string) doctor.Finding {
	t.Helper()
	if len(r.Findings) == 0 || r.Findings[0].Code != code || r.Findings[0].Object != object || r.Findings[0].Severity != doctor.Error {
		t.Fatalf("want the error %s of %s first, got %+v", code, object, r)
	}
	t.Logf("%s: %s", object, r.Findings[0].What)
	return r.Findings[0]
}

// works waits until the doctor has nothing to say and the ping is answered. The kernel
// fills GID tables in its own time.
func (p *pod) works(args ...string) {
	p.t.Helper()
	var r doctor.Report
	for range 50 {
		if r = p.doctor(args...); r.Healthy() {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if !r.Healthy() {
		p.t.Errorf("mended, and still: %+v", r)
	}
	if err := p.ping(args...); err != nil {
		p.t.Errorf("mended, and yet: %v", err)
	}
}

// mend does what the doctor says until it has nothing to say. How a container is started is
// not for a container that runs.
func (p *pod) mend(args ...string) {
	p.t.Helper()
	for range 8 {
		r := p.doctor(args...)
		if r.Healthy() {
			return
		}
		p.t.Logf("%s: %s", r.Findings[0].Object, r.Findings[0].What)
		i := slices.IndexFunc(r.Findings[0].Fixes, func(f doctor.Fix) bool { return !strings.HasPrefix(f.Command, "docker") })
		p.apply(r.Findings[0].Fixes[i])
		time.Sleep(500 * time.Millisecond) // for the GIDs of a new device
	}
}

func (p *pod) broken(args ...string) {
	p.t.Helper()
	if err := p.ping(args...); err == nil {
		p.t.Error("ping works although something is broken")
	}
}

// TestDoctor takes one thing at a time from a container that works, and mends it as the doctor
// says.
func TestDoctor(t *testing.T) {
	testutil.Lab(t, "Doctor")
	d := testutil.Device(t)
	if d.Driver() != "rxe" {
		t.Skip("the device has to be rxe")
	}
	device, node := "device "+d.Name(), filepath.Base(d.Path())

	t.Run("healthy", func(t *testing.T) {
		p := newPod(t, "rdma_cm", node)
		p.works(labIPv4)
		if r := p.doctor(); !r.Healthy() {
			t.Errorf("without an address: %+v", r)
		}
	})
	t.Run("no node", func(t *testing.T) {
		p := newPod(t, "rdma_cm")
		p.broken(labIPv4)
		p.apply(fix(t, first(t, p.doctor(labIPv4), doctor.NoNode, device), "mkdir -p"))
		p.works(labIPv4)
	})
	t.Run("no permission", func(t *testing.T) {
		p := newPod(t, "rdma_cm", node)
		p.user = &syscall.Credential{Uid: 65534, Gid: 65534}
		testutil.Must(t, os.Chmod(d.Path(), 0o600))
		t.Cleanup(func() { os.Chmod(d.Path(), 0o666) })
		p.broken(labIPv4)
		p.apply(fix(t, first(t, p.doctor(labIPv4), doctor.NoPermission, device), "chmod 666"))
		p.works(labIPv4)
	})
	t.Run("no rdma_cm node", func(t *testing.T) {
		p := newPod(t, node)
		p.broken(labIPv4)
		p.apply(fix(t, first(t, p.doctor(labIPv4), doctor.NoNode, "rdma_cm"), "mkdir -p"))
		p.works(labIPv4)
	})
	t.Run("other namespace", func(t *testing.T) {
		p := newPod(t, "rdma_cm", node)
		p.flags = unix.CLONE_NEWNET
		p.broken(labIPv4)
		f := first(t, p.doctor(labIPv4), doctor.ForeignNamespace, device)
		if !strings.Contains(f.What, "dum0") {
			t.Errorf("want the interface named in %q", f.What)
		}
		fix(t, f, "docker run --network host")
		p.flags = 0
		p.works(labIPv4)
	})
	t.Run("port down", func(t *testing.T) { doctorPortDown(t, newPod(t, "rdma_cm", node), device) })
	t.Run("no GID", func(t *testing.T) { doctorNoGID(t, newPod(t, "rdma_cm", node), device) })
	t.Run("memlock", func(t *testing.T) { doctorMemlock(t, newPod(t, "rdma_cm", node)) })
	t.Run("netlink refused", func(t *testing.T) { doctorSeccomp(t, newPod(t, "rdma_cm", node)) })
	t.Run("no device", func(t *testing.T) { doctorNoDevice(t, newPod(t, "rdma_cm", node)) })
}

func doctorPortDown(t *testing.T, p *pod, device string) {
	ip(t, "link set dum0 down")
	t.Cleanup(func() {
		ip(t, "link set dum0 up")
		ip(t, "addr replace "+labIPv6+"/64 dev dum0") // which went with the link
	})
	p.broken(labIPv4)
	fix(t, first(t, p.doctor(labIPv4), doctor.PortDown, device), "ip link set dum0 up")
	// Some kernels' rxe does not recover from a connection that was tried meanwhile.
	p.mend(labIPv4)
	p.works(labIPv4)
}

func doctorNoGID(t *testing.T, p *pod, device string) {
	ip(t, "addr del "+labIPv4+"/24 dev dum0")
	ip(t, "addr del "+labIPv6+"/64 dev dum0")
	t.Cleanup(func() {
		ip(t, "addr replace "+labIPv4+"/24 dev dum0")
		ip(t, "addr replace "+labIPv6+"/64 dev dum0")
	})
	p.broken(labIPv4)
	p.apply(fix(t, first(t, p.doctor(labIPv4), doctor.NoGID, device), "ip addr add"), "ADDRESS/PREFIX", labIPv4+"/24")
	p.works(labIPv4)
}

func doctorMemlock(t *testing.T, p *pod) {
	p.user = &syscall.Credential{Uid: 65534, Gid: 65534}
	var old unix.Rlimit
	testutil.Must(t, unix.Getrlimit(unix.RLIMIT_MEMLOCK, &old))
	testutil.Must(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: memlockBytes, Max: old.Max}))
	defer unix.Setrlimit(unix.RLIMIT_MEMLOCK, &old)
	args := []string{"-s", "1M", labIPv4}
	p.broken(args...)
	p.shell = fix(t, first(t, p.doctor(args...), doctor.Memlock, "memory"), "ulimit -l").Command
	p.works(args...)

	// Root of another user namespace has the capability, and the kernel does not count it.
	p.user, p.shell, p.owned = nil, "", true
	p.broken(args...)
	if f := first(t, p.doctor(args...), doctor.Memlock, "memory"); !strings.Contains(f.What, "CAP_IPC_LOCK does not help") {
		t.Errorf("want the capability named in %q", f.What)
	}
	p.works(labIPv4)
	p.owned = false
	p.works(args...) // where it counts
}

func doctorNoDevice(t *testing.T, p *pod) {
	sys := discover.Host()
	links := [][2]string{{"rxe0", "dum0"}, {"rxea", "va"}, {"rxeb", "vb"}}
	for _, l := range links {
		testutil.Must(t, sys.DelLink(l[0]))
	}
	t.Cleanup(func() {
		for _, l := range links { // in this order, which gives them their nodes' numbers
			if err := sys.AddLink(l[0], "rxe", l[1]); err != nil && !errors.Is(err, syscall.EEXIST) {
				t.Error(err)
			}
		}
	})
	p.broken(labIPv4)
	p.apply(fix(t, first(t, p.doctor(labIPv4), doctor.NoDevice, "devices"), "rdma link add rxe0 type rxe netdev dum0"))
	p.works(labIPv4)
}

// TestDoctorNoModule mends step by step, as the doctor says, until there is nothing to mend.
func TestDoctorNoModule(t *testing.T) {
	without(t, false, "-no-module")
	p := newPod(t)
	p.broken(labIPv4)
	first(t, p.doctor(labIPv4), doctor.NoModule, "module ib_core")
	// What rxe needs of the kernel's cryptography is loaded by an alias, and the lab's modprobe
	// knows none. Later kernels have no such module.
	exec.Command("modprobe", "crc32_generic").Run()
	p.mend(labIPv4)
	p.works(labIPv4)
}

// refusedRoot is set in the process that is not allowed RDMA netlink.
const refusedRoot = "RDMA_TEST_REFUSED_ROOT"

// TestDoctorRefusedChild enters the pod, installs a seccomp filter and becomes the program.
func TestDoctorRefusedChild(t *testing.T) {
	root := os.Getenv(refusedRoot)
	if root == "" {
		return // see doctorSeccomp
	}
	runtime.LockOSThread() // the filter is the thread's, as is the program that it becomes
	testutil.Must(t, unix.Chroot(root))
	testutil.Must(t, unix.Chdir("/"))
	testutil.Must(t, refuseNetlink())
	testutil.Must(t, syscall.Exec("/rdma-ping", append([]string{"rdma-ping"}, strings.Fields(os.Getenv(refusedRoot+"_ARGS"))...), nil))
}

func doctorSeccomp(t *testing.T, p *pod) {
	exe, err := os.Executable()
	testutil.Must(t, err)
	refused := func(args ...string) *exec.Cmd {
		cmd := exec.Command(exe, "-test.run", "^TestDoctorRefusedChild$")
		cmd.Env = append(os.Environ(), refusedRoot+"="+p.root, refusedRoot+"_ARGS="+strings.Join(args, " "))
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID}
		return cmd
	}
	testutil.Must(t, unix.Unmount(p.path("sys"), 0))
	if err := answered(t, refused("-c", "1", labIPv4)); err == nil {
		t.Error("ping works without netlink and without /sys")
	}
	f := first(t, report(t, refused("doctor", "--json", labIPv4)), doctor.NetlinkRefused, "netlink")
	if !strings.Contains(f.What, "seccomp") {
		t.Errorf("want seccomp named in %q", f.What)
	}
	p.apply(fix(t, f, "mount -t sysfs"))
	if err := answered(t, refused("-c", "1", labIPv4)); err != nil {
		t.Errorf("mended, and yet: %v", err)
	}
	// What is left is no more than a warning, and the first fix but one is to allow it.
	r := report(t, refused("doctor", "--json", labIPv4))
	if len(r.Findings) == 0 || r.Findings[0].Code != doctor.NetlinkRefused || r.Findings[0].Severity != doctor.Warning {
		t.Errorf("with /sys: got %+v, want a warning", r)
	}
	p.works(labIPv4)
}
