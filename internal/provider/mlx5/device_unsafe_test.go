package mlx5

import (
	"encoding/binary"
	"testing"
	"unsafe"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
	"github.com/pureverbs/rdma/mmio"
)

// The device of these tests is memory that the test writes and reads.

var be = binary.BigEndian

const pageSize = 4096

// arena hands out memory on the Go heap, page-aligned, with margins that nobody may touch.
type arena struct {
	t    testing.TB
	live map[*byte][]byte // what is handed out, with its margins
	fail bool
}

const soil = 0xa5

func newArena(t testing.TB) *arena {
	a := &arena{t: t, live: make(map[*byte][]byte)}
	t.Cleanup(func() {
		if n := len(a.live); n != 0 && !t.Failed() {
			t.Errorf("%d allocations are left", n)
		}
	})
	return a
}

func (a *arena) allocator() provider.Allocator {
	return provider.Allocator{Alloc: a.alloc, Free: a.free}
}

func aligned(size, unit int) []byte {
	mem := make([]byte, size+unit)
	skip := -int(uintptr(unsafe.Pointer(&mem[0]))) & (unit - 1)
	return mem[skip : skip+size : skip+size]
}

func (a *arena) alloc(size int) ([]byte, error) {
	if a.fail {
		return nil, errNoMemory
	}
	if size <= 0 || size%pageSize != 0 {
		a.t.Errorf("%d bytes are asked for, no whole pages", size)
	}
	whole := aligned(size+2*pageSize, pageSize)
	mem := whole[pageSize : pageSize+size : pageSize+size]
	for i := range pageSize {
		whole[i], whole[pageSize+size+i] = soil, soil
	}
	a.live[&mem[0]] = whole
	return mem, nil
}

func (a *arena) free(mem []byte) error {
	whole, ok := a.live[&mem[0]]
	if !ok || len(mem) != len(whole)-2*pageSize {
		a.t.Error("memory is freed that was not allocated")
		return nil
	}
	delete(a.live, &mem[0])
	a.check(whole)
	return nil
}

// checkMargins looks at the margins of all that is handed out.
func (a *arena) checkMargins() {
	a.t.Helper()
	for _, whole := range a.live {
		a.check(whole)
	}
}

func (a *arena) check(whole []byte) {
	a.t.Helper()
	for i := range pageSize {
		if whole[i] != soil || whole[len(whole)-1-i] != soil {
			a.t.Fatal("memory outside an allocation was written")
		}
	}
}

// answer is what a kernel of today answers.
func answer() abi.Mlx5IbAllocUcontextResp {
	return abi.Mlx5IbAllocUcontextResp{
		QpTabSize: 1 << 17, BfRegSize: 512, CacheLineSize: 64, MaxSqDescSz: 1024, MaxRqDescSz: 512,
		MaxSendWqebb: 32768, MaxRecvWr: 32768, MaxSrqRecvWr: 32768, NumPorts: 1, ResponseLength: 72,
		CqeVersion: 1, CmdsSuppUhw: 3, EthMinInline: 1, LogUarSize: 12, NumUarsPerPage: 1,
	}
}

// bench is an opened device: a context and its pages of UARs.
type bench struct {
	t testing.TB
	*arena
	ctx   *Context
	pages map[uint32][]byte // of UARs, by number
	next  uint32            // number of the next UAR
}

type setup func(*abi.Mlx5IbAllocUcontextResp, *Options)

