//go:build linux

package fakekernel

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
)

// TestMLX5CQErrnos: mlx5_ib_create_cq. Where a version is named the answer is that of this
// version.
func TestMLX5CQErrnos(t *testing.T) {
	type req = abi.Mlx5IbCreateCq
	for _, tt := range []struct {
		name    string
		version string
		cqe     uint32
		flags   uint64
		len     int
		edit    func(*req)
		want    unix.Errno
	}{
		{"good", "6.1", 7, 0, 32, nil, 0},
		{"one entry", "6.1", 0, 0, 32, nil, 0},
		{"too many", "6.1", 1 << 22, 0, 32, nil, unix.EINVAL},
		{"far too many", "6.1", 1 << 31, 0, 32, nil, unix.EINVAL},
		{"flags of the core", "6.1", 7, 3, 32, nil, 0},
		{"unknown flags of the core", "6.1", 7, 4, 32, nil, unix.EINVAL},
		{"no input", "6.1", 7, 0, 0, nil, unix.EINVAL},
		{"without flags", "6.1", 7, 0, 21, nil, unix.EINVAL},
		{"short: no page is named", "6.1", 7, 0, 22, nil, unix.EINVAL},
		{"longer", "6.1", 7, 0, 33, nil, 0},
		{"longer", "7.2", 7, 0, 33, nil, unix.EOPNOTSUPP},
		{"unknown flag", "6.1", 7, 0, 32, func(r *req) { r.Flags |= 8 }, unix.EINVAL},
		{"real time", "6.1", 7, 0, 32, func(r *req) { r.Flags |= 4 }, 0},
		{"real time", "5.10", 7, 0, 32, func(r *req) { r.Flags |= 4 }, unix.EINVAL},
		{"size", "6.1", 7, 0, 32, func(r *req) { r.CqeSize = 32 }, unix.EINVAL},
		{"large entries", "6.1", 7, 0, 32, func(r *req) { r.CqeSize = 128 }, 0},
		{"reserved", "6.1", 7, 0, 32, func(r *req) { r.Reserved1 = 1 }, unix.EINVAL},
		{"no buffer", "6.1", 7, 0, 32, func(r *req) { r.BufAddr = 4096 }, unix.EFAULT},
		{"buffer wraps", "6.1", 7, 0, 32, func(r *req) { r.BufAddr = 1<<64 - 64 }, unix.EINVAL},
		{"buffer in steps of 64", "6.1", 7, 0, 32, func(r *req) { r.BufAddr += 64 }, 0},
		{"buffer in steps of 32", "6.1", 7, 0, 32, func(r *req) { r.BufAddr += 32 }, unix.EINVAL},
		{"buffer within a page", "5.10", 7, 0, 32, func(r *req) { r.BufAddr += 64 }, unix.EINVAL},
		{"no record", "6.1", 7, 0, 32, func(r *req) { r.DbAddr = 8 }, unix.EFAULT},
		{"record across pages", "6.1", 7, 0, 32, func(r *req) { r.DbAddr += 4092 }, 0},
		{"record across pages", "7.2", 7, 0, 32, func(r *req) { r.DbAddr += 4092 }, unix.EINVAL},
		{"page not named", "6.1", 7, 0, 32, func(r *req) { r.Flags = 0 }, unix.EINVAL},
		{"page of nobody", "6.1", 7, 0, 32, func(r *req) { r.UarPageIndex = 0x99 }, unix.EINVAL},
		{"compression", "6.1", 7, 0, 32, func(r *req) { r.CqeCompEn, r.CqeCompResFormat = 1, 1 }, unix.EOPNOTSUPP},
		{"padding", "6.1", 7, 0, 32, func(r *req) { r.CqeSize = 128; r.Flags |= 1 }, unix.EOPNOTSUPP},
	} {
		d := openMLX5(t, mlx5Kernel(t, tt.version, MLX5{}))
		c := &mlxCQ{d: d, size: 64, buf: cqBuffer(t, 128, 64), rec: d.records[:8]}
		in, told, out := c.request(), uint32(0), abi.Mlx5IbCreateCqResp{}
		if tt.edit != nil {
			tt.edit(&in)
		}
		raw := append(append([]byte(nil), bytesOf(&in)...), 1)[:tt.len]
		pinned := d.k.pinned
		create := mlx5CreateCQ(tt.cqe, &told, raw, bytesOf(&out)).Flags(abi.UVERBS_ATTR_CREATE_CQ_FLAGS, tt.flags)
		err := create.Do(d.f)
		want(t, tt.version+": "+tt.name, err, tt.want)
		if err == nil && (told != tt.cqe || out.Cqn != mlx5FirstCQN) {
			t.Errorf("%s: %d entries, number %#x", tt.name, told, out.Cqn)
		}
		if err == nil {
			must(t, mlx5cmd(uapi.CQDestroy).Destroy(abi.UVERBS_ATTR_DESTROY_CQ_HANDLE, create.Result(abi.UVERBS_ATTR_CREATE_CQ_HANDLE)).
				Out(abi.UVERBS_ATTR_DESTROY_CQ_RESP, make([]byte, 8)).Do(d.f))
		}
		if d.k.pinned != pinned {
			t.Errorf("%s: %d bytes are pinned, before it %d", tt.name, d.k.pinned, pinned)
		}
	}
}

