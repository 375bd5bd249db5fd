package kernel

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pureverbs/rdma/hack/lab/apt"
	"github.com/pureverbs/rdma/hack/lab/boot"
	"github.com/pureverbs/rdma/hack/lab/cache"
	"github.com/pureverbs/rdma/hack/lab/cpio"
)

// Image is a kernel ready to boot.
type Image struct {
	Suite   Suite
	Version string // of the package
	Release string // as uname -r says
	Kernel  string // path of the file to boot
	Modules string // path of the archive with the modules
	depends string // path of modules.dep
}

// Store keeps kernels in the cache. Its caller holds the cache's lock.
type Store struct{ *cache.Cache }

// recipe names how images are made, so that those made otherwise are not used.
func recipe() string {
	sum := sha256.Sum256(fmt.Append(nil, "format 2", groups))
	return fmt.Sprintf("%x", sum[:4])
}

// Cached finds the image that was prepared last.
func (s *Store) Cached(suite Suite) (Image, bool) {
	dirs, _ := filepath.Glob(filepath.Join(s.Dir, imageName(suite, "*")))
	var newest string
	var when time.Time
	for _, d := range dirs {
		if fi, err := os.Stat(d); err == nil && fi.ModTime().After(when) {
			newest, when = d, fi.ModTime()
		}
	}
	if newest == "" {
		return Image{}, false
	}
	return openImage(suite, newest)
}

// imageName is the name of an image in the cache.
func imageName(suite Suite, version string) string {
	dir := suite.Debian
	if suite.Flavour != "amd64" {
		dir += "-" + suite.Flavour
	}
	return filepath.Join("kernels", dir, version+"-"+recipe())
}

func openImage(suite Suite, dir string) (Image, bool) {
	release, err := os.ReadFile(filepath.Join(dir, "release"))
	img := Image{
		Suite: suite, Version: strings.TrimSuffix(filepath.Base(dir), "-"+recipe()), Release: string(release),
		Kernel: filepath.Join(dir, "kernel"), Modules: filepath.Join(dir, "modules.cpio"),
		depends: filepath.Join(dir, "modules.dep"),
	}
	return img, err == nil
}

// Prepare asks the archive for the suite's newest kernel and makes an image of
// it, unless there is one already.
func (s *Store) Prepare(ctx context.Context, suite Suite) (Image, error) {
	a, err := s.Apt(suite.Debian, suite.Arch)
	if err != nil {
		return Image{}, err
	}
	s.Say("reading the package index of Debian %s for kernel %s", suite.Debian, suite.Kernel)
	if err := a.Update(ctx); err != nil {
		return Image{}, err
	}
	candidates, err := images(ctx, a, suite)
	if err != nil {
		return Image{}, err
	}
	for _, c := range candidates {
		img, err := s.prepare(ctx, a, suite, c)
		if !errors.Is(err, apt.ErrGone) {
			return img, err
		}
		s.Say("%v, trying the next", err)
	}
	return Image{}, fmt.Errorf("kernel %s: %w", suite.Kernel, apt.ErrGone)
}

func (s *Store) prepare(ctx context.Context, a *apt.Apt, suite Suite, p apt.Package) (Image, error) {
	pkgs, err := parts(ctx, a, p)
	if err != nil {
		return Image{}, err
	}
	dir, err := s.Make(imageName(suite, p.Version), func(out string) error {
		var debs []string
		for _, p := range pkgs {
			deb, err := s.Deb(ctx, a, p)
			if err != nil {
				return err
			}
			debs = append(debs, deb)
		}
		return s.build(ctx, suite, out, debs)
	})
	if err != nil {
		return Image{}, fmt.Errorf("make kernel %s of its packages: %w", p.Version, err)
	}
	img, _ := openImage(suite, dir)
	now := time.Now()
	return img, os.Chtimes(dir, now, now) // the one that Cached prefers
}

// build makes an image of packages.
func (s *Store) build(ctx context.Context, suite Suite, out string, debs []string) error {
	s.Say("unpacking the kernel and its modules")
	root, err := s.Temp()
	if err != nil {
		return err
	}
	defer os.RemoveAll(root)
	if err := apt.Unpack(ctx, root, debs...); err != nil {
		return err
	}
	release, err := buildKernel(suite, root, filepath.Join(out, "kernel"))
	if err != nil {
		return err
	}
	if err := buildModules(root, release, out); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, "release"), []byte(release), 0o644)
}

// findKernel gives the bzImage of an unpacked package and its release.
func findKernel(root string) (path, release string, err error) {
	boot, _ := filepath.Glob(filepath.Join(root, "boot", "vmlinuz-*"))
	modules, _ := filepath.Glob(filepath.Join(root, "usr/lib/modules/*/vmlinuz")) // since 7.0
	switch {
	case len(boot) == 1 && len(modules) == 0:
		return boot[0], strings.TrimPrefix(filepath.Base(boot[0]), "vmlinuz-"), nil
	case len(boot) == 0 && len(modules) == 1:
		return modules[0], filepath.Base(filepath.Dir(modules[0])), nil
	}
	return "", "", fmt.Errorf("%d kernels in the packages", len(boot)+len(modules))
}

// buildKernel makes the file to boot. Only on amd64 there is a better one than the
// package's.
func buildKernel(suite Suite, root, out string) (release string, err error) {
	path, release, err := findKernel(root)
	if err != nil {
		return "", err
	}
	image, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	if suite.Arch == "amd64" {
		if image, err = vmlinux(image); err != nil {
			return "", fmt.Errorf("%s: %w", filepath.Base(path), err)
		}
	}
	return release, os.WriteFile(out, image, 0o644)
}

// buildModules packs the modules. What they depend on is also put beside the
// archive, for modules that come later.
func buildModules(root, release, out string) error {
	t, err := openTree(root, release)
	if err != nil {
		return err
	}
	set, err := collect(t)
	if err != nil {
		return err
	}
	dep := set.modulesDep(modulesDir(release))
	if err := os.WriteFile(filepath.Join(out, "modules.dep"), []byte(dep), 0o644); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(out, "modules.cpio"))
	if err != nil {
		return err
	}
	defer f.Close()
	w := cpio.NewWriter(f)
	if err := writeModules(w, set); err != nil {
		return err
	}
	return errors.Join(w.Text(modulesDir(release)+"modules.dep", dep), w.Close(), f.Close())
}

// modulesDir is where a kernel's modules are in the guest.
func modulesDir(release string) string { return "usr/lib/modules/" + release + "/" }

func writeModules(w *cpio.Writer, set *set) error {
	for _, m := range set.all {
		if err := w.Text(m.path, string(m.data)); err != nil {
			return err
		}
	}
	for _, g := range groups {
		if err := w.Text(boot.GroupFile(g.name), strings.Join(set.group[g.name], "\n")); err != nil {
			return err
		}
	}
	return nil
}
