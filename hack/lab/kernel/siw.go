//go:build linux

package kernel

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/pureverbs/rdma/hack/lab/apt"
	"github.com/pureverbs/rdma/hack/lab/chroot"
)

// Debian builds its kernels without siw, but the source is in linux-source: it is
// built as a module out of tree, by the release's own compiler, in a folder of
// packages that is thrown away after.

// buildTools are what the kernel's makefiles call besides the compiler.
var buildTools = []string{"make", "binutils", "coreutils", "dash", "bash", "sed", "gawk", "grep", "findutils", "perl-base"}

// siwScript runs in that folder. The second line takes the debug information away:
// 95 % of the module.
const siwScript = `make -j"$2" -C "/usr/src/linux-headers-$1" M=/build/siw CONFIG_RDMA_SIW=m modules >&2
strip -g /build/siw/siw.ko`

// Siw gives the path of the siw module for an image, and makes it if need be.
// apt.ErrGone: the archive has moved on to another kernel.
func (s *Store) Siw(ctx context.Context, img Image) (string, error) {
	dir, err := s.Make(siwName(img), func(out string) error { return s.buildSiw(ctx, img, out) })
	if err != nil {
		return "", fmt.Errorf("build siw for kernel %s: %w", img.Release, err)
	}
	return filepath.Join(dir, "siw.ko"), nil
}

func siwName(img Image) string {
	sum := sha256.Sum256(fmt.Append(nil, "format 1", buildTools, siwScript))
	return filepath.Join("siw", fmt.Sprintf("%s-%s-%x", img.Release, img.Version, sum[:4]))
}

// buildSiw puts siw.ko into out. What it takes is kept until it has succeeded.
func (s *Store) buildSiw(ctx context.Context, img Image, out string) error {
	source, err := s.siwSource(ctx, img)
	if err != nil {
		return err
	}
	tools, err := s.toolchain(ctx, img)
	if err != nil {
		return err
	}
	if err := copySource(source, filepath.Join(tools, "build", "siw")); err != nil {
		return err
	}
	s.Say("building siw for kernel %s", img.Release)
	if err := chroot.Run(ctx, tools, "sh", "-ec", siwScript, "sh", img.Release, strconv.Itoa(runtime.NumCPU())); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(tools, "build", "siw", "siw.ko"), filepath.Join(out, "siw.ko")); err != nil {
		return err
	}
	return errors.Join(os.RemoveAll(tools), os.RemoveAll(source))
}

// siwSource gives a folder with siw's source, the only thing that is taken out of
// the kernel's.
func (s *Store) siwSource(ctx context.Context, img Image) (string, error) {
	return s.Make(filepath.Join("siw", "source-"+img.Version), func(out string) error {
		a, err := s.Apt(img.Suite.Debian, img.Suite.Arch)
		if err != nil {
			return err
		}
		p, err := a.Find(ctx, "linux-source-"+series(img.Version), img.Version)
		if err != nil {
			return err
		}
		deb, remove, err := s.Fetch(ctx, a, p)
		if err != nil {
			return err
		}
		defer remove()
		s.Say("looking for siw in the kernel's source")
		return extractSource(ctx, deb, "drivers/infiniband/sw/siw", out)
	})
}

// series is the version by which source packages are named: 6.1 of 6.1.176-1.
func series(version string) string {
	f := strings.SplitN(version, ".", 3)
	return strings.Join(f[:min(2, len(f))], ".")
}

// toolchain gives a folder with all that builds modules for an image.
func (s *Store) toolchain(ctx context.Context, img Image) (string, error) {
	return s.Make(filepath.Join("siw", "tools-"+img.Release+"-"+img.Version), func(out string) error {
		a, err := s.Apt(img.Suite.Debian, img.Suite.Arch)
		if err != nil {
			return err
		}
		headers, err := a.Find(ctx, "linux-headers-"+img.Release, img.Version)
		if err != nil {
			return err
		}
		pkgs, err := a.Resolve(ctx, append(headerNeeds(headers), buildTools...)...)
		if err != nil {
			return err
		}
		if err := s.Unpack(ctx, a, out, append(pkgs, headers)...); err != nil {
			return err
		}
		return chroot.Finish(out)
	})
}

// headerNeeds are what a package of headers needs to build modules: more headers,
// the kernel's tools and a compiler. The rest (the kernel, for one) is for machines
// that run it.
func headerNeeds(headers apt.Package) []string {
	var out []string
	for _, d := range headers.Depends {
		if strings.HasPrefix(d.Name, "linux-image-") || strings.HasPrefix(d.Name, "linux-base") {
			continue
		}
		if d.Exact != "" {
			d.Name += "=" + d.Exact
		}
		out = append(out, d.Name)
	}
	return out
}

// copySource copies a folder of files, over what an interrupted build left.
func copySource(from, to string) error {
	if err := errors.Join(os.RemoveAll(to), os.MkdirAll(to, 0o755)); err != nil {
		return err
	}
	files, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(from, f.Name()))
		if err == nil {
			err = os.WriteFile(filepath.Join(to, f.Name()), b, 0o644)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
