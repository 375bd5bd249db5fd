package testutil

import (
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
	"testing"
	"time"
)

// NoLeaks fails the test if, at its end, more goroutines run or more descriptors are open
// than now. Goroutines get a moment to end.
func NoLeaks(t testing.TB) {
	t.Helper()
	goroutines, files := runtime.NumGoroutine(), Files()
	t.Cleanup(func() {
		deadline := time.Now().Add(5 * time.Second)
		for runtime.NumGoroutine() > goroutines && time.Now().Before(deadline) {
			time.Sleep(5 * time.Millisecond)
		}
		if n := runtime.NumGoroutine(); n > goroutines {
			var stacks strings.Builder
			pprof.Lookup("goroutine").WriteTo(&stacks, 1)
			t.Errorf("%d goroutines run, %d did at the start:\n%s", n, goroutines, stacks.String())
		}
		if n := Files(); n > files {
			t.Errorf("%d descriptors are open, %d were at the start", n, files)
		}
	})
}

// Files counts the open descriptors of this process; 0 where that cannot be told.
func Files() int {
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(names)
}
