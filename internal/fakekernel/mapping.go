//go:build linux

package fakekernel

import (
	"golang.org/x/sys/unix"
)

// mapping is memory shared with the user, mapped twice, once for each side. After the user
// has unmapped it, touching it is a fault as with a real device.
type mapping struct {
	offset uint64
	mem    []byte // the kernel's
	user   []byte // the user's; nil once it is unmapped
	taken  int    // bytes that the user mapped, 0 if it has not yet
	exact  bool   // the user has to map all of it
	given  func() // if not nil: called when the user has unmapped it
}

// newMapping makes memory that waits for the user to map it.
func (f *verbsFile) newMapping(size uint64) (*mapping, error) {
	size = (size + pageSize - 1) / pageSize * pageSize
	m := &mapping{offset: f.dev.mapOff}
	if err := m.alloc(int(size)); err != nil {
		return nil, err
	}
	f.dev.mapOff += size
	f.unmapped[m.offset] = m
	return m, nil
}

func (m *mapping) alloc(size int) error {
	fd, err := unix.MemfdCreate("queue", unix.MFD_CLOEXEC)
	if err != nil {
		return unix.ENOMEM
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		return unix.ENOMEM
	}
	for _, b := range []*[]byte{&m.mem, &m.user} {
		*b, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			m.free()
			return unix.ENOMEM
		}
	}
	return nil
}

func (m *mapping) free() {
	for _, b := range []*[]byte{&m.mem, &m.user} {
		if *b != nil {
			unix.Munmap(*b)
			*b = nil
		}
	}
}

// end gives the memory up: the user may still hold its mapping.
func (m *mapping) end(f *verbsFile) {
	delete(f.unmapped, m.offset)
	user := m.user
	if m.taken > 0 {
		m.user = nil // lives until Unmap
	}
	m.free()
	if m.taken > 0 {
		m.user = user
	}
}

// Map gives memory of the driver to the user.
func (f *verbsFile) Map(off int64, length, prot int) ([]byte, error) {
	if err := f.k.check(Call{Kind: CallMap}); err != nil {
		return nil, err
	}
	f.k.mu.Lock()
	defer f.k.mu.Unlock()
	if err := f.alive(); err != nil {
		return nil, err
	}
	m, err := f.dev.drv.mmap(f, uint64(off), length, prot)
	if err != nil {
		return nil, err
	}
	f.mapped[addrOf(m.user)] = m
	f.k.maps++
	return m.user[:m.taken:m.taken], nil
}

// Unmap takes it back; mem is what Map returned.
func (f *verbsFile) Unmap(mem []byte) error {
	f.k.mu.Lock()
	defer f.k.mu.Unlock()
	m := f.mapped[addrOf(mem)]
	if m == nil || len(mem) != m.taken {
		return unix.EINVAL
	}
	delete(f.mapped, addrOf(mem))
	f.k.maps--
	err := unix.Munmap(m.user)
	m.user = nil
	if m.given != nil {
		m.given()
	}
	return err
}
