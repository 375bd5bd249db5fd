package uverbs

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"syscall"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
)

// AccessFlags say what others than the CPU may do with memory. Local reading (sending from
// the memory) is always allowed; nothing else is unless asked for.
type AccessFlags uint32

// The access flags (ibv_reg_mr(3)).
const (
	AccessLocalWrite      AccessFlags = abi.IB_UVERBS_ACCESS_LOCAL_WRITE      // receive into it, RDMA READ into it
	AccessRemoteWrite     AccessFlags = abi.IB_UVERBS_ACCESS_REMOTE_WRITE     // peers write; needs AccessLocalWrite
	AccessRemoteRead      AccessFlags = abi.IB_UVERBS_ACCESS_REMOTE_READ      // peers read
	AccessRemoteAtomic    AccessFlags = abi.IB_UVERBS_ACCESS_REMOTE_ATOMIC    // peers do atomics; needs AccessLocalWrite
	AccessMWBind          AccessFlags = abi.IB_UVERBS_ACCESS_MW_BIND          // memory windows may be bound to it
	AccessZeroBased       AccessFlags = abi.IB_UVERBS_ACCESS_ZERO_BASED       // windows only: peers count from 0
	AccessOnDemand        AccessFlags = abi.IB_UVERBS_ACCESS_ON_DEMAND        // pages are brought in when used, not pinned
	AccessFlushGlobal     AccessFlags = abi.IB_UVERBS_ACCESS_FLUSH_GLOBAL     // peers FLUSH for visibility
	AccessFlushPersistent AccessFlags = abi.IB_UVERBS_ACCESS_FLUSH_PERSISTENT // peers FLUSH for persistence
	AccessRelaxedOrdering AccessFlags = abi.IB_UVERBS_ACCESS_RELAXED_ORDERING
)

// optionalAccess are hints: kernels without support for them refuse them.
const optionalAccess AccessFlags = abi.IB_UVERBS_ACCESS_OPTIONAL_RANGE

// coreOptionalAccess in a context's core_support says that the kernel takes the hints.
const coreOptionalAccess = abi.IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS

// MR is a memory region: memory that the device may use.
type MR struct {
	object
	pd     *PD
	mem    []byte // nil for memory of another device
	size   int
	addr   uint64          // as work requests and peers name the first byte
	pages  []byte          // mapped by this package, nil for the caller's memory
	pinned *runtime.Pinner // for the caller's memory
	handle uint32
	lkey   uint32
	rkey   uint32
	demand bool // with AccessOnDemand
}

// AllocMR registers size bytes of new, zeroed memory: page aligned, off the Go heap, owned
// by the region and gone when it is closed. This is the memory to prefer.
//
// Registered memory is pinned and counts against RLIMIT_MEMLOCK unless the process has
// CAP_IPC_LOCK. Errors: ENOMEM (with the limit, where the limit can be the reason),
// ErrInvalid for access flags that do not go together.
func (p *PD) AllocMR(size int, access AccessFlags) (*MR, error) {
	const op = "register memory region"
	if size <= 0 {
		return nil, invalid(op, p.device, "size %d", size)
	}
	page := os.Getpagesize()
	pages, err := uapi.AllocPages((size + page - 1) / page * page)
	if err != nil {
		return nil, wrap(op, p.device, err)
	}
	mr := &MR{mem: pages[:size:size], addr: uapi.Addr(pages), pages: pages}
	if err := p.register(mr, access); err != nil {
		uapi.FreePages(pages)
		return nil, err
	}
	return mr, nil
}

// RegMR registers the caller's memory b, which must hold something. It may lie on the Go
// heap: it stays in place, and reachable, until Close. It may be a mapping of the caller's
// (also a read-only one, without AccessLocalWrite), which then must stay mapped until Close.
//
// The device reads and writes b at any time between posting and completion, so the
// program must not touch it meanwhile; the race detector does not see the device.
// Errors: as AllocMR; EFAULT if b is not writable and access asks for writing. Source:
// ibv_reg_mr(3).
func (p *PD) RegMR(b []byte, access AccessFlags) (*MR, error) {
	return p.RegMRAt(b, uapi.Addr(b), access)
}

// RegMRAt is RegMR for memory that work requests and peers name by addresses from iova on,
// not by those that it has in this process. iova has the same offset within a page as b.
//
// Errors: as RegMR; EINVAL if the offsets differ. Source: ibv_reg_mr_iova(3).
func (p *PD) RegMRAt(b []byte, iova uint64, access AccessFlags) (*MR, error) {
	if len(b) == 0 {
		return nil, invalid("register memory region", p.device, "no memory: a region holds at least one byte")
	}
	mr := &MR{mem: b[:len(b):len(b)], addr: iova, pinned: p.ctx.k.pin(b)}
	if err := p.register(mr, access); err != nil {
		p.ctx.k.unpin(mr.pinned)
		return nil, err
	}
	return mr, nil
}

