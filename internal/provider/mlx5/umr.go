package mlx5

import "github.com/pureverbs/rdma/internal/provider"

// A request that changes memory keys has three blocks: control, mkey context, and for a bind
// the memory that it translates to.
const (
	umrUnits  = 8
	bindUnits = 12
)

// The control part: flags, and which fields of the key change.
const (
	umrInline    = 0x90 // the translation is in the request
	umrCheckFree = 0x20
	umrCheckQP   = 0x08

	umrTranslation = 4 // units of 16 bytes

	umrFields    = 1<<13 | 1<<29 // the key's low 8 bits; whether it is free
	umrQP        = 1 << 14
	umrBindExtra = 1<<0 | 1<<6 | 1<<18 | 1<<19 | 1<<20 | 1<<21 // length, start, access
)

// The mkey context.
const (
	mkeyFree     = 0
	mkeyAccess   = 2
	mkeyQP       = 4 // and in the low 8 bits the new key's
	mkeyStart    = 16
	mkeyLength   = 24
	mkeyIsFree   = 0x40
	mkeyAnyQP    = 0xffffff00
	mkeyMaxBytes = 1 << 31
)

// Access of a window: bits of enum ib_access_flags, which the device has three higher, and
// remote reads and writes the other way round.
const (
	accessLocalWrite   = 1 << 0
	accessRemoteWrite  = 1 << 1
	accessRemoteRead   = 1 << 2
	accessRemoteAtomic = 1 << 3
	accessZeroBased    = 1 << 5
)

func mkeyRights(access uint32) uint8 {
	return uint8(access&(accessLocalWrite|accessRemoteAtomic)<<3 | access&accessRemoteRead<<2 | access&accessRemoteWrite<<4)
}

// sendUMR encodes a bind of a memory window, or the invalidation of a key.
func (q *QP) sendUMR(at addr, wr *provider.SendWR) error {
	s := &q.sq
	key, units := wr.InvKey, uint32(umrUnits)
	if wr.Opcode == provider.OpBindMW {
		if wr.Bind.Length > mkeyMaxBytes {
			return errWindow
		}
		key = wr.Bind.MWKey
		if wr.Bind.Length > 0 {
			units = bindUnits
		}
		q.putBind(at, wr.Bind)
	} else {
		putUMR(at, umrInline|umrCheckQP, 0, umrFields|umrQP)
		putFree(s.place(s.cur+1), mkeyAnyQP)
	}
	q.put(at, wr, key, units)
	s.fence = ctrlSmallFence
	return nil
}

// putBind writes all but the control segment. A window of type 1 is good for all queue pairs
// of the domain, one of type 2 for the one that binds it.
func (q *QP) putBind(at addr, b *provider.MWBind) {
	s, type1 := &q.sq, b.Type == 1
	flags, fields, qp := uint64(umrInline), uint64(umrFields), uint32(mkeyAnyQP)
	if !type1 {
		fields |= umrQP
	}
	if b.Length == 0 {
		if !type1 {
			flags |= umrCheckQP
		}
		putUMR(at, flags, 0, fields)
		putFree(s.place(s.cur+1), qp|b.NewKey&0xff)
		return
	}
	if !type1 {
		flags |= umrCheckFree
		qp = q.num << 8
	}
	putUMR(at, flags, umrTranslation, fields|umrBindExtra)
	m := s.place(s.cur + 1)
	m.put8(mkeyFree, 0)
	m.put8(mkeyAccess, mkeyRights(b.Access))
	m.put32(mkeyQP, qp|b.NewKey&0xff)
	start := b.Addr
	if b.Access&accessZeroBased != 0 {
		start = 0
	}
	m.put64(mkeyStart, start)
	m.put64(mkeyLength, b.Length)
	t := s.place(s.cur + 2)
	t.put64(0, b.Length<<32|uint64(b.LKey))
	t.put64(8, b.Addr)
	clearFrom(t, 16)
}

// putUMR writes the control part.
func putUMR(at addr, flags, translation, fields uint64) {
	at.put64(16, flags<<56|translation<<16)
	at.put64(24, fields)
	clearFrom(at, 32)
}

// putFree writes the context of a key that becomes free. What the device does not look at
// keeps what was in the ring.
func putFree(m addr, key uint32) {
	m.put8(mkeyFree, mkeyIsFree)
	m.put32(mkeyQP, key)
}

// clearFrom clears the rest of a block.
func clearFrom(a addr, off uintptr) {
	for ; off < blockSize; off += 8 {
		a.put64(off, 0)
	}
}
