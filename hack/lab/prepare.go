//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/pureverbs/rdma/hack/lab/apt"
	"github.com/pureverbs/rdma/hack/lab/kernel"
	"github.com/pureverbs/rdma/hack/lab/rootfs"
)

// machine is what every guest of a kernel is made of.
type machine struct {
	image  kernel.Image
	rootfs string
}

func prepareCommand(ctx context.Context, _ *interrupts, o options) (int, error) {
	for _, k := range o.kernels {
		m, err := prepare(ctx, k, o.refresh)
		if skip(err, o) {
			continue
		}
		if err != nil {
			return exitTrouble, err
		}
		say("kernel %s (%s) is ready", k.Kernel, m.image.Release)
	}
	return 0, nil
}

// skip tells, and says, that a kernel cannot be had any more, which does not
// stop work on all kernels.
func skip(err error, o options) bool {
	if !errors.Is(err, apt.ErrGone) || len(o.kernels) == 1 {
		return false
	}
	say("SKIPPED: %v", err)
	return true
}

// prepare makes sure that everything is there for a kernel; what is there already
// costs nothing.
func prepare(ctx context.Context, k kernel.Suite, refresh bool) (machine, error) {
	if err := hostPackages(ctx); err != nil {
		return machine{}, err
	}
	dir, err := cacheDir()
	if err != nil {
		return machine{}, err
	}
	unlock, err := lock(ctx, filepath.Join(dir, "lock"), "another lab to prepare its guests")
	if err != nil {
		return machine{}, err
	}
	defer unlock()
	// What an interrupted run left; nobody else is at work.
	if err := os.RemoveAll(filepath.Join(dir, "unfinished")); err != nil {
		return machine{}, err
	}
	m := machine{}
	if m.rootfs, err = rootfs.Archive(dir, say); err != nil {
		return m, err
	}
	store := kernel.Store{Dir: dir, Say: say}
	if isTerminal(os.Stderr) {
		store.Terminal = os.Stderr
	}
	if img, ok := store.Cached(k); ok && !refresh {
		m.image = img
		return m, nil
	}
	m.image, err = store.Prepare(ctx, k)
	return m, err
}

func cacheDir() (string, error) {
	base, err := os.UserCacheDir() // XDG_CACHE_HOME, else ~/.cache
	if err != nil {
		return "", err
	}
	dir := filepath.Join(base, "pureverbs", "lab")
	return dir, os.MkdirAll(dir, 0o755)
}

// lock takes a lock between processes. It tells when that means to wait.
func lock(ctx context.Context, path, who string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return func() { f.Close() }, nil
	}
	say("waiting for %s", who)
	got := make(chan error, 1)
	go func() { got <- syscall.Flock(int(f.Fd()), syscall.LOCK_EX) }()
	select {
	case err := <-got:
		return func() { f.Close() }, err
	case <-ctx.Done(): // the process is about to end
		return nil, ctx.Err()
	}
}

// hostPackages installs the packages that are missing, or says how to.
func hostPackages(ctx context.Context) error {
	missing, err := missingPackages(ctx)
	if err != nil || len(missing) == 0 {
		return err
	}
	install := append([]string{"apt-get", "install", "-y", "--no-install-recommends"}, missing...)
	if os.Geteuid() != 0 {
		return fmt.Errorf("packages are missing on this machine; install them with\n    sudo apt-get update && sudo %s", strings.Join(install, " "))
	}
	say("installing %s", strings.Join(missing, " "))
	// Without a package index, or with an old one, the first try fails.
	simulate := append([]string{"-s", "-qq"}, install[1:]...)
	if exec.CommandContext(ctx, "apt-get", simulate...).Run() == nil {
		if err := show(ctx, install...); err == nil {
			return nil
		}
	}
	if err := show(ctx, "apt-get", "update"); err != nil {
		return err
	}
	return show(ctx, install...)
}

// missingPackages asks dpkg which of the packages are not installed.
func missingPackages(ctx context.Context) ([]string, error) {
	if _, err := exec.LookPath("dpkg-query"); err != nil {
		return nil, errors.New("the lab needs a Debian machine: there is no dpkg here")
	}
	args := append([]string{"-W", "-f", "${db:Status-Status} ${Package}\n"}, rootfs.Packages...)
	// It exits with 1 when it knows nothing of a package: that is the answer.
	out, err := exec.CommandContext(ctx, "dpkg-query", args...).Output()
	var status *exec.ExitError
	if err != nil && !errors.As(err, &status) {
		return nil, err
	}
	return notInstalled(rootfs.Packages, string(out)), ctx.Err()
}

func notInstalled(wanted []string, out string) []string {
	installed := map[string]bool{}
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == "installed" {
			installed[f[1]] = true
		}
	}
	var missing []string
	for _, p := range wanted {
		if !installed[p] {
			missing = append(missing, p)
		}
	}
	return missing
}

// show runs an apt command that takes long. On a terminal one sees its progress;
// elsewhere that would only be noise.
func show(ctx context.Context, argv ...string) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	if !isTerminal(os.Stderr) {
		cmd.Args = append(cmd.Args, "-qq", "-oDpkg::Use-Pty=0")
	}
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	// dpkg must not be killed in the middle.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(argv[:2], " "), err)
	}
	return nil
}