// TestMLX5OthersRegisters: a page of another context is none.
func TestMLX5OthersRegisters(t *testing.T) {
	k := mlx5Kernel(t, "", MLX5{})
	d, other := openMLX5(t, k), openMLX5(t, k)
	c := &mlxCQ{d: d, size: 64, buf: cqBuffer(t, 8, 64), rec: d.record()}
	in, told, out := c.request(), uint32(0), abi.Mlx5IbCreateCqResp{}
	in.UarPageIndex = uint16(other.nc.id)
	want(t, "completion queue", mlx5CreateCQ(7, &told, bytesOf(&in), bytesOf(&out)).Do(d.f), unix.EINVAL)
	q := &mlxQP{d: d}
	q.defaults()
	q.buf, q.rec = pages(t, 4096), d.record()
	req := q.request()
	req.BfregIndex = other.bf.id
	want(t, "queue pair", mlx5CreateQP(q, q.cap(), bytesOf(&req), bytesOf(&q.resp)).Do(d.f), unix.EINVAL)
}

// TestMLX5CQPageByAttribute: a page of registers whose number may be large.
func TestMLX5CQPageByAttribute(t *testing.T) {
	for _, version := range []string{"6.1", "6.12"} {
		d := openMLX5(t, mlx5Kernel(t, version, MLX5{}))
		c := &mlxCQ{d: d, size: 64, buf: cqBuffer(t, 8, 64), rec: d.record()}
		in, told, out := c.request(), uint32(0), abi.Mlx5IbCreateCqResp{}
		in.Flags = 0
		err := mlx5CreateCQ(7, &told, bytesOf(&in), bytesOf(&out)).In32(abi.MLX5_IB_ATTR_CREATE_CQ_UAR_INDEX, d.nc.id).Do(d.f)
		errno := unix.Errno(0)
		if version == "6.1" {
			errno = unix.EPROTONOSUPPORT
		}
		want(t, version, err, errno)
	}
}

