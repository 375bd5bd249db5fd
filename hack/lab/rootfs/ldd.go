package rootfs

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// ldd lists the shared libraries and the loader of this machine's programs.
func ldd(files []string) ([]string, error) {
	out, err := exec.Command("ldd", files...).Output()
	// ldd exits with 1 when one of the files is static, which is fine.
	if len(out) == 0 && err != nil {
		return nil, fmt.Errorf("ldd: %w", err)
	}
	return parseLdd(string(out))
}

func parseLdd(text string) ([]string, error) {
	var out []string
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		switch {
		case strings.HasSuffix(strings.TrimSpace(line), "=> not found"):
			return nil, fmt.Errorf("library %s is missing on this machine", f[0])
		case len(f) >= 3 && f[1] == "=>" && filepath.IsAbs(f[2]):
			out = append(out, f[2])
		case len(f) == 2 && filepath.IsAbs(f[0]) && strings.HasPrefix(f[1], "(0x"): // the loader
			out = append(out, f[0])
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}
