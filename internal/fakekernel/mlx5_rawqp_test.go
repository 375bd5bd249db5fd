//go:build linux

package fakekernel

import (
	"testing"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
	"github.com/pureverbs/rdma/mmio"
)

// mlxQP is a queue pair. The zero value of what may be set before create is RC, 16 blocks
// of sends and 8 receives of 4 pieces.
type mlxQP struct {
	d          *mlxDev
	typ        uint64
	send, recv *mlxCQ
	srq        *mlxSRQ
	sqCount    uint32
	rqCount    uint32
	rqShift    uint32
	access     uint32
	sigAll     bool
	qkey       uint32
	rnr        uint8

	handle uint32
	num    uint32
	uidx   uint32
	buf    []byte
	sq     []byte
	rec    []byte
	cur    uint32 // blocks posted
	head   uint32 // receives posted
	half   int    // of the register
	reg    []byte
	resp   abi.Mlx5IbCreateQpResp
	mr     *mlxMR
}

func (d *mlxDev) qp() *mlxQP { return (&mlxQP{d: d}).create() }

// defaults fills in what is not set.
func (q *mlxQP) defaults() {
	set(&q.typ, abi.IB_UVERBS_QPT_RC)
	set(&q.sqCount, 16)
	set(&q.access, allAccess&^abi.IB_UVERBS_ACCESS_MW_BIND)
	set(&q.qkey, 0x1111)
	set(&q.rnr, 1)
	if q.srq == nil {
		set(&q.rqCount, 8)
		set(&q.rqShift, 6)
	}
	if q.send == nil {
		q.send = q.d.cq(64)
	}
	if q.recv == nil {
		q.recv = q.send
	}
}

func (q *mlxQP) create() *mlxQP {
	d := q.d
	d.t.Helper()
	q.defaults()
	size := q.rqCount<<q.rqShift + q.sqCount*64
	q.buf, q.rec = pages(d.t, int(max(size+4095, 1)/4096*4096)), d.record()
	q.sq = q.buf[q.rqCount<<q.rqShift:][:q.sqCount*64]
	q.uidx = d.nextUidx
	d.nextUidx++
	if d.resp.CqeVersion == 0 {
		q.uidx = 0xffffff
	}
	in := q.request()
	c := mlx5CreateQP(q, q.cap(), bytesOf(&in), bytesOf(&q.resp))
	must(d.t, c.Do(d.f))
	q.handle = c.Result(abi.UVERBS_ATTR_CREATE_QP_HANDLE)
	if q.mr == nil {
		q.mr = d.mr(1<<16, allAccess)
	}
	q.reg = d.bf.mem[0x800:]
	if d.bf.id == 0 { // the kernel chose: two registers in each page of four
		q.reg = d.mapPage(uint64(q.resp.BfregIndex/4) * pageSize)[0x800+q.resp.BfregIndex%2*0x200:]
	}
	return q
}

func (q *mlxQP) cap() *abi.IbUverbsQpCap {
	c := &abi.IbUverbsQpCap{MaxSendWr: q.sqCount / 4, MaxRecvWr: q.rqCount, MaxSendSge: 2, MaxRecvSge: 4, MaxInlineData: 60}
	if q.srq != nil {
		c.MaxRecvWr, c.MaxRecvSge = 0, 0
	}
	return c
}

func (q *mlxQP) request() abi.Mlx5IbCreateQp {
	in := abi.Mlx5IbCreateQp{
		BufAddr: uapi.Addr(q.buf), DbAddr: uapi.Addr(q.rec), SqWqeCount: q.sqCount, RqWqeCount: q.rqCount,
		RqWqeShift: q.rqShift, Uidx: q.uidx, Flags: abi.MLX5_QP_FLAG_SCATTER_CQE,
	}
	if q.d.bf.id != 0 {
		in.Flags |= abi.MLX5_QP_FLAG_UAR_PAGE_INDEX
		in.BfregIndex = q.d.bf.id
	}
	return in
}

