package rootfs

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pureverbs/rdma/hack/lab/cpio"
)

// Archive gives the path of an initramfs archive with the guest's programs, below
// dir. It is made afresh when the host's programs have changed.
func Archive(dir string, say func(format string, args ...any)) (string, error) {
	files, err := tree{}.list()
	if err != nil {
		return "", err
	}
	final := filepath.Join(dir, "rootfs-"+digest(files)+".cpio")
	if _, err := os.Stat(final); err == nil {
		return final, nil
	}
	say("packing the guest's programs (busybox, rping, perftest and so on)")
	return final, create(final, files)
}

// list names all files that go into the archive, without their libraries: those
// are found when it is made.
func (t tree) list() ([]string, error) {
	var out, missing []string
	for _, name := range append([]string{"busybox"}, tools...) {
		p, err := t.look(name)
		if err != nil {
			missing = append(missing, name)
			continue
		}
		out = append(out, p)
	}
	if missing != nil {
		return nil, fmt.Errorf("%s has no %s", t, strings.Join(missing, ", "))
	}
	for _, name := range optional {
		if p, err := t.look(name); err == nil {
			out = append(out, p)
		}
	}
	for _, p := range providers {
		out = append(out, t.glob("/usr/lib/*/libibverbs/lib"+p+"-rdmav*.so", "/etc/libibverbs.d/"+p+".driver")...)
	}
	return append(out, t.glob(patterns...)...), nil
}

// digest names a state of the files and of what is written besides. Libraries
// are left out to save the time that ldd takes: libc stands for them.
func digest(files []string) string {
	h := sha256.New()
	fmt.Fprint(h, "format 1", texts)
	for _, p := range append(slices.Clone(files), tree{}.glob("/usr/lib/*-linux-gnu*/libc.so.6")...) {
		if fi, err := os.Stat(p); err == nil {
			fmt.Fprintln(h, p, fi.Size(), fi.ModTime().UnixNano())
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:6])
}

// create writes the archive beside its final name first.
func create(final string, files []string) error {
	unfinished := filepath.Join(filepath.Dir(final), "unfinished")
	if err := os.MkdirAll(unfinished, 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(unfinished, "rootfs-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if err := (tree{}).write(f, files); err != nil {
		return fmt.Errorf("pack the guest's programs: %w", err)
	}
	if err := errors.Join(f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), final)
}

func (t tree) write(f io.Writer, files []string) error {
	w := cpio.NewWriter(f)
	if err := skeleton(w); err != nil {
		return err
	}
	var binaries []string
	for _, p := range files {
		if isELF(p) {
			binaries = append(binaries, p)
		}
	}
	libs, err := t.needed(binaries)
	if err != nil {
		return err
	}
	done := map[string]bool{}
	for _, p := range append(slices.Clone(files), libs...) {
		if err := t.add(w, p, done); err != nil {
			return err
		}
	}
	if err := applets(w, done); err != nil {
		return err
	}
	return w.Close()
}

// skeleton makes the folders, links and nodes that everything else expects.
func skeleton(w *cpio.Writer) error {
	for _, d := range []string{"dev", "proc", "sys", "run", "tmp", "root", "host", "src", "usr/bin", "usr/lib", "usr/lib64", "etc/lab", "var"} {
		if err := w.Dir(d); err != nil {
			return err
		}
	}
	for _, l := range [][2]string{
		{"bin", "usr/bin"}, {"sbin", "usr/bin"}, {"lib", "usr/lib"}, {"lib64", "usr/lib64"}, {"usr/sbin", "bin"},
		{"var/run", "../run"}, {"var/tmp", "../tmp"}, {"etc/mtab", "/proc/mounts"},
	} {
		if err := w.Symlink(l[0], l[1]); err != nil {
			return err
		}
	}
	for name, s := range texts {
		if err := w.Text(name, s); err != nil {
			return err
		}
	}
	// The kernel opens it for init before anything is mounted.
	return w.CharDev("dev/console", 0o600, 5, 1)
}

// add copies a file or a folder, links resolved.
func (t tree) add(w *cpio.Writer, p string, done map[string]bool) error {
	real, err := filepath.EvalSymlinks(p)
	if err != nil {
		return err
	}
	return filepath.WalkDir(real, func(q string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		name := guestPath(strings.TrimPrefix(p, t.root) + strings.TrimPrefix(q, real))
		if done[name] {
			return nil
		}
		done[name] = true
		return addFile(w, name, q)
	})
}

func addFile(w *cpio.Writer, name, host string) error {
	f, err := os.Open(host)
	if err != nil {
		return err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	return w.File(name, fi.Mode(), fi.Size(), f)
}

// guestPath moves everything below /usr, and programs to /usr/bin: the guest has
// links for the other places.
func guestPath(p string) string {
	switch dir, name := path.Split(p); dir {
	case "/bin/", "/sbin/", "/usr/sbin/", "/usr/local/bin/", "/usr/local/sbin/":
		return "/usr/bin/" + name
	}
	if strings.HasPrefix(p, "/lib/") || strings.HasPrefix(p, "/lib64/") {
		return "/usr" + p
	}
	return p
}

// applets adds a link for each program that busybox plays and nothing else does.
func applets(w *cpio.Writer, done map[string]bool) error {
	out, err := exec.Command("busybox", "--list").Output()
	if err != nil {
		return fmt.Errorf("busybox --list: %w", err)
	}
	if err := w.Symlink("usr/bin/sh", "dash"); err != nil {
		return err
	}
	done["/usr/bin/sh"] = true
	for name := range strings.FieldsSeq(string(out)) {
		if done["/usr/bin/"+name] {
			continue
		}
		if err := w.Symlink("usr/bin/"+name, "busybox"); err != nil {
			return err
		}
	}
	return nil
}

func isELF(p string) bool {
	f, err := os.Open(p)
	if err != nil {
		return false
	}
	defer f.Close()
	var magic [4]byte
	_, err = io.ReadFull(f, magic[:])
	return err == nil && string(magic[:]) == "\x7fELF"
}
