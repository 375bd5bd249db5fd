package uverbs

import (
	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
	"github.com/pureverbs/rdma/internal/provider/rxe"
	"github.com/pureverbs/rdma/internal/provider/siw"
	"github.com/pureverbs/rdma/internal/uapi"
)

// The queues of the few drivers behind a static switch. There is no interface: the compiler
// sees each callee, so work requests and completions of callers stay off the heap.

// cqRing is the memory of a completion queue: one of the pointers is set, none once closed.
type cqRing struct {
	rxe *rxe.CQ
	siw *siw.CQ
}

func (r *cqRing) open() bool { return r.rxe != nil || r.siw != nil }

func (r *cqRing) next(wc *provider.WC) (bool, error) {
	if r.rxe != nil {
		return r.rxe.Next(wc)
	}
	return r.siw.Next(wc)
}

func (r *cqRing) advance() (bool, error) {
	if r.rxe != nil {
		return r.rxe.Advance()
	}
	return r.siw.Advance()
}

func (r *cqRing) current() (id uint64, status provider.WCStatus) {
	if r.rxe != nil {
		return r.rxe.ID(), r.rxe.Status()
	}
	return r.siw.ID(), r.siw.Status()
}

func (r *cqRing) decode(wc *provider.WC) {
	if r.rxe != nil {
		r.rxe.Decode(wc)
		return
	}
	r.siw.Decode(wc)
}

// armsByCall tells whether the kernel must be called to arm the queue. Elsewhere arm does
// it, in shared memory.
func (r *cqRing) armsByCall() bool { return r.siw == nil }

func (r *cqRing) arm(solicitedOnly bool) { r.siw.Arm(solicitedOnly) }

func (r *cqRing) armByCall(bell *uapi.Doorbell, solicitedOnly bool) error {
	only := uint32(0)
	if solicitedOnly {
		only = 1
	}
	copy(bell.Body()[4:], uapi.Bytes(&only))
	return bell.Ring()
}

func (r *cqRing) release() {
	if r.rxe != nil {
		r.rxe.Release()
		return
	}
	r.siw.Release()
}

func (r *cqRing) forget(qpNum uint32) {
	switch {
	case r.rxe != nil:
		r.rxe.Forget(qpNum)
	case r.siw != nil:
		r.siw.Forget(qpNum)
	}
}

func (r *cqRing) close() (err error) {
	switch {
	case r.rxe != nil:
		err = r.rxe.Close()
	case r.siw != nil:
		err = r.siw.Close()
	}
	*r = cqRing{}
	return err
}

// qpRings is the memory of a queue pair: one of the pointers is set, none once closed.
type qpRings struct {
	rxe *rxe.QP
	siw *siw.QP
}

func (r *qpRings) open() bool { return r.rxe != nil || r.siw != nil }

func (r *qpRings) send(wr *provider.SendWR, total uint32) error {
	if r.rxe != nil {
		return r.rxe.Send(wr, total)
	}
	return r.siw.Send(wr, total)
}

func (r *qpRings) publishSend() {
	if r.rxe != nil {
		r.rxe.PublishSend()
		return
	}
	r.siw.PublishSend()
}

// takeSends takes back what was encoded and not published, and on siw also what was and the
// kernel has left lying.
func (r *qpRings) takeSends(taken func(id uint64)) {
	if r.rxe != nil {
		r.rxe.TakeSends(taken)
		return
	}
	r.siw.PublishSend()
	r.siw.TakeSends(taken)
}

func (r *qpRings) dropSend() {
	if r.rxe != nil {
		r.rxe.DropSend()
		return
	}
	r.siw.DropSend()
}

func (r *qpRings) inlineRoom() []byte {
	if r.rxe != nil {
		return r.rxe.InlineRoom()
	}
	return r.siw.InlineRoom()
}

func (r *qpRings) hasRecv() bool {
	if r.rxe != nil {
		return r.rxe.HasRecv()
	}
	return r.siw.HasRecv()
}

