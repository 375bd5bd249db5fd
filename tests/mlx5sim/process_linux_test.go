//go:build amd64 || arm64

package main

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pureverbs/rdma/internal/fakekernel/sim/simtest"
	"github.com/pureverbs/rdma/internal/testutil"
)

// TestSystemCalls: what programs find that look closely. Each looks itself.
func TestSystemCalls(t *testing.T) {
	for _, role := range []string{"frames", "descriptors", "nodes", "netlink", "passed"} {
		t.Run(role, func(t *testing.T) {
			o := simulateAs(t, role, nil)
			o.good(t)
		})
	}
}

// TestInherited: a device file lives as long as the last process that has it.
func TestInherited(t *testing.T) {
	o := simulateAs(t, "parent", nil)
	o.good(t)
	const closed, used = "closed everywhere: " + node, "protocol not supported"
	if n := strings.Count(o.log, closed); n != 1 || strings.Index(o.log, closed) < strings.Index(o.log, used) {
		t.Errorf("the device was closed %d times, or before its use:\n%s", n, o.log)
	}
}

// TestKilled: processes that die in the middle of it leave nothing, and the device goes on.
func TestKilled(t *testing.T) {
	testutil.Command(t, "ibv_rc_pingpong")
	for _, mode := range []string{"", " -e"} {
		t.Run("pingpong"+mode, func(t *testing.T) {
			forever := "ibv_rc_pingpong -g 1 -p 18790 -n 100000000" + mode
			o := simulate(t, nil, "sh", "-c", listens+forever+` & server=$!
				listens 18790
				`+forever+` 127.0.0.1 & client=$!
				sleep 0.3
				kill -0 $server && kill -0 $client || exit 9
				kill -9 $client; sleep 0.1; kill -9 $server
				wait
				`+pair("ibv_rc_pingpong -g 1 -n 50 -e", 18791))
			o.good(t)
		})
	}
}

// TestLeftBehind: what a program leaves running does not outlive it for long.
func TestLeftBehind(t *testing.T) {
	start := time.Now()
	o := simulate(t, nil, "sh", "-c", "ibv_rc_pingpong -g 1 -p 18792 >/dev/null & (sleep 1000 & sleep 1000) & sleep 0.3; exit 4")
	if o.status != 4 || !strings.HasSuffix(o.log, clean) {
		t.Errorf("status %d, want 4\n%s", o.status, o.log)
	}
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
}

// TestStatus: the status is the program's.
func TestStatus(t *testing.T) {
	for script, want := range map[string]int{"exit 0": 0, "exit 3": 3, "kill -9 $$": 137, "kill -SEGV $$": 139} {
		if o := simulate(t, nil, "sh", "-c", script); o.status != want {
			t.Errorf("%s: status %d, want %d\n%s", script, o.status, want, o.log)
		}
	}
	if o := simulate(t, nil, "/nonexistent/program"); o.status != 127 || !strings.Contains(o.log, "/nonexistent/program") {
		t.Errorf("no program: status %d\n%s", o.status, o.log)
	}
	if o := simulate(t, []string{"-no-such-flag"}, "true"); o.status != 2 {
		t.Errorf("a wrong flag: status %d\n%s", o.status, o.log)
	}
}

// TestSignal: signals go to the program.
func TestSignal(t *testing.T) {
	cmd := simtest.Command(t.Context(), t, "sh", "-c", "trap 'exit 7' TERM; echo ready; while :; do sleep 0.05; done")
	out, err := cmd.StdoutPipe()
	testutil.Must(t, err)
	testutil.Must(t, cmd.Start())
	_, err = io.ReadFull(out, make([]byte, len("ready")))
	testutil.Must(t, err)
	testutil.Must(t, cmd.Process.Signal(syscall.SIGTERM))
	cmd.Wait() //nolint:errcheck // the status tells
	if got := cmd.ProcessState.ExitCode(); got != 7 {
		t.Errorf("status %d, want 7", got)
	}
}

// TestRefused: where it cannot be, it says at which step. Here a filter with a listener is
// there already.
func TestRefused(t *testing.T) {
	bash := testutil.Command(t, "bash") // can choose a program's name
	path, err := os.Executable()
	testutil.Must(t, err)
	o := finish(t, simtest.Command(t.Context(), t, bash, "-c", "exec -a mlx5sim "+path+" true"))
	const want = "mlx5sim: refused here: install a seccomp filter with a listener: EBUSY (device or resource busy)\n"
	if o.status != 125 || o.log != want {
		t.Errorf("status %d, said %q, want 125 and %q", o.status, o.log, want)
	}
}

// TestUnprivileged: any user can, where users may have namespaces; and stays who he is.
func TestUnprivileged(t *testing.T) {
	testutil.Command(t, "ibv_rc_pingpong")
	if os.Getuid() != 0 {
		t.Skip("all tests run without privileges here")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := simtest.Command(ctx, t, "-v", "sh", "-c", `id -u
		grep CapEff /proc/self/status
		`+pair("ibv_rc_pingpong -g 1 -n 50 -e", 18793))
	cmd.Path = everybodys(t)
	cmd.Dir = "/"
	cmd.SysProcAttr = nobodys()
	mayNamespaces(t)
	o := finish(t, cmd)
	o.good(t)
	if !strings.HasPrefix(o.out, "65534\nCapEff:\t0000000000000000\n") {
		t.Errorf("the program is another user, or has privileges:\n%s", o.out)
	}
}

func nobodys() *syscall.SysProcAttr {
	const user = 65534
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
}

// mayNamespaces skips the test where users may not have namespaces to mount things in.
func mayNamespaces(t *testing.T) {
	cmd := exec.Command(testutil.Command(t, "unshare"), "-U", "-r", "-m", "mount", "-t", "tmpfs", "none", "/sys/class")
	cmd.SysProcAttr, cmd.Dir = nobodys(), "/"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("NO TEST WITHOUT PRIVILEGES: namespaces of users are refused here: %v: %s", err, out)
	}
}

// everybodys is a copy of this program where all users can run it.
func everybodys(t *testing.T) string {
	b, err := os.ReadFile(self)
	testutil.Must(t, err)
	dir, err := os.MkdirTemp("", "mlx5sim")
	testutil.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	testutil.Must(t, os.Chmod(dir, 0o755))
	path := filepath.Join(dir, "mlx5sim")
	testutil.Must(t, os.WriteFile(path, b, 0o755))
	return path
}
