package uverbs

import (
	"fmt"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
	"github.com/pureverbs/rdma/internal/provider/rxe"
	"github.com/pureverbs/rdma/internal/uapi"
)

// SRQInitAttr says how a shared receive queue is to be made.
type SRQInitAttr struct {
	MaxWR  uint32 // work requests it must hold
	MaxSGE uint32 // pieces a work request
	Limit  uint32 // see SRQAttr

	// SingleGoroutine is the program's promise that one goroutine at a time uses the
	// queue, also to close it. The queue then takes no lock.
	SingleGoroutine bool
}

// SRQAttr are the attributes of a shared receive queue: struct ibv_srq_attr.
type SRQAttr struct {
	MaxWR  uint32
	MaxSGE uint32 // cannot be changed
	Limit  uint32 // EventSRQLimitReached comes, once, when fewer receives are left; 0 is never
}

// SRQAttrMask says which fields of an SRQAttr count: enum ibv_srq_attr_mask.
type SRQAttrMask uint32

// The fields.
const (
	SRQAttrMaxWR SRQAttrMask = 1 << iota
	SRQAttrLimit
)

// SRQ is a shared receive queue: queue pairs made with it take their receives from it.
// Receives complete in the completion queue of the pair that used them, in any order between
// pairs. It is safe for concurrent use, unless made with SingleGoroutine.
type SRQ struct {
	object
	pd     *PD
	id     uint64
	handle uint32

	mu     lock // protects what follows
	ring   srqRing
	maxWR  uint32
	maxSGE uint32
}

// CreateSRQ makes a shared receive queue. The granted sizes, see [SRQ.Cap], are at least
// those asked for.
//
// Errors: EINVAL for more than the device's limits. Source: ibv_create_srq(3).
func (p *PD) CreateSRQ(attr *SRQInitAttr) (*SRQ, error) {
	const op = "create shared receive queue"
	if attr.MaxWR == 0 {
		return nil, invalid(op, p.device, "no work requests")
	}
	if err := p.begin(op); err != nil {
		return nil, err
	}
	defer p.end()
	s := &SRQ{object: object{kind: "shared receive queue", device: p.device}, pd: p}
	s.mu.kind = p.ctx.k.lockKind(attr.SingleGoroutine)
	if err := s.adopt(s, &p.object); err != nil {
		return nil, err
	}
	s.id = p.ctx.objects.put(s)
	if err := s.create(*attr); err != nil {
		p.ctx.objects.drop(s.id)
		s.orphan(s)
		return nil, wrap(op, p.device, err)
	}
	return s, nil
}

func (s *SRQ) create(a SRQInitAttr) error {
	k := s.pd.ctx.k
	plan, err := k.planSRQ(&a, s)
	if err != nil {
		return err
	}
	cmd := k.command(uapi.SRQCreate).
		New(abi.UVERBS_ATTR_CREATE_SRQ_HANDLE).
		Use(abi.UVERBS_ATTR_CREATE_SRQ_PD_HANDLE, s.pd.handle).
		Const(abi.UVERBS_ATTR_CREATE_SRQ_TYPE, abi.IB_UVERBS_SRQT_BASIC).
		In64(abi.UVERBS_ATTR_CREATE_SRQ_USER_HANDLE, s.id).
		In32(abi.UVERBS_ATTR_CREATE_SRQ_MAX_WR, a.MaxWR).
		In32(abi.UVERBS_ATTR_CREATE_SRQ_MAX_SGE, a.MaxSGE).
		In32(abi.UVERBS_ATTR_CREATE_SRQ_LIMIT, a.Limit).
		Out(abi.UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, uapi.Bytes(&s.maxWR)).
		Out(abi.UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, uapi.Bytes(&s.maxSGE)).
		Driver(plan.in, plan.out)
	if err := cmd.Do(k.file); err != nil {
		plan.abandon(nil)
		return err
	}
	s.handle = cmd.Result(abi.UVERBS_ATTR_CREATE_SRQ_HANDLE)
	if s.ring, err = plan.attach(); err != nil {
		plan.abandon(s.destroy())
	}
	return err
}

// Cap is what the queue holds: MaxWR and MaxSGE.
func (s *SRQ) Cap() SRQAttr {
	s.mu.Lock()
	defer s.mu.Unlock()
	return SRQAttr{MaxWR: s.maxWR, MaxSGE: s.maxSGE}
}

// PD returns the protection domain of the queue.
func (s *SRQ) PD() *PD { return s.pd }

func (s *SRQ) String() string { return "shared receive queue" }

// PostRecv hands receive work requests to the device and returns how many. It does not wait
// and does not allocate. Receives of an SRQ stay there when a queue pair fails.
//
// Errors: ErrQueueFull when the queue has no room for more; ErrInvalid; net.ErrClosed.
// Source: ibv_post_srq_recv(3).
func (s *SRQ) PostRecv(wrs []RecvWR) (int, error) {
	s.mu.lockMutex()
	s.mu.lockWord()
	n, err := 0, error(nil)
	if s.maxSGE > 0 {
		n = s.ring.recvPlain(mirrorRecvs(wrs))
	}
	if n == 0 || n < len(wrs) {
		n, err = s.putRecvs(wrs, n)
		if n > 0 {
			s.ring.publishRecv()
		}
	}
	s.mu.unlockMutex()
	s.mu.unlockWord()
	if err == nil || err == ErrQueueFull { //nolint:errorlint // the provider's bare value
		return n, err
	}
	return n, &Error{Op: "post receive", Object: fmt.Sprintf("%s shared receive queue, request %d", s.device, n), Err: err}
}