func mlx5CreateQP(q *mlxQP, cap *abi.IbUverbsQpCap, in, out []byte) *uapi.Command {
	c := mlx5cmd(uapi.QPCreate)
	if q.srq != nil {
		c.Use(abi.UVERBS_ATTR_CREATE_QP_SRQ_HANDLE, q.srq.handle)
	}
	if q.sigAll {
		c.Flags(abi.UVERBS_ATTR_CREATE_QP_FLAGS, abi.IB_UVERBS_QP_CREATE_SQ_SIG_ALL)
	}
	return c.
		New(abi.UVERBS_ATTR_CREATE_QP_HANDLE).
		Use(abi.UVERBS_ATTR_CREATE_QP_PD_HANDLE, q.d.pd).
		Use(abi.UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, q.send.handle).
		Use(abi.UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, q.recv.handle).
		In64(abi.UVERBS_ATTR_CREATE_QP_USER_HANDLE, 0xbeef).
		In(abi.UVERBS_ATTR_CREATE_QP_CAP, bytesOf(cap)).
		Const(abi.UVERBS_ATTR_CREATE_QP_TYPE, q.typ).
		Out(abi.UVERBS_ATTR_CREATE_QP_RESP_CAP, bytesOf(cap)).
		Out(abi.UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, bytesOf(&q.num)).
		Driver(in, out)
}

func (q *mlxQP) modify(a abi.IbUverbsModifyQp) error {
	a.QpHandle = q.handle
	return q.d.invoke(uapi.ModifyQP, bytesOf(&a), nil, nil, nil)
}

func (q *mlxQP) toInit() error {
	a := abi.IbUverbsModifyQp{
		AttrMask: maskState | initBits, QpState: stateInit, PortNum: 1, QpAccessFlags: q.access, Qkey: q.qkey,
	}
	if q.typ == abi.IB_UVERBS_QPT_UD {
		a.AttrMask = maskState | datagramBits
	}
	return q.modify(a)
}

func (q *mlxQP) rtr(peer *mlxQP) abi.IbUverbsModifyQp {
	a := abi.IbUverbsModifyQp{
		AttrMask: maskState | maskAV | maskMTU | maskDest | maskRQPSN | maskMaxDestRD | maskMinRNR,
		QpState:  stateRTR, PathMtu: 3, DestQpNum: peer.num, RqPsn: peer.num, MaxDestRdAtomic: 1, MinRnrTimer: q.rnr,
		Dest: abi.IbUverbsQpDest{
			Dgid: [16]byte(bytesOf(&peer.d.gid.Gid)), SgidIndex: uint8(q.d.gid.GidIndex), IsGlobal: 1, PortNum: 1,
		},
	}
	switch q.typ {
	case abi.IB_UVERBS_QPT_UC:
		a.AttrMask &^= maskMaxDestRD | maskMinRNR
	case abi.IB_UVERBS_QPT_UD:
		a.AttrMask = maskState
	}
	return a
}

func (q *mlxQP) rts(rnrRetries uint8) abi.IbUverbsModifyQp {
	a := abi.IbUverbsModifyQp{
		AttrMask: maskState | maskSQPSN | maskTimeout | maskRetry | maskRNRRetry | maskMaxRD,
		QpState:  stateRTS, SqPsn: q.num, Timeout: 8, RetryCnt: 7, RnrRetry: rnrRetries, MaxRdAtomic: 1,
	}
	if q.typ != abi.IB_UVERBS_QPT_RC {
		a.AttrMask = maskState | maskSQPSN
	}
	return a
}

// mlx5Connect brings two queue pairs to RTS, or one for datagrams.
func mlx5Connect(t testing.TB, a, b *mlxQP, rnrRetries uint8) {
	t.Helper()
	for _, p := range []struct{ q, peer *mlxQP }{{a, b}, {b, a}} {
		must(t, p.q.toInit())
		must(t, p.q.modify(p.q.rtr(p.peer)))
		must(t, p.q.modify(p.q.rts(rnrRetries)))
	}
}

// mlx5Pair is two connected queue pairs in two contexts.
func mlx5Pair(t testing.TB, k *Kernel, model mlxQP) (a, b *mlxQP) {
	t.Helper()
	one, two := model, model
	one.d, two.d = openMLX5(t, k), openMLX5(t, k)
	two.d.nextUidx = 0x100 // so that a mix-up shows
	a, b = one.create(), two.create()
	mlx5Connect(t, a, b, 7)
	return a, b
}

