package kernel

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// groups are the modules a guest may load, by what for; the init loads the groups
// that the host names, each in order of dependency. Names that a kernel has built
// in, or does not have, are passed over, but for those in required.
var groups = []struct {
	name    string
	modules []string
}{
	{"boot", []string{"virtio_pci", "virtio_ccw", "virtio_console", "9pnet_virtio", "9p"}},
	{"net", []string{"dummy", "veth"}},
	// The crypto layer is asked for these by name, which is no dependency: crc32 by
	// rxe, crc32c by libcrc32c.
	{"rdma", []string{"crc32_generic", "crc32c_generic", "libcrc32c", "ib_uverbs", "rdma_ucm"}},
	{"rxe", []string{"rdma_rxe"}},
	// Not loaded, but there for modprobe.
	{"extra", []string{"sch_netem", "ib_umad", "virtio_net"}},
}

var required = []string{"virtio_console", "9pnet_virtio", "9p", "dummy", "veth", "ib_uverbs", "rdma_ucm", "rdma_rxe"}

// module is a kernel module on disk.
type module struct {
	name    string
	path    string // in the guest, below /
	data    []byte
	depends []string // names
}

// tree is an unpacked kernel package.
type tree struct {
	root    string
	release string
	files   map[string]string // module name -> path below root
	builtin map[string]bool
}

func openTree(root, release string) (*tree, error) {
	t := &tree{root, release, map[string]string{}, map[string]bool{}}
	for _, lib := range []string{"lib", "usr/lib"} {
		dir := filepath.Join(root, lib, "modules", release)
		if _, err := os.Stat(dir); err != nil {
			continue
		}
		if b, err := os.ReadFile(filepath.Join(dir, "modules.builtin")); err == nil {
			for line := range strings.Lines(string(b)) {
				t.builtin[moduleName(strings.TrimSpace(line))] = true
			}
		}
		err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
			if n := moduleName(p); n != "" && err == nil && d.Type().IsRegular() {
				t.files[n] = strings.TrimPrefix(p, root+"/")
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	if len(t.files) == 0 {
		return nil, fmt.Errorf("no modules of kernel %s in its packages", release)
	}
	return t, nil
}

var moduleFile = regexp.MustCompile(`^([\w-]+)\.ko(\.\w+)?$`)

// moduleName is the name the kernel gives to the module in a file, or "".
func moduleName(p string) string {
	m := moduleFile.FindStringSubmatch(path.Base(p))
	if m == nil {
		return ""
	}
	return strings.ReplaceAll(m[1], "-", "_")
}

func (t *tree) has(name string) bool { return t.builtin[name] || t.files[name] != "" }

func (t *tree) isBuiltin(name string) bool { return t.builtin[name] }

func (t *tree) load(name string) (*module, error) {
	p := t.files[name]
	packed, err := os.ReadFile(filepath.Join(t.root, p))
	if err != nil {
		return nil, err
	}
	data, err := decompress(packed)
	if err != nil {
		return nil, fmt.Errorf("unpack module %s: %w", name, err)
	}
	deps, err := dependsOf(data)
	if err != nil {
		return nil, fmt.Errorf("read module %s: %w", name, err)
	}
	// One place for all: /lib is a link to /usr/lib in the guest.
	p = "usr/" + strings.TrimPrefix(p[:strings.LastIndex(p, ".ko")+len(".ko")], "usr/")
	return &module{name, p, data, deps}, nil
}

// dependsOf reads what `modinfo -F depends` shows.
func dependsOf(ko []byte) ([]string, error) {
	f, err := elf.NewFile(bytes.NewReader(ko))
	if err != nil {
		return nil, err
	}
	s := f.Section(".modinfo")
	if s == nil {
		return nil, fmt.Errorf("no .modinfo section")
	}
	info, err := s.Data()
	if err != nil {
		return nil, err
	}
	return parseModinfo(info), nil
}

func parseModinfo(info []byte) []string {
	for field := range bytes.SplitSeq(info, []byte{0}) {
		if v, ok := bytes.CutPrefix(field, []byte("depends=")); ok && len(v) > 0 {
			return strings.Split(strings.ReplaceAll(string(v), "-", "_"), ",")
		}
	}
	return nil
}

// source is where modules come from: a tree, or a fake one in tests.
type source interface {
	has(name string) bool // as a module or built in
	isBuiltin(name string) bool
	load(name string) (*module, error)
}

var _ source = (*tree)(nil)

// set is the modules of all groups with what they depend on.
type set struct {
	all    []*module // each after those it depends on
	byName map[string]*module
	group  map[string][]string // group -> paths, in load order
}

// collect reads the modules of all groups.
func collect(src source) (*set, error) {
	for _, n := range required {
		if !src.has(n) {
			return nil, fmt.Errorf("the kernel has no %s", n)
		}
	}
	s := &set{byName: map[string]*module{}, group: map[string][]string{}}
	for _, g := range groups {
		seen := map[string]bool{}
		for _, n := range g.modules {
			if !src.has(n) {
				continue
			}
			if err := s.add(src, g.name, n, seen); err != nil {
				return nil, err
			}
		}
	}
	return s, nil
}

// add puts a module into a group, after what it depends on.
func (s *set) add(src source, group, name string, seen map[string]bool) error {
	if seen[name] || src.isBuiltin(name) {
		return nil
	}
	seen[name] = true // before the dependencies, so that a circle ends
	m := s.byName[name]
	fresh := m == nil
	if fresh {
		var err error
		if m, err = src.load(name); err != nil {
			return err
		}
		s.byName[name] = m
	}
	for _, d := range m.depends {
		if err := s.add(src, group, d, seen); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if fresh {
		s.all = append(s.all, m)
	}
	s.group[group] = append(s.group[group], m.path)
	return nil
}

// modulesDep is the file by which modprobe finds modules and what they need, for
// modules below dir.
func (s *set) modulesDep(dir string) string {
	var b strings.Builder
	for _, m := range s.all {
		b.WriteString(strings.TrimPrefix(m.path, dir) + ":")
		for _, d := range s.closure(m) {
			b.WriteString(" " + strings.TrimPrefix(d.path, dir))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// closure is all that m needs, the nearest first, as in modules.dep.
func (s *set) closure(m *module) []*module {
	var out []*module
	seen := map[*module]bool{m: true}
	var visit func(*module)
	visit = func(m *module) {
		for _, n := range m.depends {
			if d := s.byName[n]; d != nil && !seen[d] {
				seen[d] = true
				visit(d)
				out = append(out, d)
			}
		}
	}
	visit(m)
	slices.Reverse(out)
	return out
}
