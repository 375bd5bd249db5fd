//go:build linux

package fakekernel

import (
	"context"
	"net"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
)

// object is what has a handle.
type object interface {
	kind() uint16
	busy() error // why it cannot end now, nil if it can
	end(f *verbsFile)
}

func busyIf(yes bool) error {
	if yes {
		return unix.EBUSY
	}
	return nil
}

// verbsFile is an open uverbs node, and the user context on it.
type verbsFile struct {
	k       *Kernel
	dev     *device
	mem     userMem // of the process that has the file open
	backing int     // the memory file that stands for this one in another process; 0: none
	caller  Caller  // the thread of another process whose call is being carried out
	closed  bool

	context  bool // GET_CONTEXT was done
	objects  map[uint32]object
	async    *eventFile           // where events go that have no file of their own
	mlx      *mlx5Context         // of a context on mlx5
	unmapped map[uint64]*mapping  // by the offset
	mapped   map[uintptr]*mapping // by the user's address

	req     request // one call at a time holds the lock, so one is enough
	cmdResp [512]byte
	hw      udata
}

func newVerbsFile(k *Kernel, d *device) *verbsFile {
	return &verbsFile{
		k: k, dev: d,
		objects: make(map[uint32]object), unmapped: make(map[uint64]*mapping), mapped: make(map[uintptr]*mapping),
	}
}

func (f *verbsFile) scratch() *request { return &f.req }

// done drops what the request held on to.
func (f *verbsFile) done(r *request) { clear(r.attrs[:]) }

// alive tells whether calls still have a device.
func (f *verbsFile) alive() error {
	switch {
	case f.closed:
		return net.ErrClosed
	case f.dev.dead:
		return unix.EIO
	}
	return nil
}

// add gives an object the lowest free handle, from 0. Those of registers are far from the
// others: when a library makes them is its own business, and shall not show in what its user
// asks for.
func (f *verbsFile) add(o object) uint32 {
	var h uint32
	if o.kind() == abi.MLX5_IB_OBJECT_UAR {
		h = 1 << 16
	}
	for f.objects[h] != nil {
		h++
	}
	f.objects[h] = o
	return h
}

// method carries a checked request out.
func (f *verbsFile) method(r *request) error {
	type id struct{ object, method uint16 }
	call := id{r.m.Object, r.m.ID}
	switch call {
	case id{abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_INVOKE_WRITE}:
		return f.invokeWrite(r)
	case id{abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_GET_CONTEXT}:
		return f.getContext(r)
	}
	if !f.context {
		return unix.EINVAL
	}
	switch call {
	case id{abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_QUERY_PORT}:
		return f.queryPort(r)
	case id{abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_QUERY_GID_TABLE}:
		return f.queryGIDTable(r)
	case id{abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_QUERY_GID_ENTRY}:
		return f.queryGIDEntry(r)
	case id{abi.UVERBS_OBJECT_ASYNC_EVENT, abi.UVERBS_METHOD_ASYNC_EVENT_ALLOC}:
		return f.allocAsync(r)
	case id{abi.UVERBS_OBJECT_PD, abi.UVERBS_METHOD_PD_DESTROY}:
		return f.destroy(r, abi.UVERBS_ATTR_DESTROY_PD_HANDLE)
	case id{abi.UVERBS_OBJECT_MR, abi.UVERBS_METHOD_MR_DESTROY}:
		return f.destroy(r, abi.UVERBS_ATTR_DESTROY_MR_HANDLE)
	case id{abi.UVERBS_OBJECT_CQ, abi.UVERBS_METHOD_CQ_CREATE}:
		return f.createCQ(r)
	case id{abi.UVERBS_OBJECT_CQ, abi.UVERBS_METHOD_CQ_DESTROY}:
		return f.destroyCQ(r)
	case id{abi.UVERBS_OBJECT_QP, abi.UVERBS_METHOD_QP_CREATE}:
		return f.createQP(r)
	case id{abi.UVERBS_OBJECT_QP, abi.UVERBS_METHOD_QP_DESTROY}:
		return f.destroyQP(r)
	case id{abi.UVERBS_OBJECT_SRQ, abi.UVERBS_METHOD_SRQ_CREATE}:
		return f.createSRQ(r)
	case id{abi.UVERBS_OBJECT_SRQ, abi.UVERBS_METHOD_SRQ_DESTROY}:
		return f.destroySRQ(r)
	case id{abi.UVERBS_OBJECT_AH, abi.UVERBS_METHOD_AH_DESTROY}:
		return f.destroy(r, abi.UVERBS_ATTR_DESTROY_AH_HANDLE)
	case id{abi.UVERBS_OBJECT_MW, abi.UVERBS_METHOD_MW_DESTROY}:
		return f.destroy(r, abi.UVERBS_ATTR_DESTROY_MW_HANDLE)
	case id{abi.UVERBS_OBJECT_MR, abi.UVERBS_METHOD_ADVISE_MR}:
		return f.adviseMR(r)
	case id{abi.UVERBS_OBJECT_DEVICE, abi.UVERBS_METHOD_QUERY_PORT_SPEED}:
		return f.queryPortSpeed(r)
	case id{abi.UVERBS_OBJECT_MR, abi.UVERBS_METHOD_REG_DMABUF_MR}:
		return unix.EOPNOTSUPP // neither rxe nor siw; mlx5 in a kernel without paging on demand
	}
	return f.dev.drv.method(f, r)
}

