package testutil

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// Pinned is how many kB this process has pinned, 0 where that cannot be told.
func Pinned(t testing.TB) int {
	t.Helper()
	return status(t, "VmPin:") + status(t, "VmLck:")
}

// status is a number of /proc/self/status.
func status(t testing.TB, name string) (n int) {
	t.Helper()
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			if _, err := fmt.Sscan(rest, &n); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
		}
	}
	return n
}

// Mappings is how many mappings this process has, 0 where that cannot be told.
func Mappings() int {
	b, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return 0
	}
	return strings.Count(string(b), "\n")
}