// TestMLX5ResizeErrnos: mlx5_ib_resize_cq.
func TestMLX5ResizeErrnos(t *testing.T) {
	for _, tt := range []struct {
		name    string
		version string
		cqe     uint32
		size    uint16
		shift   uint64
		want    unix.Errno
	}{
		{"good", "6.1", 31, 64, 0, 0},
		{"the same, and nothing else counts", "6.1", 7, 0, 8, 0},
		{"none", "6.1", 0, 64, 0, unix.EINVAL},
		{"none", "7.2", 0, 64, 0, 0},
		{"too many", "6.1", 1 << 22, 64, 0, unix.EINVAL},
		{"within a page", "6.1", 31, 64, 32, unix.EINVAL},
		{"no buffer", "6.1", 31, 64, 1 << 60, unix.EFAULT},
		{"another size", "6.1", 15, 128, 0, unix.EINVAL},
	} {
		c := openMLX5(t, mlx5Kernel(t, tt.version, MLX5{})).cq(8)
		in := abi.IbUverbsResizeCq{CqHandle: c.handle, Cqe: tt.cqe}
		hw := abi.Mlx5IbResizeCq{BufAddr: uapi.Addr(cqBuffer(t, 32, 64)) + tt.shift, CqeSize: tt.size}
		var r abi.IbUverbsResizeCqResp
		err := c.d.invoke(uapi.ResizeCQ, bytesOf(&in), bytesOf(&r), bytesOf(&hw), nil)
		want(t, tt.version+": "+tt.name, err, tt.want)
		if err == nil && r.Cqe != tt.cqe {
			t.Errorf("%s: %d entries, want %d", tt.name, r.Cqe, tt.cqe)
		}
	}
}

// TestMLX5ResizeFull: what waits has to fit, with the mark at the end.
func TestMLX5ResizeFull(t *testing.T) {
	d := openMLX5(t, mlx5Kernel(t, "", MLX5{}))
	c := d.cq(8)
	a, b := (&mlxQP{d: d, send: c, recv: d.cq(8)}).create(), d.qp()
	mlx5Connect(t, a, b, 7)
	for i := range 4 {
		a.post(mlx5Write, wqeCompletion, 0, remote(b.mr.addr(0), b.mr.key), a.mr.sge(0, 8))
		waitFor(t, func() bool { return c.buf[i*64+63]>>4 == 0 })
	}
	_, err := c.resize(3, cqBuffer(t, 4, 64), 64)
	want(t, "four in four", err, unix.EINVAL)
	c.one()
	_, err = c.resize(3, cqBuffer(t, 4, 64), 64)
	want(t, "three in four", err, 0)
}

