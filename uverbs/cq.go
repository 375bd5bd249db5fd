package uverbs

import (
	"sync/atomic"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
	"github.com/pureverbs/rdma/internal/provider/mlx5"
	"github.com/pureverbs/rdma/internal/uapi"
)

// CQInitAttr says how a completion queue is to be made.
type CQInitAttr struct {
	CQE     int          // completions it must hold
	Channel *CompChannel // nil for a queue that is only polled
	Vector  int          // completion vector, which says what CPU is interrupted: below [Context.CompVectors]

	// SingleGoroutine is the program's promise that one goroutine at a time uses the
	// queue and all queue pairs that report into it, also to close them. The queue then
	// takes no lock.
	SingleGoroutine bool

	// Spins is how often at most [CQ.Wait] polls before it sleeps: up to 65536, 0 stands for
	// 4096, a negative number for not at all. It spins only where completions are found to
	// come that soon, and never on one processor (GOMAXPROCS, as the queue is made). Contexts
	// are heard of after the spin.
	Spins int
}

// CQ is a completion queue. Any number of queue pairs may report into one. It is safe for
// concurrent use, unless made with SingleGoroutine; each completion goes to one caller.
//
// It must have room for all work requests that can be outstanding on its queue pairs: on
// rxe and siw a completion that finds no room is dropped, on mlx5 it is the end of the queue
// and of all queue pairs that report into it.
type CQ struct {
	object
	ctx    *Context
	ch     *CompChannel
	id     uint64
	handle uint32

	mu     lock // protects what follows
	ring   cqRing
	size   int
	bell   *uapi.Doorbell // arms, where arming is a call
	own    []provider.WC  // completions that the library made, see flush.go
	cursor Cursor

	arms    atomic.Uint32           // the last arm that no event has answered yet, 0 for none
	counter atomic.Pointer[mlx5.CQ] // counts the events, nil where nobody does
	events  chan struct{}           // an event came in that nobody has looked after yet
	done    chan struct{}           // closed by Close
	waiters atomic.Int32
	spinner spinner
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
	return c.CreateCQAttr(&CQInitAttr{CQE: cqe, Channel: ch})
}

// CreateCQAttr makes a completion queue. Errors: as CreateCQ. Source: ibv_create_cq_ex(3).
func (c *Context) CreateCQAttr(attr *CQInitAttr) (*CQ, error) {
	const op = "create completion queue"
	ch := attr.Channel
	switch {
	case attr.CQE <= 0 || attr.CQE > 1<<30:
		return nil, invalid(op, c.device, "%d completions", attr.CQE)
	case ch != nil && ch.ctx != c:
		return nil, invalid(op, c.device, "the completion channel belongs to another context")
	case attr.Vector < 0 || attr.Vector >= c.CompVectors():
		return nil, invalid(op, c.device, "completion vector %d, the device has %d", attr.Vector, c.CompVectors())
	}
	if err := c.begin(op); err != nil {
		return nil, err
	}
	defer c.end()
	q := &CQ{
		object: object{kind: "completion queue", device: c.device},
		ctx:    c, ch: ch, events: make(chan struct{}, 1), done: make(chan struct{}),
	}
	q.spinner.limit(attr.Spins)
	q.mu.kind = c.k.lockKind(attr.SingleGoroutine)
	parents := []*object{&c.object}
	if ch != nil {
		parents = append(parents, &ch.object)
	}
	if err := q.adopt(q, parents...); err != nil { // first: the channel stays open while the kernel looks at it
		return nil, err
	}
	q.id = c.objects.put(q)
	if err := q.create(*attr); err != nil {
		c.objects.drop(q.id)
		q.orphan(q)
		return nil, wrap(op, c.device, err)
	}
	return q, nil
}

// CompVectors is how many completion vectors the device has.
func (c *Context) CompVectors() int { return int(c.vectors) }

