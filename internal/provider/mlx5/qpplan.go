package mlx5

import (
	"fmt"
	"syscall"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
)

// QPInit says how a queue pair is to be made.
type QPInit struct {
	Type   uint32 // IB_UVERBS_QPT_RC, _UC or _UD
	Cap    provider.QPCap
	SRQ    *SRQ // nil: the queue pair has a receive queue of its own
	SigAll bool // every send request is signaled
}

// QPPlan is the driver's part of creating a queue pair.
type QPPlan struct {
	queueMem
	init  QPInit
	send  sendSize
	recv  recvSize
	reg   *register // nil: the kernel chooses
	uidx  uint32
	ops   uint32
	rings int // bytes of the queues; what comes behind is this side's own
	req   abi.Mlx5IbCreateQp
	resp  abi.Mlx5IbCreateQpResp
}

// qpUARIndex says that the number of a UAR is given, in place of a register's.
const qpUARIndex = 1 << 10

// PlanQP makes the memory of a queue pair, and chooses its register: see [Context.NeedUAR].
// Either Attach or Drop must follow. Errors: EINVAL for more than the device's limits.
func (c *Context) PlanQP(init *QPInit) (*QPPlan, error) {
	p := &QPPlan{init: *init, uidx: anyNumber}
	var ok bool
	if p.ops, ok = typeOps(init.Type); !ok {
		return nil, fmt.Errorf("%w: queue pairs of type %d", syscall.EOPNOTSUPP, init.Type)
	}
	if init.SRQ != nil {
		p.init.Cap.MaxRecvWR = 0
	}
	var err error
	if p.send, err = c.sizeSend(init.Type == abi.IB_UVERBS_QPT_UD, &p.init.Cap); err != nil {
		return nil, err
	}
	if p.recv, err = c.sizeRecv(&p.init.Cap); err != nil {
		return nil, err
	}
	p.rings = max(c.pages(int(p.recv.slots<<p.recv.shift)+int(p.send.blocks)*blockSize), c.page)
	own := int(p.send.blocks)*sendSlotSize + int(p.recv.slots)*8
	if p.queueMem, err = c.alloc(p.rings + own); err != nil {
		return nil, err
	}
	if p.reg, err = c.takeRegister(); err == nil && c.byUIdx {
		p.uidx, err = c.qps.reserve()
	}
	if err != nil {
		p.Drop()
		return nil, err
	}
	return p, nil
}

// In is the driver's input. All 56 bytes are to be sent, and no more.
func (p *QPPlan) In() []byte {
	p.req = abi.Mlx5IbCreateQp{
		BufAddr:    addrOf(p.mem).number(),
		DbAddr:     p.rec.number(),
		SqWqeCount: p.send.blocks,
		RqWqeCount: p.recv.slots,
		RqWqeShift: p.recv.shift,
		Uidx:       p.uidx,
	}
	if p.reg != nil {
		p.req.Flags, p.req.BfregIndex = qpUARIndex, p.reg.uar
	}
	return bytesOf(&p.req)
}

// Out is the memory for the driver's response.
func (p *QPPlan) Out() []byte { return bytesOf(&p.resp) }

// Cap is what the program gets. The kernel's own answer says what it was asked.
func (p *QPPlan) Cap() provider.QPCap {
	c := provider.QPCap{
		MaxSendWR: p.send.limit, MaxSendSGE: p.init.Cap.MaxSendSGE, MaxInline: p.send.inline,
		MaxRecvWR: p.recv.slots, MaxRecvSGE: p.recv.pieces,
	}
	if p.init.SRQ != nil {
		c.MaxRecvSGE = 0
	}
	return c
}

// AskInline is what the kernel is to be asked for as most bytes inline.
func (p *QPPlan) AskInline() uint32 { return p.send.inline }

// Drop frees what was taken: the kernel made no queue pair.
func (p *QPPlan) Drop() error {
	p.ctx.giveRegister(p.reg)
	if p.uidx != anyNumber {
		p.ctx.qps.drop(p.uidx)
	}
	return p.free()
}

// Attach makes the queue pair that reports into send and recv. On an error the plan stays:
// destroy the kernel's queue pair, then Drop.
func (p *QPPlan) Attach(qpn uint32, send, recv *CQ) (*QP, error) {
	if qpn > lowQPN {
		return nil, fmt.Errorf("%w: queue pair number %#x", provider.ErrCorrupt, qpn)
	}
	q := &QP{queueMem: p.queueMem, num: qpn, key: p.uidx, reg: p.reg, ops: p.ops, srq: p.init.SRQ}
	if p.uidx == anyNumber {
		q.key = qpn
	}
	if q.reg == nil {
		var err error
		if q.reg, err = p.ctx.chosen(p.resp.BfregIndex); err != nil {
			return nil, err
		}
	}
	q.datagram = p.init.Type == abi.IB_UVERBS_QPT_UD
	q.plain = plainOps(q.ops, p.init.Cap.MaxSendSGE, q.datagram)
	if p.init.SigAll {
		q.signal = ctrlSignal
	}
	base := addrOf(p.mem)
	own := base.add(uintptr(p.rings))
	q.rq.attach(base, &p.recv, own, p.rec.addr)
	q.sq.attach(base.add(uintptr(p.recv.slots)<<p.recv.shift), &p.send, own.add(uintptr(p.recv.slots)*8), p.rec.addr)
	q.sendCQ.Store(send)
	q.recvCQ.Store(recv)
	p.ctx.qps.put(q.key, q)
	return q, nil
}
