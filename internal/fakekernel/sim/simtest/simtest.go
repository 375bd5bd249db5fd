//go:build linux && (amd64 || arm64)

// Package simtest lets test binaries be their own mlx5sim: it runs programs on a simulated device
// where the machine allows it, and skips tests where it does not.
package simtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pureverbs/rdma/internal/fakekernel/sim"
)

// name is what a test binary is called as, to be mlx5sim.
const name = "mlx5sim"

// Main is for TestMain: a process that is started as mlx5sim, or by it, does not run tests.
func Main(m *testing.M) {
	sim.Launched()
	if os.Args[0] == name {
		os.Exit(sim.Main(os.Args[1:]))
	}
	os.Exit(m.Run())
}

// Command is the command "mlx5sim args...". Where the machine refuses, which is a property of it
// and nothing to install, the test is skipped: even in CI.
func Command(ctx context.Context, t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	why, err := trial()
	if err != nil {
		t.Fatalf("mlx5sim true: %v", err)
	}
	if why != "" {
		t.Skip(why)
	}
	return command(ctx, args...)
}

func command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Args = append([]string{name}, args...)
	cmd.Env = Environ()
	// Killed at once, it could not kill what the program has started.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// Environ is the environment of this process, but for what says which devices it has.
func Environ() []string {
	return slices.DeleteFunc(os.Environ(), func(s string) bool {
		return strings.HasPrefix(s, "RDMA_TEST_DEVICE=") || strings.HasPrefix(s, "RDMA_LAB")
	})
}

const statusRefused = 125

// trial finds out, once and aloud, why there is no simulated device here; "" if there is one.
var trial = sync.OnceValues(func() (why string, err error) {
	out, err := command(context.Background(), "true").CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == statusRefused {
		why = "NO TEST ON A SIMULATED DEVICE: " + strings.TrimSpace(string(out))
		fmt.Fprintln(os.Stderr, why)
		return why, nil
	}
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return "", err
})
