package uverbs

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"runtime/metrics"
	"slices"
	"testing"
	"time"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/discover"
	"github.com/pureverbs/rdma/internal/uapi"
)

// watchdog ends the process, with all stacks, if a run does not end: fuzzing alone would
// wait.
func watchdog(t *testing.T) {
	dog := time.AfterFunc(20*time.Second, func() { panic("the run does not end") })
	t.Cleanup(func() { dog.Stop() })
}

func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// maxMemory is far more than a run has a reason to take.
const maxMemory = 64 << 20

// FuzzHostileKernel uses all of the API, as one script says, on a kernel that answers as
// another one says. Each call gives an error or an object. When the kernel behaves again,
// everything closes, and nothing is left: no object, mapping, descriptor, pin or name.
func FuzzHostileKernel(f *testing.F) {
	var all []byte
	for i := range steps {
		all = append(append(all, byte(i)), make([]byte, stepLen-1)...)
	}
	for i := range uint64(128) {
		// Everything once, then anything; most of the answers make sense.
		r := rand.New(rand.NewPCG(i, 0))
		more, answers := make([]byte, 64*stepLen), make([]byte, 1<<10)
		for i := range more {
			more[i] = byte(r.Uint32()) & byte(r.Uint32()|0x80)
		}
		for i := range answers {
			if answers[i] = byte(r.UintN(0xa0)); r.UintN(16) == 0 {
				answers[i] = byte(r.Uint32())
			}
		}
		f.Add(uint8(i), slices.Concat(all, more), answers[:len(answers)/128*int(i)])
	}
	f.Fuzz(func(t *testing.T, how uint8, steps, answers []byte) {
		watchdog(t)
		answers = answers[:min(len(answers), 8<<10)]
		k := &hostileKernel{t: t, driver: abi.RDMA_DRIVER_RXE, script: (*script)(&answers), made: map[thing]int{}, stuck: map[thing]bool{}}
		if how&1 != 0 {
			k.driver = abi.RDMA_DRIVER_SIW
		}
		if how&16 != 0 {
			k.driver = abi.RDMA_DRIVER_MLX5
		}
		k.grand = how&8 != 0
		before := allocated()
		p := &program{t: t, k: k, ports: [...]int{1, 2, 300, 1<<31 - 1}[how>>1&3]}
		p.run(steps[:min(len(steps), 128*stepLen)])
		if n := allocated() - before; n > maxMemory {
			t.Errorf("%d bytes were allocated", n)
		}
	})
}

// stepLen is how long a step of a program is: what to do, and details.
const stepLen = 12

// program is a user of the API.
type program struct {
	t     *testing.T
	k     *hostileKernel
	s     script // details of the present step
	ports int

	ctx  *Context
	pds  []*PD
	chs  []*CompChannel
	cqs  []*CQ
	srqs []*SRQ
	qps  []*QP
	mrs  []*MR
	mws  []*MW
	ahs  []*AH
	open []io.Closer // all that is open, in the order of making
}

func (p *program) run(what []byte) {
	d := &Device{
		sys:  &discover.System{Root: "/nonexistent", Opener: p.k},
		info: discover.Device{Name: "hostile0", Driver: p.k.driver, Ports: p.ports, CharDev: discover.CharDev{ABI: 1}},
	}
	var err error
	p.ctx, err = d.Open()
	if kept(p, &[]*Context{}, p.ctx, err) {
		for ; len(what) >= stepLen; what = what[stepLen:] {
			p.s = script(what[1:stepLen])
			steps[int(what[0])%len(steps)](p)
		}
		p.end()
	}
	if left := p.k.left(); p.k.files != 0 || len(p.k.maps) != 0 || len(left) != 0 {
		p.t.Errorf("left in the kernel: %d files, %d mappings, objects %v", p.k.files, len(p.k.maps), left)
	}
}

