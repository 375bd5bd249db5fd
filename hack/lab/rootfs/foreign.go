package rootfs

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/pureverbs/rdma/hack/lab/apt"
	"github.com/pureverbs/rdma/hack/lab/cache"
)

// Foreign gives the path of an archive with the guest's programs for another
// architecture than this machine's. They come from the first of several Debian
// suites that has them all: mirrors do not keep every package of the less common
// architectures.
func Foreign(ctx context.Context, c *cache.Cache, arch string, suites ...string) (string, error) {
	sum := sha256.Sum256(fmt.Append(nil, "format 1", tools, optional, providers, patterns, texts, GuestPackages))
	dir, err := c.Make(fmt.Sprintf("rootfs-%s-%x", arch, sum[:6]), func(out string) (err error) {
		for _, suite := range suites {
			err = packSuite(ctx, c, suite, arch, filepath.Join(out, "rootfs.cpio"))
			if !errors.Is(err, apt.ErrGone) {
				return err
			}
			c.Say("%v", err)
		}
		return err
	})
	if err != nil {
		return "", fmt.Errorf("programs for %s: %w", arch, err)
	}
	return filepath.Join(dir, "rootfs.cpio"), nil
}

func packSuite(ctx context.Context, c *cache.Cache, suite, arch, out string) error {
	root, err := c.Temp()
	if err != nil {
		return err
	}
	defer os.RemoveAll(root)
	a, err := c.Apt(suite, arch)
	if err != nil {
		return err
	}
	c.Say("reading the package index of Debian %s for programs for %s", suite, arch)
	if err := a.Update(ctx); err != nil {
		return err
	}
	pkgs, err := a.Resolve(ctx, GuestPackages...)
	if err != nil {
		return err
	}
	if err := c.Unpack(ctx, a, root, pkgs...); err != nil {
		return err
	}
	return tree{root}.pack(out)
}

func (t tree) pack(out string) error {
	files, err := t.list()
	if err != nil {
		return err
	}
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	return errors.Join(t.write(f, files), f.Close())
}