// putRecvs encodes requests from the n-th on, up to the first that is refused.
func (s *SRQ) putRecvs(wrs []RecvWR, n int) (int, error) {
	if !s.ring.open() {
		return n, errClosed
	}
	for ; n < len(wrs); n++ {
		total, err := sumSGL(wrs[n].SGL, s.maxSGE)
		if err == nil {
			err = s.ring.recv((*provider.RecvWR)(&wrs[n]), total)
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// Modify changes what mask names: the limit, and on devices that can the size.
//
// Errors: EINVAL for a limit above the size; ErrInvalid for a size below what is posted;
// ErrNotSupported where the device cannot resize. Source: ibv_modify_srq(3).
func (s *SRQ) Modify(attr *SRQAttr, mask SRQAttrMask) error {
	const op = "modify shared receive queue"
	if mask&^(SRQAttrMaxWR|SRQAttrLimit) != 0 {
		return invalid(op, s.device, "unknown mask bits %#x", uint32(mask))
	}
	if err := s.begin(op); err != nil {
		return err
	}
	defer s.end()
	s.mu.Lock()
	defer s.mu.Unlock()
	in := abi.IbUverbsModifySrq{SrqHandle: s.handle, AttrMask: uint32(mask), MaxWr: attr.MaxWR, SrqLimit: attr.Limit}
	if mask&SRQAttrMaxWR != 0 {
		return wrap(op, s.device, s.resize(&in))
	}
	var drv []byte
	if s.ring.rxe != nil { // which wants its part with any change
		drv = rxe.NewResizePlan(nil, 0).In()
	}
	k := s.pd.ctx.k
	return wrap(op, s.device, uapi.Invoke(k.file, k.driver, uapi.ModifySRQ, uapi.Bytes(&in), nil, drv, nil))
}

// resize moves to the queue that the kernel makes.
func (s *SRQ) resize(in *abi.IbUverbsModifySrq) error {
	k := s.pd.ctx.k
	if s.ring.rxe == nil {
		return fmt.Errorf("%w: the device cannot resize a shared receive queue", ErrNotSupported)
	}
	// Kernels up to 6.1 at least lose the whole queue, and crash with the next message, if
	// they have to refuse.
	if n := s.ring.rxe.Posted(); in.MaxWr < n {
		return fmt.Errorf("%w: %d work requests, %d are posted", ErrInvalid, in.MaxWr, n)
	}
	room, err := k.arena.Get()
	if err != nil {
		return err
	}
	defer k.arena.Put(room)
	plan := rxe.NewResizePlan(room, uapi.Addr(room))
	if err := uapi.Invoke(k.file, k.driver, uapi.ModifySRQ, uapi.Bytes(in), nil, plan.In(), nil); err != nil {
		return err
	}
	bigger, err := plan.Attach(k.mapper, s.maxSGE)
	if err != nil {
		return err
	}
	old := s.ring
	s.ring = srqRing{rxe: bigger}
	if err := old.close(); err != nil {
		return err
	}
	now, err := s.query()
	if err == nil {
		s.maxWR = now.MaxWR
	}
	return err
}

// Query asks for the attributes. Source: ibv_query_srq(3).
func (s *SRQ) Query() (SRQAttr, error) {
	const op = "query shared receive queue"
	if err := s.begin(op); err != nil {
		return SRQAttr{}, err
	}
	defer s.end()
	a, err := s.query()
	return a, wrap(op, s.device, err)
}

func (s *SRQ) query() (SRQAttr, error) {
	in := abi.IbUverbsQuerySrq{SrqHandle: s.handle}
	var r abi.IbUverbsQuerySrqResp
	err := s.pd.ctx.k.invoke(uapi.QuerySRQ, uapi.Bytes(&in), uapi.Bytes(&r))
	return SRQAttr{MaxWR: r.MaxWr, MaxSGE: r.MaxSge, Limit: r.SrqLimit}, err
}

// Close destroys the queue. It fails with ErrBusy while queue pairs receive from it.
// Receives that are still posted are forgotten. Closing again does nothing. Source:
// ibv_destroy_srq(3).
func (s *SRQ) Close() error { return s.object.close(s, s.destroy) }

func (s *SRQ) destroy() error {
	var resp abi.IbUverbsDestroySrqResp
	k := s.pd.ctx.k
	cmd := k.command(uapi.SRQDestroy).
		Destroy(abi.UVERBS_ATTR_DESTROY_SRQ_HANDLE, s.handle).
		Out(abi.UVERBS_ATTR_DESTROY_SRQ_RESP, uapi.Bytes(&resp))
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := gone(cmd.Do(k.file)); err != nil {
		return err
	}
	s.pd.ctx.objects.drop(s.id)
	return s.ring.close()
}
