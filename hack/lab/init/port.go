//go:build linux

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// openPort opens the virtio serial port of a name. The device appears a moment
// after its driver.
func openPort(name string) (io.ReadWriter, error) {
	for range 200 {
		if dev := findPort(name); dev != "" {
			// Not through package os: the port cannot block a goroutine only, and a
			// blocking descriptor is what both directions want here.
			fd, err := unix.Open(dev, unix.O_RDWR|unix.O_CLOEXEC, 0)
			if err == nil {
				return port(fd), nil
			}
			if err != unix.ENOENT {
				return nil, fmt.Errorf("open %s: %w", dev, err)
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil, fmt.Errorf("no virtio serial port %q", name)
}

func findPort(name string) string {
	files, _ := filepath.Glob("/sys/class/virtio-ports/*/name")
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && strings.TrimSpace(string(b)) == name {
			return "/dev/" + filepath.Base(filepath.Dir(f))
		}
	}
	return ""
}

// port is a descriptor. Each read and write that waits takes a thread.
type port int

func (p port) Read(b []byte) (int, error) {
	for {
		n, err := unix.Read(int(p), b)
		switch {
		case err == unix.EINTR:
		case err == nil && n == 0: // the host has not opened its side yet
			time.Sleep(10 * time.Millisecond)
		default:
			return max(n, 0), err
		}
	}
}

func (p port) Write(b []byte) (int, error) {
	done := 0
	for done < len(b) {
		n, err := unix.Write(int(p), b[done:])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}
