package kernel

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// extractSource copies the files of one folder of the kernel's source into out. The
// source is a compressed archive in a package: 1.4 GB, of which nothing else is
// written to disk, and what comes after the folder is not even read.
func extractSource(ctx context.Context, deb, folder, out string) error {
	files, stop, err := pipe(ctx, nil, "dpkg", "--fsys-tarfile", deb)
	if err != nil {
		return err
	}
	defer stop()
	in := tar.NewReader(files)
	for {
		h, err := in.Next()
		if err != nil {
			return fmt.Errorf("find the source in %s: %w", filepath.Base(deb), err)
		}
		if strings.HasSuffix(h.Name, ".tar.xz") {
			break
		}
	}
	source, stop, err := pipe(ctx, in, "xz", "-dc", "-T0")
	if err != nil {
		return err
	}
	defer stop()
	return extractFolder(source, folder, out)
}

// pipe starts a program and gives its output, of which not all needs to be read
// before stop.
func pipe(ctx context.Context, in io.Reader, argv ...string) (out io.Reader, stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdin = in
	out, err = cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		return nil, nil, fmt.Errorf("%s: %w", argv[0], err)
	}
	return out, func() {
		cancel()
		_ = cmd.Wait() // it was killed
	}, nil
}

// extractFolder copies the files of a folder, without those below it, out of an
// archive whose names begin with one more folder. In an archive its files come
// together: the first name elsewhere after them ends it. If the archive ends before
// that, it was cut: this folder is nowhere near the end.
func extractFolder(archive io.Reader, folder, out string) error {
	r := tar.NewReader(archive)
	found := false
	for {
		h, err := r.Next()
		if err != nil {
			return fmt.Errorf("find the whole of %s in the source: %w", folder, err)
		}
		_, name, _ := strings.Cut(path.Clean(h.Name), "/")
		if path.Dir(name) != folder {
			if found && name != folder {
				return nil
			}
			continue
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		found = true
		if err := save(filepath.Join(out, path.Base(name)), r); err != nil {
			return err
		}
	}
}

func save(name string, r io.Reader) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}
