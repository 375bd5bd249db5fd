//go:build linux

package fakekernel

import (
	"testing"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
	"github.com/pureverbs/rdma/internal/provider/rxe"
	"github.com/pureverbs/rdma/internal/uapi"
)

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

	typ    uint64  // of the queue pair; 0 is RC
	shared *rawSRQ // nil: receives come from a queue of its own
	qkey   uint32  // UD
}

const everything = abi.IB_UVERBS_ACCESS_LOCAL_WRITE | abi.IB_UVERBS_ACCESS_REMOTE_WRITE | abi.IB_UVERBS_ACCESS_REMOTE_READ

func (d *dev) qp() *rawQP { return d.qpOn(d.cq(64)) }

func (d *dev) qpOn(cq *rawCQ) *rawQP {
	d.t.Helper()
	return d.build(&rawQP{pd: d.pd(), cq: cq})
}

// build makes a queue pair of what is set in q.
func (d *dev) build(q *rawQP) *rawQP {
	d.t.Helper()
	q.d, q.rnr, q.mtu = d, 1, 3
	set(&q.typ, abi.IB_UVERBS_QPT_RC)
	set(&q.access, everything)
	set(&q.qkey, 0x1234)
	if q.cq == nil {
		q.cq = d.cq(64)
	}
	plan := rxe.QPPlan{Datagram: q.typ == abi.IB_UVERBS_QPT_UD}
	c := createQP(q, &abi.IbUverbsQpCap{MaxSendWr: 16, MaxRecvWr: 16, MaxSendSge: 2, MaxRecvSge: 2, MaxInlineData: 64}, plan.Out())
	must(d.t, c.Do(d.f))
	q.handle = c.Result(abi.UVERBS_ATTR_CREATE_QP_HANDLE)
	var err error
	q.q, err = plan.Attach(d.mapper, q.cap)
	must(d.t, err)
	body := abi.IbUverbsPostSend{QpHandle: q.handle, WqeSize: provider.MinPostSize}
	q.bell, err = uapi.NewDoorbell(d.f, &d.arena, abi.RDMA_DRIVER_RXE, uapi.PostSend, bytesOf(&body))
	must(d.t, err)
	q.mem, err = uapi.AllocPages(1 << 16)
	must(d.t, err)
	d.t.Cleanup(func() { uapi.FreePages(q.mem) })
	q.mr, err = d.regMR(q.pd, q.mem, q.access|abi.IB_UVERBS_ACCESS_LOCAL_WRITE)
	must(d.t, err)
	return q
}

func createQP(q *rawQP, want *abi.IbUverbsQpCap, udata []byte) *uapi.Command {
	c := cmd(uapi.QPCreate)
	if q.shared != nil {
		c.Use(abi.UVERBS_ATTR_CREATE_QP_SRQ_HANDLE, q.shared.handle)
	}
	return c.
		New(abi.UVERBS_ATTR_CREATE_QP_HANDLE).
		Use(abi.UVERBS_ATTR_CREATE_QP_PD_HANDLE, q.pd).
		Use(abi.UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, q.cq.handle).
		Use(abi.UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, q.cq.handle).
		In64(abi.UVERBS_ATTR_CREATE_QP_USER_HANDLE, 0xbeef).
		In(abi.UVERBS_ATTR_CREATE_QP_CAP, bytesOf(want)).
		Const(abi.UVERBS_ATTR_CREATE_QP_TYPE, q.typ).
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
	a := abi.IbUverbsModifyQp{
		AttrMask: maskState | initBits, QpState: stateInit, PortNum: 1, QpAccessFlags: q.access, Qkey: q.qkey,
	}
	if q.typ == abi.IB_UVERBS_QPT_UD {
		a.AttrMask = maskState | datagramBits
	}
	return q.modify(a)
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
	if q.typ == abi.IB_UVERBS_QPT_UC {
		a.AttrMask &^= maskMaxDestRD | maskMinRNR
	}
	return q.modify(a)
}

func (q *rawQP) toRTS(psn uint32, retries, rnrRetries uint8) error {
	a := abi.IbUverbsModifyQp{
		AttrMask: maskState | maskSQPSN | maskTimeout | maskRetry | maskRNRRetry | maskMaxRD,
		QpState:  stateRTS, SqPsn: psn, Timeout: 8, RetryCnt: retries, RnrRetry: rnrRetries, MaxRdAtomic: 1,
	}
	if q.typ != abi.IB_UVERBS_QPT_RC {
		a.AttrMask = maskState | maskSQPSN
	}
	return q.modify(a)
}

// up brings a queue pair for datagrams to RTS.
func (q *rawQP) up() *rawQP {
	q.d.t.Helper()
	must(q.d.t, q.toInit())
	must(q.d.t, q.modify(abi.IbUverbsModifyQp{AttrMask: maskState, QpState: stateRTR}))
	must(q.d.t, q.toRTS(0, 0, 0))
	return q
}

func (q *rawQP) query() (r abi.IbUverbsQueryQpResp) {
	q.d.t.Helper()
	must(q.d.t, q.d.invoke(uapi.QueryQP, bytesOf(&abi.IbUverbsQueryQp{QpHandle: q.handle}), bytesOf(&r)))
	return r
}

func (q *rawQP) state() uint8 {
	q.d.t.Helper()
	return q.query().QpState
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
	return pairOf(t, k, rawQP{})
}

// pairOf is two queue pairs as model says.
func pairOf(t testing.TB, k *Kernel, model rawQP) (a, b *rawQP) {
	t.Helper()
	one, two := model, model
	d := openDev(t, k)
	one.pd = d.pd()
	e := openDev(t, k)
	two.pd = e.pd()
	a, b = d.build(&one), e.build(&two)
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
	if wr.Opcode == provider.OpFlush {
		n = wr.Length // it is there that the kernel looks for it
	}
	must(q.d.t, q.q.Send(&wr, n))
	q.q.PublishSend()
}

func (q *rawQP) send(wr provider.SendWR) {
	q.d.t.Helper()
	q.queue(wr)
	must(q.d.t, q.bell.Ring())
}

// next is what completes next, and nothing with it.
func (q *rawQP) next() provider.WC {
	q.d.t.Helper()
	wc := q.cq.one()
	if rest := q.cq.poll(); len(rest) > 0 {
		q.d.t.Errorf("completions that nobody waits for: %+v", rest)
	}
	return wc
}

// do carries a signaled request out and returns how it ended.
func (q *rawQP) do(wr provider.SendWR) provider.WC {
	q.d.t.Helper()
	wr.Flags |= provider.SendSignaled
	q.send(wr)
	return q.next()
}

func (q *rawQP) recv(id uint64, sgl []provider.SGE) {
	q.d.t.Helper()
	must(q.d.t, q.q.Recv(&provider.RecvWR{ID: id, SGL: sgl}, total(sgl)))
	q.q.PublishRecv()
}
