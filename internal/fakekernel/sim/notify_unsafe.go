//go:build linux && (amd64 || arm64)

package sim

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// notification is struct seccomp_notif: a thread waits in a system call.
type notification struct {
	id     uint64
	thread uint32
	flags  uint32
	nr     int32
	arch   uint32
	ip     uint64
	args   [6]uint64
}

// response is struct seccomp_notif_resp.
type response struct {
	id    uint64
	val   int64
	errno int32 // negative
	flags uint32
}

// addition is struct seccomp_notif_addfd.
type addition struct {
	id       uint64
	flags    uint32
	src      uint32
	num      uint32
	numFlags uint32
}

// listener is the descriptor that the filter tells of system calls by.
type listener int

func (l listener) ioctl(req uintptr, arg unsafe.Pointer) (int, error) {
	v, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(l), req, uintptr(arg))
	if errno != 0 {
		return 0, errno
	}
	return int(v), nil
}

// receive waits for a system call.
func (l listener) receive() (n notification, err error) {
	_, err = l.ioctl(unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&n))
	return n, err
}

// send answers one; ENOENT says that the thread has died.
func (l listener) send(r response) error {
	_, err := l.ioctl(unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&r))
	return err
}

// waits tells whether the thread still waits: only then its number is its own.
func (l listener) waits(id uint64) bool {
	_, err := l.ioctl(unix.SECCOMP_IOCTL_NOTIF_ID_VALID, unsafe.Pointer(&id))
	return err == nil
}

// add installs a descriptor in the process of a thread that waits.
func (l listener) add(a addition) (int, error) {
	return l.ioctl(unix.SECCOMP_IOCTL_NOTIF_ADDFD, unsafe.Pointer(&a))
}

// newListener puts the calling thread under the filter, and all that come from it.
func newListener(program []unix.SockFilter) (listener, error) {
	p := unix.SockFprog{Len: uint16(len(program)), Filter: unsafe.SliceData(program)}
	const flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&p)))
	if errno != 0 {
		return -1, errno
	}
	return listener(fd), nil
}

// bytesOf is the memory of a struct without pointers.
func bytesOf[T any](p *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(p)), unsafe.Sizeof(*p))
}

// inotifyEvents are the watches and masks of the events in b.
func inotifyEvents(b []byte) (list []unix.InotifyEvent) {
	for len(b) >= unix.SizeofInotifyEvent {
		var e unix.InotifyEvent
		copy(bytesOf(&e), b)
		list = append(list, e)
		b = b[min(len(b), unix.SizeofInotifyEvent+int(e.Len)):]
	}
	return list
}
