//go:build linux && (amd64 || arm64)

package sim

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/internal/uapi"
)

const (
	nodeDir = "/dev/infiniband/"
	charDir = "/dev/char/231:"
	markDir = nodeDir + "mark/"
)

// ours tells whether nobody but this has a word about a path.
func ours(path string) bool {
	return strings.HasPrefix(path, nodeDir) || strings.HasPrefix(path, charDir)
}

// open opens a device, says a mark, or lets the call through.
func (c *call) open(addr uint64, flags int) verdict {
	path := readPath(c.thread, addr)
	if !ours(path) {
		return through
	}
	if text, ok := strings.CutPrefix(path, markDir); ok {
		err := c.s.k.Mark(text)
		c.note("mark %s: %v", text, err)
		return verdict{err: err}
	}
	fd, err := c.openDevice(path, flags)
	c.note("open %s: %d, %v", path, fd, err)
	return verdict{val: int64(fd), err: err}
}

func (c *call) openDevice(path string, flags int) (int, error) {
	if !c.s.l.waits(c.id) { // the path might be that of another process
		return -1, unix.EINTR
	}
	rdev, err := c.s.k.System().Opener.Stat(path)
	if err != nil {
		return -1, unix.ENOENT
	}
	process := processOf(c.thread)
	r, err := c.s.k.Serve(path, process)
	if err != nil {
		return -1, err
	}
	f, err := c.s.files.add(r, path, rdev, flags)
	if err != nil {
		r.Close()
		return -1, unix.ENOMEM
	}
	defer f.Close() // the process has its own now; if not, the device file is closed with it
	return c.install(int(f.Fd()), flags)
}

// install gives the process a descriptor with a number of the range, the lowest that is free.
func (c *call) install(fd, flags int) (int, error) {
	a := addition{id: c.id, src: uint32(fd), flags: unix.SECCOMP_ADDFD_FLAG_SETFD, numFlags: uint32(flags & unix.O_CLOEXEC)}
	for a.num = firstFD; a.num < endFD; a.num++ {
		if _, err := os.Lstat(fmt.Sprintf("/proc/%d/fd/%d", c.thread, a.num)); err != nil {
			n, err := c.s.l.add(a)
			if err != nil {
				return -1, unix.EMFILE // EBADF: beyond the process's limit
			}
			return n, nil
		}
	}
	return -1, unix.EMFILE
}

// processOf is the process of a thread.
func processOf(thread uint32) int {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", thread))
	for line := range strings.Lines(string(b)) {
		var pid int
		if n, _ := fmt.Sscanf(line, "Tgid: %d", &pid); n == 1 {
			return pid
		}
	}
	return int(thread)
}

func (c *call) ioctl() verdict {
	d := c.s.files.find(c.thread, int32(c.args[0]))
	if d == nil {
		return through
	}
	err := d.Ioctl(c, c.args[2])
	if c.s.log != nil {
		c.note("ioctl %s: %v", c.describe(), err)
	}
	return verdict{err: err}
}

// describe names the method of a verbs ioctl.
func (c *call) describe() string {
	var b [8]byte
	if readMemory(c.thread, c.args[2], b[:]) != nil {
		return "?"
	}
	object, method := uint16(b[2])|uint16(b[3])<<8, uint16(b[4])|uint16(b[5])<<8
	if m := uapi.Lookup(object, method); m != nil {
		return m.Name
	}
	return fmt.Sprintf("%#x/%#x", object, method)
}

func (c *call) write() verdict {
	d := c.s.files.find(c.thread, int32(c.args[0]))
	if d == nil {
		return through
	}
	n, err := d.Write(c, c.args[1], c.args[2])
	c.note("write of %d bytes: %v", c.args[2], err)
	return verdict{val: int64(n), err: err}
}

// writev: uverbs takes one piece a command, and no program has several.
func (c *call) writev() verdict {
	if c.s.files.find(c.thread, int32(c.args[0])) == nil {
		return through
	}
	return verdict{err: unix.EINVAL}
}

func (c *call) mmap() verdict {
	d := c.s.files.find(c.thread, int32(c.args[4]))
	if d == nil {
		return through
	}
	err := d.Map(int64(c.args[5]), c.args[1], int(c.args[2]))
	c.note("mmap of %d bytes at %#x: %v", c.args[1], c.args[5], err)
	if err != nil {
		return verdict{err: err}
	}
	return through
}

// dup keeps the copy in the range. What dup2 and dup3 make has the number that they say.
func (c *call) dup() verdict {
	if c.s.files.find(c.thread, int32(c.args[0])) == nil {
		return through
	}
	fd, err := borrow(processOf(c.thread), int(c.args[0]))
	if err != nil {
		return through
	}
	defer unix.Close(fd)
	flags := 0
	if int(c.nr) == unix.SYS_FCNTL && c.args[1] == unix.F_DUPFD_CLOEXEC {
		flags = unix.O_CLOEXEC
	}
	n, err := c.install(fd, flags)
	return verdict{val: int64(n), err: err}
}

// borrow is a descriptor of this process for the same open file.
func borrow(process, fd int) (int, error) {
	p, err := unix.PidfdOpen(process, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(p)
	return unix.PidfdGetfd(p, fd, 0)
}
