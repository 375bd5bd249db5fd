//go:build linux

package fakekernel

import "golang.org/x/sys/unix"

// sharedPage is memory that the kernel has for itself, and that users map any number of
// times: registers of a device.
type sharedPage struct {
	fd   int // of the memory file
	at   int64
	mem  []byte // the kernel's view
	refs int    // the object behind it, and the mappings of users
}

// newPage makes a page for one holder, which users map at an offset of the open file. In a
// process that a front end serves the file is a memory file itself, mapped at the same
// offsets.
func (f *verbsFile) newPage(off uint64, size int) (*sharedPage, error) {
	if f.backing != 0 {
		fd, err := unix.FcntlInt(uintptr(f.backing), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return nil, unix.ENOMEM
		}
		return sharedPageOf(fd, int64(off), size)
	}
	fd, err := unix.MemfdCreate("registers", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, unix.ENOMEM
	}
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		unix.Close(fd)
		return nil, unix.ENOMEM
	}
	return sharedPageOf(fd, 0, size)
}

// sharedPageOf takes the descriptor over.
func sharedPageOf(fd int, at int64, size int) (p *sharedPage, err error) {
	p = &sharedPage{fd: fd, at: at, refs: 1}
	if p.mem, err = unix.Mmap(fd, p.at, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		unix.Close(fd)
		return nil, unix.ENOMEM
	}
	return p, nil
}

// moveTo takes another page of the file.
func (p *sharedPage) moveTo(at int64) error {
	mem, err := unix.Mmap(p.fd, at, len(p.mem), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return unix.ENOMEM
	}
	unix.Munmap(p.mem)
	p.mem, p.at = mem, at
	return nil
}

// mapUser maps the page once more, for the user. given is called when he has unmapped it.
func (p *sharedPage) mapUser(prot int, given func()) (*mapping, error) {
	user, err := unix.Mmap(p.fd, p.at, len(p.mem), prot, unix.MAP_SHARED)
	if err != nil {
		return nil, unix.ENOMEM
	}
	p.refs++
	return &mapping{user: user, taken: len(user), given: given}, nil
}

// put drops one reference, and tells whether it was the last.
func (p *sharedPage) put() bool {
	if p.refs--; p.refs > 0 {
		return false
	}
	unix.Munmap(p.mem)
	unix.Close(p.fd)
	p.mem = nil
	return true
}
