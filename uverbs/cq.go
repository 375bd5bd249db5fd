package uverbs

import (
	"net"
	"sync"
	"sync/atomic"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
	"github.com/pureverbs/rdma/internal/provider/rxe"
	"github.com/pureverbs/rdma/internal/uapi"
)

// CQ is a completion queue. Any number of queue pairs may report into one. It is safe for
// concurrent use; each completion goes to one caller.
//
// It must have room for all work requests that can be outstanding on its queue pairs: on
// rxe a completion that finds no room is dropped.
type CQ struct {
	object
	ctx    *Context
	ch     *CompChannel
	id     uint64
	handle uint32
	size   int
	spins  int // polls before parking

	mu   sync.Mutex // protects what follows
	rxe  *rxe.CQ    // nil once closed
	bell *uapi.Doorbell
	arms uint32 // the last arm that no event has answered yet, 0 for none

	events  chan struct{} // an event came in that nobody has looked after yet
	done    chan struct{} // closed by Close
	waiters atomic.Int32
}

const (
	armedAny       = 1
	armedSolicited = 2
)

// CreateCQ makes a completion queue for at least cqe completions. With ch the queue can be
// waited for; without it can only be polled.
//
// Errors: EINVAL if cqe is more than the device's limit. Source: ibv_create_cq(3).
func (c *Context) CreateCQ(cqe int, ch *CompChannel) (*CQ, error) {
	const op = "create completion queue"
	switch {
	case cqe <= 0 || cqe > 1<<30:
		return nil, invalid(op, c.device, "%d completions", cqe)
	case ch != nil && ch.ctx != c:
		return nil, invalid(op, c.device, "the completion channel belongs to another context")
	}
	if err := c.begin(op); err != nil {
		return nil, err
	}
	defer c.end()
	q := &CQ{
		object: object{kind: "completion queue", device: c.device},
		ctx:    c, ch: ch, spins: spins(), events: make(chan struct{}, 1), done: make(chan struct{}),
	}
	q.id = c.objects.put(q)
	if err := q.create(uint32(cqe)); err != nil {
		c.objects.drop(q.id)
		return nil, wrap(op, c.device, err)
	}
	parents := []*object{&c.object}
	if ch != nil {
		parents = append(parents, &ch.object)
	}
	if err := q.adopt(q, parents...); err != nil {
		q.destroy()
		return nil, err
	}
	return q, nil
}

func (q *CQ) create(cqe uint32) error {
	var (
		plan rxe.CQPlan
		got  uint32
		k    = q.ctx.k
	)
	cmd := k.command(uapi.CQCreate).
		New(abi.UVERBS_ATTR_CREATE_CQ_HANDLE).
		In32(abi.UVERBS_ATTR_CREATE_CQ_CQE, cqe).
		In64(abi.UVERBS_ATTR_CREATE_CQ_USER_HANDLE, q.id).
		In32(abi.UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, 0).
		Out(abi.UVERBS_ATTR_CREATE_CQ_RESP_CQE, uapi.Bytes(&got)).
		Driver(nil, plan.Out())
	if q.ch != nil {
		cmd.UseFD(abi.UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, q.ch.fd)
	}
	if err := cmd.Do(k.file); err != nil {
		return err
	}
	q.handle, q.size = cmd.Result(abi.UVERBS_ATTR_CREATE_CQ_HANDLE), int(got)
	var err error
	if q.rxe, err = plan.Attach(k.mapper); err == nil {
		body := abi.IbUverbsReqNotifyCq{CqHandle: q.handle}
		q.bell, err = uapi.NewDoorbell(k.file, &k.arena, k.driver, uapi.ReqNotifyCQ, uapi.Bytes(&body))
	}
	if err != nil {
		q.destroy()
	}
	return err
}

// Cap is the number of completions that the queue holds, at least what was asked for.
func (q *CQ) Cap() int { return q.size }

func (q *CQ) String() string { return "completion queue" }

// Poll takes up to len(wcs) completions out of the queue and returns how many. It never
// waits and does not allocate. A completion's failure is its Status, not an error.
//
// Errors: net.ErrClosed; ErrCorrupt. Source: ibv_poll_cq(3).
func (q *CQ) Poll(wcs []WC) (int, error) {
	q.mu.Lock()
	n, err := q.poll(wcs)
	q.mu.Unlock()
	if err != nil {
		return n, wrap("poll completion queue", q.device, err)
	}
	return n, nil
}

// poll is Poll under the lock.
func (q *CQ) poll(wcs []WC) (n int, err error) {
	if q.rxe == nil {
		return 0, net.ErrClosed
	}
	for n < len(wcs) {
		var ok bool
		if ok, err = q.rxe.Next((*provider.WC)(&wcs[n])); !ok {
			break
		}
		n++
	}
	if n > 0 {
		q.rxe.Release()
	}
	return n, err
}

// Arm asks for an event on the completion channel at the next completion, or, with
// solicitedOnly, at the next one that the peer marked so or that failed. Completions that
// are there already cause none: poll after arming. [CQ.Wait] does all of it.
//
// Source: ibv_req_notify_cq(3).
func (q *CQ) Arm(solicitedOnly bool) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return wrap("arm completion queue", q.device, q.arm(solicitedOnly))
}

func (q *CQ) arm(solicitedOnly bool) error {
	if q.rxe == nil {
		return net.ErrClosed
	}
	only, arms := uint32(0), uint32(armedAny)
	if solicitedOnly {
		only, arms = 1, armedSolicited
	}
	copy(q.bell.Body()[4:], uapi.Bytes(&only))
	if err := q.bell.Ring(); err != nil {
		return err
	}
	q.arms = arms
	return nil
}

// Close destroys the queue and wakes those who wait for it with net.ErrClosed. It fails
// with ErrBusy while queue pairs report into it. Completions that were not polled are lost.
// Closing again does nothing. Source: ibv_destroy_cq(3).
func (q *CQ) Close() error {
	return q.object.close(q, func() error {
		if err := q.destroy(); err != nil {
			return err
		}
		close(q.done)
		if q.ch != nil && q.waiters.Load() > 0 {
			q.ch.interrupt()
		}
		return nil
	})
}

func (q *CQ) destroy() error {
	var resp abi.IbUverbsDestroyCqResp
	cmd := q.ctx.k.command(uapi.CQDestroy).
		Destroy(abi.UVERBS_ATTR_DESTROY_CQ_HANDLE, q.handle).
		Out(abi.UVERBS_ATTR_DESTROY_CQ_RESP, uapi.Bytes(&resp))
	q.mu.Lock() // before the call: nobody arms a queue that is no more
	defer q.mu.Unlock()
	if err := gone(cmd.Do(q.ctx.k.file)); err != nil {
		return err
	}
	q.ctx.objects.drop(q.id)
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

// forget drops the completions that a dead queue pair left behind.
func (q *CQ) forget(qpNum uint32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.rxe != nil {
		q.rxe.Forget(qpNum)
	}
}