// end closes all, now that the kernel behaves. Most of it goes in the reverse order of
// making; what moved to another parent may need another turn.
func (p *program) end() {
	p.k.tame = true
	for before := 0; len(p.open) != before; {
		before = len(p.open)
		slices.Reverse(p.open)
		p.open = slices.DeleteFunc(p.open, func(c io.Closer) bool { return c.Close() == nil })
		slices.Reverse(p.open)
	}
	for _, c := range p.open {
		p.t.Errorf("close %T: %v", c, c.Close())
	}
	c := p.ctx
	for num, q := range c.byNum {
		if p.k.stuck[thing{abi.UVERBS_OBJECT_QP, q.handle}] { // its number is taken
			delete(c.byNum, num)
		}
	}
	if len(c.k.pins) != 0 || len(c.k.queues) != 0 || len(c.objects.byID) != 0 || len(c.byNum) != 0 || len(c.children) != 0 {
		p.t.Errorf("left here: %d pins, %d queues, %d names, %d numbers, %d children", len(c.k.pins), len(c.k.queues), len(c.objects.byID), len(c.byNum), len(c.children))
	}
}

// check: an error says what failed, or is the bare sentinel of a full queue.
func (p *program) check(err error) {
	p.t.Helper()
	var e *Error
	if err != nil && err != ErrQueueFull && (!errors.As(err, &e) || e.Op == "" || err.Error() == "") { //nolint:errorlint // it is bare
		p.t.Errorf("error %#v does not say what failed", err)
	}
}

// kept checks that there is an object or an error, and keeps the object.
func kept[T interface {
	comparable
	io.Closer
}](p *program, list *[]T, o T, err error) bool {
	p.t.Helper()
	p.check(err)
	var none T
	if (o == none) != (err != nil) {
		p.t.Fatalf("got object %v and error %v", o, err)
	}
	if err != nil {
		return false
	}
	*list = append(*list, o)
	p.open = append(p.open, o)
	return true
}

// one is some object of a list; there may be none.
func one[T any](p *program, list []T) (o T, ok bool) {
	i := p.s.byte()
	if len(list) == 0 {
		return o, false
	}
	return list[int(i)%len(list)], true
}

// use runs f on an object, if there is one.
func use[T any](p *program, list []T, f func(T)) {
	p.t.Helper()
	if o, ok := one(p, list); ok {
		f(o)
	}
}

func (p *program) port() uint8 { return p.s.byte() % 4 }

func (p *program) pieces() []SGE {
	sgl := make([]SGE, min(p.s.size(), 1<<12))
	n := int(p.s.byte())
	use(p, p.mrs, func(m *MR) {
		for i := range sgl {
			sgl[i] = m.SGE(0, 1+n&0xf7) // most often within the region
		}
	})
	return sgl
}

// steps is what the program can do.
var steps = []func(*program){
	(*program).allocPD, (*program).newChannel, (*program).createCQ, (*program).createSRQ, (*program).regMR,
	(*program).createQP, (*program).makeRTS, (*program).postSend, (*program).postRecv, (*program).poll,
	(*program).read, (*program).build, (*program).queries, (*program).queryObjects, (*program).modify,
	(*program).resize, (*program).groups, (*program).windows, (*program).addresses, (*program).answer,
	(*program).coreOnly, (*program).rereg, (*program).events, (*program).wait, (*program).closeOne,
	func(p *program) { p.k.tamper(&p.s, p.queues()) }, func(p *program) { p.k.tamper(&p.s, p.queues()) },
}

// queues are those that the kernel can write to.
func (p *program) queues() (all [][]byte) {
	for _, g := range p.k.maps {
		all = append(all, g.mem)
	}
	own := slices.SortedFunc(maps.Values(p.ctx.k.queues), func(a, b []byte) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(uapi.Addr(a), uapi.Addr(b)))
	})
	return append(all, own...)
}

func (p *program) allocPD() {
	pd, err := p.ctx.AllocPD()
	kept(p, &p.pds, pd, err)
}

func (p *program) newChannel() {
	ch, err := p.ctx.NewCompChannel()
	kept(p, &p.chs, ch, err)
}

