//go:build linux

package fakekernel

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
	"github.com/pureverbs/rdma/mmio"
)

// A user of mlx5 that knows no more than the layout: rings, records and registers are
// written by hand, byte by byte, so that the model is held against the facts and not
// against another reading of them.

var be = binary.BigEndian

// mlxDev is an open device with two pages of registers, one page of doorbell records and a
// protection domain.
type mlxDev struct {
	t        testing.TB
	k        *Kernel
	f        uapi.File
	async    uapi.File
	resp     abi.Mlx5IbAllocUcontextResp
	gid      abi.IbUverbsGidEntry
	nc, bf   mlxUAR
	records  []byte
	nextRec  int
	pd, pdn  uint32
	nextUidx uint32
}

type mlxUAR struct {
	id     uint32
	handle uint32
	mem    []byte
}

func mlx5cmd(m *uapi.Method) *uapi.Command { return uapi.NewCommand(m, abi.RDMA_DRIVER_MLX5) }

// mlx5Kernel starts a kernel with one mlx5 device.
func mlx5Kernel(t testing.TB, version string, how MLX5) *Kernel {
	t.Helper()
	return start(t, Options{Kernel: version, Devices: []Device{{Driver: abi.RDMA_DRIVER_MLX5, MLX5: how}}})
}

// pages is zeroed memory of the user.
func pages(t testing.TB, n int) []byte {
	t.Helper()
	b, err := uapi.AllocPages(n)
	must(t, err)
	t.Cleanup(func() { uapi.FreePages(b) })
	return b
}

func contextIn() abi.Mlx5IbAllocUcontextReqV2 {
	return abi.Mlx5IbAllocUcontextReqV2{
		TotalNumBfregs: 16, NumLowLatencyBfregs: 4, Flags: abi.MLX5_IB_ALLOC_UCTX_DEVX, MaxCqeVersion: 1,
		LibCaps: abi.MLX5_LIB_CAP_4K_UAR | abi.MLX5_LIB_CAP_DYN_UAR,
	}
}

func openMLX5(t testing.TB, k *Kernel) *mlxDev { return openMLX5Node(t, k, 0) }

func openMLX5Node(t testing.TB, k *Kernel, i int) *mlxDev {
	t.Helper()
	dev := k.devices[i]
	d := &mlxDev{t: t, k: k, f: open(t, k, dev.node()), gid: dev.gids[len(dev.gids)/len(dev.Addrs)*2-1]}
	in := contextIn()
	must(t, mlx5cmd(uapi.GetContext).Driver(bytesOf(&in), bytesOf(&d.resp)).Do(d.f))
	c := mlx5cmd(uapi.AsyncEventAlloc).NewFD(abi.UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE)
	must(t, c.Do(d.f))
	var err error
	d.async, err = k.System().Opener.Adopt(int32(c.Result(abi.UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE)))
	must(t, err)
	t.Cleanup(func() { d.async.Close() })
	if d.resp.TotBfregs == 0 {
		d.nc, d.bf = d.uar(abi.MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC), d.uar(bfType(dev))
	} else {
		d.nc.mem = d.mapPage(0)
		d.bf.mem = d.mapPage(pageSize)
	}
	d.records = pages(t, 4096)
	d.pd, d.pdn = d.allocPD()
	return d
}

func bfType(d *device) uint64 {
	if d.MLX5.NoBlueFlame {
		return abi.MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC
	}
	return abi.MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF
}

func (d *mlxDev) uar(typ uint64) (u mlxUAR) {
	d.t.Helper()
	var (
		offset uint64
		length uint32
	)
	c := allocUAR(typ, &offset, &length, &u.id)
	must(d.t, c.Do(d.f))
	u.handle = c.Result(abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE)
	u.mem = d.mapPage(offset)
	return u
}

func allocUAR(typ uint64, offset *uint64, length, id *uint32) *uapi.Command {
	return mlx5cmd(uapi.UARAlloc).New(abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE).
		Const(abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, typ).
		Out(abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, bytesOf(offset)).
		Out(abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, bytesOf(length)).
		Out(abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, bytesOf(id))
}

func (d *mlxDev) mapPage(off uint64) []byte {
	d.t.Helper()
	mem, err := d.f.Map(int64(off), int(pageSize), uapi.ProtRead|uapi.ProtWrite)
	must(d.t, err)
	d.t.Cleanup(func() { d.f.Unmap(mem) })
	return mem
}

func (d *mlxDev) invoke(w *uapi.WriteCmd, in, out, hwIn, hwOut []byte) error {
	return uapi.Invoke(d.f, abi.RDMA_DRIVER_MLX5, w, in, out, hwIn, hwOut)
}

