//go:build amd64 || arm64

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
)

// roles are programs that run under mlx5sim: each tells what it finds wrong.
var roles = map[string]func(args []string) error{
	"frames": badFrames, "descriptors": descriptors, "nodes": nodes, "netlink": noNetlink,
	"parent": parent, "child": child, "passed": passed,
}

const node = "/dev/infiniband/uverbs0"

func openNode(flags int) (int, error) { return unix.Open(node, unix.O_RDWR|flags, 0) }

// verbs is the ioctl, with a frame at any address.
func verbs(fd int, addr uint64) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), abi.RDMA_VERBS_IOCTL, uintptr(addr)); errno != 0 {
		return errno
	}
	return nil
}

// wants collects what is not as it should be.
type wants []error

func (w *wants) that(what string, got, want any) {
	if got != want {
		*w = append(*w, fmt.Errorf("%s: %v, want %v", what, got, want))
	}
}

// header fills in struct ib_uverbs_ioctl_hdr of a frame without attributes.
func header(b []byte, length, object, numAttrs, driver uint16) {
	clear(b[:24])
	b[0], b[1] = byte(length), byte(length>>8)
	b[2], b[3] = byte(object), byte(object>>8)
	b[6], b[7] = byte(numAttrs), byte(numAttrs>>8)
	b[16] = byte(driver)
}

const nobody = 0x7777 // an object that does not exist

// reaches makes an ioctl that the model refuses as no other file would.
func reaches(fd int) error {
	frame, err := uapi.AllocPages(4096)
	if err != nil {
		return err
	}
	defer uapi.FreePages(frame) //nolint:errcheck // a test
	header(frame, 24, nobody, 0, abi.RDMA_DRIVER_MLX5)
	var w wants
	w.that(fmt.Sprintf("an ioctl on descriptor %d", fd), verbs(fd, uapi.Addr(frame)), unix.EPROTONOSUPPORT)
	return errors.Join(w...)
}

// badFrames: frames where there is no memory, or not enough, or not what the header says.
func badFrames([]string) error {
	fd, err := openNode(unix.O_CLOEXEC)
	if err != nil {
		return err
	}
	page := os.Getpagesize()
	mem, err := unix.Mmap(-1, 0, 2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return err
	}
	base := uapi.Addr(mem)
	if err := unix.Mprotect(mem[page:], unix.PROT_NONE); err != nil {
		return err
	}
	var w wants
	for _, addr := range []uint64{0, 1, base + uint64(page), base + uint64(page) - 23, 0xffff_8000_0000_0000} {
		w.that(fmt.Sprintf("a frame at %#x", addr), verbs(fd, addr), unix.EFAULT)
	}
	for _, tt := range []struct {
		what                    string
		length, attrs, drv, off uint16
		want                    unix.Errno
	}{
		{"no attribute", 24, 0, abi.RDMA_DRIVER_MLX5, 24, unix.EPROTONOSUPPORT},
		{"an attribute on a page that is not there", 40, 1, abi.RDMA_DRIVER_MLX5, 24, unix.EFAULT},
		{"an attribute that is there in half", 40, 1, abi.RDMA_DRIVER_MLX5, 32, unix.EFAULT},
		{"a length that is not that of the attributes", 40, 0, abi.RDMA_DRIVER_MLX5, 40, unix.EINVAL},
		{"more than a page", 24 + 16*300, 300, abi.RDMA_DRIVER_MLX5, 40, unix.EINVAL},
		{"another driver", 24, 0, abi.RDMA_DRIVER_RXE, 24, unix.EINVAL},
	} {
		at := page - int(tt.off)
		header(mem[at:], tt.length, nobody, tt.attrs, tt.drv)
		w.that(tt.what, verbs(fd, base+uint64(at)), tt.want)
	}
	header(mem, 24, nobody, 0, abi.RDMA_DRIVER_MLX5)
	if err := unix.Mprotect(mem[:page], unix.PROT_READ); err != nil {
		return err
	}
	w.that("a frame that cannot be written, nor need be", verbs(fd, base), unix.EPROTONOSUPPORT)
	return errors.Join(w...)
}

// isDevice tells whether a descriptor is the device file, as libibverbs does.
func isDevice(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == unix.Mkdev(231, 192)
}

func closesOnExec(fd int) bool {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	return err == nil && flags&unix.FD_CLOEXEC != 0
}