// TestMLX5QPErrnos: mlx5_ib_create_qp.
func TestMLX5QPErrnos(t *testing.T) {
	type req = abi.Mlx5IbCreateQp
	flag := func(f uint32) func(*mlxQP, *req) { return func(_ *mlxQP, r *req) { r.Flags |= f } }
	for _, tt := range []struct {
		name    string
		version string
		len     int
		edit    func(*mlxQP, *req)
		want    unix.Errno
	}{
		{"good", "6.1", 56, nil, 0},
		{"without ECE", "6.1", 48, nil, 0},
		{"short", "6.1", 47, nil, unix.EINVAL},
		{"longer", "6.1", 57, nil, unix.EINVAL},
		{"reserved", "6.1", 56, func(_ *mlxQP, r *req) { r.Reserved = 1 }, unix.EINVAL},
		{"type", "6.1", 56, func(q *mlxQP, _ *req) { q.typ = abi.IB_UVERBS_QPT_XRC_INI }, unix.EOPNOTSUPP},
		{"scatter is dropped", "6.1", 56, flag(0x102), 0},
		{"tunnel", "6.1", 56, flag(4), unix.EINVAL},
		{"loopback", "6.1", 56, flag(0x40), unix.EINVAL},
		{"credit", "6.1", 56, flag(0x200), unix.EINVAL},
		{"streams", "6.1", 56, flag(0x800), unix.EINVAL},
		{"unknown flag", "6.1", 56, flag(1 << 20), unix.EINVAL},
		{"index", "6.1", 56, func(_ *mlxQP, r *req) { r.Uidx = 0xffffff }, unix.EINVAL},
		{"large index", "6.1", 56, func(_ *mlxQP, r *req) { r.Uidx = 1 << 24 }, unix.EINVAL},
		{"too many receives", "6.1", 56, func(q *mlxQP, _ *req) { q.rqCount = 32769 }, unix.EINVAL},
		{"stride", "6.1", 56, func(_ *mlxQP, r *req) { r.RqWqeShift = 3 }, unix.EINVAL},
		{"large stride", "6.1", 56, func(_ *mlxQP, r *req) { r.RqWqeShift = 33 }, unix.EINVAL},
		{"no receives, but a queue", "6.1", 56, func(q *mlxQP, _ *req) { q.rqCount = 0 }, unix.EINVAL},
		{"no receives", "6.1", 56, func(q *mlxQP, r *req) { q.rqCount, r.RqWqeCount, r.RqWqeShift = 0, 0, 0 }, 0},
		{"odd receives", "6.1", 56, func(_ *mlxQP, r *req) { r.RqWqeCount = 7 }, unix.EINVAL},
		{"odd sends", "6.1", 56, func(_ *mlxQP, r *req) { r.SqWqeCount = 12 }, unix.EINVAL},
		{"too many sends", "6.1", 56, func(_ *mlxQP, r *req) { r.SqWqeCount = 65536 }, unix.EINVAL},
		{"no sends", "6.1", 56, func(_ *mlxQP, r *req) { r.SqWqeCount = 0 }, 0},
		{"both kinds of registers", "6.1", 56, flag(8), unix.EINVAL},
		{"a register of the kernel", "6.1", 56, func(_ *mlxQP, r *req) { r.Flags = 0 }, unix.EINVAL},
		{"a late register", "6.1", 56, func(_ *mlxQP, r *req) { r.Flags = 8 }, unix.EINVAL},
		{"page of nobody", "6.1", 56, func(_ *mlxQP, r *req) { r.BfregIndex = 0x99 }, unix.EINVAL},
		{"no buffer", "6.1", 56, func(_ *mlxQP, r *req) { r.BufAddr = 4096 }, unix.EFAULT},
		{"null buffer", "6.1", 56, func(_ *mlxQP, r *req) { r.BufAddr = 0 }, unix.EINVAL},
		{"null buffer", "7.2", 56, func(_ *mlxQP, r *req) { r.BufAddr = 0 }, unix.EFAULT},
		{"buffer in steps of 64", "6.1", 56, func(_ *mlxQP, r *req) { r.BufAddr += 64 }, 0},
		{"buffer in steps of 16", "6.1", 56, func(_ *mlxQP, r *req) { r.BufAddr += 16 }, unix.EINVAL},
		{"no record", "6.1", 56, func(_ *mlxQP, r *req) { r.DbAddr = 8 }, unix.EFAULT},
		{"record across pages", "7.2", 56, func(_ *mlxQP, r *req) { r.DbAddr += 4092 }, unix.EINVAL},
	} {
		d := openMLX5(t, mlx5Kernel(t, tt.version, MLX5{}))
		q := &mlxQP{d: d}
		q.defaults()
		q.buf, q.rec = pages(t, 3*4096), d.records[:8]
		in := q.request()
		if tt.edit != nil {
			tt.edit(q, &in)
		}
		raw := append(append([]byte(nil), bytesOf(&in)...), 1)[:tt.len]
		c := q.cap()
		pinned := d.k.pinned
		create := mlx5CreateQP(q, c, raw, bytesOf(&q.resp))
		err := create.Do(d.f)
		want(t, tt.version+": "+tt.name, err, tt.want)
		if err != nil {
			if d.k.pinned != pinned {
				t.Errorf("%s: %d bytes stay pinned", tt.name, d.k.pinned-pinned)
			}
			continue
		}
		if q.resp.BfregIndex != noRegister {
			t.Errorf("%s: register %#x", tt.name, q.resp.BfregIndex)
		}
		asked := *q.cap()
		if asked.MaxRecvWr == 0 {
			asked.MaxRecvSge = 0
		}
		if *c != asked {
			t.Errorf("%s: sizes %+v, want %+v", tt.name, *c, asked)
		}
		must(t, mlx5cmd(uapi.QPDestroy).Destroy(abi.UVERBS_ATTR_DESTROY_QP_HANDLE, create.Result(abi.UVERBS_ATTR_CREATE_QP_HANDLE)).
			Out(abi.UVERBS_ATTR_DESTROY_QP_RESP, make([]byte, 4)).Do(d.f))
		if d.k.pinned != pinned {
			t.Errorf("%s: %d bytes stay pinned after the end", tt.name, d.k.pinned-pinned)
		}
	}
}

