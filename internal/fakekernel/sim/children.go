//go:build linux && (amd64 || arm64)

package sim

import (
	"bytes"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// killChildren kills what the program left: as its parent has ended, it is a child of this
// process. Killed ones leave theirs in turn.
func killChildren() {
	for range 100 {
		list := children()
		if len(list) == 0 {
			return
		}
		for _, pid := range list {
			unix.Kill(pid, unix.SIGKILL)
		}
		for range list {
			unix.Wait4(-1, nil, 0, nil) //nolint:errcheck // it ends, killed
		}
	}
}

// reap takes note of children that have ended.
func reap() {
	for {
		if pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); err != nil || pid == 0 {
			return
		}
	}
}

// children are the numbers of this process's children.
func children() (list []int) {
	all, _ := os.ReadDir("/proc")
	for _, p := range all {
		pid, err := strconv.Atoi(p.Name())
		if err == nil && parentOf(pid) == os.Getpid() {
			list = append(list, pid)
		}
	}
	return list
}

// parentOf reads the parent of a process, 0 if there is no such process.
func parentOf(pid int) int {
	b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	// number (name) state parent ...: the name may hold anything.
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(f[1]) // 0 if it is no number
	return parent
}
