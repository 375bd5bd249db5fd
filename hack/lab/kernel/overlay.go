package kernel

import (
	"fmt"
	"os"
	"strings"

	"github.com/pureverbs/rdma/hack/lab/boot"
	"github.com/pureverbs/rdma/hack/lab/cpio"
)

// AddModule adds a module that is not of the kernel's package to an archive that
// comes after the image's: a group of its own, and known to modprobe.
func (img Image) AddModule(w *cpio.Writer, group, ko string) error {
	data, err := os.ReadFile(ko)
	if err != nil {
		return err
	}
	needs, err := dependsOf(data)
	if err != nil {
		return fmt.Errorf("read module %s: %w", ko, err)
	}
	dep, err := os.ReadFile(img.depends)
	if err != nil {
		return err
	}
	dir := modulesDir(img.Release)
	name := "updates/" + group + ".ko"
	before := loadOrder(string(dep), needs)
	var files, reverse strings.Builder
	for _, m := range before {
		files.WriteString(dir + m + "\n")
	}
	for i := range before {
		reverse.WriteString(" " + before[len(before)-1-i])
	}
	for _, f := range []struct{ name, text string }{
		{dir + name, string(data)},
		{boot.GroupFile(group), files.String() + dir + name + "\n"},
		{dir + "modules.dep", string(dep) + name + ":" + reverse.String() + "\n"},
	} {
		if err := w.Text(f.name, f.text); err != nil {
			return err
		}
	}
	return nil
}

// loadOrder finds modules by name in a modules.dep and lists their files, each after
// those it needs. A name that is not there is built in, or the kernel will say what
// it misses.
func loadOrder(dep string, names []string) []string {
	line := map[string]string{}
	for l := range strings.Lines(dep) {
		file, _, _ := strings.Cut(l, ":")
		line[moduleName(file)] = strings.Replace(l, ":", "", 1)
	}
	var out []string
	seen := map[string]bool{}
	for _, n := range names {
		f := strings.Fields(line[n]) // the module, then what it needs, the nearest first
		for i := range f {
			if m := f[len(f)-1-i]; !seen[m] {
				seen[m] = true
				out = append(out, m)
			}
		}
	}
	return out
}
