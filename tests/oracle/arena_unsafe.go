//go:build linux

package oracle

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// NewArena maps the arena, once a process.
func NewArena() ([]byte, error) {
	const flags = unix.MAP_PRIVATE | unix.MAP_ANONYMOUS | unix.MAP_FIXED_NOREPLACE
	p, err := unix.MmapPtr(-1, 0, unsafe.Add(nil, arenaAddr), ArenaSize, unix.PROT_READ|unix.PROT_WRITE, flags)
	if err != nil {
		return nil, fmt.Errorf("map the arena at %#x: %w", arenaAddr, err)
	}
	return unsafe.Slice((*byte)(p), ArenaSize), nil
}

// FaultFD makes a userfaultfd for [Runner.Bells], 0 if the system has none.
func FaultFD() int {
	const userModeOnly = 1
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|unix.O_NONBLOCK|userModeOnly, 0, 0)
	if errno != 0 {
		return 0
	}
	return int(fd)
}
