package uverbs

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
	"github.com/pureverbs/rdma/internal/uapi"
)

// QPType is the transport service of a queue pair: enum ibv_qp_type.
type QPType uint32

// The transport services. What a device does not offer is refused with ErrNotSupported.
const (
	QPTypeRC        QPType = abi.IB_UVERBS_QPT_RC         // reliable connected: messages arrive once, in order, or the pair fails
	QPTypeUC        QPType = abi.IB_UVERBS_QPT_UC         // unreliable connected: a lost packet loses its message, without notice
	QPTypeUD        QPType = abi.IB_UVERBS_QPT_UD         // unreliable datagram: messages of one packet, to anyone
	QPTypeRawPacket QPType = abi.IB_UVERBS_QPT_RAW_PACKET // whole Ethernet frames
	QPTypeXRCSend   QPType = abi.IB_UVERBS_QPT_XRC_INI    // extended reliable connected, sending side
	QPTypeXRCRecv   QPType = abi.IB_UVERBS_QPT_XRC_TGT    // and receiving side
)

func (t QPType) String() string {
	switch t {
	case QPTypeRC:
		return "RC"
	case QPTypeUC:
		return "UC"
	case QPTypeUD:
		return "UD"
	case QPTypeRawPacket:
		return "raw packet"
	case QPTypeXRCSend:
		return "XRC send"
	case QPTypeXRCRecv:
		return "XRC receive"
	}
	return "type " + utoa(uint32(t))
}

// QPCap is the size of a queue pair's queues, in work requests, pieces and bytes.
type QPCap = provider.QPCap

// QPInitAttr says how a queue pair is to be made.
type QPInitAttr struct {
	Type           QPType // the zero value stands for QPTypeRC
	SendCQ, RecvCQ *CQ    // may be the same; RecvCQ nil stands for SendCQ
	SRQ            *SRQ   // where receives come from; nil: from the pair's own receive queue
	Cap            QPCap  // MaxRecvWR and MaxRecvSGE do not count with an SRQ
	SignalAll      bool   // every send reports a completion, as if it had SendSignaled

	// SingleGoroutine is the program's promise that one goroutine at a time uses the
	// queue pair, also to modify and to close it. The pair then takes no lock.
	SingleGoroutine bool
}

// QP is a queue pair. PostSend and PostRecv are safe for concurrent use, unless it was made
// with SingleGoroutine.
type QP struct {
	object
	ctx    *Context
	pd     *PD
	typ    QPType
	send   *CQ
	recv   *CQ
	srq    *SRQ
	id     uint64
	handle uint32
	num    uint32
	label  atomic.Uint32 // num, for String
	cap    QPCap
	ops    uint32 // set of operations
	plain  uint32 // those of requests that can be plain

	sqMu    lock    // the send queue and its doorbell
	rqMu    lock    // the receive queue
	rings   qpRings // closed under both
	bell    *uapi.Doorbell
	builder SendBuilder

	modMu  sync.Mutex // one Modify at a time
	groups map[group]struct{}
	state  atomic.Uint32
}

// CreateQP makes a queue pair in state RESET. The granted capacities, see [QP.Cap], are at
// least those asked for.
//
// Errors: EINVAL for more than the device's limits; ErrNotSupported for a type that the
// device does not offer. Source: ibv_create_qp(3), ibv_create_qp_ex(3).
func (p *PD) CreateQP(attr *QPInitAttr) (*QP, error) {
	const op = "create queue pair"
	a := *attr
	if a.Type == 0 {
		a.Type = QPTypeRC
	}
	if a.RecvCQ == nil {
		a.RecvCQ = a.SendCQ
	}
	if err := p.checkQP(&a); err != nil {
		return nil, wrap(op, p.device, err)
	}
	ops, err := p.ctx.ops(a.Type)
	if err != nil {
		return nil, err
	}
	if err := p.begin(op); err != nil {
		return nil, err
	}
	defer p.end()
	q := &QP{
		object: object{kind: "queue pair", device: p.device},
		ctx:    p.ctx, pd: p, typ: a.Type, send: a.SendCQ, recv: a.RecvCQ, srq: a.SRQ, ops: ops,
	}
	q.sqMu.kind = p.ctx.k.lockKind(a.SingleGoroutine)
	q.rqMu.kind = q.sqMu.kind
	if err := q.adopt(q, q.needs()...); err != nil {
		return nil, err
	}
	q.id = p.ctx.objects.put(q)
	if err := q.create(&a); err != nil {
		p.ctx.objects.drop(q.id)
		q.orphan(q)
		return nil, &Error{Op: op, Object: p.device, Err: cause(err), Hint: qpHint(err, a.Type)}
	}
	return q, nil
}

