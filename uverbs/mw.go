package uverbs

import (
	"fmt"
	"sync"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/provider"
	"github.com/pureverbs/rdma/internal/uapi"
)

// MWType is the kind of a memory window.
type MWType uint8

// The kinds: enum ibv_mw_type (IBTA volume 1, 10.6.7.2).
const (
	MWType1 MWType = 1 // the library chooses the key with each bind; good for all queue pairs of the domain
	MWType2 MWType = 2 // the program chooses the key; good for the queue pair that bound it
)

// MWBind says what a memory window is bound to; [MW.Prepare] makes it.
type MWBind = provider.MWBind

// MW is a memory window: a remote key of its own for a part of a memory region, which can be
// given and taken back much faster than a region is registered. The region needs
// AccessMWBind.
type MW struct {
	object
	pd     *PD
	typ    MWType
	handle uint32

	mu   sync.Mutex
	rkey uint32 // as last bound
}

// AllocMW makes a memory window that is bound to nothing. Errors: ErrNotSupported on devices
// without (siw). Source: ibv_alloc_mw(3).
func (p *PD) AllocMW(typ MWType) (*MW, error) {
	const op = "allocate memory window"
	if typ != MWType1 && typ != MWType2 {
		return nil, invalid(op, p.device, "type %d", typ)
	}
	if err := p.begin(op); err != nil {
		return nil, err
	}
	defer p.end()
	in := abi.IbUverbsAllocMw{PdHandle: p.handle, MwType: uint8(typ)}
	var resp abi.IbUverbsAllocMwResp
	if err := p.ctx.k.invoke(uapi.AllocMW, uapi.Bytes(&in), uapi.Bytes(&resp)); err != nil {
		return nil, wrap(op, p.device, err)
	}
	w := &MW{
		object: object{kind: "memory window", device: p.device}, pd: p, typ: typ, handle: resp.MwHandle, rkey: resp.Rkey,
	}
	if err := w.adopt(w, &p.object); err != nil {
		w.destroy()
		return nil, err
	}
	return w, nil
}

// Type is the kind of the window.
func (w *MW) Type() MWType { return w.typ }

// RKey is the remote key of the last bind, or of the allocation before the first. A window
// of type 2 takes the key that the program gives, which this method tells once Prepare was
// called.
func (w *MW) RKey() uint32 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rkey
}

// IncRKey is the next key of the same window or region: the low 8 bits count on.
func IncRKey(key uint32) uint32 { return key&^0xff | (key+1)&0xff }

// Prepare is the argument of an OpBindMW for a window of type 2: n bytes of mr at off, under
// newKey, which differs from RKey in its low 8 bits only ([IncRKey]). n 0 is not a bind:
// a window of type 2 is given up by invalidating its key.
//
// Errors: ErrInvalid.
func (w *MW) Prepare(mr *MR, off, n int, newKey uint32, access AccessFlags) (MWBind, error) {
	const op = "bind memory window"
	if w.typ != MWType2 {
		return MWBind{}, invalid(op, w.device, "a window of type 1 is bound by MW.Bind")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	b, err := w.bind(mr, off, n, access)
	if err == nil && (n == 0 || newKey>>8 != w.rkey>>8) {
		err = fmt.Errorf("%w: %d bytes, key %#x for the window %#x", ErrInvalid, n, newKey, w.rkey)
	}
	if err != nil {
		return MWBind{}, wrap(op, w.device, err)
	}
	b.NewKey, w.rkey = newKey, newKey
	return b, nil
}

func (w *MW) bind(mr *MR, off, n int, access AccessFlags) (MWBind, error) {
	b := MWBind{Type: uint8(w.typ), MWKey: w.rkey, Access: uint32(access)}
	if n == 0 && mr == nil {
		return b, nil
	}
	switch {
	case mr == nil:
		return b, fmt.Errorf("%w: no memory region", ErrInvalid)
	case mr.pd != w.pd:
		return b, fmt.Errorf("%w: the memory region belongs to another protection domain", ErrInvalid)
	case off < 0 || n < 0 || off > mr.Len() || n > mr.Len()-off:
		return b, fmt.Errorf("%w: %d bytes at %d are not within the memory region of %d", ErrInvalid, n, off, mr.Len())
	}
	b.Addr, b.Length, b.LKey = mr.addr+uint64(off), uint64(n), mr.lkey
	return b, nil
}

// Bind binds a window of type 1 to n bytes of mr at off, by a work request on qp with number
// id and flags; afterwards RKey is the new key. A bind of 0 bytes (mr may be nil) takes the
// window away from peers. The new key is good once the request has completed, the old one
// is bad from then on.
//
// Errors: ErrInvalid, and those of [QP.PostSend]. Source: ibv_bind_mw(3).
func (w *MW) Bind(qp *QP, id uint64, flags SendFlags, mr *MR, off, n int, access AccessFlags) error {
	const op = "bind memory window"
	if w.typ != MWType1 {
		return invalid(op, w.device, "a window of type 2 is bound by OpBindMW, see MW.Prepare")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	b, err := w.bind(mr, off, n, access)
	if err != nil {
		return wrap(op, w.device, err)
	}
	b.NewKey = IncRKey(w.rkey)
	if _, err := qp.PostSend([]SendWR{{ID: id, Opcode: OpBindMW, Flags: flags, Bind: &b}}); err != nil {
		return wrap(op, w.device, err)
	}
	w.rkey = b.NewKey
	return nil
}

func (w *MW) String() string { return "memory window" }

// Close frees the window; its key is bad from then on. Closing again does nothing. Source:
// ibv_dealloc_mw(3).
func (w *MW) Close() error { return w.object.close(w, w.destroy) }

func (w *MW) destroy() error {
	cmd := w.pd.ctx.k.command(uapi.MWDestroy).Destroy(abi.UVERBS_ATTR_DESTROY_MW_HANDLE, w.handle)
	return gone(cmd.Do(w.pd.ctx.k.file))
}
