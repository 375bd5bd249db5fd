//go:build linux

package fakekernel

import (
	"context"
	"testing"
	"time"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
	"github.com/pureverbs/rdma/internal/provider/siw"
	"github.com/pureverbs/rdma/internal/uapi"
	"github.com/pureverbs/rdma/mmio"
)

// As with rxe, the tests speak to the kernel by requests, and the slots are written and read
// by the provider.

var siwDevices = []Device{{Driver: abi.RDMA_DRIVER_SIW}}

// startSiw starts a kernel that tells the state of a queue pair.
func startSiw(t testing.TB, opts Options) *Kernel {
	if opts.Devices == nil {
		opts.Devices = siwDevices
	}
	opts.Kernel = "6.12"
	return start(t, opts)
}

func siwCmd(m *uapi.Method) *uapi.Command { return uapi.NewCommand(m, abi.RDMA_DRIVER_SIW) }

// siwDev is an open device of siw, with a protection domain.
type siwDev struct {
	t     testing.TB
	k     *Kernel
	f     uapi.File
	async uapi.File
	arena uapi.Arena
	pd    uint32
}

func openSiw(t testing.TB, k *Kernel) *siwDev {
	t.Helper()
	d := &siwDev{t: t, k: k, f: open(t, k, k.devices[0].node())}
	must(t, siwCmd(uapi.GetContext).Driver(nil, make([]byte, siw.ContextOut)).Do(d.f))
	c := siwCmd(uapi.AsyncEventAlloc).NewFD(abi.UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE)
	must(t, c.Do(d.f))
	var err error
	d.async, err = k.System().Opener.Adopt(int32(c.Result(abi.UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE)))
	must(t, err)
	t.Cleanup(func() { d.async.Close() })
	d.pd = d.newPD()
	return d
}

func (d *siwDev) newPD() uint32 {
	d.t.Helper()
	var r abi.IbUverbsAllocPdResp
	must(d.t, d.invoke(uapi.AllocPD, bytesOf(&abi.IbUverbsAllocPd{}), bytesOf(&r)))
	return r.PdHandle
}

func (d *siwDev) invoke(w *uapi.WriteCmd, in, out []byte) error {
	return uapi.Invoke(d.f, abi.RDMA_DRIVER_SIW, w, in, out, nil, nil)
}

func (d *siwDev) mapper(off int64, n int) (*mmio.Region, error) {
	mem, err := d.f.Map(off, n, uapi.ProtRead|uapi.ProtWrite)
	if err != nil {
		return nil, err
	}
	return mmio.NewRegion(mem, d.f.Unmap), nil
}