func (f *verbsFile) getContext(r *request) error {
	if f.context {
		return unix.EINVAL
	}
	u, err := r.udata()
	if err != nil {
		return err
	}
	if err := f.dev.drv.newContext(f, &u); err != nil {
		return err
	}
	vectors, support := uint32(1), uint64(abi.IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS)
	if f.dev.robust() {
		support |= abi.IB_UVERBS_CORE_SUPPORT_ROBUST_UDATA
	}
	if err := r.get(abi.UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS).out(bytesOf(&vectors)); err != nil {
		return err
	}
	if err := r.get(abi.UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT).out(bytesOf(&support)); err != nil {
		return err
	}
	f.context = true
	return r.reply(&u)
}

func (f *verbsFile) allocAsync(r *request) error {
	e, err := f.newEventFile(false)
	if err != nil {
		return err
	}
	if f.async == nil {
		f.async = e
	}
	*r.get(abi.UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE).raw.DataS64() = int64(e.fd)
	return nil
}

// destroy ends the object of an attribute, unless it is in use.
func (f *verbsFile) destroy(r *request, id uint16) error {
	a := r.get(id)
	if err := a.obj.busy(); err != nil && !f.dev.zapped {
		return err
	}
	f.remove(uint32(*a.raw.Data()))
	return nil
}

// remove ends an object that nothing uses.
func (f *verbsFile) remove(handle uint32) {
	o := f.objects[handle]
	delete(f.objects, handle)
	o.end(f)
}

// Close ends everything that hangs on the file, users before what they use.
func (f *verbsFile) Close() error {
	f.k.mu.Lock()
	defer f.k.mu.Unlock()
	if f.closed {
		return nil
	}
	f.closed = true
	for _, o := range f.objects {
		if q, ok := o.(*qp); ok {
			q.leaveAll()
		}
	}
	for f.removeIdle() {
	}
	for h := range f.objects { // in use by another context, or of a device that is gone
		f.remove(h)
	}
	if f.mlx != nil {
		f.mlx.end()
	}
	f.endEvents()
	delete(f.k.files, f)
	return nil
}

// removeIdle ends what nothing uses, and tells whether there was something.
func (f *verbsFile) removeIdle() (some bool) {
	for h, o := range f.objects {
		if o.busy() == nil {
			f.remove(h)
			some = true
		}
	}
	return some
}

func (f *verbsFile) Read(context.Context, []byte) (int, error) { return 0, unix.EINVAL }

func (f *verbsFile) count(c *Counts) {
	if f.context {
		c.Contexts++
	}
	for _, o := range f.objects {
		switch o := o.(type) {
		case *pd:
			c.PDs++
		case *mr:
			c.MRs++
		case *cq:
			c.CQs++
		case *qp:
			c.QPs++
			c.Attached += len(o.groups)
		case *srq:
			c.SRQs++
		case *ah:
			c.AHs++
		case *mw:
			c.MWs++
		}
	}
}