// completions is a size of a queue: on mlx5 the memory of it is this process's.
func (p *program) completions() int {
	n := p.s.size()
	if n < 1<<30 {
		n %= 1 << 16
	}
	return int(n)
}

func (p *program) createCQ() {
	ch, _ := one(p, p.chs)
	how := p.s.byte()
	if how&1 != 0 {
		ch = nil
	}
	cq, err := p.ctx.CreateCQAttr(&CQInitAttr{
		CQE: 1 + p.completions(), Channel: ch, Vector: int(how >> 1 & 1), SingleGoroutine: how&4 != 0,
	})
	kept(p, &p.cqs, cq, err)
}

func (p *program) createSRQ() {
	use(p, p.pds, func(pd *PD) {
		srq, err := pd.CreateSRQ(&SRQInitAttr{MaxWR: 1 + p.s.size(), MaxSGE: p.s.size()})
		kept(p, &p.srqs, srq, err)
	})
}

func (p *program) createQP() {
	use(p, p.pds, func(pd *PD) {
		a := &QPInitAttr{SignalAll: p.s.byte()&1 != 0, Type: [...]QPType{QPTypeRC, QPTypeUC, QPTypeUD, QPTypeXRCSend}[p.s.byte()&3]}
		a.SendCQ, _ = one(p, p.cqs)
		a.RecvCQ, _ = one(p, p.cqs)
		if p.s.byte()&3 == 3 {
			a.SRQ, _ = one(p, p.srqs)
		}
		a.Cap = QPCap{MaxSendWR: 1 + p.s.size(), MaxRecvWR: 1 + p.s.size(), MaxInline: p.s.size(), MaxSendSGE: 4, MaxRecvSGE: 4}
		qp, err := pd.CreateQP(a)
		kept(p, &p.qps, qp, err)
	})
}

func (p *program) regMR() {
	use(p, p.pds, func(pd *PD) {
		if p.s.byte()&1 != 0 {
			mr, err := pd.AllocMR(1+int(p.s.byte()), AccessLocalWrite)
			kept(p, &p.mrs, mr, err)
			return
		}
		mr, err := pd.RegMR(make([]byte, 1+int(p.s.byte())), AccessFlags(p.s.word()))
		kept(p, &p.mrs, mr, err)
	})
}

// makeRTS believes the kernel's word for the state of a queue pair.
func (p *program) makeRTS() {
	use(p, p.qps, func(q *QP) {
		_, err := q.Query(QPAttrState)
		p.check(err)
	})
}

func (p *program) postSend() {
	use(p, p.qps, func(q *QP) {
		wr := SendWR{
			ID: 1, Opcode: Opcode(p.s.byte() & 15), Flags: SendFlags(p.s.byte() & 15), RemoteAddr: 8, RKey: 1, Bind: new(MWBind),
		}
		if wr.Flags&SendInline != 0 {
			wr.Inline = [][]byte{make([]byte, p.s.byte()), make([]byte, int(p.s.byte())<<8)}
		} else {
			wr.SGL = p.pieces()
		}
		use(p, p.ahs, func(h *AH) { wr.Dest = h.Dest(1, 2) })
		_, err := q.PostSend([]SendWR{wr, wr, wr})
		p.check(err)
	})
}

func (p *program) postRecv() {
	sgl := p.pieces()
	use(p, p.qps, func(q *QP) {
		_, err := q.PostRecv([]RecvWR{{ID: 1, SGL: sgl}, {ID: 2}})
		p.check(err)
	})
	use(p, p.srqs, func(q *SRQ) {
		_, err := q.PostRecv([]RecvWR{{ID: 1, SGL: sgl}, {ID: 2}})
		p.check(err)
	})
}