func (d *mlxDev) allocPD() (handle, pdn uint32) {
	d.t.Helper()
	var r abi.IbUverbsAllocPdResp
	must(d.t, d.invoke(uapi.AllocPD, bytesOf(&abi.IbUverbsAllocPd{}), bytesOf(&r), nil, bytesOf(&pdn)))
	return r.PdHandle, pdn
}

// record is a fresh doorbell record.
func (d *mlxDev) record() []byte {
	r := d.records[d.nextRec:][:recordSize]
	d.nextRec += 64
	return r
}

// put32 writes a word of a record for the device.
func put32(b []byte, v uint32) { mmio.StoreRelease32(view[uint32](b), uint32(abi.ToBE32(v))) }

// ringAt is a doorbell: eight bytes, in the device's order.
func ringAt(reg []byte, first8 uint64) { mmio.Store64(view[uint64](reg), uint64(abi.ToBE64(first8))) }

// mlxMR is memory that is registered.
type mlxMR struct {
	mem    []byte
	handle uint32
	key    uint32
}

func (m *mlxMR) addr(off int) uint64 { return uapi.Addr(m.mem) + uint64(off) }

const allAccess = everything | abi.IB_UVERBS_ACCESS_REMOTE_ATOMIC | abi.IB_UVERBS_ACCESS_MW_BIND

func (d *mlxDev) mr(n int, access uint32) *mlxMR {
	d.t.Helper()
	m := &mlxMR{mem: pages(d.t, n)}
	r, err := d.regMR(d.pd, m.mem, access)
	must(d.t, err)
	m.handle, m.key = r.MrHandle, r.Lkey
	if r.Rkey != r.Lkey {
		d.t.Errorf("remote key %#x, want the local one %#x", r.Rkey, r.Lkey)
	}
	return m
}

func (d *mlxDev) regMR(pd uint32, mem []byte, access uint32) (r abi.IbUverbsRegMrResp, err error) {
	in := abi.IbUverbsRegMr{
		Start: uapi.Addr(mem), HcaVa: uapi.Addr(mem), Length: uint64(len(mem)), PdHandle: pd, AccessFlags: access,
	}
	return r, d.invoke(uapi.RegMR, bytesOf(&in), bytesOf(&r), nil, nil)
}

// sge is one data segment.
func (m *mlxMR) sge(off, n int) []byte { return dataSegment(uint32(n), m.key, m.addr(off)) }

func dataSegment(n, key uint32, addr uint64) []byte {
	b := make([]byte, segment)
	be.PutUint32(b, n)
	be.PutUint32(b[4:], key)
	be.PutUint64(b[8:], addr)
	return b
}

func remote(addr uint64, key uint32) []byte {
	b := make([]byte, segment)
	be.PutUint64(b, addr)
	be.PutUint32(b[8:], key)
	return b
}

func inlineData(data string) []byte {
	b := make([]byte, 4, 64)
	be.PutUint32(b, uint32(len(data))|inlineBit)
	b = append(b, data...)
	for len(b)%segment != 0 {
		b = append(b, 0xaa)
	}
	return b
}

// mlxCQ is a completion queue.
type mlxCQ struct {
	d      *mlxDev
	handle uint32
	num    uint32
	buf    []byte
	n      uint32
	size   uint32
	rec    []byte
	ci     uint32
	sn     uint32
	ch     uapi.File
}

func (d *mlxDev) cq(n uint32) *mlxCQ {
	d.t.Helper()
	c := &mlxCQ{d: d, n: n, size: 64}
	c.create()
	return c
}

// ring is an empty ring of entries.
func cqBuffer(t testing.TB, n, size uint32) []byte {
	buf := pages(t, int(max(n*size, 4096)))
	for i := range n {
		buf[(i+1)*size-1] = 0xf0
	}
	return buf
}

func (c *mlxCQ) create() {
	c.d.t.Helper()
	c.buf, c.rec = cqBuffer(c.d.t, c.n, c.size), c.d.record()
	var r abi.IbUverbsCreateCompChannelResp
	must(c.d.t, c.d.invoke(uapi.CreateCompChannel, bytesOf(&abi.IbUverbsCreateCompChannel{}), bytesOf(&r), nil, nil))
	var err error
	c.ch, err = c.d.k.System().Opener.Adopt(int32(r.Fd))
	must(c.d.t, err)
	c.d.t.Cleanup(func() { c.ch.Close() })
	in := c.request()
	var (
		resp abi.Mlx5IbCreateCqResp
		told uint32
	)
	create := mlx5CreateCQ(c.n-1, &told, bytesOf(&in), bytesOf(&resp)).
		UseFD(abi.UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, int32(r.Fd))
	must(c.d.t, create.Do(c.d.f))
	if told != c.n-1 {
		c.d.t.Errorf("completion queue of %d, want %d", told, c.n-1)
	}
	c.handle, c.num = create.Result(abi.UVERBS_ATTR_CREATE_CQ_HANDLE), resp.Cqn
}

