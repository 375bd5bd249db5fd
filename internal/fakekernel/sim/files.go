//go:build linux && (amd64 || arm64)

package sim

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/internal/fakekernel"
)

// inode tells an open device file, whatever number a process has it under: each is a memory
// file of its own.
type inode struct{ dev, ino uint64 }

func inodeOf(st *unix.Stat_t) inode { return inode{st.Dev, st.Ino} }

// deviceFile is an open device file.
type deviceFile struct {
	*fakekernel.Remote
	path string
	rdev uint64
	id   inode
}

// fileTable has all open device files. inotify tells when the last reference to one has gone,
// be it a descriptor or a mapping.
type fileTable struct {
	open    map[inode]*deviceFile
	watched map[int32]*deviceFile // by the number of the watch
	notify  int
	ended   func(*deviceFile) // is told of each that was closed
}

func newFileTable(ended func(*deviceFile)) (*fileTable, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, err
	}
	return &fileTable{open: make(map[inode]*deviceFile), watched: make(map[int32]*deviceFile), notify: fd, ended: ended}, nil
}

func (t *fileTable) close() { unix.Close(t.notify) }

// find returns the device file that a thread has under a number, nil if it is none.
func (t *fileTable) find(thread uint32, fd int32) *deviceFile {
	if len(t.open) == 0 || fd < 0 {
		return nil
	}
	var st unix.Stat_t
	if unix.Stat(fmt.Sprintf("/proc/%d/fd/%d", thread, fd), &st) != nil {
		return nil
	}
	return t.open[inodeOf(&st)]
}

// add opens the memory file of a device file once more, for a process to have. When that
// one is closed everywhere the device file is closed.
func (t *fileTable) add(r *fakekernel.Remote, path string, rdev uint64, flags int) (*os.File, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(r.Memory().Fd()), &st); err != nil {
		return nil, err
	}
	memory := fmt.Sprintf("/proc/self/fd/%d", r.Memory().Fd())
	f, err := os.OpenFile(memory, flags&(os.O_RDWR|os.O_WRONLY|unix.O_NONBLOCK), 0)
	if err != nil {
		return nil, err
	}
	watch, err := unix.InotifyAddWatch(t.notify, memory, unix.IN_CLOSE)
	if err != nil {
		f.Close()
		return nil, err
	}
	d := &deviceFile{r, path, rdev, inodeOf(&st)}
	t.open[d.id], t.watched[int32(watch)] = d, d
	return f, nil
}

// settle ends the files that were closed since the last time. The memory file goes with
// each, and so does the watch.
func (t *fileTable) settle() {
	b := make([]byte, 4096)
	for {
		n, err := unix.Read(t.notify, b)
		if err != nil || n <= 0 { // EAGAIN: nothing
			return
		}
		for _, e := range inotifyEvents(b[:n]) {
			if d := t.watched[e.Wd]; d != nil {
				delete(t.watched, e.Wd)
				delete(t.open, d.id)
				d.Close()
				t.ended(d)
			}
		}
	}
}
