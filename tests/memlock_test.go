//go:build linux

package tests

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/uverbs"
)

const (
	memlockChild = "RDMA_TEST_MEMLOCK_CHILD" // set in the process that has little
	memlockBytes = 65536
)

// nobody is a process without privileges.
func nobody(cmd *exec.Cmd) *exec.Cmd {
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	return cmd
}

// TestRW31Memlock runs TestRW31Child without privileges and with little memory to pin.
func TestRW31Memlock(t *testing.T) {
	testutil.Lab(t, "RW31")
	exe, err := os.Executable()
	testutil.Must(t, err)
	// The limit is that of whoever starts the process.
	var old unix.Rlimit
	testutil.Must(t, unix.Getrlimit(unix.RLIMIT_MEMLOCK, &old))
	testutil.Must(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: memlockBytes, Max: old.Max}))
	defer unix.Setrlimit(unix.RLIMIT_MEMLOCK, &old)
	cmd := nobody(exec.Command(exe, "-test.run", "^TestRW31Child$", "-test.v"))
	cmd.Env = append(os.Environ(), memlockChild+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS: TestRW31Child")) {
		t.Errorf("%v\n%s", err, out)
	}
	server := start(t, "listening", "rdma-ping", "serve")
	ping := func(args ...string) (string, error) {
		out, err := nobody(exec.Command(testutil.Command(t, "rdma-ping"), append([]string{"-c", "3", "-i", "20ms", labIPv4}, args...)...)).CombinedOutput()
		return string(out), err
	}
	if out, err := ping(); err != nil {
		t.Errorf("rdma-ping needs more than %d bytes: %v\n%s", memlockBytes, err, out)
	}
	out1, err := ping("-s", "1M")
	var exit *exec.ExitError
	if !errors.As(err, &exit) || !strings.Contains(out1, "65536") || !strings.Contains(strings.ToLower(out1), "memlock") {
		t.Errorf("rdma-ping -s 1M: %v, want a failure that names the limit:\n%s", err, out1)
	}
	if out, err := ping(); err != nil {
		t.Errorf("after the failure: %v\n%s", err, out)
	}
	server.interrupt(t)
}

// TestRW31Child is the process with little memory to pin.
func TestRW31Child(t *testing.T) {
	if os.Getenv(memlockChild) == "" {
		return // see TestRW31Memlock
	}
	c, err := testutil.Device(t).Open()
	testutil.Must(t, err)
	pd, err := c.AllocPD()
	testutil.Must(t, err)
	_, err = pd.AllocMR(1<<20, uverbs.AccessLocalWrite)
	for _, want := range []string{"1048576", "65536", "RLIMIT_MEMLOCK", "CAP_IPC_LOCK"} {
		if !errors.Is(err, syscall.ENOMEM) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want ENOMEM and %s in it", err, want)
		}
	}
	for i := range 3000 { // at the limit: nothing may stay
		mr, err := pd.AllocMR(memlockBytes/2+i*13%(memlockBytes/2-4096), uverbs.AccessLocalWrite)
		testutil.Must(t, err)
		if i == 0 && testutil.Pinned(t) == 0 {
			t.Error("a region pins nothing that shows")
		}
		testutil.Must(t, mr.Close())
	}
	if n := testutil.Pinned(t); n != 0 {
		t.Errorf("%d kB stay pinned", n)
	}
	testutil.Must(t, errors.Join(pd.Close(), c.Close()))
}
