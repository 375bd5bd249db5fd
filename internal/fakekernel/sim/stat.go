//go:build linux && (amd64 || arm64)

package sim

import (
	"golang.org/x/sys/unix"
)

// stat says of device files that they are device files. libibverbs believes nothing else.
func (c *call) stat() verdict {
	rdev, where, known := c.statted()
	if !known {
		return through
	}
	if rdev == 0 {
		return verdict{err: unix.ENOENT}
	}
	var err error
	if int(c.nr) == unix.SYS_STATX {
		err = writeMemory(c.thread, where, bytesOf(statxOf(rdev)))
	} else {
		err = writeMemory(c.thread, where, bytesOf(statOf(rdev)))
	}
	return verdict{err: err}
}

// statted finds what a call asks about: a path of ours or a device file; rdev is 0 for what
// does not exist.
func (c *call) statted() (rdev, where uint64, known bool) {
	var path string
	fd := int32(c.args[0])
	switch int(c.nr) {
	case unix.SYS_FSTAT:
		where = c.args[1]
	case sysStat, sysLstat:
		path, where = readPath(c.thread, c.args[0]), c.args[1]
		fd = -1
	case sysFstatat:
		path, where = readPath(c.thread, c.args[1]), c.args[2]
	case unix.SYS_STATX:
		where = c.args[4]
		if c.args[1] != 0 { // newer kernels take no path for an empty one
			path = readPath(c.thread, c.args[1])
		}
	}
	if path != "" {
		if !ours(path) {
			return 0, 0, false
		}
		rdev, _ = c.s.k.System().Opener.Stat(path) // 0: not there
		return rdev, where, true
	}
	if d := c.s.files.find(c.thread, fd); d != nil {
		return d.rdev, where, true
	}
	return 0, 0, false
}

// access: everybody may do everything with a device.
func (c *call) access(addr uint64) verdict {
	path := readPath(c.thread, addr)
	if !ours(path) {
		return through
	}
	if _, err := c.s.k.System().Opener.Stat(path); err != nil {
		return verdict{err: unix.ENOENT}
	}
	return verdict{}
}

const nodeMode = unix.S_IFCHR | 0o666

func statOf(rdev uint64) *unix.Stat_t {
	st := &unix.Stat_t{Mode: nodeMode, Nlink: 1, Ino: rdev, Blksize: smallPage}
	st.Rdev = rdev
	return st
}

func statxOf(rdev uint64) *unix.Statx_t {
	return &unix.Statx_t{
		Mask: unix.STATX_BASIC_STATS, Blksize: smallPage, Nlink: 1, Mode: nodeMode, Ino: rdev,
		Rdev_major: unix.Major(rdev), Rdev_minor: unix.Minor(rdev),
	}
}
