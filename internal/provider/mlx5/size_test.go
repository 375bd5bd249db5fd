package mlx5

import (
	"encoding/hex"
	"errors"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
)

const rc, uc, ud = abi.IB_UVERBS_QPT_RC, abi.IB_UVERBS_QPT_UC, abi.IB_UVERBS_QPT_UD

func caps(sendWR, recvWR, sendSGE, recvSGE, inline uint32) provider.QPCap {
	return provider.QPCap{MaxSendWR: sendWR, MaxRecvWR: recvWR, MaxSendSGE: sendSGE, MaxRecvSGE: recvSGE, MaxInline: inline}
}

// TestQPSizes: what libmlx5 44 and 65 make of what they are asked, traced.
func TestQPSizes(t *testing.T) {
	tests := []struct {
		typ    uint32
		ask    provider.QPCap
		srq    bool
		want   provider.QPCap
		blocks uint32
		slots  uint32
		size   uint32
	}{
		{rc, caps(1, 1, 1, 1, 0), false, caps(1, 4, 1, 1, 60), 4, 4, 16},
		{rc, caps(5, 6, 2, 3, 20), false, caps(8, 8, 2, 4, 60), 32, 8, 64},
		{rc, caps(10, 10, 4, 4, 0), false, caps(16, 16, 4, 4, 60), 64, 16, 64},
		{rc, caps(64, 64, 1, 2, 64), false, caps(102, 64, 1, 2, 124), 512, 64, 32},
		{rc, caps(1, 1, 16, 16, 200), false, caps(1, 1, 16, 16, 252), 8, 1, 256},
		{rc, caps(100, 100, 1, 1, 400), false, caps(102, 128, 1, 1, 444), 1024, 128, 16},
		{rc, caps(16, 1, 30, 1, 0), false, caps(23, 4, 30, 1, 508), 256, 4, 16},
		{rc, caps(16, 1, 52, 1, 0), false, caps(16, 4, 52, 1, 828), 256, 4, 16},
		{rc, caps(1, 1, 1, 1, 828), false, caps(1, 4, 1, 1, 828), 16, 4, 16},
		{uc, caps(5, 5, 2, 1, 100), false, caps(6, 8, 2, 1, 124), 32, 8, 16},
		{ud, caps(5, 5, 2, 1, 100), false, caps(5, 8, 2, 1, 124), 16, 8, 16},
		{ud, caps(7, 33, 8, 3, 0), false, caps(10, 64, 8, 4, 124), 32, 64, 64},
		{rc, caps(8192, 1, 1, 1, 0), false, caps(8192, 4, 1, 1, 60), 32768, 4, 16},
		{rc, caps(0, 1, 0, 1, 0), false, caps(0, 4, 0, 1, 0), 0, 4, 16},
		{rc, caps(1, 0, 1, 0, 0), true, caps(1, 0, 1, 0, 60), 4, 0, 1},
		// libmlx5 says -4 here
		{rc, caps(4, 1, 0, 1, 0), false, caps(5, 4, 0, 1, 0), 16, 4, 16},
		// more units than the device can count are not promised
		{ud, caps(1, 1, 59, 1, 0), false, caps(1, 4, 59, 1, 940), 16, 4, 16},
		{ud, caps(1, 0, 1, 1, 940), false, caps(1, 0, 1, 0, 940), 16, 0, 1},
		{ud, caps(0, 0, 1, 7, 10), false, caps(0, 0, 1, 0, 10), 0, 0, 1},
	}
	for _, tt := range tests {
		b := open(t)
		b.uars(true)
		init := &QPInit{Type: tt.typ, Cap: tt.ask}
		if tt.srq {
			init.SRQ = new(SRQ)
		}
		p, err := b.ctx.PlanQP(init)
		if err != nil {
			t.Errorf("%+v: %v", tt.ask, err)
			continue
		}
		if diff := cmp.Diff(tt.want, p.Cap()); diff != "" {
			t.Errorf("%+v: (-want +got)\n%s", tt.ask, diff)
		}
		p.In()
		if r := &p.req; r.SqWqeCount != tt.blocks || r.RqWqeCount != tt.slots || 1<<r.RqWqeShift != tt.size {
			t.Errorf("%+v: %d blocks, %d slots of 2^%d; want %d, %d of %d", tt.ask, r.SqWqeCount, r.RqWqeCount, r.RqWqeShift, tt.blocks, tt.slots, tt.size)
		}
		if p.AskInline() != tt.want.MaxInline {
			t.Errorf("%+v: asks for %d bytes inline", tt.ask, p.AskInline())
		}
		if err := p.Drop(); err != nil {
			t.Error(err)
		}
	}
}

