package mlx5

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
	"github.com/pureverbs/rdma/mmio"
)

// TestContextIn: as libmlx5 asks, but for DEVX, which nobody needs here.
func TestContextIn(t *testing.T) {
	if bigEndian {
		t.Skip("the golden bytes are of a little-endian host")
	}
	for page, want := range map[int]string{
		4096:  "10000000040000000000000000000000" + "01000000000000000300000000000000",
		65536: "20000000140000000000000000000000" + "01000000000000000300000000000000",
	} {
		p := ContextPlan{PageSize: page}
		if got := hex.EncodeToString(p.In()); got != want {
			t.Errorf("pages of %d: got %s, want %s", page, got, want)
		}
	}
	if n := len(new(ContextPlan).Out()); n != 72 {
		t.Errorf("room for the answer: %d bytes", n)
	}
}

// TestAnswers: what no device says is not believed.
func TestAnswers(t *testing.T) {
	bad := map[string]func(*abi.Mlx5IbAllocUcontextResp){
		"version":        func(r *abi.Mlx5IbAllocUcontextResp) { r.CqeVersion = 2 },
		"no cache line":  func(r *abi.Mlx5IbAllocUcontextResp) { r.CacheLineSize = 0 },
		"odd cache line": func(r *abi.Mlx5IbAllocUcontextResp) { r.CacheLineSize = 96 },
		"cache line":     func(r *abi.Mlx5IbAllocUcontextResp) { r.CacheLineSize = 8192 },
		"odd register":   func(r *abi.Mlx5IbAllocUcontextResp) { r.BfRegSize = 513 },
		"register":       func(r *abi.Mlx5IbAllocUcontextResp) { r.BfRegSize = 2048 },
		"tiny register":  func(r *abi.Mlx5IbAllocUcontextResp) { r.BfRegSize = 64 },
		"UARs":           func(r *abi.Mlx5IbAllocUcontextResp) { r.NumUarsPerPage = 2 },
		"no UARs":        func(r *abi.Mlx5IbAllocUcontextResp) { r.NumUarsPerPage = 0 },
		"UAR size":       func(r *abi.Mlx5IbAllocUcontextResp) { r.LogUarSize = 13 },
		"UAR shift":      func(r *abi.Mlx5IbAllocUcontextResp) { r.LogUarSize = 31 },
		"send":           func(r *abi.Mlx5IbAllocUcontextResp) { r.MaxSqDescSz = 0 },
		"receive":        func(r *abi.Mlx5IbAllocUcontextResp) { r.MaxRqDescSz = 0 },
		"registers":      func(r *abi.Mlx5IbAllocUcontextResp) { r.TotBfregs = 514 },
		"odd registers":  func(r *abi.Mlx5IbAllocUcontextResp) { r.TotBfregs = 3 },
	}
	for name, change := range bad {
		p := ContextPlan{PageSize: pageSize}
		p.resp = answer()
		change(&p.resp)
		if _, err := p.Attach(provider.Allocator{}, Options{}); !errors.Is(err, provider.ErrCorrupt) {
			t.Errorf("%s: got %v, want ErrCorrupt", name, err)
		}
	}
	old := ContextPlan{PageSize: pageSize}
	old.resp = answer()
	old.resp.NumUarsPerPage, old.resp.LogUarSize = 0, 0
	if c, err := old.Attach(provider.Allocator{}, Options{}); err != nil || c.limits.uars != 1 {
		t.Errorf("a kernel that knows one UAR a page only: %v", err)
	}
}

// TestRecords: slots of a cache line each, the lowest free one first, a page until its last
// record goes.
func TestRecords(t *testing.T) {
	b := open(t)
	r := &b.ctx.records
	var recs []record
	for i := range pageSize/64 + 1 {
		rec, err := r.take()
		if err != nil {
			t.Fatal(err)
		}
		if want := i % 64 * 64; rec.number()%pageSize != uint64(want) {
			t.Fatalf("record %d at %#x, want %#x", i, rec.number()%pageSize, want)
		}
		if rec.get32(0) != 0 || rec.get32(4) != 0 {
			t.Fatalf("record %d is not zero", i)
		}
		rec.put32(0, 0xffffffff)
		rec.put32(4, 0xffffffff)
		recs = append(recs, rec)
	}
	if len(b.live) != 2 {
		t.Fatalf("%d pages for 65 records", len(b.live))
	}
	r.give(recs[64])
	if len(b.live) != 1 {
		t.Error("the page of the last record is not freed")
	}
	r.give(recs[7])
	r.give(recs[3])
	again, err := r.take()
	if err != nil || again.at != 3 || again.get32(0) != 0 {
		t.Errorf("got slot %d (%#x, %v), want 3, cleared", again.at, again.get32(0), err)
	}
	b.fail = true
	for range 2 { // slot 7, then none
		_, err = r.take()
	}
	if !errors.Is(err, errNoMemory) {
		t.Errorf("no memory: got %v", err)
	}
	b.fail = false
}

