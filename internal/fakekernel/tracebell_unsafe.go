//go:build linux

package fakekernel

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The order of two stores, into a doorbell record and into a register, shows to nobody who
// looks later. So the tracer has the first store into a page of registers since the last mark
// fault, and looks at the records before the store is done. The means is userfaultfd(2): the
// program makes the descriptor and tells its number by a mark, for only its own process can.
// A device that listens touches the pages itself, so there it does not work.

// bells are the pages of a process whose doorbells are heard so.
type bells struct {
	t     *tracer
	file  *os.File // the program's userfaultfd
	pid   int
	pages []*bellPage
	blank []byte // a page that nobody has written to
}

// bellPage is a page as the program has it mapped.
type bellPage struct {
	u     *mlx5UAR
	start uint64
	rung  bool // since the last mark, so that the page is there
}

// The ioctls of a userfaultfd, and what they take: linux/userfaultfd.h.
const (
	uffdAPI      = 0xc018_aa3f
	uffdRegister = 0xc020_aa00
	uffdCopy     = 0xc028_aa03
	uffdWake     = 0x8010_aa02

	uffdVersion      = 0xaa
	uffdMissing      = 1
	uffdMissingShmem = 1 << 5
	uffdExactAddress = 1 << 11
	uffdPagefault    = 0x12
	uffdMessage      = 32
	uffdAddress      = 16 // in a message
)

// hearBells takes the descriptor of the process whose files are traced.
func (t *tracer) hearBells(fd int) error {
	if t.bells != nil || len(t.files) == 0 {
		return nil
	}
	pid := t.files[len(t.files)-1].mem.pid()
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(process)
	own, err := unix.PidfdGetfd(process, fd, 0)
	if err != nil {
		return err
	}
	arg := [3]uint64{uffdVersion, uffdMissingShmem | uffdExactAddress}
	if err := control(uintptr(own), uffdAPI, unsafe.Pointer(&arg)); err != nil {
		unix.Close(own)
		return err
	}
	// Only now: a descriptor that is not set up yet is one that the runtime cannot wait for.
	t.bells = &bells{t: t, pid: pid, file: os.NewFile(uintptr(own), "userfaultfd"), blank: bytes.Repeat([]byte{unwritten & 0xff}, int(pageSize))}
	go t.bells.listen()
	return nil
}

func control(fd, request uintptr, arg unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, request, uintptr(arg)); errno != 0 {
		return errno
	}
	return nil
}

func (b *bells) control(request uintptr, arg unsafe.Pointer) error {
	c, err := b.file.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = c.Control(func(fd uintptr) { failed = control(fd, request, arg) })
	return errors.Join(err, failed)
}

// close ends the goroutine.
func (b *bells) close() {
	if b != nil {
		b.file.Close()
	}
}

// listen is the goroutine: each fault is a doorbell.
func (b *bells) listen() {
	msg := make([]byte, uffdMessage)
	for {
		if n, err := b.file.Read(msg); err != nil || n != uffdMessage {
			return
		}
		if msg[0] == uffdPagefault {
			b.ring(binary.NativeEndian.Uint64(msg[uffdAddress:]))
		}
	}
}

// ring says what the records hold, and has the store done.
func (b *bells) ring(addr uint64) {
	k := b.t.k
	k.mu.Lock()
	defer k.mu.Unlock()
	start := addr &^ (pageSize - 1)
	for _, p := range b.pages {
		if p.start == start && p.rung { // a signal interrupted the store, which is done once more
			b.wake(start)
			return
		}
		if p.start == start {
			p.rung = true
			b.t.heard(p.u, addr-start)
		}
	}
	arg := [5]uint64{start, uint64(addrOf(b.blank)), pageSize}
	if err := b.control(uffdCopy, unsafe.Pointer(&arg)); err != nil {
		b.t.put("! bell: %v", err)
		b.wake(start)
	}
}

// wake has a thread go on that waits for a page that is there.
func (b *bells) wake(start uint64) {
	arg := [2]uint64{start, pageSize}
	_ = b.control(uffdWake, unsafe.Pointer(&arg))
}

// heard writes what the records of the page's queues hold when a doorbell rings.
func (t *tracer) heard(u *mlx5UAR, off uint64) {
	t.put("  bell %x+%03x", u.id, off)
	if off == armRegister {
		for _, q := range u.cqs {
			t.putRecord(t.views[q.c].(*cqView).record, t.names[q.c])
		}
		return
	}
	for _, s := range u.qps {
		t.putRecord(t.views[s.q].(*qpView).record, t.names[s.q])
	}
}

// putRecord writes a record that has changed.
func (t *tracer) putRecord(v memView, name string) {
	if v.look() && string(v.now) != string(v.was) {
		t.put("  bell: %s record %s", name, words(v.now))
	}
}

// page returns the page as the program has it mapped, nil if no doorbells are heard there.
func (b *bells) page(u *mlx5UAR) *bellPage {
	if b == nil {
		return nil
	}
	i := slices.IndexFunc(b.pages, func(p *bellPage) bool { return p.u == u })
	if i < 0 {
		return nil
	}
	return b.pages[i]
}

// hang has the doorbells of a page heard from now on, as soon as the program has mapped it.
func (b *bells) hang(u *mlx5UAR) {
	if b == nil || u.c.f.mem.pid() != b.pid || !u.c.f.dev.MLX5.NoExec || len(u.mem) != int(pageSize) {
		return
	}
	start := b.mapped(u)
	if start == 0 {
		return
	}
	arg := [4]uint64{start, pageSize, uffdMissing}
	if err := b.control(uffdRegister, unsafe.Pointer(&arg)); err != nil {
		b.t.put("! bell: %v", err)
		return
	}
	b.pages = append(b.pages, &bellPage{u: u, start: start})
	u.drop()
}

// drop takes the page away, so that the next store into it faults.
func (u *mlx5UAR) drop() {
	_ = unix.Fallocate(u.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, u.at, int64(len(u.mem)))
}

// mapped finds where the program has mapped a page, 0 if it has not.
func (b *bells) mapped(u *mlx5UAR) uint64 {
	var st unix.Stat_t
	if unix.Fstat(u.fd, &st) != nil {
		return 0
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/maps", b.pid))
	if err != nil {
		return 0
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var (
			start, end, off, inode uint64
			prot                   string
			major, minor           uint32
		)
		_, err := fmt.Sscanf(lines.Text(), "%x-%x %s %x %x:%x %d", &start, &end, &prot, &off, &major, &minor, &inode)
		own := start == uint64(addrOf(u.mem)) && b.pid == pid // the kernel's, in the same process
		if err == nil && inode == st.Ino && off == uint64(u.at) && !own {
			return start
		}
	}
	return 0
}

// forget drops the pages of files that are closed.
func (b *bells) forget() {
	if b != nil {
		b.pages = nil
	}
}
