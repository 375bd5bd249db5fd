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
	groups   map[uint32]*cmGroup
	lowID    uint32         // ids below are taken
	ports    map[uint16]int // that ids hold
	losses   []*loss
	nextPort uint16
	nextPSN  uint32
}

func (c *connManager) init() {
	c.ids, c.groups, c.ports = make(map[uint32]*cmID), make(map[uint32]*cmGroup), make(map[uint16]int)
	c.nextPort, c.nextPSN = 32768, 0x1000
}

// cmFile is an open rdma_cm node: an event channel.
type cmFile struct {
	k      *Kernel
	fd     int32
	poll   pollFD
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

// cmCall is a command: its body, how long it says that is, and the room for its answer.
type cmCall struct {
	body    []byte
	in, out int
}

// command is ucma_write of core/ucma.c.
func (f *cmFile) command(p []byte) error {
	hdr := load[abi.RdmaUcmCmdHdr](p)
	if len(p) < 8 || hdr.Cmd > f.k.version.lastCM() || int(hdr.In)+8 > len(p) {
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
	do := cmCommands()[hdr.Cmd]
	if do == nil {
		return unix.ENOSYS
	}
	return do(f, cmCall{p[8:], int(hdr.In), int(hdr.Out)})
}

// cmCommands are the commands by number; GET_OPTION is none.
func cmCommands() map[uint32]func(*cmFile, cmCall) error {
	return map[uint32]func(*cmFile, cmCall) error{
		abi.RDMA_USER_CM_CMD_CREATE_ID:          (*cmFile).createID,
		abi.RDMA_USER_CM_CMD_DESTROY_ID:         (*cmFile).destroyID,
		abi.RDMA_USER_CM_CMD_BIND_IP:            (*cmFile).bindIP,
		abi.RDMA_USER_CM_CMD_RESOLVE_IP:         (*cmFile).resolveIP,
		abi.RDMA_USER_CM_CMD_RESOLVE_ROUTE:      (*cmFile).resolveRoute,
		abi.RDMA_USER_CM_CMD_QUERY_ROUTE:        (*cmFile).queryRoute,
		abi.RDMA_USER_CM_CMD_CONNECT:            (*cmFile).connect,
		abi.RDMA_USER_CM_CMD_LISTEN:             (*cmFile).listen,
		abi.RDMA_USER_CM_CMD_ACCEPT:             (*cmFile).accept,
		abi.RDMA_USER_CM_CMD_REJECT:             (*cmFile).reject,
		abi.RDMA_USER_CM_CMD_DISCONNECT:         (*cmFile).disconnect,
		abi.RDMA_USER_CM_CMD_INIT_QP_ATTR:       (*cmFile).initQPAttr,
		abi.RDMA_USER_CM_CMD_GET_EVENT:          (*cmFile).getEvent,
		abi.RDMA_USER_CM_CMD_SET_OPTION:         (*cmFile).setOption,
		abi.RDMA_USER_CM_CMD_NOTIFY:             (*cmFile).notify,
		abi.RDMA_USER_CM_CMD_JOIN_IP_MCAST:      (*cmFile).joinIP,
		abi.RDMA_USER_CM_CMD_LEAVE_MCAST:        (*cmFile).leaveGroup,
		abi.RDMA_USER_CM_CMD_MIGRATE_ID:         (*cmFile).migrate,
		abi.RDMA_USER_CM_CMD_QUERY:              (*cmFile).query,
		abi.RDMA_USER_CM_CMD_BIND:               (*cmFile).bind,
		abi.RDMA_USER_CM_CMD_RESOLVE_ADDR:       (*cmFile).resolveAddr,
		abi.RDMA_USER_CM_CMD_JOIN_MCAST:         (*cmFile).joinGroup,
		abi.RDMA_USER_CM_CMD_RESOLVE_IB_SERVICE: (*cmFile).resolveService,
		abi.RDMA_USER_CM_CMD_WRITE_CM_EVENT:     (*cmFile).writeEvent,
	}
}

// body reads a command's struct. The kernel copies all of it whatever the header says, so
// one that is cut short is a fault.
func body[T any](c cmCall) (v T, err error) {
	if len(c.body) < int(unsafe.Sizeof(v)) {
		return v, unix.EFAULT
	}
	return load[T](c.body), nil
}

// partial reads the struct of a command that may be older, and then ends before its ECE.
func partial[T any](c cmCall) (v T, err error) {
	ece := int(unsafe.Sizeof(abi.RdmaUcmEce{}))
	switch n := min(c.in, int(unsafe.Sizeof(v))); {
	case c.in < int(unsafe.Sizeof(v))-ece:
		return v, unix.EINVAL
	case n < int(unsafe.Sizeof(v)): // also where there is a part of it
		return load[T](c.body[:int(unsafe.Sizeof(v))-ece]), nil
	default:
		return load[T](c.body[:n]), nil
	}
}

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

// findBound is find for what needs a device: ucma_get_ctx_dev.
func (f *cmFile) findBound(id uint32) (*cmID, error) {
	c, err := f.find(id)
	if err == nil && c.dev == nil {
		return nil, unix.EINVAL
	}
	return c, err
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
	f.poll.close()
	close(f.gone)
	delete(f.k.fds, f.fd)
	delete(f.k.files, f)
	return nil
}

func (f *cmFile) Read(context.Context, []byte) (int, error) { return 0, unix.EINVAL }
func (f *cmFile) Ioctl(uint32, unsafe.Pointer) error        { return unix.ENOTTY }
func (f *cmFile) Map(int64, int, int) ([]byte, error)       { return nil, unix.ENODEV }
func (f *cmFile) Unmap([]byte) error                        { return unix.EINVAL }
