//go:build linux

package tests

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// refuseNetlink keeps the calling thread, and what it becomes, from making sockets of RDMA
// netlink: EPERM, as the profiles of container runtimes say. Little-endian machines only.
func refuseNetlink() error {
	const (
		number, arg0, arg2 = 0, 16, 16 + 2*8 // offsets in struct seccomp_data
		netlinkRDMA        = 20
	)
	load := func(off uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: off}
	}
	unless := func(value uint32, skip uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: value, Jf: skip}
	}
	filter := []unix.SockFilter{
		load(number), unless(unix.SYS_SOCKET, 5),
		load(arg0), unless(unix.AF_NETLINK, 3),
		load(arg2), unless(netlinkRDMA, 1),
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0)
}