// TestMLX5QPIndexVersion0: where completions do not name it there is no index.
func TestMLX5QPIndexVersion0(t *testing.T) {
	d := openMLX5(t, mlx5Kernel(t, "", MLX5{CQEVersion0: true}))
	q := &mlxQP{d: d}
	q.defaults()
	q.buf, q.rec = pages(t, 4096), d.record()
	in := q.request()
	want(t, "index", mlx5CreateQP(q, q.cap(), bytesOf(&in), bytesOf(&q.resp)).Do(d.f), unix.EINVAL)
}

// TestMLX5SRQErrnos: mlx5_ib_create_srq.
func TestMLX5SRQErrnos(t *testing.T) {
	type req = abi.Mlx5IbCreateSrq
	for _, tt := range []struct {
		name    string
		version string
		wr, sge uint32
		len     int
		edit    func(*req)
		want    unix.Errno
	}{
		{"good", "6.1", 7, 3, 32, nil, 0},
		{"rounded", "6.1", 8, 3, 32, nil, 0},
		{"too many", "6.1", 32768, 3, 32, nil, unix.EINVAL},
		{"too many pieces", "6.1", 7, 33, 32, nil, unix.EINVAL},
		{"no input", "6.1", 7, 3, 0, nil, unix.EFAULT},
		{"no input", "7.2", 7, 3, 0, nil, unix.EINVAL},
		{"short", "6.1", 7, 3, 16, nil, 0},
		{"short", "7.2", 7, 3, 16, nil, unix.EINVAL},
		{"longer", "6.1", 7, 3, 33, nil, unix.EINVAL},
		{"longer", "7.2", 7, 3, 33, nil, unix.EOPNOTSUPP},
		{"reserved", "6.1", 7, 3, 32, func(r *req) { r.Reserved1 = 1 }, unix.EINVAL},
		{"index does not count", "6.1", 7, 3, 32, func(r *req) { r.Uidx = 1 << 31 }, 0},
		{"no buffer", "6.1", 7, 3, 32, func(r *req) { r.BufAddr = 4096 }, unix.EFAULT},
		{"buffer in steps of 32", "6.1", 7, 3, 32, func(r *req) { r.BufAddr += 32 }, unix.EINVAL},
		{"no record", "6.1", 7, 3, 32, func(r *req) { r.DbAddr = 8 }, unix.EFAULT},
	} {
		d := openMLX5(t, mlx5Kernel(t, tt.version, MLX5{}))
		s := &mlxSRQ{buf: pages(t, 8192), rec: d.record()}
		in, out := s.request(), abi.Mlx5IbCreateSrqResp{}
		if tt.edit != nil {
			tt.edit(&in)
		}
		var wr, sge uint32
		pinned := d.k.pinned
		raw := append(append([]byte(nil), bytesOf(&in)...), 1)[:tt.len]
		err := mlx5CreateSRQ(d.pd, tt.wr, tt.sge, 0, &wr, &sge, raw, bytesOf(&out)).Do(d.f)
		want(t, tt.version+": "+tt.name, err, tt.want)
		switch {
		case err != nil && d.k.pinned != pinned:
			t.Errorf("%s: %d bytes stay pinned", tt.name, d.k.pinned-pinned)
		case err == nil && (wr != roundUp(tt.wr+1)-1 || sge != tt.sge || out.Srqn != mlx5FirstSRQN):
			t.Errorf("%s: %d requests of %d pieces, number %#x", tt.name, wr, sge, out.Srqn)
		}
	}
}

