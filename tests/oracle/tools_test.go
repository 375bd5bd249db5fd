//go:build linux

package oracle

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/internal/fakekernel"
	"github.com/pureverbs/rdma/internal/testutil"
)

var (
	random  = flag.Int("oracle.random", 40, "random scenarios of each mode, side by side with C")
	seed    = flag.Uint64("oracle.seed", 1_000_000, "of the first random scenario")
	write   = flag.Bool("oracle.write", false, "write the goldens anew, from what libibverbs does")
	side    = flag.Bool("oracle.side", os.Getenv("RDMA_TEST_REQUIRE") == "1", "run the tests that need the launcher, which take minutes")
	planted = flag.Bool("oracle.planted", false, "plant all bugs, not only a few")
	keepDir = flag.String("oracle.keep", "", "`folder` to keep scenarios and traces in")
)

// mode is a kind of device.
type mode struct {
	name   string
	how    fakekernel.MLX5
	off    bool   // the programs are told not to use BlueFlame
	kernel string // "" for that of the goldens, which others have none of
}

var modes = []mode{
	{name: "dynamic"},
	{name: "static", how: fakekernel.MLX5{StaticUARs: true}},
	{name: "cqe0", how: fakekernel.MLX5{CQEVersion0: true}},
	{name: "plain", how: fakekernel.MLX5{NoBlueFlame: true}},
	{name: "old", how: fakekernel.MLX5{StaticUARs: true, CQEVersion0: true, NoBlueFlame: true}},
	{name: "off", off: true},
	{name: "off and static", how: fakekernel.MLX5{StaticUARs: true}, off: true, kernel: "5.10"},
	{name: "newest kernel", kernel: "7.2"},
}

// goldenKernel is the version of Linux that the goldens are of.
const goldenKernel = "6.12"

// kernelVersion is the version of Linux of the mode.
func (m *mode) kernelVersion() string {
	if m.kernel == "" {
		return goldenKernel
	}
	return m.kernel
}

// flags are those of the launcher.
func (m *mode) flags() []string {
	f := []string{"-noexec", "-kernel", m.kernelVersion()}
	for flag, on := range map[string]bool{"-static-uars": m.how.StaticUARs, "-cqe0": m.how.CQEVersion0, "-no-blueflame": m.how.NoBlueFlame} {
		if on {
			f = append(f, flag)
		}
	}
	return f
}

// args are those of the Go side.
func (m *mode) args() []string {
	if m.off {
		return []string{"-no-blueflame"}
	}
	return nil
}

// env is the environment of programs that link libibverbs.
func (m *mode) env() []string {
	// Data in completions is not for us: the device has to reach it where it is.
	env := append(os.Environ(), "MLX5_SCATTER_TO_CQE=0", "MLX5_DEBUG_FILE=/dev/null")
	if m.off {
		env = append(env, "MLX5_SHUT_UP_BF=1")
	}
	return env
}

// workDir is for what the tests build.
var workDir string

func TestMain(m *testing.M) {
	flag.Parse()
	dir, err := os.MkdirTemp("", "oracle")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	workDir = dir
	status := m.Run()
	os.RemoveAll(dir)
	os.Exit(status)
}

// The programs. Each is built when it is needed first.
var (
	launcher = sync.OnceValues(func() (string, error) { return buildGo("mlx5sim", "../mlx5sim") })
	goSide   = sync.OnceValues(func() (string, error) { return buildGo("run", "./run") })
	cSide    = sync.OnceValues(buildC)
)

func buildGo(name, pkg string, flags ...string) (string, error) {
	out := filepath.Join(workDir, name)
	args := append([]string{"build", "-o", out}, flags...)
	cmd := exec.Command("go", append(args, pkg)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", pkg, err, text)
	}
	return out, nil
}

func buildC() (string, error) {
	out := filepath.Join(workDir, "oracle")
	sources, err := filepath.Glob("../c/oracle/*.c")
	if err != nil {
		return "", err
	}
	args := append([]string{"-O2", "-Wall", "-Wextra", "-Werror", "-o", out}, sources...)
	text, err := exec.Command("cc", append(args, "-libverbs")...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build tests/c/oracle: %w\n%s", err, text)
	}
	return out, nil
}