// place says where a register is: number of the UAR, offset, shared or not.
func place(b *bench, reg *register) string {
	for number, page := range b.pages {
		if off := reg.number() - addrOf(page).number(); off < uint64(len(page)) {
			kind := "own"
			if reg.shared {
				kind = "shared"
			}
			return fmt.Sprintf("%x/%x %s %d", number, off, kind, reg.copies)
		}
	}
	return "nowhere"
}

// TestRegisters: the order of libmlx5: two UARs for the first four, then one more for each
// until six are shared, then the least used.
func TestRegisters(t *testing.T) {
	b := open(t)
	b.uars(false)
	var got []string
	var regs []*register
	for range 19 {
		b.uars(true)
		reg, err := b.ctx.takeRegister()
		if err != nil {
			t.Fatal(err)
		}
		regs = append(regs, reg)
		got = append(got, place(b, reg))
	}
	want := []string{"21/800 own", "21/a00 own", "22/800 own", "22/a00 own"}
	for _, s := range []string{"23/800", "23/a00", "24/800", "24/a00", "25/800", "25/a00", "26/800", "26/a00", "27/800", "27/a00", "28/800", "28/a00", "23/800", "23/a00", "24/800"} {
		want = append(want, s+" shared")
	}
	if diff := cmp.Diff(strings.Join(want, " 256\n")+" 256", strings.Join(got, "\n")); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	b.ctx.giveRegister(regs[2])
	b.ctx.giveRegister(regs[0])
	b.ctx.giveRegister(regs[9])
	for _, want := range []string{"22/800 own 256", "21/800 own 256", "25/a00 shared 256"} {
		if _, need := b.ctx.NeedUAR(true); need {
			t.Error("another UAR is wanted")
		}
		reg, _ := b.ctx.takeRegister()
		if got := place(b, reg); got != want {
			t.Errorf("after some went back: got %s, want %s", got, want)
		}
	}
}

// TestPlainRegister: without BlueFlame one UAR does for all.
func TestPlainRegister(t *testing.T) {
	for name, change := range map[string]setup{
		"wish":   func(_ *abi.Mlx5IbAllocUcontextResp, o *Options) { o.NoBlueFlame = true },
		"device": func(r *abi.Mlx5IbAllocUcontextResp, _ *Options) { r.BfRegSize = 0 },
	} {
		b := open(t, change)
		if _, err := b.ctx.takeRegister(); !errors.Is(err, errNoRegister) {
			t.Errorf("%s: a register out of nothing: %v", name, err)
		}
		if _, err := b.ctx.PlanCQ(1); !errors.Is(err, errNoRegister) {
			t.Errorf("%s: a completion queue that cannot be armed: %v", name, err)
		}
		if typ, need := b.ctx.NeedUAR(true); !need || typ != uarPlain {
			t.Errorf("%s: needs %d, %v", name, typ, need)
		}
		for range 3 {
			b.uars(true)
			reg, err := b.ctx.takeRegister()
			if err != nil || place(b, reg) != "20/800 own 0" || reg.flip != 0 {
				t.Errorf("%s: register %s, flip %d, %v", name, place(b, reg), reg.flip, err)
			}
		}
		if len(b.pages) != 1 {
			t.Errorf("%s: %d UARs", name, len(b.pages))
		}
	}
}

