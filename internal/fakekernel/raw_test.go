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
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
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
	for {
		var wc provider.WC
		ok, err := c.q.Next(&wc)
		must(c.d.t, err)
		if !ok {
			c.q.Release()
			return wcs
		}
		wcs = append(wcs, wc)
	}
}

// one waits for a completion.
func (c *rawCQ) one() provider.WC {
	c.d.t.Helper()
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Microsecond) {
		var wc provider.WC
		ok, err := c.q.Next(&wc)
		must(c.d.t, err)
		if ok {
			c.q.Release()
			return wc
		}
	}
	c.d.t.Fatal("no completion came")
	return provider.WC{}
}

// rawQP is a queue pair with its completion queue and some memory.
type rawQP struct {
	d      *dev
	pd     uint32
	cq     *rawCQ
	handle uint32
	num    uint32
	cap    provider.QPCap
	q      *rxe.QP
	bell   *uapi.Doorbell
	mem    []byte
	mr     abi.IbUverbsRegMrResp
	access uint32 // of the queue pair
	rnr    uint8  // timer code
	mtu    uint8
	noRead bool // max_dest_rd_atomic 0
}

const everything = abi.IB_UVERBS_ACCESS_LOCAL_WRITE | abi.IB_UVERBS_ACCESS_REMOTE_WRITE | abi.IB_UVERBS_ACCESS_REMOTE_READ

func (d *dev) qp() *rawQP { return d.qpOn(d.cq(64)) }

func (d *dev) qpOn(cq *rawCQ) *rawQP {
	d.t.Helper()
	q := &rawQP{d: d, pd: d.pd(), cq: cq, access: everything, rnr: 1, mtu: 3}
	var plan rxe.QPPlan
	c := createQP(q, &abi.IbUverbsQpCap{MaxSendWr: 16, MaxRecvWr: 16, MaxSendSge: 2, MaxRecvSge: 2, MaxInlineData: 64}, plan.Out())
	must(d.t, c.Do(d.f))
	q.handle = c.Result(abi.UVERBS_ATTR_CREATE_QP_HANDLE)
	var err error
	q.q, err = plan.Attach(d.mapper, q.cap)
	must(d.t, err)
	body := abi.IbUverbsPostSend{QpHandle: q.handle, WqeSize: rxe.MinPostSize}
	q.bell, err = uapi.NewDoorbell(d.f, &d.arena, abi.RDMA_DRIVER_RXE, uapi.PostSend, bytesOf(&body))
	must(d.t, err)
	q.mem, err = uapi.AllocPages(1 << 16)
	must(d.t, err)
	d.t.Cleanup(func() { uapi.FreePages(q.mem) })
	q.mr, err = d.regMR(q.pd, q.mem, everything)
	must(d.t, err)
	return q
}

func createQP(q *rawQP, want *abi.IbUverbsQpCap, udata []byte) *uapi.Command {
	return cmd(uapi.QPCreate).
		New(abi.UVERBS_ATTR_CREATE_QP_HANDLE).
		Use(abi.UVERBS_ATTR_CREATE_QP_PD_HANDLE, q.pd).
		Use(abi.UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, q.cq.handle).
		Use(abi.UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, q.cq.handle).
		In64(abi.UVERBS_ATTR_CREATE_QP_USER_HANDLE, 0xbeef).
		In(abi.UVERBS_ATTR_CREATE_QP_CAP, bytesOf(want)).
		Const(abi.UVERBS_ATTR_CREATE_QP_TYPE, abi.IB_UVERBS_QPT_RC).
		Out(abi.UVERBS_ATTR_CREATE_QP_RESP_CAP, bytesOf(&q.cap)).
		Out(abi.UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, bytesOf(&q.num)).
		Driver(nil, udata)
}

func (d *dev) regMR(pd uint32, mem []byte, access uint32) (r abi.IbUverbsRegMrResp, err error) {
	in := abi.IbUverbsRegMr{
		Start: uapi.Addr(mem), HcaVa: uapi.Addr(mem), Length: uint64(len(mem)), PdHandle: pd, AccessFlags: access,
	}
	err = d.invoke(uapi.RegMR, bytesOf(&in), bytesOf(&r))
	return r, err
}