// TestMLX5ModifyErrnos: what the driver says beyond the core.
func TestMLX5ModifyErrnos(t *testing.T) {
	for _, tt := range []struct {
		name    string
		version string
		do      func(a, b *mlxQP) error
		want    unix.Errno
	}{
		{"reset from reset", "6.1", func(a, _ *mlxQP) error {
			return a.modify(abi.IbUverbsModifyQp{AttrMask: maskState, QpState: stateReset})
		}, 0},
		{"key index", "6.1", func(a, _ *mlxQP) error {
			return a.modify(abi.IbUverbsModifyQp{AttrMask: maskState | initBits, QpState: stateInit, PortNum: 1, PkeyIndex: 1})
		}, unix.EINVAL},
		{"reads", "6.1", func(a, b *mlxQP) error {
			must(a.d.t, a.toInit())
			m := a.rtr(b)
			m.MaxDestRdAtomic = 17
			return a.modify(m)
		}, unix.EINVAL},
		{"MTU", "6.1", func(a, b *mlxQP) error {
			must(a.d.t, a.toInit())
			m := a.rtr(b)
			m.PathMtu = 6
			return a.modify(m)
		}, unix.EINVAL},
		{"rate", "6.1", func(a, b *mlxQP) error {
			must(a.d.t, a.toInit())
			m := a.rtr(b)
			m.Dest.StaticRate = 24
			return a.modify(m)
		}, unix.EINVAL},
		{"rate", "7.2", func(a, b *mlxQP) error {
			must(a.d.t, a.toInit())
			m := a.rtr(b)
			m.Dest.StaticRate = 24
			return a.modify(m)
		}, 0},
		{"no route", "6.1", func(a, b *mlxQP) error {
			must(a.d.t, a.toInit())
			m := a.rtr(b)
			m.Dest.IsGlobal = 0
			return a.modify(m)
		}, unix.EINVAL},
		{"drain", "6.1", func(a, b *mlxQP) error {
			mlx5Connect(a.d.t, a, b, 7)
			return a.modify(abi.IbUverbsModifyQp{AttrMask: maskState, QpState: stateSQD})
		}, unix.EINVAL},
	} {
		k := mlx5Kernel(t, tt.version, MLX5{})
		want(t, tt.version+": "+tt.name, tt.do(openMLX5(t, k).qp(), openMLX5(t, k).qp()), tt.want)
	}
}

// TestMLX5QueryQP: what is the library's business is not told.
func TestMLX5QueryQP(t *testing.T) {
	a, b := mlx5Pair(t, mlx5Kernel(t, "", MLX5{}), mlxQP{})
	r := a.query()
	got := []uint32{
		r.MaxSendWr, r.MaxSendSge, r.MaxInlineData, r.MaxRecvWr, r.MaxRecvSge, uint32(r.MaxRdAtomic), uint32(r.MaxDestRdAtomic),
		r.QpAccessFlags, r.DestQpNum, uint32(r.QpState),
	}
	wants := []uint32{0, 0, 0, 8, 4, 1, 1, remoteAccess, b.num, stateRTS}
	if d := cmp.Diff(wants, got); d != "" {
		t.Errorf("query (-want +got):\n%s", d)
	}
	c, d := a.d.qp(), b.d.qp()
	for _, q := range []*mlxQP{c, d} {
		must(t, q.toInit())
	}
	m := c.rtr(d)
	m.MaxDestRdAtomic = 0
	must(t, c.modify(m))
	if r := c.query(); r.MaxDestRdAtomic != 1 || r.QpAccessFlags != abi.IB_UVERBS_ACCESS_REMOTE_WRITE {
		t.Errorf("without reads: %d, access %#x", r.MaxDestRdAtomic, r.QpAccessFlags)
	}
}