func (q *CQ) create(a CQInitAttr) error {
	var got uint32
	k := q.ctx.k
	plan, err := k.planCQ(&a, &got)
	if err != nil {
		return err
	}
	cmd := k.command(uapi.CQCreate).
		New(abi.UVERBS_ATTR_CREATE_CQ_HANDLE).
		In32(abi.UVERBS_ATTR_CREATE_CQ_CQE, uint32(a.CQE)).
		In64(abi.UVERBS_ATTR_CREATE_CQ_USER_HANDLE, q.id).
		In32(abi.UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, uint32(a.Vector)).
		Out(abi.UVERBS_ATTR_CREATE_CQ_RESP_CQE, uapi.Bytes(&got)).
		Driver(plan.in, plan.out)
	if q.ch != nil {
		cmd.UseFD(abi.UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, q.ch.fd)
	}
	if plan.farUAR != 0 {
		cmd.In32(abi.MLX5_IB_ATTR_CREATE_CQ_UAR_INDEX, plan.farUAR)
	}
	if err := cmd.Do(k.file); err != nil {
		plan.abandon(nil)
		return err
	}
	q.handle, q.size = cmd.Result(abi.UVERBS_ATTR_CREATE_CQ_HANDLE), int(got)
	if q.ring, err = plan.attach(); err != nil {
		plan.abandon(q.destroy())
		return err
	}
	q.counter.Store(q.ring.mlx5)
	if !q.ring.armsByCall() {
		return nil
	}
	body := abi.IbUverbsReqNotifyCq{CqHandle: q.handle}
	if q.bell, err = uapi.NewDoorbell(k.file, &k.arena, k.driver, uapi.ReqNotifyCQ, uapi.Bytes(&body)); err != nil {
		q.destroy()
	}
	return err
}

// Cap is the number of completions that the queue holds, at least what was asked for.
func (q *CQ) Cap() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.size
}

func (q *CQ) String() string { return "completion queue" }

// Poll takes up to len(wcs) completions out of the queue and returns how many. It never
// waits and does not allocate. A completion's failure is its Status, not an error.
//
// Errors: net.ErrClosed; ErrCorrupt. Source: ibv_poll_cq(3).
func (q *CQ) Poll(wcs []WC) (int, error) {
	if q.mu.kind == byMutex {
		return q.pollAny(wcs)
	}
	q.mu.lockWord()
	ring := q.ring.mlx5
	if ring == nil {
		return q.pollAny(wcs)
	}
	if ring.Empty() {
		q.mu.unlockWord()
		return 0, nil
	}
	n, err := ring.Poll(mirrorWCs(wcs)) // all there is comes from the device, see flush.go
	q.mu.unlockWord()
	if err != nil {
		return n, q.pollError(err)
	}
	return n, nil
}

func (q *CQ) pollError(err error) error { return wrap("poll completion queue", q.device, err) }

// pollAny is Poll for all other devices. The queue is locked already, unless by a mutex.
func (q *CQ) pollAny(wcs []WC) (n int, err error) {
	failed := false
	q.mu.lockMutex()
	switch r := &q.ring; {
	case r.rxe != nil:
		if !r.rxe.Empty() {
			n, failed, err = r.rxe.Poll(mirrorWCs(wcs))
		}
	case r.siw != nil:
		if !r.siw.Empty() {
			n, failed, err = r.siw.Poll(mirrorWCs(wcs))
		}
	default:
		err = errClosed
	}
	if failed || err != nil || len(q.own) > 0 {
		return q.polled(wcs, n, err)
	}
	if q.mu.kind == byMutex { // unlockMutex, were it inlined
		q.mu.mu.Unlock()
	}
	return n, nil
}

// polled goes on where the ring gave n completions and there is more to do. It unlocks the
// queue.
func (q *CQ) polled(wcs []WC, n int, err error) (int, error) {
	suspects := q.ctx.suspects(wcs[:n])
	for n < len(wcs) && len(q.own) > 0 && err == nil {
		wcs[n] = WC(q.takeOwn())
		n++
	}
	q.mu.Unlock()
	buryAll(suspects)
	return n, q.pollError(err)
}

// Arm asks for an event on the completion channel at the next completion, or, with
// solicitedOnly, at the next one that the peer marked so or that failed. Completions that
// are there already cause none: poll after arming. [CQ.Wait] does all of it.
//
// Source: ibv_req_notify_cq(3).
func (q *CQ) Arm(solicitedOnly bool) error {
	q.mu.lockMutex()
	q.mu.lockWord()
	err := q.arm(solicitedOnly)
	q.mu.unlockMutex()
	q.mu.unlockWord()
	return wrap("arm completion queue", q.device, err)
}

func (q *CQ) arm(solicitedOnly bool) error {
	if !q.ring.open() {
		return errClosed
	}
	arms := uint32(armedAny)
	if solicitedOnly {
		arms = armedSolicited
	}
	q.arms.Store(arms) // before the deed: the event that answers it may come at once
	if q.bell == nil {
		q.ring.arm(solicitedOnly)
		return nil
	}
	err := q.ring.armByCall(q.bell, solicitedOnly)
	if err != nil {
		q.arms.Store(0)
	}
	return err
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
	q.own = nil
	return q.ring.close()
}

// purge drops the completions of a queue pair that was reset.
func (q *CQ) purge(qp *mlx5.QP) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ring.mlx5.Purge(qp)
}

// forget drops the completions that a dead queue pair left behind.
func (q *CQ) forget(qp *QP) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ring.forget(qp.num, &qp.rings)
	q.forgetOwn(qp.num)
}
