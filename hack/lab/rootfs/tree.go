package rootfs

import (
	"os"
	"os/exec"
	"path/filepath"
)

// tree is where programs are taken from: this machine, or a folder with packages of
// another architecture, unpacked.
type tree struct{ root string } // "": this machine

func (t tree) String() string {
	if t.root == "" {
		return "this machine"
	}
	return "what the packages brought"
}

// look finds a program, also where an ordinary user's PATH does not.
func (t tree) look(name string) (string, error) {
	dirs := []string{"/usr/bin", "/usr/sbin", "/bin", "/sbin"}
	if t.root == "" {
		if p, err := exec.LookPath(name); err == nil {
			return p, nil
		}
		dirs = []string{"/usr/sbin", "/sbin"}
	}
	for _, dir := range dirs {
		p := filepath.Join(t.root, dir, name)
		if fi, err := os.Stat(p); err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0 {
			return p, nil
		}
	}
	return "", exec.ErrNotFound
}

// glob lists what is there of each pattern.
func (t tree) glob(patterns ...string) []string {
	var out []string
	for _, p := range patterns {
		found, _ := filepath.Glob(t.root + p) // the patterns are well-formed
		out = append(out, found...)
	}
	return out
}

// needed lists the shared libraries and the loader of programs. On this machine the
// loader knows best where they are; for others there is nothing to run.
func (t tree) needed(files []string) ([]string, error) {
	if t.root == "" {
		return ldd(files)
	}
	return t.closure(files)
}