func (q *rawQP) modify(a abi.IbUverbsModifyQp) error {
	a.QpHandle = q.handle
	return q.d.invoke(uapi.ModifyQP, bytesOf(&a), nil)
}

func (q *rawQP) toInit() error {
	return q.modify(abi.IbUverbsModifyQp{
		AttrMask: maskState | initBits, QpState: stateInit, PortNum: 1, QpAccessFlags: q.access,
	})
}

func (q *rawQP) toRTR(peer *rawQP, psn uint32) error {
	a := abi.IbUverbsModifyQp{
		AttrMask: maskState | maskAV | maskMTU | maskDest | maskRQPSN | maskMaxDestRD | maskMinRNR,
		QpState:  stateRTR, PathMtu: q.mtu, DestQpNum: peer.num, RqPsn: psn, MaxDestRdAtomic: 1, MinRnrTimer: q.rnr,
		Dest: abi.IbUverbsQpDest{
			Dgid: [16]byte(bytesOf(&peer.d.gid.Gid)), SgidIndex: uint8(q.d.gid.GidIndex), IsGlobal: 1, PortNum: 1,
		},
	}
	if q.noRead {
		a.MaxDestRdAtomic = 0
	}
	return q.modify(a)
}

func (q *rawQP) toRTS(psn uint32, retries, rnrRetries uint8) error {
	return q.modify(abi.IbUverbsModifyQp{
		AttrMask: maskState | maskSQPSN | maskTimeout | maskRetry | maskRNRRetry | maskMaxRD,
		QpState:  stateRTS, SqPsn: psn, Timeout: 8, RetryCnt: retries, RnrRetry: rnrRetries, MaxRdAtomic: 1,
	})
}

func (q *rawQP) state() uint8 {
	q.d.t.Helper()
	var r abi.IbUverbsQueryQpResp
	must(q.d.t, q.d.invoke(uapi.QueryQP, bytesOf(&abi.IbUverbsQueryQp{QpHandle: q.handle}), bytesOf(&r)))
	return r.QpState
}

// connect brings two queue pairs to RTS.
func connect(t testing.TB, a, b *rawQP, retries, rnrRetries uint8) {
	t.Helper()
	for _, p := range []struct{ q, peer *rawQP }{{a, b}, {b, a}} {
		must(t, p.q.toInit())
		must(t, p.q.toRTR(p.peer, p.peer.num))
		must(t, p.q.toRTS(p.q.num, retries, rnrRetries))
	}
}

// pair is two connected queue pairs, in two contexts.
func pair(t testing.TB, k *Kernel) (a, b *rawQP) {
	t.Helper()
	a, b = openDev(t, k).qp(), openDev(t, k).qp()
	connect(t, a, b, 7, 7)
	return a, b
}

func (q *rawQP) sge(off, n int) []provider.SGE {
	return []provider.SGE{{Addr: uapi.Addr(q.mem) + uint64(off), Length: uint32(n), LKey: q.mr.Lkey}}
}

func total(sgl []provider.SGE) (n uint32) {
	for _, s := range sgl {
		n += s.Length
	}
	return n
}

// queue writes a request without ringing.
func (q *rawQP) queue(wr provider.SendWR) {
	q.d.t.Helper()
	n := total(wr.SGL)
	for _, b := range wr.Inline {
		n += uint32(len(b))
	}
	must(q.d.t, q.q.Send(&wr, n))
	q.q.PublishSend()
}

func (q *rawQP) send(wr provider.SendWR) {
	q.d.t.Helper()
	q.queue(wr)
	must(q.d.t, q.bell.Ring())
}

func (q *rawQP) recv(id uint64, sgl []provider.SGE) {
	q.d.t.Helper()
	must(q.d.t, q.q.Recv(&provider.RecvWR{ID: id, SGL: sgl}, total(sgl)))
	q.q.PublishRecv()
}
