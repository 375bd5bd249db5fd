//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/pureverbs/rdma/hack/lab/apt"
	"github.com/pureverbs/rdma/hack/lab/cache"
	"github.com/pureverbs/rdma/hack/lab/vm"
)

// emulators are the packages with QEMU for other architectures than the host's:
// which of them has it depends on the Debian release.
var emulators = map[string][]string{
	"arm64": {"qemu-system-arm"},
	"s390x": {"qemu-system-s390x", "qemu-system-misc"},
}

// emulator gives the path of QEMU for an architecture: this machine's own, or one
// of its Debian release, unpacked into the cache. That one uses libraries and firmware of the QEMU for the
// host's architecture, which is installed.
func emulator(ctx context.Context, c *cache.Cache, suite, arch string) (string, error) {
	program := vm.Program(arch)
	if p, err := exec.LookPath(program); err == nil {
		return p, nil
	}
	dir, err := c.Make("qemu-"+suite+"-"+arch, func(out string) error {
		a, err := c.Apt(suite, hostArch)
		if err != nil {
			return err
		}
		p, err := newest(ctx, a, emulators[arch]...)
		if err != nil {
			return err
		}
		if err := c.Unpack(ctx, a, out, p); err != nil {
			return err
		}
		path := filepath.Join(out, "usr", "bin", program)
		if text, err := exec.CommandContext(ctx, path, "--version").CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(text)))
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("get %s (installing package %s will do, too): %w", program, emulators[arch][0], err)
	}
	return filepath.Join(dir, "usr", "bin", program), nil
}

// newest finds the first of several packages that a suite has, by a fresh index.
func newest(ctx context.Context, a *apt.Apt, names ...string) (apt.Package, error) {
	if err := a.Update(ctx); err != nil {
		return apt.Package{}, err
	}
	for _, n := range names {
		if p, err := a.Show(ctx, n); err == nil && len(p) > 0 {
			return p[0], nil
		}
	}
	return apt.Package{}, fmt.Errorf("no %s in Debian %s", strings.Join(names, " or "), a.Suite)
}

// codename is the name of this machine's Debian release.
func codename() (string, error) {
	text, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return "", err
	}
	return parseCodename(string(text))
}

func parseCodename(osRelease string) (string, error) {
	for line := range strings.Lines(osRelease) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "VERSION_CODENAME="); ok {
			return strings.Trim(v, `"`), nil
		}
	}
	return "", fmt.Errorf("this machine's Debian release has no name in /etc/os-release")
}