func (p *PD) checkQP(a *QPInitAttr) error {
	switch {
	case a.SendCQ == nil:
		return fmt.Errorf("%w: no completion queue", ErrInvalid)
	case a.SendCQ.ctx != p.ctx || a.RecvCQ.ctx != p.ctx:
		return fmt.Errorf("%w: a completion queue belongs to another context", ErrInvalid)
	case a.SRQ != nil && a.SRQ.pd.ctx != p.ctx:
		return fmt.Errorf("%w: the shared receive queue belongs to another context", ErrInvalid)
	case a.Type != QPTypeRC && a.Type != QPTypeUC && a.Type != QPTypeUD:
		return fmt.Errorf("%w: queue pairs of type %v", ErrNotSupported, a.Type)
	}
	return nil
}

// needs lists what the queue pair lives on.
func (q *QP) needs() []*object {
	parents := []*object{&q.pd.object, &q.send.object}
	if q.recv != q.send {
		parents = append(parents, &q.recv.object)
	}
	if q.srq != nil {
		parents = append(parents, &q.srq.object)
	}
	return parents
}

func qpHint(err error, typ QPType) string {
	if missing(err) {
		return fmt.Sprintf("the device has no queue pairs of type %v", typ)
	}
	return hint(err)
}

func (q *QP) create(a *QPInitAttr) error {
	var (
		num uint32
		got abi.IbUverbsQpCap
		k   = q.ctx.k
	)
	plan, err := k.planQP(a, q)
	if err != nil {
		return err
	}
	ask := abi.IbUverbsQpCap{
		MaxSendWr: a.Cap.MaxSendWR, MaxRecvWr: a.Cap.MaxRecvWR,
		MaxSendSge: a.Cap.MaxSendSGE, MaxRecvSge: a.Cap.MaxRecvSGE, MaxInlineData: a.Cap.MaxInline,
	}
	if a.SRQ != nil {
		ask.MaxRecvWr, ask.MaxRecvSge = 0, 0
	}
	cmd := k.command(uapi.QPCreate).
		New(abi.UVERBS_ATTR_CREATE_QP_HANDLE).
		Use(abi.UVERBS_ATTR_CREATE_QP_PD_HANDLE, q.pd.handle).
		Use(abi.UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, q.send.handle).
		Use(abi.UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, q.recv.handle).
		In64(abi.UVERBS_ATTR_CREATE_QP_USER_HANDLE, q.id).
		In(abi.UVERBS_ATTR_CREATE_QP_CAP, uapi.Bytes(&ask)).
		Const(abi.UVERBS_ATTR_CREATE_QP_TYPE, uint64(q.typ)).
		Out(abi.UVERBS_ATTR_CREATE_QP_RESP_CAP, uapi.Bytes(&got)).
		Out(abi.UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, uapi.Bytes(&num)).
		Driver(plan.in, plan.out)
	if a.SRQ != nil {
		cmd.Use(abi.UVERBS_ATTR_CREATE_QP_SRQ_HANDLE, a.SRQ.handle)
	}
	if a.SignalAll {
		cmd.Flags(abi.UVERBS_ATTR_CREATE_QP_FLAGS, abi.IB_UVERBS_QP_CREATE_SQ_SIG_ALL)
	}
	if err := q.born(cmd, &num); err != nil {
		plan.abandon(nil)
		return err
	}
	q.handle = cmd.Result(abi.UVERBS_ATTR_CREATE_QP_HANDLE)
	q.cap = QPCap{
		MaxSendWR: got.MaxSendWr, MaxRecvWR: got.MaxRecvWr,
		MaxSendSGE: got.MaxSendSge, MaxRecvSGE: got.MaxRecvSge, MaxInline: got.MaxInlineData,
	}
	if q.typ != QPTypeUD && q.cap.MaxSendSGE > 0 {
		q.plain = q.ops
	}
	if q.rings, err = plan.attach(); err != nil {
		plan.abandon(q.destroy())
		return err
	}
	if !q.rings.ringsByCall() {
		return nil
	}
	body := abi.IbUverbsPostSend{QpHandle: q.handle, WqeSize: provider.MinPostSize}
	if q.bell, err = uapi.NewDoorbell(k.file, &k.arena, k.driver, uapi.PostSend, uapi.Bytes(&body)); err != nil {
		q.destroy()
	}
	return err
}

