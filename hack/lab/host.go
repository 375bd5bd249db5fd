//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/pureverbs/rdma/hack/lab/rootfs"
)

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
