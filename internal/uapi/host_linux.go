package uapi

import (
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Host returns the running kernel.
func Host() Opener { return host{} }

type host struct{}

// Open opens a node non-blocking. Nodes that epoll accepts (rdma_cm) are waited for on
// the netpoller; uverbs nodes have no poll, and nothing ever blocks in them for long.
func (host) Open(path string) (File, error) {
	fd, err := ignoringEINTR(func() (int, error) {
		return unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	if pollable(fd) {
		return newEventFile(fd, path)
	}
	return &deviceFile{fd: fd}, nil
}

func (host) Adopt(fd int32) (File, error) {
	if err := unix.SetNonblock(int(fd), true); err != nil {
		unix.Close(int(fd))
		return nil, err
	}
	return newEventFile(int(fd), "event")
}

func (host) Stat(path string) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFCHR {
		return 0, &os.PathError{Op: "stat", Path: path, Err: fs.ErrInvalid}
	}
	if err := unix.Access(path, unix.R_OK|unix.W_OK); err != nil {
		return 0, &os.PathError{Op: "access", Path: path, Err: err}
	}
	return uint64(st.Rdev), nil
}

// pollable asks epoll itself: it refuses a file without a poll method with EPERM.
func pollable(fd int) bool {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return false
	}
	defer unix.Close(ep)
	return unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN}) == nil
}

func ignoringEINTR[T any](call func() (T, error)) (T, error) {
	for {
		v, err := call()
		if err != unix.EINTR {
			return v, err
		}
	}
}
