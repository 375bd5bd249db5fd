//go:build linux && (amd64 || arm64)

package sim

import (
	"bytes"

	"golang.org/x/sys/unix"
)

// readMemory reads memory of a thread's process.
func readMemory(thread uint32, addr uint64, b []byte) error {
	n, err := unix.ProcessVMReadv(int(thread), []unix.Iovec{{Base: &b[0], Len: uint64(len(b))}},
		[]unix.RemoteIovec{{Base: uintptr(addr), Len: len(b)}}, 0)
	if err != nil || n != len(b) {
		return unix.EFAULT
	}
	return nil
}

// writeMemory writes memory of a thread's process.
func writeMemory(thread uint32, addr uint64, b []byte) error {
	n, err := unix.ProcessVMWritev(int(thread), []unix.Iovec{{Base: &b[0], Len: uint64(len(b))}},
		[]unix.RemoteIovec{{Base: uintptr(addr), Len: len(b)}}, 0)
	if err != nil || n != len(b) {
		return unix.EFAULT
	}
	return nil
}

const (
	maxPath   = 1024 // longer ones are none of ours
	smallPage = 4096
)

// readPath reads a path, "" if it is too long to be ours or cannot be read.
func readPath(thread uint32, addr uint64) string {
	var path []byte
	for len(path) < maxPath {
		at := addr + uint64(len(path))
		piece := make([]byte, min(maxPath-uint64(len(path)), smallPage-at%smallPage)) // the next page may not be there
		if readMemory(thread, at, piece) != nil {
			return ""
		}
		if i := bytes.IndexByte(piece, 0); i >= 0 {
			return string(append(path, piece[:i]...))
		}
		path = append(path, piece...)
	}
	return ""
}
