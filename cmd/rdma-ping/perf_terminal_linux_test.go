package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/internal/fakekernel"
)

// terminal is a pseudo terminal: what is written to one end shows on the other.
func terminal(t *testing.T) (screen, tty *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no pseudo terminals here: %v", err)
	}
	t.Cleanup(func() { screen.Close() })
	n, err := unix.IoctlGetInt(int(screen.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(screen.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tty.Close() })
	return screen, tty
}

// TestPerfTerminal: on a terminal there is a line of progress, which is wiped out again.
func TestPerfTerminal(t *testing.T) {
	k := newKernel(t, fakekernel.Options{})
	perfServe(t, k)
	screen, tty := terminal(t)
	var out output
	if status := run(t.Context(), []string{"perf", "bw", "-s", "4k", "-d", "700ms", serverAddr}, &out, tty, k.System()); status != statusOK {
		t.Errorf("status %d", status)
	}
	screen.SetReadDeadline(time.Now().Add(5 * time.Second)) //nolint:errcheck // then it blocks, and the test with it
	b, got, err := make([]byte, 4096), "", error(nil)
	for n := 0; err == nil && !strings.HasSuffix(got, " left\r\x1b[K"); got += string(b[:n]) {
		n, err = screen.Read(b)
	}
	if err != nil || !strings.Contains(got, "4 KiB (1 of 1): ") || !strings.Contains(got, " Gb/s, ") ||
		!strings.Contains(got, " left") || !strings.HasSuffix(got, "\r\x1b[K") {
		t.Errorf("the terminal shows %q, %v", got, err)
	}
}
