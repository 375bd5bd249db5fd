//go:build linux

// Package chroot makes folders of Debian packages in which programs of another
// release than the machine's can run. No script of a package is run, so they hold
// little more than compilers need.
package chroot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// Finish makes of a folder with unpacked packages something to run programs in. It
// can be repeated.
func Finish(dir string) error {
	// Where packages of a release still have files in /bin and so on, these are
	// folders already; that will do.
	for _, d := range []string{"bin", "sbin", "lib", "lib64"} {
		if err := link("usr/"+d, filepath.Join(dir, d)); err != nil {
			return err
		}
	}
	// What packages leave to their scripts.
	for _, l := range [][2]string{{"dash", "bin/sh"}, {"gawk", "usr/bin/awk"}} {
		if err := link(l[0], filepath.Join(dir, l[1])); err != nil {
			return err
		}
	}
	for _, d := range []string{"dev", "proc", "tmp"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, "dev", "null"), nil, 0o644) // to mount the real one on
}

// link makes a link unless there is something already.
func link(target, path string) error {
	if err := os.Symlink(target, path); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return nil
}

// inside mounts the least that compilers want and enters; what it mounts ends with
// it.
const inside = `mount --rbind /proc "$1/proc"
mount --bind /dev/null "$1/dev/null"
exec chroot "$@"`

// enter is the command that runs argv in dir: as root, in a mount namespace; as
// another user, in a user namespace too, where one may mount and call chroot.
func enter(uid int, dir string, argv []string) []string {
	own := []string{"unshare", "--mount"}
	if uid != 0 {
		own = append(own, "--map-root-user")
	}
	return append(append(own, "sh", "-ec", inside, "sh", dir), argv...)
}

// Run runs a program in dir. Its error quotes what the program said last.
func Run(ctx context.Context, dir string, argv ...string) error {
	if out, err := command(ctx, dir, "true").CombinedOutput(); err != nil {
		return fmt.Errorf("enter a chroot: %w: %s (this needs root with CAP_SYS_ADMIN, or user namespaces for all: see README.md)",
			err, strings.TrimSpace(string(out)))
	}
	out, err := command(ctx, dir, argv...).CombinedOutput()
	if err != nil {
		lines := strings.SplitAfter(string(out), "\n")
		return fmt.Errorf("%s: %w\n%s", argv[0], err, strings.Join(lines[max(0, len(lines)-30):], ""))
	}
	return nil
}

func command(ctx context.Context, dir string, argv ...string) *exec.Cmd {
	full := enter(os.Geteuid(), dir, argv)
	cmd := exec.CommandContext(ctx, full[0], full[1:]...)
	// Nothing of the user's: variables such as MAKEFLAGS change what is built.
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "HOME=/tmp"}
	// An interrupted compiler ends with all that it has started.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd
}
