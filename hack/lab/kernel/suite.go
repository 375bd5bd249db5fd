// Package kernel makes bootable kernels of Debian's packages: the uncompressed
// vmlinux and an initramfs with the modules that the lab needs.
package kernel

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"

	"github.com/pureverbs/rdma/hack/lab/apt"
)

// Suite is a Debian release and the kernel it comes with.
type Suite struct {
	Kernel string // as users name it: 5.10, 6.1, 6.12, newest
	Debian string
	prefix string // of the version in package names
}

var suites = []Suite{
	{"5.10", "bullseye", "5.10."},
	{"6.1", "bookworm", "6.1."},
	{"6.12", "trixie", "6.12."},
	{"newest", "sid", ""},
}

// Select gives the suites that a kernel name means; "all" means every one.
func Select(name string) ([]Suite, error) {
	if name == "all" {
		return suites, nil
	}
	var names []string
	for _, s := range suites {
		if s.Kernel == name {
			return []Suite{s}, nil
		}
		names = append(names, s.Kernel)
	}
	return nil, fmt.Errorf("no kernel %q; there are %s and all", name, strings.Join(names, ", "))
}

// imageName matches kernels for common machines, and not those with a flavour
// (rt, cloud) or without a signature.
var imageName = regexp.MustCompile(`^linux-image-(\d+\.[\d.]+(?:[-+~][\w.]*\d[\w.]*)?)-amd64$`)

// imageNames chooses the names that belong to a suite's kernel.
func imageNames(s Suite, all []string) []string {
	var out []string
	for _, n := range all {
		if m := imageName.FindStringSubmatch(n); m != nil && strings.HasPrefix(m[1]+".", s.prefix) {
			out = append(out, n)
		}
	}
	return out
}

// images lists a suite's kernels, the newest first.
func images(ctx context.Context, a *apt.Apt, s Suite) ([]apt.Package, error) {
	all, err := a.Names(ctx, "linux-image-")
	if err != nil {
		return nil, err
	}
	pkgs, err := a.Show(ctx, imageNames(s, all)...)
	if err != nil {
		return nil, err
	}
	if len(pkgs) == 0 {
		return nil, fmt.Errorf("no kernel %s in Debian %s: %w", s.Kernel, s.Debian, apt.ErrGone)
	}
	slices.SortFunc(pkgs, func(x, y apt.Package) int { return compareVersions(y.Version, x.Version) })
	return pkgs, nil
}

// compareVersions lets dpkg judge, whose rules are long.
func compareVersions(a, b string) int {
	switch {
	case a == b:
		return 0
	case exec.Command("dpkg", "--compare-versions", a, "lt", b).Run() == nil:
		return -1
	}
	return 1
}

// parts are the packages that make up a kernel: since 7.0 the image package
// only depends on others of the same version.
func parts(ctx context.Context, a *apt.Apt, image apt.Package) ([]apt.Package, error) {
	out := []apt.Package{image}
	for _, d := range image.Depends {
		if d.Exact != image.Version || !strings.HasPrefix(d.Name, "linux-") {
			continue
		}
		p, err := a.Show(ctx, d.Name)
		if err != nil {
			return nil, err
		}
		out = append(out, p...)
	}
	return out, nil
}
