package mlx5

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
)

// Options are a program's wishes.
type Options struct {
	NoBlueFlame bool // requests are never copied into a register, the device always fetches them
}

const (
	uarSize    = 4096 // a UAR, several of which may share a larger page of the system
	dedicated  = 4    // registers that one queue pair has for itself, at least
	totalRegs  = 16   // registers asked for, at least
	maxStatic  = 512  // registers a context can have
	maxBlocks  = 1 << 15
	maxBFReg   = 1024
	minRequest = 64
)

// ContextPlan is the driver's part of making a context.
type ContextPlan struct {
	PageSize int // of the system, in bytes; 0 asks it
	req      abi.Mlx5IbAllocUcontextReqV2
	resp     abi.Mlx5IbAllocUcontextResp
}

func (p *ContextPlan) page() int {
	if p.PageSize == 0 {
		return os.Getpagesize()
	}
	return p.PageSize
}

// In is the driver's input. It asks for UARs that are made one by one, as 5.7 and later
// do, and says how many an older kernel is to make at once. All 32 bytes must be sent: what
// is missing, 7.2 takes from its stack.
func (p *ContextPlan) In() []byte {
	total := uint32(max(totalRegs, 2*p.page()/uarSize))
	p.req = abi.Mlx5IbAllocUcontextReqV2{
		TotalNumBfregs:      total,
		NumLowLatencyBfregs: lowLatency(total),
		MaxCqeVersion:       1,
		LibCaps:             abi.MLX5_LIB_CAP_4K_UAR | abi.MLX5_LIB_CAP_DYN_UAR,
	}
	return bytesOf(&p.req)
}

// lowLatency is how many of all registers serve one queue pair each.
func lowLatency(total uint32) uint32 { return max(dedicated, total-min(total, 12)) }

// Out is the memory for the driver's response.
func (p *ContextPlan) Out() []byte { return bytesOf(&p.resp) }

// limits is what a device can do, and how it wants to be spoken to.
type limits struct {
	page        int
	slot        int // bytes from one doorbell record to the next: a cache line
	bfReg       int // bytes of a register, 0 without BlueFlame
	uars        int // in a page
	sendBytes   uint32
	recvBytes   uint32 // a request
	sendBlocks  uint32
	recvWR      uint32
	srqWR       uint32
	byUIdx      bool // completions name queue pairs by user index
	noBlueFlame bool
}

// Context is what one opened device's objects share. It is safe for concurrent use, but see
// [Context.NeedUAR].
type Context struct {
	limits
	mem provider.Allocator

	mu      sync.Mutex // protects what follows
	records records
	uars    registers

	qps table // by user index, or by number
}

// Attach checks the kernel's answer. Queues and doorbell records will be taken from mem.
func (p *ContextPlan) Attach(mem provider.Allocator, opt Options) (*Context, error) {
	c := &Context{mem: mem}
	c.noBlueFlame = opt.NoBlueFlame
	if err := c.limits.read(&p.resp, p.page()); err != nil {
		return nil, err
	}
	c.records.init(mem, c.page, c.slot)
	low, total := lowLatency(p.req.TotalNumBfregs), p.req.TotalNumBfregs
	if p.resp.TotBfregs != 0 {
		total = p.resp.TotBfregs
		if total > maxStatic || total%uint32(2*c.limits.uars) != 0 {
			return nil, fmt.Errorf("%w: %d registers", provider.ErrCorrupt, total)
		}
	}
	c.uars.init(int(low), int(total), p.resp.TotBfregs != 0)
	return c, nil
}

// read takes the limits from the kernel's answer, none of which a later shift or index may
// trip over.
func (l *limits) read(r *abi.Mlx5IbAllocUcontextResp, page int) error {
	l.page, l.slot, l.bfReg = page, int(r.CacheLineSize), int(r.BfRegSize)
	l.uars = int(r.NumUarsPerPage)
	uar := 1 << (r.LogUarSize & 31)
	if r.NumUarsPerPage == 0 && r.LogUarSize == 0 { // kernels before 4.11
		l.uars, uar = 1, page
	}
	switch {
	case r.CqeVersion > 1:
		return fmt.Errorf("%w: completions of version %d", provider.ErrCorrupt, r.CqeVersion)
	case l.slot < 8 || l.slot > page || l.slot&(l.slot-1) != 0:
		return fmt.Errorf("%w: cache lines of %d bytes", provider.ErrCorrupt, l.slot)
	case l.bfReg > maxBFReg || l.bfReg&(l.bfReg-1) != 0 || l.bfReg > 0 && l.bfReg < 2*blockSize:
		return fmt.Errorf("%w: registers of %d bytes", provider.ErrCorrupt, l.bfReg)
	case l.uars < 1 || l.uars > page/uarSize || uar > page/l.uars:
		return fmt.Errorf("%w: %d UARs of %d bytes in a page", provider.ErrCorrupt, l.uars, uar)
	case r.MaxSqDescSz < minRequest || r.MaxRqDescSz < pieceSize:
		return fmt.Errorf("%w: requests of at most %d and %d bytes", provider.ErrCorrupt, r.MaxSqDescSz, r.MaxRqDescSz)
	}
	l.sendBytes, l.recvBytes = uint32(r.MaxSqDescSz), uint32(r.MaxRqDescSz)
	// Positions have 16 bits, and the number of what is open must be known from them.
	l.sendBlocks, l.recvWR, l.srqWR = min(r.MaxSendWqebb, maxBlocks), min(r.MaxRecvWr, maxBlocks), min(r.MaxSrqRecvWr, 1<<16)
	l.byUIdx = r.CqeVersion == 1
	return nil
}

// Close unmaps the UARs and frees what memory is left. All queues are closed before.
func (c *Context) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.uars.close(), c.records.close())
}

// pages rounds a size up to whole pages.
func (c *Context) pages(size int) int { return (size + c.page - 1) &^ (c.page - 1) }