// TestLargePages: sixteen UARs in a page.
func TestLargePages(t *testing.T) {
	const page = 65536
	p := ContextPlan{PageSize: page}
	p.In()
	p.resp = answer()
	p.resp.NumUarsPerPage = 16
	c, err := p.Attach(provider.Allocator{}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	mem := aligned(page, page)
	if err := c.AddUAR(uarBlueFlame, 0x40, mmio.NewRegion(mem, nil)); err != nil {
		t.Fatal(err)
	}
	if len(c.uars.free) != 32 {
		t.Fatalf("%d registers", len(c.uars.free))
	}
	if reg := c.uars.free[31]; reg.uar != 0x4f || reg.number()-addrOf(mem).number() != 15*4096+0xa00 {
		t.Errorf("last register: UAR %#x, offset %#x", reg.uar, reg.number()-addrOf(mem).number())
	}
	if _, need := c.NeedUAR(true); need {
		t.Error("32 registers do not do")
	}
	if err := c.AddUAR(uarBlueFlame, 0x50, mmio.NewRegion(aligned(4096, 4096), nil)); !errors.Is(err, provider.ErrCorrupt) {
		t.Errorf("a short mapping: %v", err)
	}
}

// TestStaticUARs: the kernel made the UARs, and names the register of each queue pair.
func TestStaticUARs(t *testing.T) {
	static := func(r *abi.Mlx5IbAllocUcontextResp, _ *Options) { r.TotBfregs, r.NumDynBfregs = 16, 1024 }
	b := open(t, static)
	if n := b.ctx.StaticPages(); n != 8 {
		t.Fatalf("%d pages of UARs, want 8", n)
	}
	if diff := cmp.Diff([]int64{3 * pageSize}, b.ctx.StaticOffsets(3)); diff != "" {
		t.Error(diff)
	}
	for _, forQP := range []bool{false, true} {
		if _, need := b.ctx.NeedUAR(forQP); need {
			t.Error("wants more UARs")
		}
	}
	for number, want := range map[uint32]string{
		0: "0/800 own 0", 1: "0/a00 shared 256", 4: "1/800 shared 256", 21: "5/a00 shared 256",
		24: "6/800 own 256", 25: "6/a00 own 256", 28: "7/800 own 256", 29: "7/a00 own 256",
	} {
		reg, err := b.ctx.chosen(number)
		if err != nil || place(b, reg) != want {
			t.Errorf("register %d: %s, %v, want %s", number, place(b, reg), err, want)
		}
	}
	for _, number := range []uint32{2, 3, 30, 32, 1 << 31} {
		if _, err := b.ctx.chosen(number); !errors.Is(err, provider.ErrCorrupt) {
			t.Errorf("register %d: %v, want ErrCorrupt", number, err)
		}
	}
	q := b.cq(3)
	p := &CQPlan{queueMem: q.queueMem, uar: 0}
	p.In()
	if p.req.Flags != 0 || q.register.number() != addrOf(b.pages[0]).number()+0x20 {
		t.Errorf("completion queue: flags %d, armed at %#x", p.req.Flags, q.register.number()%pageSize)
	}
	b.ctx.uars.low = 5
	if reg := b.ctx.staticRegister(addrOf(b.pages[5]), 21, 1); reg.shared {
		t.Error("with five of their own, register 21 is one of them")
	}
	quiet := open(t, static, func(_ *abi.Mlx5IbAllocUcontextResp, o *Options) { o.NoBlueFlame = true })
	if diff := cmp.Diff([]int64{(3<<8 | 2) * pageSize, 2 * pageSize}, quiet.ctx.StaticOffsets(2)); diff != "" {
		t.Error(diff)
	}
	if reg, _ := quiet.ctx.chosen(24); reg.copies != 0 {
		t.Error("BlueFlame is not off")
	}
}

func TestTable(t *testing.T) {
	var tab table
	for want := range uint32(5000) {
		got, err := tab.reserve()
		if err != nil || got != want {
			t.Fatalf("got %d, %v, want %d", got, err, want)
		}
	}
	q := new(QP)
	tab.put(4097, q)
	if tab.get(4097) != q || tab.get(4096) != nil || tab.get(1<<23) != nil {
		t.Error("found at the wrong number")
	}
	tab.drop(4097)
	tab.drop(9)
	if tab.get(4097) != nil {
		t.Error("still found")
	}
	for _, want := range []uint32{9, 4097, 5000} {
		if got, _ := tab.reserve(); got != want {
			t.Errorf("got %d, want %d", got, want)
		}
	}
}
