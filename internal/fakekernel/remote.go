//go:build linux

package fakekernel

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
)

// Remote is a device file that another process has open. A front end sees the system calls
// of that process and carries them to here, one at a time.
//
// What the model calls the user's memory is that of the process which opened the file, but
// for what a call points at: that is memory of the caller, which may be a child of it.
type Remote struct {
	f      *verbsFile
	memory *os.File
}

// Caller is a thread of another process that waits in a system call.
type Caller interface {
	// Thread is its number as this process sees it.
	Thread() int
	// Give installs a copy of a descriptor in its process, close-on-exec, and returns
	// the number there.
	Give(fd int) (int32, error)
}

// backingPages is how many pages a device file has room for: all mmap offsets of the driver.
const backingPages = 0x20000

// Serve opens a device for another process. The error is a plain errno.
func (k *Kernel) Serve(path string, process int) (*Remote, error) {
	opened, err := opener{k}.Open(path)
	if err != nil {
		return nil, errnoOf(err)
	}
	f, ok := opened.(*verbsFile)
	if !ok {
		opened.Close()
		return nil, unix.ENOENT
	}
	memory, err := backingFile(int64(max(f.dev.hw.page, pageSize)) * backingPages)
	if err != nil {
		f.Close()
		return nil, unix.ENOMEM
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	f.mem, f.backing = userMem(process), int(memory.Fd())
	return &Remote{f, memory}, nil
}

func backingFile(size int64) (*os.File, error) {
	fd, err := unix.MemfdCreate("uverbs", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	if err := unix.Ftruncate(fd, size); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "uverbs"), nil
}

// Memory is the file that stands for the device file in the other process: what is mapped
// there of it is what a device would have mapped. The Remote keeps it.
func (r *Remote) Memory() *os.File { return r.memory }

// Ioctl carries out a verbs ioctl whose frame is at an address of the caller. The error is
// a plain errno.
func (r *Remote) Ioctl(c Caller, addr uint64) error {
	m := userMem(c.Thread())
	var hdr abi.IbUverbsIoctlHdr
	if err := m.in(bytesOf(&hdr), addr); err != nil {
		return err
	}
	if err := checkFrame(&hdr); err != nil {
		return errnoOf(err)
	}
	frame := alignedBytes(int(hdr.Length))
	if err := m.in(frame, addr); err != nil {
		return err
	}
	*view[abi.IbUverbsIoctlHdr](frame) = hdr // it was checked: the caller may have changed his
	before := slices.Clone(frame)
	err := r.as(c, func() error { return r.f.ioctl(frame) })
	if bytes.Equal(frame, before) {
		return errnoOf(err)
	}
	// What a method wrote stands there even if it failed later.
	if back := m.out(addr+uint64(hdrSize), frame[hdrSize:]); err == nil {
		err = back
	}
	return errnoOf(err)
}

// maxWrite bounds a write command; the longest that exists has a few hundred bytes.
const maxWrite = 16 << 10

// Write carries out a write command that is n bytes long, at an address of the caller. The
// error is a plain errno.
func (r *Remote) Write(c Caller, addr uint64, n uint64) (int, error) {
	if n > maxWrite {
		return 0, unix.EINVAL
	}
	b := alignedBytes(int(n))
	if err := userMem(c.Thread()).in(b, addr); err != nil {
		return 0, err
	}
	var done int
	err := r.as(c, func() (err error) {
		done, err = r.f.Write(context.Background(), b)
		return err
	})
	return done, errnoOf(err)
}

// Map says what mmap would say. If that is nothing, the mapping itself is one of the memory
// file, at the same offset. The device does not learn of the end of mappings: it takes a page of
// registers back when the object ends.
func (r *Remote) Map(off int64, length uint64, prot int) error {
	length = (length + pageSize - 1) &^ (pageSize - 1)
	mem, err := r.f.Map(off, int(length), prot)
	if err == nil {
		err = r.f.Unmap(mem)
	}
	return errnoOf(err)
}

// Close ends the file when nobody has it open any more.
func (r *Remote) Close() error {
	err := r.f.Close()
	r.memory.Close()
	return err
}

// as makes a call in the name of a thread.
func (r *Remote) as(c Caller, call func() error) error {
	r.setCaller(c)
	defer r.setCaller(nil)
	return call()
}

func (r *Remote) setCaller(c Caller) {
	r.f.k.mu.Lock()
	defer r.f.k.mu.Unlock()
	r.f.caller = c
}

// reach is the memory that a call's pointers are in.
func (f *verbsFile) reach() userMem {
	if f.caller != nil {
		return userMem(f.caller.Thread())
	}
	return f.mem
}

// errnoOf finds the number in an error of this package.
func errnoOf(err error) error {
	var errno unix.Errno
	switch {
	case err == nil:
		return nil
	case errors.As(err, &errno):
		return errno
	case errors.Is(err, os.ErrNotExist):
		return unix.ENOENT
	case errors.Is(err, net.ErrClosed):
		return unix.EBADF
	}
	return unix.EIO
}
