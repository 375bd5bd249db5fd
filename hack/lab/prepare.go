//go:build linux

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"github.com/pureverbs/rdma/hack/lab/apt"
	"github.com/pureverbs/rdma/hack/lab/cache"
	"github.com/pureverbs/rdma/hack/lab/kernel"
	"github.com/pureverbs/rdma/hack/lab/rootfs"
)

// machine is what every guest of a kernel is made of.
type machine struct {
	image  kernel.Image
	rootfs string
	siw    string // path of the module, if the guest has siw devices
	qemu   string // path of the program, if it is not in PATH
}

func prepareCommand(ctx context.Context, _ *interrupts, o options) (int, error) {
	results, err := inEach(ctx, o.cells(), func(c cell) result {
		m, err := prepare(ctx, c, o.refresh)
		if err == nil {
			say("kernel %s (%s) is ready for %s", c.kernel.Kernel, m.image.Release, c.device)
		}
		return result{cell: c, err: err}
	})
	if err != nil {
		return exitTrouble, err
	}
	return conclude(results)
}

// prepare makes sure that everything is there for a kind of guest; what is there
// already costs nothing.
func prepare(ctx context.Context, c cell, refresh bool) (machine, error) {
	if err := hostPackages(ctx); err != nil {
		return machine{}, err
	}
	dir, err := cacheDir()
	if err != nil {
		return machine{}, err
	}
	unlock, err := lock(ctx, filepath.Join(dir, "lock"), "another lab to prepare its guests")
	if err != nil {
		return machine{}, err
	}
	defer unlock()
	store := kernel.Store{Cache: &cache.Cache{Dir: dir, Say: say}}
	if isTerminal(os.Stderr) {
		store.Terminal = os.Stderr
	}
	// What an interrupted run left; nobody else is at work.
	if err := store.Clear(); err != nil {
		return machine{}, err
	}
	m := machine{}
	if m.image, err = image(ctx, store, c.kernel, refresh); err != nil {
		return m, err
	}
	if c.device == "siw" {
		if err := m.addSiw(ctx, store); err != nil {
			return m, err
		}
	}
	if c.kernel.Arch != hostArch {
		return m, m.foreign(ctx, store.Cache)
	}
	m.rootfs, err = rootfs.Archive(dir, say)
	return m, err
}

// hostArch is the architecture of the machines that the lab runs on.
const hostArch = "amd64"

func image(ctx context.Context, store kernel.Store, k kernel.Suite, refresh bool) (kernel.Image, error) {
	if img, ok := store.Cached(k); ok && !refresh {
		return img, nil
	}
	return store.Prepare(ctx, k)
}

// addSiw adds the siw module. The archive has the source of few kernels besides the
// newest, so that an older one in the cache may have to go.
func (m *machine) addSiw(ctx context.Context, store kernel.Store) (err error) {
	m.siw, err = store.Siw(ctx, m.image)
	if !errors.Is(err, apt.ErrGone) {
		return err
	}
	say("%v; looking for a newer kernel", err)
	if m.image, err = store.Prepare(ctx, m.image.Suite); err != nil {
		return err
	}
	m.siw, err = store.Siw(ctx, m.image)
	return err
}

// foreign adds what a guest of another architecture needs besides its kernel.
func (m *machine) foreign(ctx context.Context, c *cache.Cache) (err error) {
	k := m.image.Suite
	own, err := codename()
	if err != nil {
		return err
	}
	if m.rootfs, err = rootfs.Foreign(ctx, c, k.Arch, k.Debian, own); err != nil {
		return err
	}
	m.qemu, err = emulator(ctx, c, own, k.Arch)
	return err
}

func cacheDir() (string, error) {
	base, err := os.UserCacheDir() // XDG_CACHE_HOME, else ~/.cache
	if err != nil {
		return "", err
	}
	dir := filepath.Join(base, "pureverbs", "lab")
	return dir, os.MkdirAll(dir, 0o755)
}

// lock takes a lock between processes. It tells when that means to wait.
func lock(ctx context.Context, path, who string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return func() { f.Close() }, nil
	}
	say("waiting for %s", who)
	got := make(chan error, 1)
	go func() { got <- syscall.Flock(int(f.Fd()), syscall.LOCK_EX) }()
	select {
	case err := <-got:
		return func() { f.Close() }, err
	case <-ctx.Done(): // the process is about to end
		return nil, ctx.Err()
	}
}
