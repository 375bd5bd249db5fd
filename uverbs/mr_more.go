package uverbs

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"syscall"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
)

// ReregFlags says what Reregister changes: enum ibv_rereg_mr_flags.
type ReregFlags uint32

// What can change.
const (
	ReregTranslation ReregFlags = 1 // the memory
	ReregPD          ReregFlags = 2 // the protection domain
	ReregAccess      ReregFlags = 4 // the access flags
)

// Reregister changes what flags names and keeps the region; its keys may change. mem counts
// with ReregTranslation (the caller's memory, as for RegMR), pd with ReregPD, access with
// ReregAccess. No work request may use the region meanwhile. After an error the region is
// as it was.
//
// Errors: ErrNotSupported where the device or kernel cannot: siw, rxe before Linux 6.3, and
// on rxe ReregTranslation. Source: ibv_rereg_mr(3).
func (m *MR) Reregister(flags ReregFlags, pd *PD, mem []byte, access AccessFlags) error {
	const op = "re-register memory region"
	if err := m.beginAlone(op); err != nil {
		return err
	}
	defer m.use.Unlock()
	switch {
	case flags == 0 || flags&^(ReregTranslation|ReregPD|ReregAccess) != 0:
		return invalid(op, m.device, "flags %#x", uint32(flags))
	case flags&ReregPD != 0 && (pd == nil || pd.ctx != m.pd.ctx):
		return invalid(op, m.device, "a protection domain of another context, or none")
	case flags&ReregTranslation != 0 && len(mem) == 0:
		return invalid(op, m.device, "no memory: a region holds at least one byte")
	case flags&ReregAccess != 0 && access.remoteWithoutLocal():
		return invalid(op, m.device, "remote write and atomic access need local write access")
	}
	in := abi.IbUverbsReregMr{MrHandle: m.handle, Flags: uint32(flags), AccessFlags: uint32(access)}
	var pinned *runtime.Pinner
	if flags&ReregTranslation != 0 {
		pinned = m.pd.ctx.k.pin(mem)
		in.Start = uapi.Addr(mem)
		in.HcaVa, in.Length = in.Start, uint64(len(mem))
	}
	if flags&ReregPD != 0 {
		if err := pd.add(m); err != nil {
			if pinned != nil {
				m.pd.ctx.k.unpin(pinned)
			}
			return err
		}
		in.PdHandle = pd.handle
	}
	var resp abi.IbUverbsReregMrResp
	if err := m.pd.ctx.k.invoke(uapi.ReregMR, uapi.Bytes(&in), uapi.Bytes(&resp)); err != nil {
		if pinned != nil {
			m.pd.ctx.k.unpin(pinned)
		}
		if flags&ReregPD != 0 && pd != m.pd {
			pd.remove(m)
		}
		return &Error{Op: op, Object: m.device, Err: cause(err), Hint: reregHint(err)}
	}
	if flags&ReregAccess != 0 {
		m.demand = access&AccessOnDemand != 0
	}
	m.lkey, m.rkey = resp.Lkey, resp.Rkey
	if flags&ReregPD != 0 && pd != m.pd {
		m.pd.remove(m)
		m.pd, m.parents = pd, []*object{&pd.object}
	}
	if pinned != nil {
		return m.replace(mem, pinned)
	}
	return nil
}

// replace lets go of the memory that the region had.
func (m *MR) replace(mem []byte, pinned *runtime.Pinner) error {
	was, pages := m.pinned, m.pages
	m.mem, m.size, m.addr, m.pinned, m.pages = mem[:len(mem):len(mem)], len(mem), uapi.Addr(mem), pinned, nil
	if was != nil {
		m.pd.ctx.k.unpin(was)
	}
	if pages != nil {
		return uapi.FreePages(pages)
	}
	return nil
}

func reregHint(err error) string {
	if missing(err) {
		return "rxe can from Linux 6.3 on, and never change the memory"
	}
	return hint(err)
}

func (a AccessFlags) remoteWithoutLocal() bool {
	return a&(AccessRemoteWrite|AccessRemoteAtomic) != 0 && a&AccessLocalWrite == 0
}