func (p *program) poll() {
	use(p, p.cqs, func(q *CQ) {
		wcs := make([]WC, p.s.byte())
		n, err := q.Poll(wcs)
		p.check(err)
		if n < 0 || n > len(wcs) {
			p.t.Fatalf("%d completions in room for %d", n, len(wcs))
		}
		for i := range wcs[:n] {
			_ = wcs[i].Opcode.String()
			if err := wcs[i].Err(); (err == nil) != (wcs[i].Status == WCSuccess) {
				p.t.Errorf("status %v is error %v", wcs[i].Status, err)
			}
		}
		p.check(q.Arm(p.s.byte()&1 != 0))
	})
}

// read goes through the queue with a cursor.
func (p *program) read() {
	use(p, p.cqs, func(q *CQ) {
		cur := q.Start()
		for range p.s.byte() {
			if !cur.Next() {
				break
			}
			if cur.ID() != cur.WC().ID || cur.Status() != cur.WC().Status {
				p.t.Errorf("completion %d, %v decodes as %+v", cur.ID(), cur.Status(), cur.WC())
			}
		}
		p.check(cur.End())
	})
}

func (p *program) build() {
	use(p, p.qps, func(q *QP) {
		b := q.StartSend()
		for range p.s.byte() & 7 {
			b.Send(1, SendFlags(p.s.byte()&7))
			for i := range b.InlineRoom(int(p.s.byte())) {
				_ = i
			}
			room := b.InlineRoom(int(p.s.byte()))
			for i := range room {
				room[i] = 0x77
			}
			b.Write(2, 0, 3, 4).SGL(p.pieces())
		}
		if p.s.byte()&1 != 0 {
			b.Abort()
			return
		}
		_, err := b.Complete()
		p.check(err)
	})
}

func (p *program) queries() {
	_, err := p.ctx.QueryDevice()
	p.check(err)
	a, err := p.ctx.QueryPort(p.port())
	p.check(err)
	_, _ = a.Rate(), a.State.String()
	_, err = p.ctx.QueryPortSpeed(p.port())
	p.check(err)
	table, err := p.ctx.GIDTable()
	p.check(err)
	for i := range table {
		_ = table[i].Type.String() + table[i].GID.String()
	}
	_, err = p.ctx.QueryGID(p.port(), int(p.s.byte()))
	p.check(err)
	_, err = p.ctx.PKeyIndex(p.port(), 0xffff)
	p.check(err)
}

func (p *program) queryObjects() {
	use(p, p.srqs, func(q *SRQ) {
		_, err := q.Query()
		p.check(err)
	})
	use(p, p.qps, func(q *QP) {
		a, err := q.Query(QPAttrMask(p.s.word()))
		p.check(err)
		_ = a.State.String()
		_ = q.String()
	})
}

func (p *program) modify() {
	use(p, p.qps, func(q *QP) {
		p.check(q.Modify(&QPAttr{State: QPState(p.s.byte() & 7)}, QPAttrMask(p.s.word()&0x1fffff)|QPAttrState))
	})
	use(p, p.srqs, func(q *SRQ) {
		p.check(q.Modify(&SRQAttr{MaxWR: p.s.size(), Limit: p.s.size()}, SRQAttrMask(p.s.byte()&3)))
		if q.Cap().MaxSGE != q.maxSGE {
			p.t.Error("pieces changed")
		}
	})
}

func (p *program) resize() {
	use(p, p.cqs, func(q *CQ) {
		p.check(q.Resize(p.completions()))
		p.check(q.Modify(1, 2))
	})
}

func (p *program) groups() {
	use(p, p.qps, func(q *QP) {
		g := GID{0xff, 15: p.s.byte() & 3}
		p.check(q.AttachMulticast(g, 0))
		if p.s.byte()&1 != 0 {
			p.check(q.DetachMulticast(g, 0))
		}
	})
}

func (p *program) windows() {
	use(p, p.pds, func(pd *PD) {
		mw, err := pd.AllocMW(MWType(1 + p.s.byte()&1))
		kept(p, &p.mws, mw, err)
	})
	use(p, p.mws, func(w *MW) {
		use(p, p.mrs, func(m *MR) {
			use(p, p.qps, func(q *QP) { p.check(w.Bind(q, 1, 0, m, 0, int(p.s.byte()), 0)) })
			_, err := w.Prepare(m, 0, int(p.s.byte()), IncRKey(w.RKey()), 0)
			p.check(err)
		})
	})
}

