//go:build linux

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// mounts every Linux system has, in this order. A kernel without debugfs or
// tracefs will do.
var mounts = []struct {
	fs, at, options string
	optional        bool
}{
	{"devtmpfs", "/dev", "", false},
	{"proc", "/proc", "", false},
	{"sysfs", "/sys", "", false},
	{"devpts", "/dev/pts", "mode=620,ptmxmode=666", false},
	{"tmpfs", "/dev/shm", "", false},
	{"tmpfs", "/tmp", "mode=1777", false},
	{"tmpfs", "/run", "mode=755", false},
	{"cgroup2", "/sys/fs/cgroup", "", true},
	{"debugfs", "/sys/kernel/debug", "", true},
	{"tracefs", "/sys/kernel/tracing", "", true},
}

func mountSystem() error {
	for _, m := range mounts {
		err := mount(m.fs, m.at, m.fs, m.options)
		if err != nil && !m.optional {
			return err
		}
	}
	links := [][2]string{{"/proc/self/fd", "/dev/fd"}, {"fd/0", "/dev/stdin"}, {"fd/1", "/dev/stdout"}, {"fd/2", "/dev/stderr"}}
	for _, l := range links {
		if err := os.Symlink(l[0], l[1]); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// mountShares mounts each of the host's folders at a place of the same name.
func mountShares(tags []string) error {
	for _, tag := range tags {
		// Large messages: each one costs a way to the host and back.
		err := mount(tag, "/"+tag, "9p", "trans=virtio,version=9p2000.L,msize=512000,cache="+cacheMode)
		if err != nil {
			return err
		}
	}
	return nil
}

// cacheMode lets the guest read ahead and map files; nobody changes them on the
// host meanwhile.
const cacheMode = "loose"

func mount(source, at, typ, options string) error {
	// Below /sys the places are there.
	if err := os.MkdirAll(at, 0o755); err != nil && !errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("mount %s: %w", at, err)
	}
	if err := unix.Mount(source, at, typ, 0, options); err != nil {
		return fmt.Errorf("mount %s at %s: %w", source, at, err)
	}
	return nil
}
