// Package cache keeps what takes long to fetch or to make in a folder. Everything
// is made beside its final place and moved there whole, so that an interrupted run
// leaves nothing half made. One process at a time may work on it.
package cache

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/pureverbs/rdma/hack/lab/apt"
)

// Cache is such a folder.
type Cache struct {
	Dir string
	Say func(format string, args ...any) // tells what takes long
	// Terminal shows apt's progress, if there is one.
	Terminal *os.File
}

// Clear removes what an interrupted run left. Nobody else may be at work.
func (c *Cache) Clear() error { return os.RemoveAll(filepath.Join(c.Dir, "unfinished")) }

// Temp makes a folder on the cache's own file system, so that what is made there
// can be renamed into place.
func (c *Cache) Temp() (string, error) {
	parent := filepath.Join(c.Dir, "unfinished")
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", err
	}
	return os.MkdirTemp(parent, "")
}

// Make gives the path of a folder in the cache. If it is not there, build fills a
// new one, which gets its name when build has succeeded.
func (c *Cache) Make(name string, build func(dir string) error) (string, error) {
	final := filepath.Join(c.Dir, name)
	if _, err := os.Stat(final); !errors.Is(err, fs.ErrNotExist) {
		return final, err
	}
	tmp, err := c.Temp()
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	out := filepath.Join(tmp, "out")
	if err := os.Mkdir(out, 0o755); err != nil {
		return "", err
	}
	if err := build(out); err != nil {
		return "", err
	}
	return final, rename(out, final)
}

func rename(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.Rename(from, to)
}

// Apt reads a Debian suite for an architecture, from the archive that this machine
// uses.
func (c *Cache) Apt(suite, arch string) (*apt.Apt, error) {
	src, err := apt.Debian("/")
	if err != nil {
		return nil, fmt.Errorf("the lab takes all it needs from Debian packages: %w", err)
	}
	name := suite
	if arch != "amd64" {
		name += "-" + arch
	}
	a, err := apt.New(filepath.Join(c.Dir, "apt", name), suite, arch, src)
	if err == nil && c.Terminal != nil {
		a.Progress = c.Terminal
	}
	return a, err
}

// Deb gives the path of a package's file in the cache. apt checks what it fetches;
// only a complete file gets its final name.
func (c *Cache) Deb(ctx context.Context, a *apt.Apt, p apt.Package) (string, error) {
	final := filepath.Join(c.Dir, "debs", p.Name+"_"+strings.ReplaceAll(p.Version, ":", "%3a")+".deb")
	if _, err := os.Stat(final); err == nil {
		return final, nil
	}
	tmp, err := c.Temp()
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	got, err := c.fetch(ctx, a, tmp, p)
	if err != nil {
		return "", err
	}
	return final, rename(got[0], final)
}

// Unpack fills a folder with the files of packages, which are fetched for that and
// not kept.
func (c *Cache) Unpack(ctx context.Context, a *apt.Apt, dir string, pkgs ...apt.Package) error {
	tmp, err := c.Temp()
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	debs, err := c.fetch(ctx, a, tmp, pkgs...)
	if err != nil {
		return err
	}
	return apt.Unpack(ctx, dir, debs...)
}

// Fetch gives the path of a package's file, which remove removes.
func (c *Cache) Fetch(ctx context.Context, a *apt.Apt, p apt.Package) (deb string, remove func(), err error) {
	tmp, err := c.Temp()
	if err != nil {
		return "", nil, err
	}
	remove = func() { _ = os.RemoveAll(tmp) } // else Clear does it
	debs, err := c.fetch(ctx, a, tmp, p)
	if err != nil {
		remove()
		return "", nil, err
	}
	return debs[0], remove, nil
}

func (c *Cache) fetch(ctx context.Context, a *apt.Apt, dir string, pkgs ...apt.Package) ([]string, error) {
	c.Say("downloading %s", describe(pkgs))
	if err := a.Download(ctx, dir, pkgs...); err != nil {
		return nil, err
	}
	debs, _ := filepath.Glob(filepath.Join(dir, "*.deb")) // the pattern is well-formed
	if len(debs) != len(pkgs) {
		return nil, fmt.Errorf("download %s: apt-get left %d files", describe(pkgs), len(debs))
	}
	return debs, nil
}

// describe names packages for people.
func describe(pkgs []apt.Package) string {
	size := int64(0)
	for _, p := range pkgs {
		size += p.Size
	}
	what := fmt.Sprintf("%d packages", len(pkgs))
	if len(pkgs) == 1 {
		what = pkgs[0].Name + " " + pkgs[0].Version
	}
	if size == 0 { // unknown
		return what
	}
	return fmt.Sprintf("%s (%d MB)", what, (size+999_999)/1_000_000)
}
