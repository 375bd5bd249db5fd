package uverbs

import (
	"os"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
	"github.com/pureverbs/rdma/internal/provider/mlx5"
	"github.com/pureverbs/rdma/internal/uapi"
	"github.com/pureverbs/rdma/mmio"
)

// What mlx5 needs besides commands: pages of registers (UARs) that doorbells are stored to,
// and memory of its own for queues.

// planContext is the driver's part of opening the device. Only mlx5 has a context.
func (k *kernel) planContext(dev *Device, prov *providerInfo) plan[*mlx5.Context] {
	if k.driver != abi.RDMA_DRIVER_MLX5 {
		return plan[*mlx5.Context]{
			out:    make([]byte, prov.contextOut),
			attach: func() (*mlx5.Context, error) { return nil, nil },
		}
	}
	p := new(mlx5.ContextPlan)
	opt := mlx5.Options{NoBlueFlame: dev.NoBlueFlame}
	return plan[*mlx5.Context]{in: p.In(), out: p.Out(), attach: func() (*mlx5.Context, error) {
		c, err := p.Attach(provider.Allocator{Alloc: k.allocQueue, Free: k.freeQueue}, opt)
		if err != nil {
			return nil, err
		}
		if err := k.mapStatic(c); err != nil {
			c.Close()
			return nil, err
		}
		return c, nil
	}}
}

// mapStatic maps the registers that kernels before 5.7 made with the context.
func (k *kernel) mapStatic(c *mlx5.Context) error {
	for page := range c.StaticPages() {
		mem, err := k.mapFirst(c.StaticOffsets(page), os.Getpagesize())
		if err == nil {
			err = c.AddStatic(mem)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// mapFirst maps at the first of the offsets where it can be done; there is one.
func (k *kernel) mapFirst(offsets []int64, length int) (mem *mmio.Region, err error) {
	for _, off := range offsets {
		if mem, err = k.mapper(off, length); err == nil {
			break
		}
	}
	return mem, err
}

// needUAR makes sure that the next queue finds a register. The caller holds uarMu, until the
// queue is planned.
func (k *kernel) needUAR(forQP bool) error {
	typ, need := k.mlx5.NeedUAR(forQP)
	if !need {
		return nil
	}
	err := k.addUAR(typ)
	if typ == abi.MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF {
		return nil // where none are left, those that there are can be shared
	}
	return err
}

// addUAR makes and maps one more page of registers. It is there until the context is closed.
func (k *kernel) addUAR(typ uint64) error {
	var (
		off          uint64
		length, page uint32
	)
	cmd := k.command(uapi.UARAlloc).
		New(abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE).
		Const(abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, typ).
		Out(abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, uapi.Bytes(&off)).
		Out(abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, uapi.Bytes(&length)).
		Out(abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, uapi.Bytes(&page))
	if err := cmd.Do(k.file); err != nil {
		return err
	}
	handle := cmd.Result(abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE)
	mem, err := k.mapper(int64(off), int(length))
	if err != nil {
		k.destroyUAR(handle)
		return err
	}
	k.uars = append(k.uars, handle)
	return k.mlx5.AddUAR(typ, page, mem)
}

func (k *kernel) destroyUAR(handle uint32) error {
	return gone(k.command(uapi.UARDestroy).Destroy(abi.MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE, handle).Do(k.file))
}

// planCQMLX5 plans a completion queue, which is armed in a register.
func (k *kernel) planCQMLX5(a *CQInitAttr, granted *uint32) (plan[cqRing], error) {
	k.uarMu.Lock()
	defer k.uarMu.Unlock()
	if err := k.needUAR(false); err != nil {
		return plan[cqRing]{}, err
	}
	p, err := k.mlx5.PlanCQ(a.CQE)
	if err != nil {
		return plan[cqRing]{}, err
	}
	a.CQE = int(p.Entries())
	made := plan[cqRing]{in: p.In(), out: p.Out(), drop: p.Drop, attach: func() (r cqRing, err error) {
		r.mlx5, err = p.Attach(*granted)
		return r, err
	}}
	if uar, far := p.UAR(); far {
		made.farUAR = uar
	}
	return made, nil
}

// planQPMLX5 plans a queue pair. The kernel's answer about its sizes is what it was asked:
// what the program gets is known here.
func (k *kernel) planQPMLX5(a *QPInitAttr, q *QP) (plan[qpRings], error) {
	init := mlx5.QPInit{Type: uint32(a.Type), Cap: a.Cap, SigAll: a.SignalAll}
	if a.SRQ != nil {
		init.SRQ = a.SRQ.ring.mlx5
	}
	k.uarMu.Lock()
	defer k.uarMu.Unlock()
	if err := k.needUAR(true); err != nil {
		return plan[qpRings]{}, err
	}
	p, err := k.mlx5.PlanQP(&init)
	if err != nil {
		return plan[qpRings]{}, err
	}
	a.Cap.MaxInline = p.AskInline()
	return plan[qpRings]{in: p.In(), out: p.Out(), drop: p.Drop, attach: func() (r qpRings, err error) {
		q.cap = p.Cap()
		r.mlx5, err = p.Attach(q.num, a.SendCQ.ring.mlx5, a.RecvCQ.ring.mlx5)
		return r, err
	}}, nil
}

func (k *kernel) planSRQMLX5(a *SRQInitAttr, s *SRQ) (plan[srqRing], error) {
	p, err := k.mlx5.PlanSRQ(a.MaxWR, a.MaxSGE)
	if err != nil {
		return plan[srqRing]{}, err
	}
	a.MaxWR, a.MaxSGE = p.MaxWR(), p.MaxSGE()
	return plan[srqRing]{in: p.In(), out: p.Out(), drop: p.Drop, attach: func() (r srqRing, err error) {
		r.mlx5, err = p.Attach(s.maxWR)
		return r, err
	}}, nil
}

// allocQueue gives memory of a queue, which the kernel keeps track of so that it is freed
// also when the program forgets the context.
func (k *kernel) allocQueue(size int) ([]byte, error) {
	mem, err := uapi.AllocPages(size)
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.queues == nil {
		k.queues = make(map[*byte][]byte)
	}
	k.queues[&mem[0]] = mem
	return mem, nil
}

// freeQueues frees what is left. The kernel is done with it.
func (k *kernel) freeQueues() {
	for _, mem := range k.queues {
		uapi.FreePages(mem)
	}
	k.queues = nil
}

func (k *kernel) freeQueue(mem []byte) error {
	k.mu.Lock()
	delete(k.queues, &mem[0])
	k.mu.Unlock()
	return uapi.FreePages(mem)
}