func (q *mlxQP) state() uint8 {
	q.d.t.Helper()
	return q.query().QpState
}

func (q *mlxQP) query() (r abi.IbUverbsQueryQpResp) {
	q.d.t.Helper()
	must(q.d.t, q.d.invoke(uapi.QueryQP, bytesOf(&abi.IbUverbsQueryQp{QpHandle: q.handle}), bytesOf(&r), nil, nil))
	return r
}

// queue writes a request into the ring and returns its index. ds counts itself.
func (q *mlxQP) queue(opcode, flags byte, imm uint32, segments ...[]byte) uint16 {
	wqe := make([]byte, segment)
	for _, s := range segments {
		wqe = append(wqe, s...)
	}
	be.PutUint32(wqe, (q.cur&0xffff)<<8|uint32(opcode))
	be.PutUint32(wqe[4:], q.num<<8|uint32(len(wqe)/segment))
	wqe[11] = flags
	be.PutUint32(wqe[12:], imm)
	at := q.cur
	for i, b := range wqe {
		q.sq[(at*64+uint32(i))%uint32(len(q.sq))] = b
	}
	q.cur += uint32(len(wqe)+63) / 64
	return uint16(at)
}

// ring publishes what is queued: the record, then the doorbell with the last request's
// first bytes, in the other half each time.
func (q *mlxQP) ring(last uint16) {
	put32(q.rec[4:], q.cur&0xffff)
	first := q.sq[uint32(last)*64%uint32(len(q.sq)):]
	ringAt(q.reg[q.half:], be.Uint64(first))
	q.half ^= 0x100
}

// blueFlame publishes one request by a copy of its first block.
func (q *mlxQP) blueFlame(last uint16) {
	put32(q.rec[4:], q.cur&0xffff)
	from := q.sq[uint32(last)*64%uint32(len(q.sq)):]
	mmio.Copy64((*[64]byte)(q.reg[q.half:]), (*[64]byte)(from))
	q.half ^= 0x100
}

// post queues and rings.
func (q *mlxQP) post(opcode, flags byte, imm uint32, segments ...[]byte) uint16 {
	i := q.queue(opcode, flags, imm, segments...)
	q.ring(i)
	return i
}

// do posts a signaled request and waits for its completion.
func (q *mlxQP) do(opcode byte, imm uint32, segments ...[]byte) cqe {
	q.d.t.Helper()
	i := q.post(opcode, wqeCompletion, imm, segments...)
	e := q.send.one()
	if e.counter() != i {
		q.d.t.Errorf("completion of block %d, want %d", e.counter(), i)
	}
	return e
}

// recvs posts receives: the pieces, and behind them the end mark if there is room.
func (q *mlxQP) recvs(lists ...[]byte) {
	for _, list := range lists {
		slot := q.buf[q.head%q.rqCount<<q.rqShift:][:1<<q.rqShift]
		if n := copy(slot, list); n < len(slot) {
			copy(slot[n:], dataSegment(0, terminateKey, 0))
		}
		q.head++
	}
	put32(q.rec, q.head&0xffff)
}

// wantCQE checks opcode and counter, and of a bad one the syndrome.
func wantCQE(t testing.TB, what string, e cqe, opcode byte, counter uint16, syndrome byte) {
	t.Helper()
	if opcode < cqeRequestError {
		if e.opcode() != opcode || e.counter() != counter {
			t.Errorf("%s: opcode %d counter %d (syndrome %#x), want %d %d", what, e.opcode(), e.counter(), e.syndrome(), opcode, counter)
		}
		return
	}
	if e.opcode() != opcode || e.counter() != counter || e.syndrome() != syndrome {
		t.Errorf("%s: opcode %d counter %d syndrome %#x, want %d %d %#x", what, e.opcode(), e.counter(), e.syndrome(), opcode, counter, syndrome)
	}
}

// mlxSRQ is a shared receive queue.
type mlxSRQ struct {
	d      *mlxDev
	handle uint32
	num    uint32
	n      uint32
	stride uint32
	buf    []byte
	rec    []byte
	head   uint32
	count  uint32
}