func (p *PD) register(mr *MR, access AccessFlags) error {
	const op = "register memory region"
	if access.remoteWithoutLocal() {
		return invalid(op, p.device, "remote write and atomic access need local write access")
	}
	if p.ctx.support&coreOptionalAccess == 0 {
		access &^= optionalAccess
	}
	if err := p.begin(op); err != nil {
		return err
	}
	defer p.end()
	mr.size, mr.demand = len(mr.mem), access&AccessOnDemand != 0
	in := abi.IbUverbsRegMr{
		Start: uapi.Addr(mr.mem), HcaVa: mr.addr, Length: uint64(len(mr.mem)), PdHandle: p.handle, AccessFlags: uint32(access),
	}
	var resp abi.IbUverbsRegMrResp
	drvIn, drvOut := p.ctx.k.planMR()
	if err := uapi.Invoke(p.ctx.k.file, p.ctx.k.driver, uapi.RegMR, uapi.Bytes(&in), uapi.Bytes(&resp), drvIn, drvOut); err != nil {
		return &Error{Op: op, Object: p.device, Err: cause(err), Hint: regHint(err, len(mr.mem), access)}
	}
	mr.object = object{kind: "memory region", device: p.device}
	mr.pd, mr.handle, mr.lkey, mr.rkey = p, resp.MrHandle, resp.Lkey, resp.Rkey
	if err := mr.adopt(mr, &p.object); err != nil {
		mr.destroy()
		return err
	}
	return nil
}

// regHint explains the errnos of a registration, without blaming a limit that is not there.
func regHint(err error, size int, access AccessFlags) string {
	switch limit, limited := uapi.MemlockLimit(); {
	case errors.Is(err, syscall.ENOMEM) && limited, errors.Is(err, syscall.EPERM) && limited && limit == 0:
		return fmt.Sprintf("%d bytes asked; RLIMIT_MEMLOCK is %d bytes for all registered memory: raise it "+
			"(ulimit -l, LimitMEMLOCK=, --ulimit memlock) or grant CAP_IPC_LOCK", size, limit)
	case errors.Is(err, syscall.EFAULT) && access&AccessLocalWrite != 0:
		return "the memory is not mapped, or mapped read-only while local write access is asked for"
	case errors.Is(err, syscall.EFAULT):
		return "the memory is not mapped"
	}
	return hint(err)
}

// Bytes is the memory itself, nil if it is not this process's. It must not be used after
// Close.
func (m *MR) Bytes() []byte { return m.mem }

// Len is the length in bytes.
func (m *MR) Len() int { return m.size }

// Addr is the address of the first byte, as work requests and peers name it.
func (m *MR) Addr() uint64 { return m.addr }

// LKey is the local key: it goes into the pieces of work requests.
func (m *MR) LKey() uint32 { return m.lkey }

// RKey is the remote key: a peer that knows it and the address can do what the access
// flags allow.
func (m *MR) RKey() uint32 { return m.rkey }

// outside as the length of a piece says that it reaches beyond its region. No message is
// that long.
const outside = math.MaxUint32

// SGE describes n bytes at offset off as a piece of a work request. A piece that is not
// within the region is refused when it is posted.
func (m *MR) SGE(off, n int) SGE {
	if off < 0 || n < 0 || off > m.size || n > m.size-off || n >= outside {
		return SGE{Length: outside}
	}
	return SGE{Addr: m.addr + uint64(off), Length: uint32(n), LKey: m.lkey}
}

func (m *MR) String() string { return "memory region" }

// Close deregisters the memory; memory of AllocMR is freed. Work requests that still name
// the region complete with an error. It fails with ErrBusy while memory windows are bound to
// the region. Closing again does nothing.
func (m *MR) Close() error {
	return m.object.close(m, func() error {
		if err := m.destroy(); err != nil {
			return err
		}
		switch {
		case m.pinned != nil:
			m.pd.ctx.k.unpin(m.pinned)
		case m.pages != nil:
			return uapi.FreePages(m.pages)
		}
		return nil // a dma-buf is somebody else's
	})
}

func (m *MR) destroy() error {
	cmd := m.pd.ctx.k.command(uapi.MRDestroy).Destroy(abi.UVERBS_ATTR_DESTROY_MR_HANDLE, m.handle)
	err := gone(cmd.Do(m.pd.ctx.k.file))
	if errors.Is(err, syscall.EINVAL) { // the drivers' way to say so
		err = fmt.Errorf("%w: a memory window is bound to it: %w", ErrBusy, err)
	}
	return err
}
