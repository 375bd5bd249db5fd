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
	Kernel  string // as users name it: 5.10, 6.1, 6.12, newest
	Debian  string
	Arch    string // as Debian and Go name it
	Flavour string // of the kernel, where Debian has several for an architecture
	prefix  string // of the version in package names
}

// The first one of an architecture other than amd64 is enough to find what depends
// on byte order (s390x) and on the size of pages (arm64 with 16 KiB).
var suites = []Suite{
	{"5.10", "bullseye", "amd64", "amd64", "5.10."},
	{"6.1", "bookworm", "amd64", "amd64", "6.1."},
	{"6.12", "trixie", "amd64", "amd64", "6.12."},
	{"newest", "sid", "amd64", "amd64", ""},
	{"6.12", "trixie", "arm64", "arm64-16k", "6.12."},
	{"6.12", "trixie", "s390x", "s390x", "6.12."},
}

// Architectures lists those that there are kernels for.
func Architectures() []string {
	var out []string
	for _, s := range suites {
		out = append(out, s.Arch)
	}
	return slices.Compact(out)
}

// Select gives the suites that the name of a kernel means on an architecture; "all"
// means every one, "" the usual one.
func Select(arch, name string) ([]Suite, error) {
	var found []Suite
	var names []string
	for _, s := range suites {
		if s.Arch != arch {
			continue
		}
		if name == "all" || name == s.Kernel || (name == "" && s.usual()) {
			found = append(found, s)
		}
		names = append(names, s.Kernel)
	}
	if names == nil {
		return nil, fmt.Errorf("no architecture %q; there are %s", arch, strings.Join(Architectures(), ", "))
	}
	if found == nil {
		return nil, fmt.Errorf("no kernel %q for %s; there are %s and all", name, arch, strings.Join(names, ", "))
	}
	return found, nil
}

// usual tells whether it is what one gets without asking: what this machine is
// likely to have itself, and elsewhere the only one.
func (s Suite) usual() bool { return s.Kernel == "6.1" || s.Arch != "amd64" }

// imageNames chooses the names that belong to a suite's kernel, and not those of
// another flavour (rt, cloud) or without a signature.
func imageNames(s Suite, all []string) []string {
	pattern := regexp.MustCompile(`^linux-image-(\d+\.[\d.]+(?:[-+~][\w.]*\d[\w.]*)?)-` + regexp.QuoteMeta(s.Flavour) + `$`)
	var out []string
	for _, n := range all {
		if m := pattern.FindStringSubmatch(n); m != nil && strings.HasPrefix(m[1]+".", s.prefix) {
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
