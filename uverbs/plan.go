package uverbs

import (
	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider/rxe"
	"github.com/pureverbs/rdma/internal/provider/siw"
)

// plan is the driver's part of a create call: its input, the memory for its answer, and what
// makes the rings of it afterwards. Making one may change what is asked of the kernel.
type plan[Ring any] struct {
	in, out []byte
	attach  func() (Ring, error)
	drop    func() error // gives the memory of the rings back, where it is there before the call
	farUAR  uint32       // of a completion queue on mlx5: the number of its UAR, where the input has no room for it
}

// abandon ends a plan that came to nothing. While the kernel has an object, because it could
// not be destroyed, its memory stays.
func (p *plan[Ring]) abandon(destroyed error) {
	if p.drop != nil && destroyed == nil {
		_ = p.drop() // there is an error already, whose follower this one is
	}
}

func (k *kernel) planCQ(a *CQInitAttr, granted *uint32) (plan[cqRing], error) {
	switch k.driver {
	case abi.RDMA_DRIVER_MLX5:
		return k.planCQMLX5(a, granted)
	case abi.RDMA_DRIVER_SIW:
		p := new(siw.CQPlan)
		return plan[cqRing]{out: p.Out(), attach: func() (r cqRing, err error) {
			r.siw, err = p.Attach(k.mapper)
			return r, err
		}}, nil
	}
	p := new(rxe.CQPlan)
	return plan[cqRing]{out: p.Out(), attach: func() (r cqRing, err error) {
		r.rxe, err = p.Attach(k.mapper)
		return r, err
	}}, nil
}

// planQP is the plan of a queue pair. Its number and its sizes are those of the kernel's
// answer when the rings are made, which may set the sizes right.
func (k *kernel) planQP(a *QPInitAttr, q *QP) (plan[qpRings], error) {
	switch k.driver {
	case abi.RDMA_DRIVER_MLX5:
		return k.planQPMLX5(a, q)
	case abi.RDMA_DRIVER_SIW:
		p := &siw.QPPlan{SigAll: a.SignalAll}
		return plan[qpRings]{out: p.Out(), attach: func() (r qpRings, err error) {
			r.siw, err = p.Attach(k.mapper, q.cap)
			return r, err
		}}, nil
	}
	p := &rxe.QPPlan{Datagram: a.Type == QPTypeUD}
	return plan[qpRings]{out: p.Out(), attach: func() (r qpRings, err error) {
		r.rxe, err = p.Attach(k.mapper, q.cap)
		return r, err
	}}, nil
}

func (k *kernel) planSRQ(a *SRQInitAttr, s *SRQ) (plan[srqRing], error) {
	switch k.driver {
	case abi.RDMA_DRIVER_MLX5:
		return k.planSRQMLX5(a, s)
	case abi.RDMA_DRIVER_SIW:
		p := new(siw.SRQPlan)
		return plan[srqRing]{out: p.Out(), attach: func() (r srqRing, err error) {
			r.siw, err = p.Attach(k.mapper, s.maxSGE)
			return r, err
		}}, nil
	}
	p := new(rxe.SRQPlan)
	return plan[srqRing]{out: p.Out(), attach: func() (r srqRing, err error) {
		r.rxe, err = p.Attach(k.mapper, s.maxSGE)
		return r, err
	}}, nil
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