// born makes the queue pair and enters its number, so that nobody sees it under the name of
// a dead one.
func (q *QP) born(cmd *uapi.Command, num *uint32) error {
	c := q.ctx
	c.numbers.Lock()
	defer c.numbers.Unlock()
	if err := cmd.Do(c.k.file); err != nil {
		return err
	}
	q.num = *num
	q.label.Store(q.num)
	c.numMu.Lock()
	defer c.numMu.Unlock()
	if c.byNum == nil {
		c.byNum = make(map[uint32]*QP)
	}
	c.byNum[q.num] = q
	return nil
}

// Num is the queue pair's number on the device, which the peer needs.
func (q *QP) Num() uint32 { return q.num }

// Cap is what was granted.
func (q *QP) Cap() QPCap { return q.cap }

// PD returns the protection domain of the queue pair.
func (q *QP) PD() *PD { return q.pd }

// SendCQ returns the completion queue of sends.
func (q *QP) SendCQ() *CQ { return q.send }

// RecvCQ returns the completion queue of receives.
func (q *QP) RecvCQ() *CQ { return q.recv }

// SRQ returns the shared receive queue, nil if the pair has a receive queue of its own.
func (q *QP) SRQ() *SRQ { return q.srq }

// Type is the transport service.
func (q *QP) Type() QPType { return q.typ }

// String is asked by those who close a parent, also while the pair is being made.
func (q *QP) String() string { return fmt.Sprintf("queue pair (number %d)", q.label.Load()) }

// Close destroys the queue pair at once: outstanding work requests end without a
// completion, and completions of it that were not polled are discarded, so that none can
// be credited to a later queue pair of the same number. To see them all move the pair to
// StateError first and poll. Multicast groups are left. Closing again does nothing. Source:
// ibv_destroy_qp(3).
func (q *QP) Close() error {
	return q.object.close(q, func() error {
		if err := q.leaveAll(); err != nil {
			return err
		}
		return q.destroy()
	})
}

func (q *QP) destroy() error {
	var resp abi.IbUverbsDestroyQpResp
	cmd := q.ctx.k.command(uapi.QPDestroy).
		Destroy(abi.UVERBS_ATTR_DESTROY_QP_HANDLE, q.handle).
		Out(abi.UVERBS_ATTR_DESTROY_QP_RESP, uapi.Bytes(&resp))
	q.ctx.numbers.Lock()
	defer q.ctx.numbers.Unlock()
	q.sqMu.Lock()
	defer q.sqMu.Unlock()
	q.rqMu.Lock()
	defer q.rqMu.Unlock()
	if err := gone(cmd.Do(q.ctx.k.file)); err != nil {
		return err
	}
	q.ctx.objects.drop(q.id)
	q.ctx.numMu.Lock()
	delete(q.ctx.byNum, q.num)
	q.ctx.numMu.Unlock()
	q.send.forget(q)
	if q.recv != q.send {
		q.recv.forget(q)
	}
	if q.bell != nil {
		q.bell.Close()
	}
	return q.rings.close()
}
