//go:build linux

package fakekernel

import (
	"context"
	"net"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
)

// connManager is what all open files of rdma_cm share.
type connManager struct {
	ids      map[uint32]*cmID
	nextPort uint16
	nextPSN  uint32
}

func (c *connManager) init() {
	c.ids = make(map[uint32]*cmID)
	c.nextPort, c.nextPSN = 32768, 0x1000
}

// cmFile is an open rdma_cm node: an event channel.
type cmFile struct {
	k      *Kernel
	fd     int32
	queue  []cmEvent
	closed bool
	ready  chan struct{} // holds a token while there may be an event
	gone   chan struct{} // closed by Close
}

func newCMFile(k *Kernel) *cmFile {
	f := &cmFile{k: k, ready: make(chan struct{}, 1), gone: make(chan struct{})}
	f.fd = k.install(f)
	return f
}

// Write carries a command out. As on the real file, a context makes it wait for an event
// where the answer would be EAGAIN.
func (f *cmFile) Write(ctx context.Context, p []byte) (int, error) {
	for {
		if ctx != nil && ctx.Err() != nil {
			return 0, ctx.Err()
		}
		err := f.command(p)
		switch {
		case err == nil:
			return len(p), nil
		case err != unix.EAGAIN || ctx == nil:
			return 0, err
		}
		select {
		case <-f.ready:
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-f.gone:
			return 0, net.ErrClosed
		}
	}
}

// cmCall is a command: its body, and the room for its answer.
type cmCall struct {
	body []byte
	out  int
}

// command is ucma_write of core/ucma.c.
func (f *cmFile) command(p []byte) error {
	hdr := load[abi.RdmaUcmCmdHdr](p)
	if len(p) < 8 || hdr.Cmd > abi.RDMA_USER_CM_CMD_JOIN_MCAST || int(hdr.In)+8 > len(p) {
		return unix.EINVAL
	}
	if err := f.k.check(Call{Kind: CallCM, Cmd: hdr.Cmd}); err != nil {
		return err
	}
	f.k.mu.Lock()
	defer f.k.mu.Unlock()
	if f.closed {
		return net.ErrClosed
	}
	c := cmCall{p[8:], int(hdr.Out)}
	switch hdr.Cmd {
	case abi.RDMA_USER_CM_CMD_CREATE_ID:
		return f.createID(c)
	case abi.RDMA_USER_CM_CMD_DESTROY_ID:
		return f.destroyID(c)
	case abi.RDMA_USER_CM_CMD_GET_EVENT:
		return f.getEvent(c)
	case abi.RDMA_USER_CM_CMD_MIGRATE_ID:
		return f.migrate(c)
	case abi.RDMA_USER_CM_CMD_BIND:
		return f.bind(c)
	case abi.RDMA_USER_CM_CMD_RESOLVE_ADDR:
		return f.resolveAddr(c)
	case abi.RDMA_USER_CM_CMD_RESOLVE_ROUTE:
		return f.resolveRoute(c)
	case abi.RDMA_USER_CM_CMD_LISTEN:
		return f.listen(c)
	case abi.RDMA_USER_CM_CMD_CONNECT:
		return f.connect(c)
	case abi.RDMA_USER_CM_CMD_ACCEPT:
		return f.accept(c)
	case abi.RDMA_USER_CM_CMD_REJECT:
		return f.reject(c)
	case abi.RDMA_USER_CM_CMD_DISCONNECT:
		return f.disconnect(c)
	case abi.RDMA_USER_CM_CMD_NOTIFY:
		return f.notify(c)
	case abi.RDMA_USER_CM_CMD_INIT_QP_ATTR:
		return f.initQPAttr(c)
	case abi.RDMA_USER_CM_CMD_QUERY:
		return f.query(c)
	case abi.RDMA_USER_CM_CMD_QUERY_ROUTE:
		return f.queryRoute(c)
	case abi.RDMA_USER_CM_CMD_SET_OPTION:
		return f.setOption(c)
	}
	return unix.ENOSYS
}

// body reads a command's struct. The kernel copies all of it whatever the header says, so
// one that is cut short is a fault.
func body[T any](c cmCall) (v T, err error) {
	if len(c.body) < int(unsafe.Sizeof(v)) {
		return v, unix.EFAULT
	}
	return load[T](c.body), nil
}

// partial reads the struct of a command that may be older, and shorter.
func partial[T any](c cmCall) T { return load[T](c.body) }

// answer writes a response of which the caller must take all.
func answer[T any](c cmCall, addr uint64, v *T) error { return copyOut(addr, bytesOf(v)) }

// roomFor says ENOSPC if the caller has no room for a T.
func roomFor[T any](c cmCall) error {
	if c.out < int(unsafe.Sizeof(*new(T))) {
		return unix.ENOSPC
	}
	return nil
}

// find returns an id of this file: _ucma_find_context.
func (f *cmFile) find(id uint32) (*cmID, error) {
	c := f.k.cm.ids[id]
	switch {
	case c == nil:
		return nil, unix.ENOENT
	case c.file != f:
		return nil, unix.EINVAL
	case c.removed:
		return nil, unix.ENXIO
	}
	return c, nil
}

// Close ends all ids of the file.
func (f *cmFile) Close() error {
	f.k.mu.Lock()
	defer f.k.mu.Unlock()
	if f.closed {
		return nil
	}
	f.closed = true
	for _, c := range f.k.cm.ids {
		if c.file == f {
			f.k.endID(c)
		}
	}
	f.queue = nil
	close(f.gone)
	delete(f.k.fds, f.fd)
	delete(f.k.files, f)
	return nil
}

func (f *cmFile) Read(context.Context, []byte) (int, error) { return 0, unix.EINVAL }
func (f *cmFile) Ioctl(uint32, unsafe.Pointer) error        { return unix.ENOTTY }
func (f *cmFile) Map(int64, int, int) ([]byte, error)       { return nil, unix.ENODEV }
func (f *cmFile) Unmap([]byte) error                        { return unix.EINVAL }
