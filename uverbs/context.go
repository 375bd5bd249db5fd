package uverbs

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider/mlx5"
	"github.com/pureverbs/rdma/internal/uapi"
	"github.com/pureverbs/rdma/mmio"
)

// Context is an open device: the parent of all other objects. It is safe for concurrent
// use. Close it when all that was made from it is closed; closing the process does the
// same.
type Context struct {
	object
	dev     *Device
	prov    *providerInfo
	k       *kernel
	async   uapi.File
	vectors uint32
	support uint64

	// numbers serialises the birth and death of queue pairs, so that a completion queue
	// can drop what a dead queue pair left before its number is given to a new one.
	numbers sync.Mutex
	numMu   sync.Mutex     // taken last
	byNum   map[uint32]*QP // changed under both, read under numMu
	objects table

	attr    atomic.Pointer[DeviceAttr] // once asked for
	cleanup runtime.Cleanup
}

// kernel is what must be undone when a Context is forgotten. It does not point back at the
// Context, so that a cleanup may hold it.
type kernel struct {
	file   uapi.File
	opener uapi.Opener
	driver uint32
	arena  uapi.Arena

	lastKey atomic.Uint32 // see planMR

	mlx5  *mlx5.Context // of a device of that driver
	uarMu sync.Mutex    // held from the look for a register until the queue is planned
	uars  []uint32      // handles

	mu     sync.Mutex
	pins   map[*runtime.Pinner]struct{}
	queues map[*byte][]byte // memory of queues that the device finds by itself
}

// Open opens the device. Each call makes a context of its own; objects of different
// contexts do not mix. No privilege is needed beyond access to the device node.
//
// Errors: the one that [Device.Usable] gives; an errno of open(2). Minimum kernel: 5.10.
// Source: ibv_open_device(3).
func (d *Device) Open() (*Context, error) {
	if err := d.Usable(); err != nil {
		return nil, err
	}
	prov, err := d.provider()
	if err != nil {
		return nil, err
	}
	file, err := d.sys.Opener.Open(d.info.Node)
	if err != nil {
		return nil, wrap("open", d.Name(), err)
	}
	c := &Context{
		object: object{kind: "context", device: d.Name()},
		dev:    d, prov: prov,
		k: &kernel{file: file, opener: d.sys.Opener, driver: d.info.Driver},
	}
	if err := c.start(); err != nil {
		c.k.end()
		return nil, wrap("open", d.Name(), err)
	}
	c.cleanup = runtime.AddCleanup(c, (*kernel).abandon, c.k)
	return c, nil
}

// start makes the kernel's context and the channel for asynchronous events: events without
// a channel are lost silently.
func (c *Context) start() error {
	plan := c.k.planContext(c.dev, c.prov)
	cmd := uapi.NewCommand(uapi.GetContext, c.k.driver).
		Out(abi.UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, uapi.Bytes(&c.vectors)).
		Out(abi.UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, uapi.Bytes(&c.support)).
		Driver(plan.in, plan.out)
	if err := cmd.Do(c.k.file); err != nil {
		return err
	}
	var err error
	if c.k.mlx5, err = plan.attach(); err != nil {
		return err
	}
	alloc := uapi.NewCommand(uapi.AsyncEventAlloc, c.k.driver).NewFD(abi.UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE)
	if err := alloc.Do(c.k.file); err != nil {
		return err
	}
	c.async, err = c.k.opener.Adopt(int32(alloc.Result(abi.UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE)))
	return err
}

// Device returns the device that was opened.
func (c *Context) Device() *Device { return c.dev }

func (c *Context) String() string { return "context" }

// Close closes the device and wakes NextAsyncEvent with net.ErrClosed. It fails with
// ErrBusy, and nothing has happened, while objects made from c are open. Closing again
// does nothing.
func (c *Context) Close() error {
	return c.object.close(c, func() error {
		c.cleanup.Stop()
		c.async.Close()
		err := c.k.end()
		c.k.arena.Close()
		return err
	})
}

// end closes the file of a context without objects.
func (k *kernel) end() error {
	var err error
	if k.mlx5 != nil {
		err = k.mlx5.Close() // first: what is mapped keeps the file open
	}
	for _, handle := range k.uars {
		err = errors.Join(err, k.destroyUAR(handle))
	}
	k.uars = nil
	err = errors.Join(err, k.file.Close())
	k.mu.Lock()
	defer k.mu.Unlock()
	k.freeQueues() // of what could not be destroyed
	return err
}

// abandon ends a context that the program forgot. Closing the file makes the kernel
// destroy everything, so memory can be let go after it, not before.
func (k *kernel) abandon() {
	k.file.Close()
	if k.mlx5 != nil {
		k.mlx5.Close() // of the file's end, too: what is mapped keeps it open
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for p := range k.pins {
		p.Unpin()
	}
	k.pins = nil
	k.freeQueues()
}

// pin keeps b's memory in place until unpin.
func (k *kernel) pin(b []byte) *runtime.Pinner {
	p := new(runtime.Pinner)
	p.Pin(&b[0])
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.pins == nil {
		k.pins = make(map[*runtime.Pinner]struct{})
	}
	k.pins[p] = struct{}{}
	return p
}

func (k *kernel) unpin(p *runtime.Pinner) {
	k.mu.Lock()
	delete(k.pins, p)
	k.mu.Unlock()
	p.Unpin()
}

// invoke runs a write command.
func (k *kernel) invoke(w *uapi.WriteCmd, in, out []byte) error {
	return uapi.Invoke(k.file, k.driver, w, in, out, nil, nil)
}

// command starts an ioctl.
func (k *kernel) command(m *uapi.Method) *uapi.Command { return uapi.NewCommand(m, k.driver) }

// mapper maps a queue of the device.
func (k *kernel) mapper(off int64, length int) (*mmio.Region, error) {
	mem, err := k.file.Map(off, length, uapi.ProtRead|uapi.ProtWrite)
	if err != nil {
		return nil, err
	}
	return mmio.NewRegion(mem, k.file.Unmap), nil
}

// gone tells whether an error of a destroy call means that the object is no more: after the
// device is removed the kernel has torn everything down and says EIO.
func gone(err error) error {
	if isEIO(err) {
		return nil
	}
	return err
}

// table gives objects the numbers that travel through the kernel as user_handle and come
// back in events. Numbers are never used twice, so a late event cannot hit a new object.
type table struct {
	mu   sync.Mutex
	last uint64
	byID map[uint64]any
}

func (t *table) put(v any) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byID == nil {
		t.byID = make(map[uint64]any)
	}
	t.last++
	t.byID[t.last] = v
	return t.last
}

func (t *table) get(id uint64) any {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byID[id]
}

func (t *table) drop(id uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byID, id)
}
