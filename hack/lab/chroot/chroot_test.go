//go:build linux

package chroot

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestEnter(t *testing.T) {
	for uid, want := range map[int]string{
		0:    "unshare --mount sh -ec",
		1000: "unshare --mount --map-root-user sh -ec",
	} {
		got := enter(uid, "/d", []string{"make", "-j2"})
		if s := strings.Join(got, " "); !strings.HasPrefix(s, want) || !strings.HasSuffix(s, " sh /d make -j2") {
			t.Errorf("user %d: got %q", uid, got)
		}
	}
}

func TestFinish(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"usr/bin", "usr/lib", "lib"} { // a release that still has /lib
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := Finish(dir); err != nil {
			t.Fatal(err)
		}
	}
	if l, err := os.Readlink(filepath.Join(dir, "bin")); l != "usr/bin" {
		t.Errorf("bin: got %q, %v", l, err)
	}
	if l, err := os.Readlink(filepath.Join(dir, "usr/bin/sh")); l != "dash" {
		t.Errorf("sh: got %q, %v", l, err)
	}
	if fi, err := os.Lstat(filepath.Join(dir, "lib")); err != nil || !fi.IsDir() {
		t.Errorf("lib was replaced: %v, %v", fi, err)
	}
	if fi, err := os.Stat(filepath.Join(dir, "dev/null")); err != nil || fi.Size() != 0 {
		t.Errorf("dev/null: got %v, %v", fi, err)
	}
}

func TestRun(t *testing.T) {
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Skip("no busybox here: apt-get install busybox-static")
	}
	dir := t.TempDir()
	program, err := os.ReadFile(busybox)
	if err == nil {
		err = errors.Join(os.MkdirAll(filepath.Join(dir, "usr/bin"), 0o755), Finish(dir))
	}
	for _, name := range []string{"sh", "true"} {
		if err == nil {
			p := filepath.Join(dir, "usr/bin", name)
			_ = os.Remove(p)
			err = os.WriteFile(p, program, 0o755)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	err = Run(t.Context(), dir, "sh", "-ec", "echo x >/dev/null; test ! -s /dev/null; test -r /proc/self/limits; echo $PATH $HOME >/tmp/out; exit 0")
	if err != nil && strings.Contains(err.Error(), "enter a chroot") {
		t.Skipf("not allowed here: %v", err)
	}
	out, rerr := os.ReadFile(filepath.Join(dir, "tmp/out"))
	if err != nil || rerr != nil || !strings.HasSuffix(string(out), " /tmp\n") {
		t.Errorf("got %v, %v, and %q", err, rerr, out)
	}
	err = Run(t.Context(), dir, "sh", "-c", "echo the reason >&2; exit 3")
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "the reason") {
		t.Errorf("a program that failed: got %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	began := time.Now()
	if err := Run(ctx, dir, "sh", "-c", "sleep 60 & sleep 60"); err == nil || time.Since(began) > 10*time.Second {
		t.Errorf("an interrupted program: got %v after %v", err, time.Since(began))
	}
	if fi, err := os.Stat(filepath.Join(dir, "dev/null")); err != nil || !fi.Mode().IsRegular() {
		t.Errorf("a mount is left: %v, %v", fi, err)
	}
}
