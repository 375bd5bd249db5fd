//go:build linux

package fakekernel

import (
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/internal/discover"
	"github.com/pureverbs/rdma/internal/uapi"
)

// file is an open file of this kernel.
type file interface{ uapi.File }

// firstFD is far from the numbers of real descriptors, so that a mix-up shows.
const firstFD = 100_000

// opener is /dev.
type opener struct{ k *Kernel }

func (o opener) Open(path string) (uapi.File, error) {
	if err := o.k.check(Call{Kind: CallOpen, Path: path}); err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	o.k.mu.Lock()
	defer o.k.mu.Unlock()
	if o.k.closed {
		return nil, &os.PathError{Op: "open", Path: path, Err: unix.ENXIO}
	}
	n, err := o.k.lookup(path)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	f := n.open()
	o.k.files[f] = struct{}{}
	return f, nil
}

func (o opener) Adopt(fd int32) (uapi.File, error) {
	if err := o.k.check(Call{Kind: CallAdopt}); err != nil {
		return nil, err
	}
	o.k.mu.Lock()
	defer o.k.mu.Unlock()
	f, ok := o.k.fds[fd]
	if !ok {
		return nil, unix.EBADF
	}
	return f, nil
}

// AdoptBlocking does the same: no descriptor of this kernel has a thread to block.
func (o opener) AdoptBlocking(fd int32) (uapi.File, error) { return o.Adopt(fd) }

func (o opener) Stat(path string) (uint64, error) {
	o.k.mu.Lock()
	defer o.k.mu.Unlock()
	n, err := o.k.lookup(path)
	if err != nil {
		return 0, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return uint64(n.dev), nil
}

// node is a device node.
type node struct {
	dev  discover.Dev
	open func() file
}

// lookup finds a node by its path or by /dev/char.
func (k *Kernel) lookup(path string) (node, error) {
	char := strings.TrimPrefix(path, "/dev/char/")
	for _, d := range k.devices {
		if !d.NoNode && !d.NoVerbs && !d.dead && (path == d.node() || char == d.dev().String()) {
			return node{d.dev(), func() file { return newVerbsFile(k, d) }}, nil
		}
	}
	if !k.opts.NoCM && !k.opts.NoCMNode && (path == "/dev/infiniband/rdma_cm" || char == cmDev.String()) {
		return node{cmDev, func() file { return newCMFile(k) }}, nil
	}
	return node{}, fs.ErrNotExist
}

// install gives a file the lowest free descriptor number.
func (k *Kernel) install(f file) int32 {
	fd := int32(firstFD)
	for k.fds[fd] != nil {
		fd++
	}
	k.fds[fd] = f
	k.files[f] = struct{}{}
	return fd
}