func (p *program) addresses() {
	use(p, p.pds, func(pd *PD) {
		dgid := [...]GID{{0xff, 0x0e, 15: 1}, {10: 0xff, 11: 0xff, 12: 10}, {0xfe, 0x80}}[p.s.byte()%3]
		ah, err := pd.CreateAH(&AHAttr{PortNum: p.port(), IsGlobal: true, DGID: dgid, SGIDIndex: p.s.byte()})
		kept(p, &p.ahs, ah, err)
	})
}

// answer finds the way back to the sender of a datagram: from the address that it was sent to.
func (p *program) answer() {
	grh := make([]byte, GRHSize)
	if how := p.s.byte(); how&1 == 0 {
		grh[20], grh[36] = 0x45, 10
	} else {
		copy(grh, p.s)
		copy(grh[20:], p.s)
	}
	port, wc := p.port()^1, &WC{Flags: WCFlags(p.s.byte() ^ 1)}
	a, err := p.ctx.AHAttrFromWC(wc, grh, port)
	p.check(err)
	if err == nil && a.IsGlobal {
		h, err := ParseGRH(grh)
		if err != nil || !h.DGID.Addr().IsMulticast() && !p.k.hasGID(port, a.SGIDIndex, h.DGID) {
			p.t.Errorf("to answer what was sent to %v (%v) port %d index %d is chosen", h.DGID, err, port, a.SGIDIndex)
		}
	}
	use(p, p.pds, func(pd *PD) {
		ah, err := pd.CreateAHFromWC(wc, grh, port)
		kept(p, &p.ahs, ah, err)
	})
}

func (p *program) coreOnly() {
	x, err := p.ctx.OpenXRCD(-1, true, false)
	kept(p, &[]*XRCD{}, x, err)
	use(p, p.pds, func(pd *PD) {
		cq, _ := one(p, p.cqs)
		w, err := pd.CreateWQ(&WQInitAttr{CQ: cq, MaxWR: 1})
		kept(p, &[]*WQ{}, w, err)
		mr, err := pd.RegDMABuf(1, 0, 1, 0, 0)
		kept(p, &[]*MR{}, mr, err)
		p.check(pd.AdviseMR(AdvicePrefetch, true, []SGE{{Length: p.s.word()}}))
	})
	use(p, p.qps, func(q *QP) {
		f, err := q.CreateFlow(p.port(), 1)
		kept(p, &[]*Flow{}, f, err)
	})
}

func (p *program) rereg() {
	use(p, p.mrs, func(m *MR) {
		pd, _ := one(p, p.pds)
		p.check(m.Reregister(ReregFlags(p.s.byte()&7), pd, make([]byte, p.s.byte()), AccessLocalWrite))
	})
}

func (p *program) events() {
	e, err := p.ctx.NextAsyncEvent(context.Background())
	p.check(err)
	_ = e.Type.String()
	use(p, p.chs, func(ch *CompChannel) {
		q, err := ch.NextEvent(context.Background())
		p.check(err)
		if q != nil && !slices.Contains(p.cqs, q) {
			p.t.Error("event of a queue that is closed")
		}
	})
}

// wait ends: at the latest when the script is used up the channel fails.
func (p *program) wait() {
	use(p, p.cqs, func(q *CQ) {
		_, err := q.Wait(context.Background(), make([]WC, p.s.byte()&3))
		p.check(err)
	})
}

// closeOne closes some object. One on which others live refuses, and so may the kernel;
// after success all of its methods say that it is closed.
func (p *program) closeOne() {
	use(p, p.open[1:], func(c io.Closer) {
		err := c.Close()
		p.check(err)
		if err != nil {
			return
		}
		p.open = slices.DeleteFunc(p.open, func(o io.Closer) bool { return o == c })
		if err := c.Close(); err != nil {
			p.t.Errorf("closing a %T again: %v", c, err)
		}
		p.lose(c)
	})
}