// raised waits for asynchronous events, in order, and checks that there are no more.
func (d *siwDev) raised(what string, want ...uint32) {
	d.t.Helper()
	var got []uint32
	for {
		var e abi.IbUverbsAsyncEventDesc
		wait := time.Second // for those that are to come
		if len(got) >= len(want) {
			wait = 5 * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(context.Background(), wait)
		_, err := d.async.Read(ctx, bytesOf(&e))
		cancel()
		if err != nil {
			break
		}
		got = append(got, e.EventType)
	}
	same(d.t, what+": asynchronous events", got, want)
}

func same[T comparable](t testing.TB, what string, got, want []T) {
	t.Helper()
	ok := len(got) == len(want)
	for i := 0; ok && i < len(got); i++ {
		ok = got[i] == want[i]
	}
	if !ok {
		t.Errorf("%s: %+v, want %+v", what, got, want)
	}
}

// siwMR is registered memory.
type siwMR struct {
	mem []byte
	key uint32
}

func (d *siwDev) regMR(pd, access uint32, key uint8) (siwMR, error) {
	mem, err := uapi.AllocPages(1 << 16)
	must(d.t, err)
	d.t.Cleanup(func() { uapi.FreePages(mem) })
	in := abi.IbUverbsRegMr{
		Start: uapi.Addr(mem), HcaVa: uapi.Addr(mem), Length: uint64(len(mem)), PdHandle: pd, AccessFlags: access,
	}
	var r abi.IbUverbsRegMrResp
	plan := siw.MRPlan{Key: key}
	err = uapi.Invoke(d.f, abi.RDMA_DRIVER_SIW, uapi.RegMR, bytesOf(&in), bytesOf(&r), plan.In(), plan.Out())
	if err == nil && (r.Lkey != r.Rkey || r.Lkey != plan.STag() || uint8(r.Lkey) != key || r.Lkey>>8 == 0) {
		d.t.Errorf("keys %#x, %#x, tag %#x of %#x", r.Lkey, r.Rkey, plan.STag(), key)
	}
	return siwMR{mem, r.Lkey}, err
}

func (d *siwDev) mr(access uint32) siwMR {
	d.t.Helper()
	m, err := d.regMR(d.pd, access, 0x5a)
	must(d.t, err)
	return m
}

func (m siwMR) sge(off, n int) provider.SGE {
	return provider.SGE{Addr: uapi.Addr(m.mem) + uint64(off), Length: uint32(n), LKey: m.key}
}

func (m siwMR) addr(off int) uint64 { return uapi.Addr(m.mem) + uint64(off) }

// siwRawCQ is a completion queue and its channel.
type siwRawCQ struct {
	d      *siwDev
	handle uint32
	size   uint32
	q      *siw.CQ
	ch     uapi.File
}

func (d *siwDev) createCQ(cqe uint32, size *uint32, udata []byte) *uapi.Command {
	return siwCmd(uapi.CQCreate).
		New(abi.UVERBS_ATTR_CREATE_CQ_HANDLE).
		In32(abi.UVERBS_ATTR_CREATE_CQ_CQE, cqe).
		In64(abi.UVERBS_ATTR_CREATE_CQ_USER_HANDLE, 0xc0ffee).
		In32(abi.UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, 0).
		Out(abi.UVERBS_ATTR_CREATE_CQ_RESP_CQE, bytesOf(size)).
		Driver(nil, udata)
}

func (d *siwDev) cq(cqe uint32) *siwRawCQ {
	d.t.Helper()
	var r abi.IbUverbsCreateCompChannelResp
	must(d.t, d.invoke(uapi.CreateCompChannel, bytesOf(&abi.IbUverbsCreateCompChannel{}), bytesOf(&r)))
	ch, err := d.k.System().Opener.Adopt(int32(r.Fd))
	must(d.t, err)
	d.t.Cleanup(func() { ch.Close() })
	c := &siwRawCQ{d: d, ch: ch}
	var plan siw.CQPlan
	create := d.createCQ(cqe, &c.size, plan.Out()).UseFD(abi.UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, int32(r.Fd))
	must(d.t, create.Do(d.f))
	c.handle = create.Result(abi.UVERBS_ATTR_CREATE_CQ_HANDLE)
	c.q, err = plan.Attach(d.mapper)
	must(d.t, err)
	return c
}

// event tells whether there is an event.
func (c *siwRawCQ) event() bool {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
	defer cancel()
	var e abi.IbUverbsCompEventDesc
	_, err := c.ch.Read(ctx, bytesOf(&e))
	return err == nil
}

// poll takes what is there.
func (c *siwRawCQ) poll() (wcs []provider.WC) {
	var some [100]provider.WC
	n, _, err := c.q.Poll(some[:])
	must(c.d.t, err)
	return append(wcs, some[:n]...)
}

// ended is a completion, as far as most tests care.
type ended struct {
	ID     uint64
	Status provider.WCStatus
}

func (c *siwRawCQ) ended() (list []ended) {
	for _, wc := range c.poll() {
		list = append(list, ended{wc.ID, wc.Status})
	}
	return list
}

// siwRawQP is a queue pair with a completion queue and memory of its own.
type siwRawQP struct {
	d      *siwDev
	cq     *siwRawCQ
	srq    *siwRawSRQ
	handle uint32
	num    uint32
	cap    provider.QPCap
	q      *siw.QP
	bell   *uapi.Doorbell
	mr     siwMR
}

var siwCap = abi.IbUverbsQpCap{MaxSendWr: 16, MaxRecvWr: 16, MaxSendSge: 6, MaxRecvSge: 6, MaxInlineData: 80}

func (q *siwRawQP) create(want *abi.IbUverbsQpCap, typ uint64, udata []byte) *uapi.Command {
	c := siwCmd(uapi.QPCreate).
		New(abi.UVERBS_ATTR_CREATE_QP_HANDLE).
		Use(abi.UVERBS_ATTR_CREATE_QP_PD_HANDLE, q.d.pd).
		Use(abi.UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, q.cq.handle).
		Use(abi.UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, q.cq.handle).
		In64(abi.UVERBS_ATTR_CREATE_QP_USER_HANDLE, 0xbeef).
		In(abi.UVERBS_ATTR_CREATE_QP_CAP, bytesOf(want)).
		Const(abi.UVERBS_ATTR_CREATE_QP_TYPE, typ).
		Out(abi.UVERBS_ATTR_CREATE_QP_RESP_CAP, bytesOf(&q.cap)).
		Out(abi.UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, bytesOf(&q.num)).
		Driver(nil, udata)
	if q.srq != nil {
		c.Use(abi.UVERBS_ATTR_CREATE_QP_SRQ_HANDLE, q.srq.handle)
	}
	return c
}

func (d *siwDev) qp() *siwRawQP {
	d.t.Helper()
	return d.qpWith(&siwRawQP{d: d, cq: d.cq(64), mr: d.mr(everything)}, siwCap)
}

func (d *siwDev) qpWith(q *siwRawQP, want abi.IbUverbsQpCap) *siwRawQP {
	d.t.Helper()
	var plan siw.QPPlan
	c := q.create(&want, abi.IB_UVERBS_QPT_RC, plan.Out())
	must(d.t, c.Do(d.f))
	q.handle = c.Result(abi.UVERBS_ATTR_CREATE_QP_HANDLE)
	var err error
	q.q, err = plan.Attach(d.mapper, q.cap)
	must(d.t, err)
	body := abi.IbUverbsPostSend{QpHandle: q.handle, WqeSize: provider.MinPostSize}
	q.bell, err = uapi.NewDoorbell(d.f, &d.arena, abi.RDMA_DRIVER_SIW, uapi.PostSend, bytesOf(&body))
	must(d.t, err)
	return q
}

func (q *siwRawQP) destroy() {
	q.d.t.Helper()
	var r abi.IbUverbsDestroyQpResp
	must(q.d.t, siwCmd(uapi.QPDestroy).Destroy(abi.UVERBS_ATTR_DESTROY_QP_HANDLE, q.handle).
		Out(abi.UVERBS_ATTR_DESTROY_QP_RESP, bytesOf(&r)).Do(q.d.f))
}

func (q *siwRawQP) modify(state uint8) error {
	a := abi.IbUverbsModifyQp{QpHandle: q.handle, AttrMask: maskState, QpState: state}
	return q.d.invoke(uapi.ModifyQP, bytesOf(&a), nil)
}

func (q *siwRawQP) query() (r abi.IbUverbsQueryQpResp) {
	q.d.t.Helper()
	must(q.d.t, q.d.invoke(uapi.QueryQP, bytesOf(&abi.IbUverbsQueryQp{QpHandle: q.handle}), bytesOf(&r)))
	return r
}

// queue writes a request without ringing; it is signaled.
func (q *siwRawQP) queue(wr provider.SendWR) {
	q.d.t.Helper()
	n := total(wr.SGL)
	for _, b := range wr.Inline {
		n += uint32(len(b))
	}
	wr.Flags |= provider.SendSignaled
	must(q.d.t, q.q.Send(&wr, n))
	q.q.PublishSend()
}

func (q *siwRawQP) send(wr provider.SendWR) {
	q.d.t.Helper()
	q.queue(wr)
	must(q.d.t, q.bell.Ring())
}

func (q *siwRawQP) recv(id uint64, sgl ...provider.SGE) {
	q.d.t.Helper()
	must(q.d.t, q.q.Recv(&provider.RecvWR{ID: id, SGL: sgl}, total(sgl)))
	q.q.PublishRecv()
}

// siwRawSRQ is a shared receive queue.
type siwRawSRQ struct {
	d      *siwDev
	handle uint32
	wr     uint32
	q      *siw.SRQ
}

func (d *siwDev) createSRQ(wr, sge, limit uint32, s *siwRawSRQ, udata []byte) *uapi.Command {
	return siwCmd(uapi.SRQCreate).
		New(abi.UVERBS_ATTR_CREATE_SRQ_HANDLE).
		Use(abi.UVERBS_ATTR_CREATE_SRQ_PD_HANDLE, d.pd).
		Const(abi.UVERBS_ATTR_CREATE_SRQ_TYPE, abi.IB_UVERBS_SRQT_BASIC).
		In64(abi.UVERBS_ATTR_CREATE_SRQ_USER_HANDLE, 0xcafe).
		In32(abi.UVERBS_ATTR_CREATE_SRQ_MAX_WR, wr).
		In32(abi.UVERBS_ATTR_CREATE_SRQ_MAX_SGE, sge).
		In32(abi.UVERBS_ATTR_CREATE_SRQ_LIMIT, limit).
		Out(abi.UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, bytesOf(&s.wr)).
		Out(abi.UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, make([]byte, 4)).
		Driver(nil, udata)
}

func (d *siwDev) sharedQueue(wr, limit uint32) *siwRawSRQ {
	d.t.Helper()
	s := &siwRawSRQ{d: d}
	var plan siw.SRQPlan
	c := d.createSRQ(wr, 2, limit, s, plan.Out())
	must(d.t, c.Do(d.f))
	s.handle = c.Result(abi.UVERBS_ATTR_CREATE_SRQ_HANDLE)
	var err error
	s.q, err = plan.Attach(d.mapper, 2)
	must(d.t, err)
	return s
}

func (s *siwRawSRQ) recv(id uint64, sgl ...provider.SGE) {
	s.d.t.Helper()
	must(s.d.t, s.q.Recv(&provider.RecvWR{ID: id, SGL: sgl}, total(sgl)))
	s.q.PublishRecv()
}

func (s *siwRawSRQ) modify(mask, limit uint32) error {
	a := abi.IbUverbsModifySrq{SrqHandle: s.handle, AttrMask: mask, SrqLimit: limit}
	return s.d.invoke(uapi.ModifySRQ, bytesOf(&a), nil)
}