func (c *mlxCQ) request() abi.Mlx5IbCreateCq {
	in := abi.Mlx5IbCreateCq{BufAddr: uapi.Addr(c.buf), DbAddr: uapi.Addr(c.rec), CqeSize: c.size}
	if c.d.nc.id != 0 {
		in.Flags, in.UarPageIndex = abi.MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX, uint16(c.d.nc.id)
	}
	return in
}

func mlx5CreateCQ(cqe uint32, told *uint32, in, out []byte) *uapi.Command {
	return mlx5cmd(uapi.CQCreate).
		New(abi.UVERBS_ATTR_CREATE_CQ_HANDLE).
		In32(abi.UVERBS_ATTR_CREATE_CQ_CQE, cqe).
		In64(abi.UVERBS_ATTR_CREATE_CQ_USER_HANDLE, 0xc0ffee).
		In32(abi.UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, 0).
		Out(abi.UVERBS_ATTR_CREATE_CQ_RESP_CQE, bytesOf(told)).
		Driver(in, out)
}

// cqe is a completion as it was in the ring.
type cqe []byte

func (c cqe) opcode() byte    { return c[63] >> 4 }
func (c cqe) sop() byte       { return c[56] }
func (c cqe) qpn() uint32     { return be.Uint32(c[56:]) & 0xffffff }
func (c cqe) index() uint32   { return be.Uint32(c[32:]) & 0xffffff }
func (c cqe) imm() uint32     { return be.Uint32(c[36:]) }
func (c cqe) bytes() uint32   { return be.Uint32(c[44:]) }
func (c cqe) counter() uint16 { return be.Uint16(c[60:]) }
func (c cqe) syndrome() byte  { return c[55] }

// take looks at the next entry without telling that it is consumed.
func (c *mlxCQ) take() (cqe, bool) {
	e := c.buf[(c.ci&(c.n-1)+1)*c.size-64:][:64]
	own := mmio.LoadAcquire32(view[uint32](e[60:]))
	last := bytesOf(&own)[3]
	if last>>4 == 15 || last&1 != byte(c.ci/c.n&1) {
		return nil, false
	}
	c.ci++
	return cqe(append([]byte(nil), e...)), true
}

func (c *mlxCQ) release() { put32(c.rec, c.ci&0xffffff) }

// one waits for a completion.
func (c *mlxCQ) one() cqe {
	c.d.t.Helper()
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Microsecond) {
		if e, ok := c.take(); ok {
			c.release()
			return e
		}
	}
	c.d.t.Fatal("no completion came")
	return nil
}

// none sees that nothing completes for a while.
func (c *mlxCQ) none(what string) {
	c.d.t.Helper()
	time.Sleep(3 * time.Millisecond)
	if e, ok := c.take(); ok {
		c.d.t.Errorf("%s: completion % x, want none", what, []byte(e))
		c.release()
	}
}

func (c *mlxCQ) arm(solicited bool) {
	word := c.sn&3<<28 | c.ci&0xffffff
	if solicited {
		word |= 1 << 24
	}
	put32(c.rec[4:], word)
	ringAt(c.d.nc.mem[0x20:], uint64(word)<<32|uint64(c.num))
}

// event waits for an event, and counts it.
func (c *mlxCQ) event() bool { return c.eventIn(5 * time.Second) }

// quiet sees that no event comes for a while.
func (c *mlxCQ) quiet() bool { return !c.eventIn(20 * time.Millisecond) }

func (c *mlxCQ) eventIn(wait time.Duration) bool {
	c.d.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	var e abi.IbUverbsCompEventDesc
	if _, err := c.ch.Read(ctx, bytesOf(&e)); err != nil {
		return false
	}
	if e.CqHandle != 0xc0ffee {
		c.d.t.Errorf("event of %#x, want the user handle", e.CqHandle)
	}
	c.sn++
	return true
}

// asyncEvent waits for an asynchronous event; -1 if there is none.
func (d *mlxDev) asyncEvent(wait time.Duration) int {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	var e abi.IbUverbsAsyncEventDesc
	if _, err := d.async.Read(ctx, bytesOf(&e)); err != nil {
		return -1
	}
	return int(e.EventType)
}

// golden compares bytes with hex text, in which spaces do not count and ? fits any digit.
func golden(t testing.TB, what string, got []byte, text string) {
	t.Helper()
	want := strings.NewReplacer(" ", "", "\n", "", "\t", "", "|", "").Replace(text)
	have := hex.EncodeToString(got)
	ok := len(want) == len(have)
	for i := 0; ok && i < len(want); i++ {
		ok = want[i] == '?' || want[i] == have[i]
	}
	if !ok {
		t.Errorf("%s:\ngot  %s\nwant %s", what, have, want)
	}
}
