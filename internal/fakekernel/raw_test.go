//go:build linux

package fakekernel

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
	"github.com/pureverbs/rdma/internal/provider/rxe"
	"github.com/pureverbs/rdma/internal/uapi"
	"github.com/pureverbs/rdma/mmio"
)

// The tests of this package speak to the kernel by the requests of internal/uapi alone.
// Only the slots of the queues are written and read by the rxe provider, so that the two
// descriptions of the layout are held against each other.

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// want checks an errno; 0 is none.
func want(t testing.TB, what string, got error, errno syscall.Errno) {
	t.Helper()
	if errno == 0 && got != nil || errno != 0 && !errors.Is(got, errno) {
		t.Errorf("%s: got %v, want %v", what, got, errno)
	}
}

func start(t testing.TB, opts Options) *Kernel {
	k := New(opts)
	t.Cleanup(k.Close)
	return k
}

// dev is an open device.
type dev struct {
	t     testing.TB
	k     *Kernel
	f     uapi.File
	async uapi.File
	arena uapi.Arena
	gid   abi.IbUverbsGidEntry // that its queue pairs use
}

func open(t testing.TB, k *Kernel, node string) uapi.File {
	t.Helper()
	f, err := k.System().Opener.Open(node)
	must(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

func openDev(t testing.TB, k *Kernel) *dev {
	t.Helper()
	return openNode(t, k, 0)
}

// openNode opens a device by its place in the list.
func openNode(t testing.TB, k *Kernel, i int) *dev {
	t.Helper()
	d := &dev{t: t, k: k, f: open(t, k, k.devices[i].node()), gid: k.devices[i].gids[1]}
	must(t, cmd(uapi.GetContext).Do(d.f))
	c := cmd(uapi.AsyncEventAlloc).NewFD(abi.UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE)
	must(t, c.Do(d.f))
	var err error
	d.async, err = k.System().Opener.Adopt(int32(c.Result(abi.UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE)))
	must(t, err)
	t.Cleanup(func() { d.async.Close() })
	return d
}

func cmd(m *uapi.Method) *uapi.Command { return uapi.NewCommand(m, abi.RDMA_DRIVER_RXE) }

func (d *dev) invoke(w *uapi.WriteCmd, in, out []byte) error {
	return uapi.Invoke(d.f, abi.RDMA_DRIVER_RXE, w, in, out, nil, nil)
}

func (d *dev) mapper(off int64, n int) (*mmio.Region, error) {
	mem, err := d.f.Map(off, n, uapi.ProtRead|uapi.ProtWrite)
	if err != nil {
		return nil, err
	}
	return mmio.NewRegion(mem, d.f.Unmap), nil
}

func (d *dev) pd() uint32 {
	d.t.Helper()
	var r abi.IbUverbsAllocPdResp
	must(d.t, d.invoke(uapi.AllocPD, bytesOf(&abi.IbUverbsAllocPd{}), bytesOf(&r)))
	return r.PdHandle
}

// rawCQ is a completion queue and its channel.
type rawCQ struct {
	d      *dev
	handle uint32
	size   uint32
	q      *rxe.CQ
	ch     uapi.File
}

func (d *dev) channel() (uapi.File, int32) {
	d.t.Helper()
	var r abi.IbUverbsCreateCompChannelResp
	must(d.t, d.invoke(uapi.CreateCompChannel, bytesOf(&abi.IbUverbsCreateCompChannel{}), bytesOf(&r)))
	f, err := d.k.System().Opener.Adopt(int32(r.Fd))
	must(d.t, err)
	d.t.Cleanup(func() { f.Close() })
	return f, int32(r.Fd)
}

func (d *dev) cq(cqe uint32) *rawCQ {
	d.t.Helper()
	c := &rawCQ{d: d}
	var (
		fd   int32
		plan rxe.CQPlan
		err  error
	)
	c.ch, fd = d.channel()
	create := createCQ(cqe, &c.size, plan.Out()).UseFD(abi.UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, fd)
	must(d.t, create.Do(d.f))
	c.handle = create.Result(abi.UVERBS_ATTR_CREATE_CQ_HANDLE)
	c.q, err = plan.Attach(d.mapper)
	must(d.t, err)
	return c
}

func createCQ(cqe uint32, size *uint32, udata []byte) *uapi.Command {
	return cmd(uapi.CQCreate).
		New(abi.UVERBS_ATTR_CREATE_CQ_HANDLE).
		In32(abi.UVERBS_ATTR_CREATE_CQ_CQE, cqe).
		In64(abi.UVERBS_ATTR_CREATE_CQ_USER_HANDLE, 0xc0ffee).
		In32(abi.UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, 0).
		Out(abi.UVERBS_ATTR_CREATE_CQ_RESP_CQE, bytesOf(size)).
		Driver(nil, udata)
}

func (c *rawCQ) arm(solicited uint32) {
	c.d.t.Helper()
	must(c.d.t, c.d.invoke(uapi.ReqNotifyCQ, bytesOf(&abi.IbUverbsReqNotifyCq{CqHandle: c.handle, SolicitedOnly: solicited}), nil))
}

// event waits a moment for an event; false if there is none.
func (c *rawCQ) event() bool {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
	defer cancel()
	var e abi.IbUverbsCompEventDesc
	_, err := c.ch.Read(ctx, bytesOf(&e))
	if err == nil && e.CqHandle != 0xc0ffee {
		c.d.t.Errorf("event of %#x, want the user handle", e.CqHandle)
	}
	return err == nil
}

// poll takes what is there.
func (c *rawCQ) poll() (wcs []provider.WC) {
	var some [100]provider.WC
	n, _, err := c.q.Poll(some[:])
	must(c.d.t, err)
	return append(wcs, some[:n]...)
}

// one waits for a completion.
func (c *rawCQ) one() provider.WC {
	c.d.t.Helper()
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Microsecond) {
		var wcs [1]provider.WC
		n, _, err := c.q.Poll(wcs[:])
		must(c.d.t, err)
		if n == 1 {
			return wcs[0]
		}
	}
	c.d.t.Fatal("no completion came")
	return provider.WC{}
}