func (p *program) lose(c io.Closer) {
	closed := func(_ any, err error) {
		p.t.Helper()
		if !errors.Is(err, net.ErrClosed) {
			p.t.Errorf("use of a closed %T: %v", c, err)
		}
	}
	switch o := c.(type) {
	case *PD:
		p.pds = slices.DeleteFunc(p.pds, func(e *PD) bool { return e == o })
		closed(o.AllocMR(1, 0))
	case *CompChannel:
		p.chs = slices.DeleteFunc(p.chs, func(e *CompChannel) bool { return e == o })
	case *CQ:
		p.cqs = slices.DeleteFunc(p.cqs, func(e *CQ) bool { return e == o })
		closed(o.Poll(make([]WC, 1)))
		closed(nil, o.Start().End())
	case *SRQ:
		p.srqs = slices.DeleteFunc(p.srqs, func(e *SRQ) bool { return e == o })
		closed(o.PostRecv([]RecvWR{{}}))
	case *QP:
		p.qps = slices.DeleteFunc(p.qps, func(e *QP) bool { return e == o })
		closed(o.PostSend([]SendWR{{Opcode: OpSend}}))
		closed(o.PostRecv([]RecvWR{{}}))
	case *MR:
		p.mrs = slices.DeleteFunc(p.mrs, func(e *MR) bool { return e == o })
	case *MW:
		p.mws = slices.DeleteFunc(p.mws, func(e *MW) bool { return e == o })
	case *AH:
		p.ahs = slices.DeleteFunc(p.ahs, func(e *AH) bool { return e == o })
	}
}

// FuzzGRH: what parses, written again by the book, gives the header; and it stays the same
// whatever follows.
func FuzzGRH(f *testing.F) {
	v6 := make([]byte, GRHSize)
	v6[0], v6[7], v6[8], v6[24] = 0x60, 64, 0xfe, 0xff
	v4 := make([]byte, GRHSize)
	v4[20], v4[28], v4[32], v4[36] = 0x45, 64, 10, 224
	both := slices.Clone(v6)
	copy(both[20:], []byte{0x45, 0, 0, 0, 0, 0, 0, 0, 1, 17, 0xb9, 0xed})
	f.Add(v6)
	f.Add(v4)
	f.Add(both)
	f.Add(v6[:39])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ParseGRH(b)
		if err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("error %v is not ErrInvalid", err)
			}
			return
		}
		if again, err := ParseGRH(append(slices.Clone(b[:GRHSize]), 1, 2, 3)); err != nil || again != h {
			t.Errorf("got %+v, %v of the header alone, %+v of more", again, err, h)
		}
		is4, is6 := b[20] == 0x45, b[0]>>4 == 6
		got4 := h.SGID == GID{10: 0xff, 11: 0xff, 12: b[32], 13: b[33], 14: b[34], 15: b[35]} &&
			h.DGID == GID{10: 0xff, 11: 0xff, 12: b[36], 13: b[37], 14: b[38], 15: b[39]} &&
			h.HopLimit == b[28] && h.TrafficClass == b[21] && h.FlowLabel == 0
		got6 := h.SGID == GID(b[8:24]) && h.DGID == GID(b[24:40]) && h.HopLimit == b[7] &&
			h.TrafficClass == b[0]<<4|b[1]>>4 && h.FlowLabel == uint32(b[1]&15)<<16|uint32(b[2])<<8|uint32(b[3])
		if !(got4 && is4) && !(got6 && is6) {
			t.Errorf("%x is read as %+v", b[:GRHSize], h)
		}
		if is4 && !is6 && !got4 || is6 && !is4 && !got6 {
			t.Errorf("%x is read as the other kind: %+v", b[:GRHSize], h)
		}
	})
}
