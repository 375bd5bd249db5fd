package uapi

import "golang.org/x/sys/unix"

// AllocPages returns n bytes of zeroed memory off the Go heap, page aligned. The
// garbage collector neither moves, reuses nor releases it: FreePages does.
func AllocPages(n int) ([]byte, error) {
	return unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
}

// FreePages gives memory of AllocPages back; mem is exactly what it returned.
func FreePages(mem []byte) error { return unix.Munmap(mem) }

// MemlockLimit returns RLIMIT_MEMLOCK of this process in bytes; limited is false where
// it is infinite or unknown.
func MemlockLimit() (limit uint64, limited bool) {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &r); err != nil || r.Cur == unix.RLIM_INFINITY {
		return 0, false
	}
	return r.Cur, true
}
