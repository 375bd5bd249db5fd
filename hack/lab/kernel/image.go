package kernel

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/pureverbs/rdma/hack/lab/apt"
	"github.com/pureverbs/rdma/hack/lab/boot"
	"github.com/pureverbs/rdma/hack/lab/cpio"
)

// Image is a kernel ready to boot.
type Image struct {
	Suite   Suite
	Version string // of the package
	Release string // as uname -r says
	Vmlinux string // path of the ELF file
	Modules string // path of the archive with the modules
}

// Store keeps kernels below a folder.
type Store struct {
	Dir string
	Say func(format string, args ...any) // tells what takes long
	// Terminal shows apt's progress, if there is one.
	Terminal *os.File
}

// recipe names how images are made, so that those made otherwise are not used.
func recipe() string {
	sum := sha256.Sum256(fmt.Append(nil, "format 1", groups))
	return fmt.Sprintf("%x", sum[:4])
}

// Cached finds the image that was prepared last.
func (s *Store) Cached(suite Suite) (Image, bool) {
	dirs, _ := filepath.Glob(filepath.Join(s.Dir, "kernels", suite.Debian, "*-"+recipe()))
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

func openImage(suite Suite, dir string) (Image, bool) {
	release, err := os.ReadFile(filepath.Join(dir, "release"))
	img := Image{
		Suite: suite, Version: strings.TrimSuffix(filepath.Base(dir), "-"+recipe()), Release: string(release),
		Vmlinux: filepath.Join(dir, "vmlinux"), Modules: filepath.Join(dir, "modules.cpio"),
	}
	return img, err == nil
}

func (s *Store) imageDir(suite Suite, version string) string {
	return filepath.Join(s.Dir, "kernels", suite.Debian, version+"-"+recipe())
}

// Prepare asks the archive for the suite's newest kernel and makes an image of
// it, unless there is one already. The caller holds the cache's lock.
func (s *Store) Prepare(ctx context.Context, suite Suite) (Image, error) {
	a, err := s.apt(suite)
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

func (s *Store) apt(suite Suite) (*apt.Apt, error) {
	src, err := apt.Debian("/")
	if err != nil {
		return nil, fmt.Errorf("kernels are taken from Debian packages: %w", err)
	}
	a, err := apt.New(filepath.Join(s.Dir, "apt", suite.Debian), suite.Debian, src)
	if err == nil && s.Terminal != nil {
		a.Progress = s.Terminal
	}
	return a, err
}

func (s *Store) prepare(ctx context.Context, a *apt.Apt, suite Suite, p apt.Package) (Image, error) {
	dir := s.imageDir(suite, p.Version)
	if img, ok := openImage(suite, dir); ok {
		now := time.Now()
		return img, os.Chtimes(dir, now, now) // the one that Cached prefers
	}
	pkgs, err := parts(ctx, a, p)
	if err != nil {
		return Image{}, err
	}
	var debs []string
	for _, p := range pkgs {
		deb, err := s.download(ctx, a, p)
		if err != nil {
			return Image{}, err
		}
		debs = append(debs, deb)
	}
	if err := s.build(ctx, dir, debs); err != nil {
		return Image{}, fmt.Errorf("make kernel %s of its packages: %w", p.Version, err)
	}
	img, _ := openImage(suite, dir)
	return img, nil
}

// download gives the path of a package's file in the cache. apt checks what it
// fetches; only a complete file gets its final name.
func (s *Store) download(ctx context.Context, a *apt.Apt, p apt.Package) (string, error) {
	final := filepath.Join(s.Dir, "debs", p.Name+"_"+strings.ReplaceAll(p.Version, ":", "%3a")+".deb")
	if _, err := os.Stat(final); err == nil {
		return final, nil
	}
	tmp, err := s.temp()
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	s.Say("downloading %s %s (%d MB)", p.Name, p.Version, (p.Size+999_999)/1_000_000)
	if err := a.Download(ctx, tmp, p); err != nil {
		return "", err
	}
	got, _ := filepath.Glob(filepath.Join(tmp, "*.deb"))
	if len(got) != 1 {
		return "", fmt.Errorf("download %s: apt-get left %d files", p.Name, len(got))
	}
	return final, rename(got[0], final)
}

// temp makes a folder on the cache's own file system, so that what is made there
// can be renamed into place.
func (s *Store) temp() (string, error) {
	parent := filepath.Join(s.Dir, "unfinished")
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", err
	}
	return os.MkdirTemp(parent, "")
}

func rename(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.Rename(from, to)
}

// build makes an image of packages and puts it at dir, whole or not at all.
func (s *Store) build(ctx context.Context, dir string, debs []string) error {
	s.Say("unpacking the kernel and its modules")
	tmp, err := s.temp()
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	root, out := filepath.Join(tmp, "root"), filepath.Join(tmp, "out")
	if err := errors.Join(os.Mkdir(root, 0o755), os.Mkdir(out, 0o755)); err != nil {
		return err
	}
	for _, deb := range debs {
		if text, err := exec.CommandContext(ctx, "dpkg", "-x", deb, root).CombinedOutput(); err != nil {
			return fmt.Errorf("dpkg -x %s: %w: %s", filepath.Base(deb), err, text)
		}
	}
	release, err := buildVmlinux(root, filepath.Join(out, "vmlinux"))
	if err != nil {
		return err
	}
	if err := buildModules(root, release, filepath.Join(out, "modules.cpio")); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(out, "release"), []byte(release), 0o644); err != nil {
		return err
	}
	return rename(out, dir)
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

func buildVmlinux(root, out string) (release string, err error) {
	path, release, err := findKernel(root)
	if err != nil {
		return "", err
	}
	bz, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	elf, err := vmlinux(bz)
	if err != nil {
		return "", fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	return release, os.WriteFile(out, elf, 0o644)
}

func buildModules(root, release, out string) error {
	t, err := openTree(root, release)
	if err != nil {
		return err
	}
	set, err := collect(t)
	if err != nil {
		return err
	}
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	defer f.Close()
	w := cpio.NewWriter(f)
	if err := writeModules(w, set, release); err != nil {
		return err
	}
	return errors.Join(w.Close(), f.Close())
}

func writeModules(w *cpio.Writer, set *set, release string) error {
	text := func(name, s string) error {
		return w.File(name, 0o644, int64(len(s)), strings.NewReader(s))
	}
	for _, m := range set.all {
		if err := text(m.path, string(m.data)); err != nil {
			return err
		}
	}
	for _, g := range groups {
		if err := text(boot.GroupFile(g.name), strings.Join(set.group[g.name], "\n")); err != nil {
			return err
		}
	}
	dir := "usr/lib/modules/" + release + "/"
	return text(dir+"modules.dep", set.modulesDep(dir))
}
