// Package cpio writes archives in the format of the kernel's initramfs ("newc").
package cpio

import (
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
)

// Writer writes an archive. The kernel accepts several, one after the other, so
// an archive that rarely changes and a small one that does can be joined.
type Writer struct {
	w    io.Writer
	ino  int
	off  int64
	made map[string]bool // directories already in the archive
}

// NewWriter returns a Writer. Close must be called at the end.
func NewWriter(w io.Writer) *Writer {
	return &Writer{w: w, made: map[string]bool{".": true}}
}

// Dir adds a directory, and those above it that are missing.
func (w *Writer) Dir(name string) error {
	name = clean(name)
	if w.made[name] {
		return nil
	}
	if err := w.parents(name); err != nil {
		return err
	}
	w.made[name] = true
	return w.entry(header{name: name, mode: modeDir | 0o755})
}

// File adds a file of the given size.
func (w *Writer) File(name string, perm fs.FileMode, size int64, r io.Reader) error {
	if err := w.parents(clean(name)); err != nil {
		return err
	}
	if size > 0xffffffff {
		return fmt.Errorf("add %s: larger than 4 GiB", name)
	}
	err := w.entry(header{name: clean(name), mode: modeRegular | uint32(perm.Perm()), size: size})
	if err != nil {
		return err
	}
	n, err := io.Copy(w.w, io.LimitReader(r, size))
	w.off += n
	if err != nil {
		return fmt.Errorf("add %s: %w", name, err)
	}
	if n != size {
		return fmt.Errorf("add %s: got %d of %d bytes", name, n, size)
	}
	return w.pad(4)
}

// Text adds a file with the given content.
func (w *Writer) Text(name, content string) error {
	return w.File(name, 0o644, int64(len(content)), strings.NewReader(content))
}

// Symlink adds a symbolic link.
func (w *Writer) Symlink(name, target string) error {
	if err := w.parents(clean(name)); err != nil {
		return err
	}
	err := w.entry(header{name: clean(name), mode: modeSymlink | 0o777, size: int64(len(target))})
	if err != nil {
		return err
	}
	if err := w.write(target); err != nil {
		return err
	}
	return w.pad(4)
}

// CharDev adds the node of a character device.
func (w *Writer) CharDev(name string, perm fs.FileMode, major, minor uint32) error {
	if err := w.parents(clean(name)); err != nil {
		return err
	}
	return w.entry(header{name: clean(name), mode: modeCharDev | uint32(perm.Perm()), major: major, minor: minor})
}

// Close ends the archive. It does not close the writer below.
func (w *Writer) Close() error {
	if err := w.entry(header{name: "TRAILER!!!"}); err != nil {
		return err
	}
	return w.pad(512)
}

func (w *Writer) parents(name string) error { return w.Dir(path.Dir(name)) }

// Types of files, as Linux has them in a mode.
const (
	modeDir     = 0o040000
	modeCharDev = 0o020000
	modeRegular = 0o100000
	modeSymlink = 0o120000
)

type header struct {
	name         string
	mode         uint32
	size         int64
	major, minor uint32
}

// entry writes a header: everything is owned by root and dated 1970, so that
// equal contents make equal archives.
func (w *Writer) entry(h header) error {
	w.ino++
	err := w.write(fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		w.ino, h.mode, 0, 0, 1, 0, h.size, 0, 0, h.major, h.minor, len(h.name)+1, 0, h.name))
	if err != nil {
		return err
	}
	return w.pad(4)
}

func (w *Writer) write(s string) error {
	n, err := io.WriteString(w.w, s)
	w.off += int64(n)
	return err
}

func (w *Writer) pad(to int64) error {
	n := (to - w.off%to) % to
	return w.write(string(make([]byte, n)))
}

// clean makes a name relative to the root.
func clean(name string) string {
	if name = path.Clean("/" + name)[1:]; name == "" {
		return "."
	}
	return name
}