func TestQPTooLarge(t *testing.T) {
	b := open(t)
	b.uars(true)
	for _, tt := range []struct {
		typ uint32
		cap provider.QPCap
	}{
		{rc, caps(1, 1, 53, 1, 0)},
		{rc, caps(1, 1, 1, 1, 829)},
		{rc, caps(1, 1, 1, 1, 1<<32-1)},
		{rc, caps(1, 1, 1<<32-1, 1, 0)},
		{rc, caps(8193, 1, 1, 1, 0)},
		{rc, caps(1<<32-1, 1, 1, 1, 0)},
		{rc, caps(1, 32769, 1, 1, 0)},
		{rc, caps(1, 1, 1, 33, 0)},
		{rc, caps(1, 1, 1, 1<<32-1, 0)},
		{ud, caps(1, 1, 60, 1, 0)},
		{ud, caps(1, 1, 1, 1, 941)},
	} {
		if _, err := b.ctx.PlanQP(&QPInit{Type: tt.typ, Cap: tt.cap}); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%+v: got %v, want EINVAL", tt.cap, err)
		}
	}
	if _, err := b.ctx.PlanQP(&QPInit{Type: 9}); !errors.Is(err, syscall.EOPNOTSUPP) {
		t.Errorf("another type: %v", err)
	}
	b.fail = true
	if _, err := b.ctx.PlanQP(&QPInit{Type: rc, Cap: caps(1, 1, 1, 1, 0)}); !errors.Is(err, errNoMemory) {
		t.Errorf("no memory: %v", err)
	}
}

// TestQPIn: the driver's part, traced of libmlx5, less addresses and its own wishes.
func TestQPIn(t *testing.T) {
	if bigEndian {
		t.Skip("the golden bytes are of a little-endian host")
	}
	b := open(t)
	b.uars(false)
	for uidx, want := range []string{
		"2000000008000000060000000004000000000000210000000000000000000000" + "0000000000000000",
		"2000000008000000060000000004000001000000210000000000000000000000" + "0000000000000000",
		"2000000008000000060000000004000002000000220000000000000000000000" + "0000000000000000",
	} {
		b.uars(true)
		p, err := b.ctx.PlanQP(&QPInit{Type: rc, Cap: caps(5, 6, 2, 3, 20)})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Drop()
		in := p.In()
		if len(in) != 56 || len(p.Out()) != 40 {
			t.Errorf("%d bytes in, %d out", len(in), len(p.Out()))
		}
		if got := hex.EncodeToString(in[16:]); got != want {
			t.Errorf("queue pair %d:\ngot  %s\nwant %s", uidx, got, want)
		}
		if p.req.BufAddr != addrOf(p.mem).number() || p.req.BufAddr%pageSize != 0 || p.req.DbAddr != p.rec.number() {
			t.Error("addresses")
		}
	}
	v0 := open(t, func(r *abi.Mlx5IbAllocUcontextResp, _ *Options) { r.CqeVersion = 0 })
	v0.uars(true)
	p, err := v0.ctx.PlanQP(&QPInit{Type: rc, Cap: caps(1, 1, 1, 1, 0)})
	if err != nil {
		t.Fatal(err)
	}
	p.In()
	if p.req.Uidx != 0xffffff {
		t.Errorf("completions of version 0: user index %#x", p.req.Uidx)
	}
	p.Drop()
}

// TestAttachRefuses: what the kernel says about a queue pair is judged.
func TestAttachRefuses(t *testing.T) {
	b := open(t, func(r *abi.Mlx5IbAllocUcontextResp, _ *Options) { r.TotBfregs = 16 })
	q := b.cq(3)
	p, err := b.ctx.PlanQP(rcInit(1))
	if err != nil {
		t.Fatal(err)
	}
	p.resp.BfregIndex = 0x80000000
	if _, err := p.Attach(1, q.CQ, q.CQ); !errors.Is(err, provider.ErrCorrupt) {
		t.Errorf("no such register: %v", err)
	}
	p.resp.BfregIndex = 24
	if _, err := p.Attach(1<<24, q.CQ, q.CQ); !errors.Is(err, provider.ErrCorrupt) {
		t.Errorf("a number of 25 bits: %v", err)
	}
	if err := p.Drop(); err != nil {
		t.Error(err)
	}
}