// TestMLX5Rereg: in place the keys stay, else they change and the old ones are closed.
func TestMLX5Rereg(t *testing.T) {
	a, b := mlx5Pair(t, mlx5Kernel(t, "6.12", MLX5{}), mlxQP{})
	rereg := func(flags uint32, mem []byte, access uint32) (abi.IbUverbsReregMrResp, error) {
		var r abi.IbUverbsReregMrResp
		in := abi.IbUverbsReregMr{
			MrHandle: b.mr.handle, Flags: flags, Start: uapi.Addr(mem), HcaVa: uapi.Addr(mem), Length: uint64(len(mem)), AccessFlags: access,
		}
		return r, b.d.invoke(uapi.ReregMR, bytesOf(&in), bytesOf(&r), nil, nil)
	}
	r, err := rereg(reregAccess, nil, everything|abi.IB_UVERBS_ACCESS_MW_BIND)
	must(t, err)
	if r.Rkey != b.mr.key || r.Lkey != b.mr.key {
		t.Errorf("keys %#x %#x, want %#x as before", r.Lkey, r.Rkey, b.mr.key)
	}
	mem := pages(t, 8192)
	r, err = rereg(reregTranslation, mem, 0)
	must(t, err)
	if r.Rkey == b.mr.key || r.Rkey != r.Lkey {
		t.Errorf("keys %#x %#x, want new ones", r.Lkey, r.Rkey)
	}
	copy(a.mr.mem, "elsewhere")
	wantCQE(t, "write", a.do(mlx5Write, 0, remote(uapi.Addr(mem), r.Rkey), a.mr.sge(0, 9)), cqeRequest, 0, 0)
	if got := string(mem[:9]); got != "elsewhere" {
		t.Errorf("written %q", got)
	}
	wantCQE(t, "old key", a.do(mlx5Write, 0, remote(uapi.Addr(mem), b.mr.key), a.mr.sge(0, 9)), cqeRequestError, 1, 0x13)
	for _, version := range []string{"6.1", "6.12"} {
		d := openMLX5(t, mlx5Kernel(t, version, MLX5{}))
		m := d.mr(4096, 0)
		var r abi.IbUverbsReregMrResp
		in := abi.IbUverbsReregMr{MrHandle: m.handle, Flags: reregAccess, AccessFlags: everything}
		err := d.invoke(uapi.ReregMR, bytesOf(&in), bytesOf(&r), nil, nil)
		errno := unix.Errno(0)
		if version == "6.12" {
			errno = unix.EACCES
		}
		want(t, version+": write what was pinned to be read", err, errno)
	}
}

// TestMLX5QueryDevice: the driver's part is as long as its parts fit.
func TestMLX5QueryDevice(t *testing.T) {
	for _, tt := range []struct {
		version string
		in      []byte
		room    int
		length  uint32
		want    unix.Errno
	}{
		{"6.1", nil, 104, 104, 0}, {"6.1", nil, 112, 104, 0}, {"7.2", nil, 112, 112, 0}, {"6.12", nil, 104, 104, 0},
		{"6.1", nil, 39, 32, 0}, {"6.1", nil, 8, 8, 0}, {"6.1", nil, 0, 0, 0}, {"6.1", nil, 7, 0, unix.EINVAL},
		{"6.1", []byte{0, 0}, 8, 8, 0}, {"6.1", []byte{0, 1}, 8, 0, unix.EINVAL}, {"7.2", []byte{0, 1}, 8, 0, unix.EOPNOTSUPP},
	} {
		d := openMLX5(t, mlx5Kernel(t, tt.version, MLX5{}))
		var r abi.IbUverbsExQueryDeviceResp
		out := make([]byte, tt.room)
		err := d.invoke(uapi.QueryDeviceEx, bytesOf(&abi.IbUverbsExQueryDevice{}), bytesOf(&r), tt.in, out)
		want(t, tt.version, err, tt.want)
		if err != nil {
			continue
		}
		if got := load[abi.Mlx5IbQueryDeviceResp](out).ResponseLength; got != tt.length {
			t.Errorf("%s: %d bytes of %d, want %d", tt.version, got, tt.room, tt.length)
		}
		if r.Base.VendorPartId != 4119 || r.Base.MaxSge != 30 || r.Base.MaxSrqSge != 31 || r.Base.MaxCqe != 1<<22-1 {
			t.Errorf("device %+v", r.Base)
		}
	}
}
