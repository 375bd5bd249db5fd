package uverbs

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
	"github.com/pureverbs/rdma/internal/provider/rxe"
	"github.com/pureverbs/rdma/internal/uapi"
)

// QPType is the transport service of a queue pair.
type QPType uint32

// QPTypeRC is reliable connected: messages arrive once, in order, or the pair fails.
const QPTypeRC QPType = abi.IB_UVERBS_QPT_RC

// QPCap is the size of a queue pair's queues, in work requests, pieces and bytes.
type QPCap = provider.QPCap

// QPInitAttr says how a queue pair is to be made.
type QPInitAttr struct {
	Type           QPType // the zero value stands for QPTypeRC
	SendCQ, RecvCQ *CQ    // may be the same; RecvCQ nil stands for SendCQ
	Cap            QPCap
	SignalAll      bool // every send reports a completion, as if it had SendSignaled
}

// QP is a queue pair. PostSend and PostRecv are safe for concurrent use.
type QP struct {
	object
	ctx    *Context
	pd     *PD
	typ    QPType
	send   *CQ
	recv   *CQ
	id     uint64
	handle uint32
	num    uint32
	cap    QPCap

	sqMu sync.Mutex // the send queue and its doorbell
	rqMu sync.Mutex // the receive queue
	rxe  *rxe.QP    // nil once closed; written under both
	bell *uapi.Doorbell

	modMu sync.Mutex // one Modify at a time
	state atomic.Uint32
}

// CreateQP makes a queue pair in state RESET. The granted capacities, see [QP.Cap], are at
// least those asked for.
//
// Errors: EINVAL for more than the device's limits. Source: ibv_create_qp(3).
func (p *PD) CreateQP(attr *QPInitAttr) (*QP, error) {
	const op = "create queue pair"
	a := *attr
	if a.Type == 0 {
		a.Type = QPTypeRC
	}
	if a.RecvCQ == nil {
		a.RecvCQ = a.SendCQ
	}
	switch {
	case a.SendCQ == nil:
		return nil, invalid(op, p.device, "no completion queue")
	case a.SendCQ.ctx != p.ctx || a.RecvCQ.ctx != p.ctx:
		return nil, invalid(op, p.device, "a completion queue belongs to another context")
	case a.Type != QPTypeRC:
		return nil, wrap(op, p.device, fmt.Errorf("%w: queue pair type %d", ErrNotSupported, a.Type))
	}
	if err := p.begin(op); err != nil {
		return nil, err
	}
	defer p.end()
	q := &QP{
		object: object{kind: "queue pair", device: p.device},
		ctx:    p.ctx, pd: p, typ: a.Type, send: a.SendCQ, recv: a.RecvCQ,
	}
	parents := []*object{&p.object, &q.send.object}
	if q.recv != q.send {
		parents = append(parents, &q.recv.object)
	}
	if err := q.adopt(q, parents...); err != nil {
		return nil, err
	}
	q.id = p.ctx.objects.put(q)
	if err := q.create(&a); err != nil {
		p.ctx.objects.drop(q.id)
		q.orphan(q)
		return nil, wrap(op, p.device, err)
	}
	return q, nil
}

func (q *QP) create(a *QPInitAttr) error {
	var (
		plan rxe.QPPlan
		num  uint32
		got  abi.IbUverbsQpCap
		k    = q.ctx.k
	)
	ask := abi.IbUverbsQpCap{
		MaxSendWr: a.Cap.MaxSendWR, MaxRecvWr: a.Cap.MaxRecvWR,
		MaxSendSge: a.Cap.MaxSendSGE, MaxRecvSge: a.Cap.MaxRecvSGE, MaxInlineData: a.Cap.MaxInline,
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
		Driver(nil, plan.Out())
	if a.SignalAll {
		cmd.Flags(abi.UVERBS_ATTR_CREATE_QP_FLAGS, abi.IB_UVERBS_QP_CREATE_SQ_SIG_ALL)
	}
	q.ctx.numbers.Lock()
	err := cmd.Do(k.file)
	q.ctx.numbers.Unlock()
	if err != nil {
		return err
	}
	q.handle, q.num = cmd.Result(abi.UVERBS_ATTR_CREATE_QP_HANDLE), num
	q.cap = QPCap{
		MaxSendWR: got.MaxSendWr, MaxRecvWR: got.MaxRecvWr,
		MaxSendSGE: got.MaxSendSge, MaxRecvSGE: got.MaxRecvSge, MaxInline: got.MaxInlineData,
	}
	if q.rxe, err = plan.Attach(k.mapper, q.cap); err == nil {
		body := abi.IbUverbsPostSend{QpHandle: q.handle, WqeSize: rxe.MinPostSize}
		q.bell, err = uapi.NewDoorbell(k.file, &k.arena, k.driver, uapi.PostSend, uapi.Bytes(&body))
	}
	if err != nil {
		q.destroy()
	}
	return err
}

// Num is the queue pair's number on the device, which the peer needs.
func (q *QP) Num() uint32 { return q.num }

// Cap is what the kernel granted.
func (q *QP) Cap() QPCap { return q.cap }

// PD returns the protection domain of the queue pair.
func (q *QP) PD() *PD { return q.pd }

// SendCQ returns the completion queue of sends.
func (q *QP) SendCQ() *CQ { return q.send }

// RecvCQ returns the completion queue of receives.
func (q *QP) RecvCQ() *CQ { return q.recv }

func (q *QP) String() string { return fmt.Sprintf("queue pair (number %d)", q.num) }

// Close destroys the queue pair at once: outstanding work requests end without a
// completion, and completions of it that were not polled are discarded, so that none can
// be credited to a later queue pair of the same number. To see them all move the pair to
// StateError first and poll. Closing again does nothing. Source: ibv_destroy_qp(3).
func (q *QP) Close() error { return q.object.close(q, q.destroy) }

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
	q.send.forget(q.num)
	if q.recv != q.send {
		q.recv.forget(q.num)
	}
	if q.bell != nil {
		q.bell.Close()
	}
	var err error
	if q.rxe != nil {
		err = q.rxe.Close()
		q.rxe = nil
	}
	return err
}