func (r *qpRings) recv(wr *provider.RecvWR, total uint32) error {
	if r.rxe != nil {
		return r.rxe.Recv(wr, total)
	}
	return r.siw.Recv(wr, total)
}

func (r *qpRings) publishRecv() {
	if r.rxe != nil {
		r.rxe.PublishRecv()
		return
	}
	r.siw.PublishRecv()
}

func (r *qpRings) close() (err error) {
	switch {
	case r.rxe != nil:
		err = r.rxe.Close()
	case r.siw != nil:
		err = r.siw.Close()
	}
	*r = qpRings{}
	return err
}

// srqRing is the memory of a shared receive queue: one of the pointers is set, none once
// closed.
type srqRing struct {
	rxe *rxe.SRQ
	siw *siw.SRQ
}

func (r *srqRing) open() bool { return r.rxe != nil || r.siw != nil }

func (r *srqRing) recv(wr *provider.RecvWR, total uint32) error {
	if r.rxe != nil {
		return r.rxe.Recv(wr, total)
	}
	return r.siw.Recv(wr, total)
}

func (r *srqRing) publishRecv() {
	if r.rxe != nil {
		r.rxe.PublishRecv()
		return
	}
	r.siw.PublishRecv()
}

func (r *srqRing) close() (err error) {
	switch {
	case r.rxe != nil:
		err = r.rxe.Close()
	case r.siw != nil:
		err = r.siw.Close()
	}
	*r = srqRing{}
	return err
}

// plan is the driver's part of a create call: the memory for its answer, and what makes the
// rings of it afterwards.
type plan[Ring any] struct {
	out    []byte
	attach func() (Ring, error)
}

func (k *kernel) planCQ() plan[cqRing] {
	if k.driver == abi.RDMA_DRIVER_SIW {
		p := new(siw.CQPlan)
		return plan[cqRing]{p.Out(), func() (r cqRing, err error) {
			r.siw, err = p.Attach(k.mapper)
			return r, err
		}}
	}
	p := new(rxe.CQPlan)
	return plan[cqRing]{p.Out(), func() (r cqRing, err error) {
		r.rxe, err = p.Attach(k.mapper)
		return r, err
	}}
}

// planQP is the plan of a queue pair; granted is read after the kernel's answer.
func (k *kernel) planQP(a *QPInitAttr, granted *QPCap) plan[qpRings] {
	if k.driver == abi.RDMA_DRIVER_SIW {
		p := &siw.QPPlan{SigAll: a.SignalAll}
		return plan[qpRings]{p.Out(), func() (r qpRings, err error) {
			r.siw, err = p.Attach(k.mapper, *granted)
			return r, err
		}}
	}
	p := &rxe.QPPlan{Datagram: a.Type == QPTypeUD}
	return plan[qpRings]{p.Out(), func() (r qpRings, err error) {
		r.rxe, err = p.Attach(k.mapper, *granted)
		return r, err
	}}
}

func (k *kernel) planSRQ(maxSGE *uint32) plan[srqRing] {
	if k.driver == abi.RDMA_DRIVER_SIW {
		p := new(siw.SRQPlan)
		return plan[srqRing]{p.Out(), func() (r srqRing, err error) {
			r.siw, err = p.Attach(k.mapper, *maxSGE)
			return r, err
		}}
	}
	p := new(rxe.SRQPlan)
	return plan[srqRing]{p.Out(), func() (r srqRing, err error) {
		r.rxe, err = p.Attach(k.mapper, *maxSGE)
		return r, err
	}}
}

// planMR is the driver's part of registering memory.
func (k *kernel) planMR() (in, out []byte) {
	if k.driver != abi.RDMA_DRIVER_SIW {
		return nil, nil
	}
	// The low bits of the keys are ours to choose. That they change with each registration
	// makes a key of a region that is gone miss the next one in its place.
	p := &siw.MRPlan{Key: uint8(k.lastKey.Add(1))}
	return p.In(), p.Out()
}