// descriptors: copies are the device file, too.
func descriptors([]string) error {
	var w wants
	fd, err := openNode(0)
	if err != nil {
		return err
	}
	w.that("close on exec, not asked for", closesOnExec(fd), false)
	other, err := openNode(unix.O_CLOEXEC | unix.O_NONBLOCK)
	w.that("a second open", err, nil)
	w.that("its number is the first one's", other == fd, false)
	w.that("close on exec, asked for", closesOnExec(other), true)
	flags, _ := unix.FcntlInt(uintptr(other), unix.F_GETFL, 0)
	w.that("flags", flags&(unix.O_ACCMODE|unix.O_NONBLOCK), unix.O_RDWR|unix.O_NONBLOCK)
	copied, err := unix.Dup(fd)
	w.that("dup", err, nil)
	exec, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	w.that("fcntl", err, nil)
	w.that("close on exec of a copy", closesOnExec(exec), true)
	const low = 77
	w.that("dup3", unix.Dup3(fd, low, 0), nil)
	unix.Close(fd)
	for _, n := range []int{other, copied, exec, low} {
		w.that(fmt.Sprintf("%d is a device", n), isDevice(n), true)
		w.that("ioctl", reaches(n), nil)
		if n != low { // write of a number outside of the range is not seen
			_, err := unix.Write(n, make([]byte, 7))
			w.that("a write that is too short", err, unix.EINVAL)
			_, err = unix.Writev(n, [][]byte{make([]byte, 4), make([]byte, 4)})
			w.that("writev", err, unix.EINVAL)
		}
		_, err := unix.Mmap(n, 0, 4096, unix.PROT_WRITE, unix.MAP_SHARED)
		w.that("mmap without a context", err, unix.EINVAL)
	}
	return errors.Join(w...)
}

// nodes: what there is under /dev, though nothing is there.
func nodes([]string) error {
	var w wants
	var st unix.Stat_t
	var stx unix.Statx_t
	for _, path := range []string{node, "/dev/char/231:192"} {
		w.that("stat "+path, unix.Stat(path, &st), nil)
		w.that("its number", st.Rdev, unix.Mkdev(231, 192))
		w.that("statx "+path, unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_BASIC_STATS, &stx), nil)
		w.that("its minor number", stx.Rdev_minor, uint32(192))
		w.that("access "+path, unix.Access(path, unix.R_OK|unix.W_OK), nil)
	}
	for _, path := range []string{"/dev/infiniband/rdma_cm", "/dev/infiniband/uverbs1", "/dev/char/231:193"} {
		_, err := unix.Open(path, unix.O_RDWR, 0)
		w.that("open "+path, err, unix.ENOENT)
		w.that("stat "+path, unix.Stat(path, &st), unix.ENOENT)
		w.that("access "+path, unix.Access(path, unix.R_OK), unix.ENOENT)
	}
	_, err := unix.Open("/dev/infiniband/mark/here", unix.O_RDONLY, 0)
	w.that("a mark without a trace", err, unix.ENXIO)
	w.that("/sys/class/net", unix.Stat("/sys/class/net/lo/ifindex", &st), nil)
	return errors.Join(w...)
}

// noNetlink: only the family of RDMA is refused.
func noNetlink([]string) error {
	var w wants
	_, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_RDMA)
	w.that("RDMA netlink", err, unix.EPROTONOSUPPORT)
	_, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_STREAM, unix.NETLINK_RDMA)
	w.that("before anything else is looked at", err, unix.EPROTONOSUPPORT) // this kernel may not have it anyway
	_, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	w.that("route netlink", err, nil)
	_, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	w.that("another family", err, nil)
	return errors.Join(w...)
}

// pause is long enough for what was begun before to be over.
const pause = 100 * time.Millisecond

// parent opens the device for a child, and closes it.
func parent([]string) error {
	fd, err := openNode(unix.O_CLOEXEC)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), node)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), "MLX5SIM_ROLE=child")
	cmd.ExtraFiles, cmd.Stderr = []*os.File{f}, os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	return errors.Join(f.Close(), cmd.Wait())
}

// child uses the descriptor that it inherited when its parent has none any more.
func child([]string) error {
	time.Sleep(pause)
	const inherited = 3
	var w wants
	w.that("the device was inherited", isDevice(inherited), true)
	return errors.Join(append(w, reaches(inherited))...)
}

// passed: a device file that is nowhere but in a socket lives on.
func passed([]string) error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	fd, err := openNode(unix.O_CLOEXEC)
	if err != nil {
		return err
	}
	if err := unix.Sendmsg(pair[0], []byte{0}, unix.UnixRights(fd), nil, 0); err != nil {
		return err
	}
	unix.Close(fd)
	time.Sleep(pause)
	b, oob := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	if _, _, _, _, err := unix.Recvmsg(pair[1], b, oob, 0); err != nil {
		return err
	}
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return err
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return err
	}
	return reaches(fds[0])
}