// needLauncher builds the launcher and the Go side.
func needLauncher(t testing.TB) {
	t.Helper()
	switch {
	case runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64":
		t.Skip("the launcher knows amd64 and arm64 only")
	case !*side && !*planted && !*write:
		t.Skip("takes a minute; run: make sim, or give -oracle.side")
	}
	fd := FaultFD()
	if fd == 0 {
		refused(t, "userfaultfd(2) is not to be had, which shows the order of stores")
	}
	unix.Close(fd)
	_, err := launcher()
	testutil.Must(t, err)
	_, err = goSide()
	testutil.Must(t, err)
}

// refused skips a test on a machine that does not allow it: aloud, and even where devices are
// required, for there is nothing to install that would help.
func refused(t testing.TB, why string) {
	t.Helper()
	fmt.Fprintf(os.Stderr, "NO COMPARISON WITH LIBMLX5: %s\n", why)
	t.Skip(why)
}

// cores are the versions of rdma-core that there are, and how to start a program with each.
func cores(t testing.TB) map[string][]string {
	t.Helper()
	if _, err := exec.LookPath("cc"); err != nil {
		testutil.Skip(t, "a C compiler", "run: apt install gcc libibverbs-dev ibverbs-providers")
	}
	if _, err := cSide(); err != nil {
		testutil.Skip(t, "libibverbs to build with ("+err.Error()+")", "run: apt install gcc libibverbs-dev ibverbs-providers")
	}
	all := map[string][]string{"installed": nil}
	if newest := newestCore(); newest != "" {
		all["newest"] = []string{newest}
	}
	return all
}

// newestCore is the script that starts a program with the newest rdma-core.
func newestCore() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	run := filepath.Join(dir, "pureverbs", "rdma-core", "newest", "run")
	if _, err := os.Stat(run); err != nil {
		return ""
	}
	return run
}

const (
	launcherRefused = 125
	programTime     = 3 * time.Minute // a program that takes longer hangs
)

// trace runs a program on scenarios under the launcher and returns the trace. An error is the
// program's: what it did until then is in the trace.
func trace(t testing.TB, m mode, text string, program ...string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	in, out := filepath.Join(dir, "scenarios"), filepath.Join(dir, "trace")
	testutil.Must(t, os.WriteFile(in, []byte(text), 0o600))
	sim, err := launcher()
	testutil.Must(t, err)
	args := append(m.flags(), "-trace", out)
	args = append(append(args, program...), in)
	ctx, cancel := context.WithTimeout(t.Context(), programTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, sim, args...)
	cmd.WaitDelay = time.Second
	cmd.Env = m.env()
	said, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == launcherRefused {
		refused(t, strings.TrimSpace(string(said)))
	}
	if err != nil {
		err = fmt.Errorf("%w: %.500s", err, said)
	}
	b, readErr := os.ReadFile(out)
	testutil.Must(t, readErr)
	return string(b), err
}

func traceC(t testing.TB, m mode, text string, prefix []string) string {
	t.Helper()
	program, err := cSide()
	testutil.Must(t, err)
	out, err := trace(t, m, text, append(append([]string{}, prefix...), program)...)
	testutil.Must(t, err)
	return out
}

func traceGo(t testing.TB, m mode, text string) string {
	t.Helper()
	program, err := goSide()
	testutil.Must(t, err)
	out, err := trace(t, m, text, append([]string{program}, m.args()...)...)
	testutil.Must(t, err)
	return out
}

// same compares the traces of all scenarios of a text and returns how many differ.
func same(t testing.TB, cmp *Comparison, what, c, g string) (differ int) {
	t.Helper()
	cNames, cTraces := Traces(c)
	gNames, gTraces := Traces(g)
	if strings.Join(cNames, "\n") != strings.Join(gNames, "\n") {
		t.Errorf("%s: %d scenarios of C, %d of Go", what, len(cNames), len(gNames))
	}
	for _, name := range cNames {
		d := Differ(cmp.Plain(name, cTraces[name], SideC), cmp.Plain(name, gTraces[name], SideGo))
		if d == "" {
			continue
		}
		if differ++; differ <= 3 {
			t.Errorf("%s, scenario %q, %s", what, name, d)
		}
	}
	keepTraces(t, what, c, g)
	return differ
}

func keepTraces(t testing.TB, what, c, g string) {
	t.Helper()
	if *keepDir == "" {
		return
	}
	base := filepath.Join(*keepDir, strings.ReplaceAll(what, " ", "-"))
	testutil.Must(t, os.WriteFile(base+".c", []byte(c), 0o600))
	testutil.Must(t, os.WriteFile(base+".go", []byte(g), 0o600))
}