func open(t testing.TB, change ...setup) *bench {
	t.Helper()
	b := &bench{t: t, arena: newArena(t), pages: make(map[uint32][]byte), next: 0x20}
	p := ContextPlan{PageSize: pageSize}
	p.In()
	p.resp = answer()
	var opt Options
	for _, f := range change {
		f(&p.resp, &opt)
	}
	var err error
	if b.ctx, err = p.Attach(b.allocator(), opt); err != nil {
		t.Fatal(err)
	}
	for i := range b.ctx.StaticPages() {
		if err := b.ctx.AddStatic(b.region(uint32(i))); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if err := b.ctx.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b *bench) region(number uint32) *mmio.Region {
	b.pages[number] = aligned(pageSize, pageSize)
	return mmio.NewRegion(b.pages[number], nil)
}

// uars does what the core does before a plan.
func (b *bench) uars(forQP bool) {
	b.t.Helper()
	if typ, need := b.ctx.NeedUAR(forQP); need {
		if err := b.ctx.AddUAR(typ, b.next, b.region(b.next)); err != nil {
			b.t.Fatal(err)
		}
		b.next++
	}
}

// cq is a completion queue and the device's end of it.
type cq struct {
	*CQ
	t    testing.TB
	mem  []byte
	prod uint32 // the device's position
}

func (b *bench) cq(entries int) *cq {
	b.t.Helper()
	b.uars(false)
	p, err := b.ctx.PlanCQ(entries)
	if err != nil {
		b.t.Fatal(err)
	}
	p.resp.Cqn = 0x40
	q, err := p.Attach(p.Entries())
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { q.Close() })
	return &cq{CQ: q, t: b.t, mem: q.mem}
}

// record is the first or second word of a doorbell record.
func (q *queueMem) record(off uintptr) uint32 { return q.rec.get32(off) }

// qp is a queue pair and the device's end of it.
type qp struct {
	*QP
	plan *QPPlan
	sqm  []byte // the send queue's memory
	rqm  []byte
}

func (b *bench) qp(init *QPInit, qpn uint32, send, recv *cq) *qp {
	b.t.Helper()
	b.uars(true)
	p, err := b.ctx.PlanQP(init)
	if err != nil {
		b.t.Fatal(err)
	}
	return b.attach(p, qpn, send, recv)
}

func (b *bench) attach(p *QPPlan, qpn uint32, send, recv *cq) *qp {
	b.t.Helper()
	q, err := p.Attach(qpn, send.CQ, recv.CQ)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		if q.mem != nil {
			send.Forget(q)
			recv.Forget(q)
			q.Close()
		}
	})
	rq := int(p.recv.slots) << p.recv.shift
	return &qp{q, p, q.mem[rq:][:p.send.blocks*blockSize], q.mem[:rq]}
}

// rcInit is a queue pair of type RC for n requests of each kind.
func rcInit(n uint32) *QPInit {
	return &QPInit{
		Type: abi.IB_UVERBS_QPT_RC,
		Cap:  provider.QPCap{MaxSendWR: n, MaxRecvWR: n, MaxSendSGE: 2, MaxRecvSGE: 2, MaxInline: 60},
	}
}

// cqe is an entry to be.
type cqe struct {
	kind     uint8
	q        *qp
	counter  uint16
	code     uint8 // of the request
	bytes    uint32
	imm      uint32
	source   uint32 // the word
	syndrome uint8
	vendor   uint8
}

func (c *cqe) encode(e []byte) {
	index := c.q.key
	if !c.q.ctx.byUIdx {
		index = 0
	}
	be.PutUint32(e[offIndex:], index)
	be.PutUint32(e[offSource:], c.source)
	be.PutUint32(e[offImm:], c.imm)
	be.PutUint32(e[offBytes:], c.bytes)
	e[offVendor], e[offSyndrome] = c.vendor, c.syndrome
	be.PutUint32(e[offQP:], uint32(c.code)<<24|c.q.num)
	be.PutUint16(e[offCounter:], c.counter)
}

// write puts an entry at the device's position.
func (q *cq) write(c *cqe) {
	n := uint32(len(q.mem)) / cqeSize
	if q.ring.mask+1 < n {
		n = q.ring.mask + 1
	}
	e := q.mem[q.prod%n*cqeSize:][:cqeSize]
	c.encode(e)
	e[offOwner] = c.kind<<4 | uint8(q.prod/n&1)
	q.prod++
}

// done completes the request at a block of the send queue.
func (q *cq) done(p *qp, at uint16) {
	code := p.sqm[uint32(at)%p.plan.send.blocks*blockSize+3]
	q.write(&cqe{kind: cqeRequester, q: p, counter: at, code: code})
}
