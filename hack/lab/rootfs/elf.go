package rootfs

import (
	"debug/elf"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
)

// closure lists the shared libraries and the loader of programs, and of these in
// turn, by reading the files.
func (t tree) closure(files []string) ([]string, error) {
	seen := map[string]bool{}
	todo := slices.Clone(files)
	var out []string
	for len(todo) > 0 {
		names, err := dynamic(todo[0])
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", filepath.Base(todo[0]), err)
		}
		todo = todo[1:]
		for _, n := range names {
			if seen[n] {
				continue
			}
			seen[n] = true
			p, err := t.library(n)
			if err != nil {
				return nil, err
			}
			out = append(out, p)
			todo = append(todo, p)
		}
	}
	return out, nil
}

// library finds a library by its name, or the loader by its path.
func (t tree) library(name string) (string, error) {
	candidates := t.glob("/usr/lib/*-linux-gnu*/"+name, "/lib/*-linux-gnu*/"+name)
	if filepath.IsAbs(name) {
		candidates = t.glob(name, "/usr"+name) // /lib may be a link to /usr/lib
	}
	if len(candidates) == 0 {
		return "", fmt.Errorf("library %s is not in %s", name, t)
	}
	return candidates[0], nil
}

// dynamic lists what a program or a library needs to be loaded: nothing if it is
// static.
func dynamic(path string) ([]string, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.ImportedLibraries()
	if err != nil {
		return nil, err
	}
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		b, err := io.ReadAll(p.Open())
		if err != nil {
			return nil, err
		}
		names = append(names, strings.TrimRight(string(b), "\x00"))
	}
	return names, nil
}