// RegDMABuf registers length bytes, at offset, of a dma-buf (memory of another device, such
// as a GPU). Peers address it from iova on, which must have the same offset within a page.
// The region has no Bytes.
//
// Errors: ErrNotSupported on devices that cannot, which the software devices are, and
// before Linux 5.12. Source: ibv_reg_dmabuf_mr(3).
func (p *PD) RegDMABuf(fd int, offset, length, iova uint64, access AccessFlags) (*MR, error) {
	const op = "register dma-buf memory region"
	switch {
	case fd < 0 || length == 0 || length > math.MaxInt:
		return nil, invalid(op, p.device, "descriptor %d, %d bytes", fd, length)
	case access.remoteWithoutLocal():
		return nil, invalid(op, p.device, "remote write and atomic access need local write access")
	}
	if err := p.begin(op); err != nil {
		return nil, err
	}
	defer p.end()
	mr := &MR{object: object{kind: "memory region", device: p.device}, pd: p, addr: iova, size: int(length)}
	cmd := p.ctx.k.command(uapi.RegDMABufMR).
		New(abi.UVERBS_ATTR_REG_DMABUF_MR_HANDLE).
		Use(abi.UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE, p.handle).
		In64(abi.UVERBS_ATTR_REG_DMABUF_MR_OFFSET, offset).
		In64(abi.UVERBS_ATTR_REG_DMABUF_MR_LENGTH, length).
		In64(abi.UVERBS_ATTR_REG_DMABUF_MR_IOVA, iova).
		In32(abi.UVERBS_ATTR_REG_DMABUF_MR_FD, uint32(fd)).
		Flags(abi.UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS, uint64(access)).
		Out(abi.UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY, uapi.Bytes(&mr.lkey)).
		Out(abi.UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY, uapi.Bytes(&mr.rkey))
	if err := cmd.Do(p.ctx.k.file); err != nil {
		why := hint(err)
		if missing(err) {
			why = "the driver cannot register dma-bufs, or the kernel is older than Linux 5.12"
		}
		return nil, &Error{Op: op, Object: p.device, Err: cause(err), Hint: why}
	}
	mr.handle = cmd.Result(abi.UVERBS_ATTR_REG_DMABUF_MR_HANDLE)
	if err := mr.adopt(mr, &p.object); err != nil {
		mr.destroy()
		return nil, err
	}
	return mr, nil
}

// Advice is what AdviseMR tells: enum ib_uverbs_advise_mr_advice.
type Advice uint32

// The advices: bring the pages of regions with AccessOnDemand in, before they are used.
const (
	AdvicePrefetch        Advice = abi.IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH
	AdvicePrefetchWrite   Advice = abi.IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE
	AdvicePrefetchNoFault Advice = abi.IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT
)

// AdviseMR gives advice about pieces of on-demand memory regions; with wait it returns when
// it is carried out. At most 4095 pieces. Errors: ErrNotSupported on devices and kernels
// without on-demand paging (siw; rxe before Linux 6.15); ErrInvalid for a piece that is not
// of such a region of this domain. Source: ibv_advise_mr(3).
func (p *PD) AdviseMR(advice Advice, wait bool, sgl []SGE) error {
	const op = "advise on memory region"
	if len(sgl) == 0 || len(sgl) > 4095 {
		return invalid(op, p.device, "%d pieces", len(sgl))
	}
	list := make([]abi.IbUverbsSge, len(sgl))
	for i, s := range sgl {
		if s.Length == outside {
			return invalid(op, p.device, "piece %d is not within its memory region", i)
		}
		list[i] = abi.IbUverbsSge{Addr: s.Addr, Length: s.Length, Lkey: s.LKey}
	}
	if err := p.onDemand(sgl); err != nil {
		return wrap(op, p.device, err)
	}
	if err := p.begin(op); err != nil {
		return err
	}
	defer p.end()
	flags := uint64(0)
	if wait {
		flags = abi.IB_UVERBS_ADVISE_MR_FLAG_FLUSH
	}
	err := p.ctx.k.command(uapi.AdviseMR).
		Use(abi.UVERBS_ATTR_ADVISE_MR_PD_HANDLE, p.handle).
		Const(abi.UVERBS_ATTR_ADVISE_MR_ADVICE, uint64(advice)).
		Flags(abi.UVERBS_ATTR_ADVISE_MR_FLAGS, flags).
		In(abi.UVERBS_ATTR_ADVISE_MR_SGE_LIST, uapi.SliceBytes(list)).
		Do(p.ctx.k.file)
	if errors.Is(err, syscall.EFAULT) {
		err = fmt.Errorf("%w: a page cannot be brought in", err)
	}
	return wrap(op, p.device, err)
}

// onDemand looks that all pieces are of on-demand regions: rxe (Linux 7.2) crashes over
// advice about another one.
func (p *PD) onDemand(sgl []SGE) error {
	regions := p.regions()
	for i, s := range sgl {
		if slices.ContainsFunc(regions, func(m *MR) bool { return m.onDemand(s) }) {
			continue
		}
		attr, err := p.ctx.QueryDevice()
		if err == nil && attr.ODPCaps == 0 {
			err = fmt.Errorf("%w: the device has no on-demand paging", ErrNotSupported)
		}
		if err == nil {
			err = fmt.Errorf("%w: piece %d is not of a region with AccessOnDemand of this protection domain", ErrInvalid, i)
		}
		return err
	}
	return nil
}

func (p *PD) regions() (all []*MR) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.children {
		if m, ok := c.(*MR); ok {
			all = append(all, m)
		}
	}
	return all
}

// onDemand tells whether a piece is of this region, and may be given advice about.
func (m *MR) onDemand(s SGE) bool {
	m.use.RLock()
	defer m.use.RUnlock()
	off, size := s.Addr-m.addr, uint64(m.size)
	return m.demand && s.LKey == m.lkey && s.Addr >= m.addr && off <= size && uint64(s.Length) <= size-off
}
