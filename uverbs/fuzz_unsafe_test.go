//go:build linux

package uverbs

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"slices"
	"syscall"
	"testing"
	"unsafe"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
)

// hostileKernel answers as its script says: it refuses, leaves responses as they were, cuts
// them short, or fills them with numbers that make no sense. It keeps the books of what it
// made, so that at the end of a run it can tell if all was given back.
type hostileKernel struct {
	t      *testing.T
	driver uint32
	script *script
	grand  bool // it grants more than a slot has room for
	tame   bool // from now on it behaves

	made  map[thing]int
	stuck map[thing]bool // what it refused to destroy: nobody can but the end of the context
	files int            // descriptors and open files
	maps  []*guarded
	next  uint32 // handle, key, number
	gids  []byte // the last table that it gave
}

// thing is an object of the kernel.
type thing struct {
	object uint16
	handle uint32
}

// script is what the fuzzer decides, taken one by one; zeros when it is used up.
type script []byte

func (s *script) byte() (b byte) {
	if len(*s) > 0 {
		b, *s = (*s)[0], (*s)[1:]
	}
	return b
}

func (s *script) word() uint32 {
	return uint32(s.byte()) | uint32(s.byte())<<8 | uint32(s.byte())<<16 | uint32(s.byte())<<24
}

// size is a number that may be absurd and often is not.
func (s *script) size() uint32 {
	if b := s.byte(); b < 0xf0 {
		return uint32(b & 0x1f)
	}
	return s.word()
}

var errnos = [...]syscall.Errno{
	syscall.EINVAL, syscall.EIO, syscall.ENOMEM, syscall.EOPNOTSUPP, syscall.EBUSY, syscall.EACCES, syscall.ENOTTY, syscall.EFAULT,
}

// refuse tells with what errno a call fails, if it does.
func (k *hostileKernel) refuse() error {
	if k.tame {
		return nil
	}
	if b := k.script.byte(); b >= 0xf0 {
		return errnos[b&7]
	}
	return nil
}

// fill makes a response of one that would make sense.
func (k *hostileKernel) fill(b []byte, sound func([]byte)) {
	how := byte(1)
	if !k.tame {
		how = k.script.byte()
	}
	switch {
	case how < 0xa0:
		sound(b)
	case how < 0xd0: // with numbers changed
		sound(b)
		for range how & 3 {
			k.change(b)
		}
	case how < 0xf0: // any bytes, maybe not all of it
		*k.script = (*k.script)[copy(b, *k.script):]
	}
}

// change replaces a number by another, often one at the end of its range.
func (k *hostileKernel) change(b []byte) {
	at, how := int(k.script.byte()), k.script.byte()
	if len(b) < 4 {
		b[at%len(b)] = how
		return
	}
	v := k.script.size()
	switch {
	case how < 0x40:
		v = 1<<(how&31) - 1
	case how < 0x80:
		v = 1 << (how & 31)
	}
	binary.NativeEndian.PutUint32(b[at%(len(b)/4)*4:], v)
}

func (k *hostileKernel) Ioctl(req uint32, arg unsafe.Pointer) error {
	hdr := (*abi.IbUverbsIoctlHdr)(arg)
	attrs := unsafe.Slice((*abi.IbUverbsAttr)(unsafe.Add(arg, unsafe.Sizeof(*hdr))), hdr.NumAttrs)
	m := uapi.Lookup(hdr.ObjectId, hdr.MethodId)
	if req != abi.RDMA_VERBS_IOCTL || m == nil {
		k.t.Fatalf("ioctl %#x, method %d of object %d", req, hdr.MethodId, hdr.ObjectId)
	}
	c := &kernelCall{k: k, attrs: attrs}
	if m == uapi.InvokeWrite {
		c.write = uapi.LookupWrite(uint32(*find(attrs, abi.UVERBS_ATTR_WRITE_CMD).Data()))
	}
	err := k.refuse()
	for i := range attrs {
		a := &attrs[i]
		switch spec := m.Attr(a.AttrId); {
		case spec.Class == uapi.Destroy && (err == nil || errors.Is(err, syscall.EIO)): // either way it is gone
			k.destroyed(thing{m.Object, uint32(*a.Data())})
		case spec.Class == uapi.Destroy:
			k.stuck[thing{m.Object, uint32(*a.Data())}] = true
		case err != nil:
		case spec.Class == uapi.PtrOut && a.Len > 0:
			b := at(*a.Data(), int(a.Len))
			k.fill(b, func(b []byte) { c.sound(m, a.AttrId, b) })
			switch {
			case a.AttrId == abi.UVERBS_ATTR_CORE_OUT:
				c.born(b)
			case m == uapi.QueryGIDTable && len(b)%gidSize == 0:
				k.gids = bytes.Clone(b)
			}
		case spec.Class == uapi.New:
			k.next++
			h := k.next
			k.fill(uapi.Bytes(&h), func([]byte) {})
			*a.Data() = uint64(h)
			k.made[thing{m.Object, h}]++
		case spec.Class == uapi.NewFD:
			*a.DataS64() = 100
			k.files++
		}
	}
	if err == nil {
		c.resizedSRQ()
	}
	return err
}

func (k *hostileKernel) destroyed(o thing) {
	if k.made[o] == 0 {
		k.t.Errorf("object %d of kind %#x is destroyed and was never made", o.handle, o.object)
	}
	if k.made[o]--; k.made[o] <= 0 {
		delete(k.made, o)
	}
}

// left lists what nobody tried to destroy.
func (k *hostileKernel) left() (all []thing) {
	for o := range k.made {
		if !k.stuck[o] {
			all = append(all, o)
		}
	}
	return all
}

// kernelCall is a call that the kernel carries out.
type kernelCall struct {
	k     *hostileKernel
	attrs []abi.IbUverbsAttr
	write *uapi.WriteCmd // nil for a method
}

// at returns n bytes at an address that a request carries.
func at(addr uint64, n int) []byte {
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&addr))), n)
}

func find(attrs []abi.IbUverbsAttr, id uint16) *abi.IbUverbsAttr {
	for i := range attrs {
		if attrs[i].AttrId == id {
			return &attrs[i]
		}
	}
	return new(abi.IbUverbsAttr)
}

// born notes what a write command made; b is its response.
func (c *kernelCall) born(b []byte) {
	object, off := uint16(0), 0
	switch c.write {
	case uapi.AllocPD:
		object = abi.UVERBS_OBJECT_PD
	case uapi.RegMR:
		object = abi.UVERBS_OBJECT_MR
	case uapi.CreateAH:
		object = abi.UVERBS_OBJECT_AH
	case uapi.AllocMW:
		object = abi.UVERBS_OBJECT_MW
	case uapi.OpenXRCD:
		object = abi.UVERBS_OBJECT_XRCD
	case uapi.CreateFlow:
		object, off = abi.UVERBS_OBJECT_FLOW, 4
	case uapi.CreateCompChannel:
		c.k.files++
		return
	default:
		return
	}
	c.k.made[thing{object, binary.NativeEndian.Uint32(b[off:])}]++
}

// The kinds of queues, by the offset at which they are mapped.
const (
	mapCQ = (iota + 1) << 20
	mapSQ
	mapRQ
)

const entries = 16

// shape is how large the slots of a queue of rxe are.
func shape(off int64) (log2Slot uint32) {
	switch off &^ (1<<20 - 1) {
	case mapCQ:
		return 6
	case mapSQ:
		return 9
	}
	return 7
}

func mminfo(off int64) []byte {
	mi := abi.Mminfo{Offset: uint64(off), Size: 384 + entries<<shape(off)}
	return uapi.Bytes(&mi)
}

const gidSize = int(unsafe.Sizeof(abi.IbUverbsGidEntry{}))

// soundTable has an IPv4 and an IPv6 entry.
var soundTable = func() (table []byte) {
	for i, gid := range []GID{{10: 0xff, 11: 0xff, 12: 10}, {0xfe, 0x80}} {
		e := abi.IbUverbsGidEntry{GidIndex: uint32(i) + 1, PortNum: 1, GidType: uint32(GIDTypeRoCEv2)}
		copy(uapi.Bytes(&e.Gid), gid[:])
		table = append(table, uapi.Bytes(&e)...)
	}
	return table
}()

// hasGID tells whether the table has an address at an index.
func (k *hostileKernel) hasGID(port, index uint8, gid GID) bool {
	for b := k.gids; len(b) >= gidSize; b = b[gidSize:] {
		var e abi.IbUverbsGidEntry
		copy(uapi.Bytes(&e), b)
		if e.GidIndex == uint32(index) && e.PortNum == uint32(port) && GID(b[:16]) == gid {
			return true
		}
	}
	return false
}

// sound writes what a sound kernel answers.
func (c *kernelCall) sound(m *uapi.Method, id uint16, b []byte) {
	c.k.next++
	number := c.k.next
	asked, sized := c.soundSize(m)
	switch {
	case id == abi.UVERBS_ATTR_UHW_OUT:
		copy(b, c.soundDriver(m))
	case sized:
		copy(b, uapi.Bytes(find(c.attrs, asked).Data()))
	case m == uapi.UARAlloc && id == abi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH:
		length := uint32(os.Getpagesize())
		copy(b, uapi.Bytes(&length))
	case c.write != nil:
		copy(b, c.soundWrite(number))
	case m == uapi.QueryGIDTable && len(b)%gidSize == 0:
		copy(b, soundTable)
	case m == uapi.GetContext, m == uapi.QueryGIDTable:
		b[0] = 2
	case m == uapi.QueryPort:
		r := abi.IbUverbsQueryPortResp{GidTblLen: 4, PkeyTblLen: 1, State: uint8(PortActive), ActiveMtu: uint8(MTU1024)}
		copy(b, uapi.Bytes(&r))
	case m == uapi.QPCreate && id == abi.UVERBS_ATTR_CREATE_QP_RESP_CAP:
		r := abi.IbUverbsQpCap{MaxSendWr: entries, MaxRecvWr: entries, MaxSendSge: 4, MaxRecvSge: 4, MaxInlineData: 64}
		if c.k.grand {
			r.MaxSendSge, r.MaxRecvSge, r.MaxInlineData = [...]uint32{4, 40, 4}[number%3], 1, [...]uint32{64, 64, 4096}[number%3]
		}
		copy(b, uapi.Bytes(&r))
	case m == uapi.SRQCreate:
		b[0] = 4
	default:
		copy(b, uapi.Bytes(&number))
	}
}

func (c *kernelCall) soundDriver(m *uapi.Method) []byte {
	switch c.k.driver {
	case abi.RDMA_DRIVER_SIW:
		return c.soundSIW(m)
	case abi.RDMA_DRIVER_MLX5:
		return c.soundMLX5(m)
	}
	switch {
	case m == uapi.CQCreate, c.write == uapi.ResizeCQ:
		return mminfo(mapCQ)
	case m == uapi.QPCreate:
		return bytes.Join([][]byte{mminfo(mapRQ), mminfo(mapSQ)}, nil)
	case m == uapi.SRQCreate:
		return mminfo(mapRQ)
	}
	return []byte{byte(c.k.next), 0, 0, 0} // the number of an address handle
}

func (c *kernelCall) soundSIW(m *uapi.Method) []byte {
	switch {
	case m == uapi.CQCreate:
		return uapi.Bytes(&abi.SiwUrespCreateCq{NumCqe: entries, CqKey: mapCQ})
	case m == uapi.QPCreate:
		return uapi.Bytes(&abi.SiwUrespCreateQp{NumSqe: entries, NumRqe: entries, SqKey: mapSQ, RqKey: mapRQ})
	case m == uapi.SRQCreate:
		return uapi.Bytes(&abi.SiwUrespCreateSrq{NumRqe: entries, SrqKey: mapRQ})
	}
	return []byte{byte(c.k.next)}
}

func (c *kernelCall) soundMLX5(m *uapi.Method) []byte {
	if m != uapi.GetContext {
		return []byte{byte(c.k.next), 0, 0, 0} // the number of a queue or domain
	}
	r := abi.Mlx5IbAllocUcontextResp{
		BfRegSize: 512, CacheLineSize: 64, MaxSqDescSz: 1024, MaxRqDescSz: 512, MaxSendWqebb: 1 << 15, MaxRecvWr: 1 << 15,
		MaxSrqRecvWr: 1 << 15, CqeVersion: byte(c.k.next & 1), LogUarSize: 12, NumUarsPerPage: uint32(os.Getpagesize()) / 4096,
	}
	if c.k.grand {
		r.TotBfregs = 8 * 2 * r.NumUarsPerPage
	}
	return uapi.Bytes(&r)
}

// soundSize is how many entries a kernel says that mlx5's queue has: as many as it was asked
// for.
func (c *kernelCall) soundSize(m *uapi.Method) (id uint16, ok bool) {
	if c.k.driver != abi.RDMA_DRIVER_MLX5 {
		return 0, false
	}
	switch m {
	case uapi.CQCreate:
		return abi.UVERBS_ATTR_CREATE_CQ_CQE, true
	case uapi.SRQCreate:
		return abi.UVERBS_ATTR_CREATE_SRQ_MAX_WR, true
	}
	return 0, false
}

func (c *kernelCall) soundWrite(number uint32) []byte {
	switch c.write {
	case uapi.QueryQP:
		return uapi.Bytes(&abi.IbUverbsQueryQpResp{QpState: uint8(StateRTS)})
	case uapi.QueryDeviceEx:
		return uapi.Bytes(&abi.IbUverbsExQueryDeviceResp{DeviceCapFlagsEx: 1<<64 - 1})
	case uapi.QueryDevice, uapi.QuerySRQ:
		return nil
	case uapi.ResizeCQ:
		in := at(*find(c.attrs, abi.UVERBS_ATTR_CORE_IN).Data(), 16)
		return in[12:]
	case uapi.CreateCompChannel:
		return []byte{100}
	}
	return binary.NativeEndian.AppendUint32(uapi.Bytes(&number), number) // handles and keys
}

// resizedSRQ writes where the new queue is, to where the driver's input says.
func (c *kernelCall) resizedSRQ() {
	in := find(c.attrs, abi.UVERBS_ATTR_UHW_IN)
	if c.write == uapi.ModifySRQ && in.Len == 8 && *in.Data() != 0 {
		c.k.fill(at(*in.Data(), 16), func(b []byte) { copy(b, mminfo(mapRQ)) })
	}
}

// Write is a doorbell.
func (k *hostileKernel) Write(_ context.Context, p []byte) (int, error) {
	if err := k.refuse(); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (k *hostileKernel) Read(context.Context, []byte) (int, error) { return 0, syscall.EINVAL }

func (k *hostileKernel) Close() error {
	k.files--
	return nil
}

// guarded is a mapping between two pages that nobody can touch.
type guarded struct{ whole, mem []byte }

const maxMapped = 1 << 16

func (k *hostileKernel) Map(off int64, length, _ int) ([]byte, error) {
	if err := k.refuse(); err != nil {
		return nil, err
	}
	if length <= 0 || length > maxMapped {
		return nil, syscall.EINVAL
	}
	page := os.Getpagesize()
	size := (length + page - 1) / page * page
	whole, err := syscall.Mmap(-1, 0, size+2*page, syscall.PROT_NONE, syscall.MAP_PRIVATE|syscall.MAP_ANONYMOUS)
	if err == nil {
		err = syscall.Mprotect(whole[page:page+size], syscall.PROT_READ|syscall.PROT_WRITE)
	}
	if err != nil {
		k.t.Fatal(err)
	}
	g := &guarded{whole: whole, mem: whole[page : page+length : page+length]}
	for i := page + length; i < page+size; i++ {
		whole[i] = 0xa5
	}
	if k.driver == abi.RDMA_DRIVER_RXE && length >= 8 {
		k.fill(g.mem[:8], func(b []byte) {
			binary.NativeEndian.PutUint32(b, shape(off))
			binary.NativeEndian.PutUint32(b[4:], entries-1)
		})
	}
	k.maps = append(k.maps, g)
	return g.mem, nil
}

func (k *hostileKernel) Unmap(mem []byte) error {
	i := slices.IndexFunc(k.maps, func(g *guarded) bool { return &g.mem[0] == unsafe.SliceData(mem) })
	if i < 0 || len(k.maps[i].mem) != len(mem) {
		k.t.Fatal("what is unmapped is not what was mapped")
	}
	g := k.maps[i]
	page := os.Getpagesize()
	slack := g.whole[page+len(mem) : len(g.whole)-page]
	if bytes.Count(slack, []byte{0xa5}) != len(slack) {
		k.t.Error("memory behind a queue was written")
	}
	k.maps = slices.Delete(k.maps, i, i+1)
	return syscall.Munmap(g.whole)
}

// tamper changes a queue, most often its indices or flags, or the end of the first
// completion of mlx5.
func (k *hostileKernel) tamper(s *script, queues [][]byte) {
	which, where, value := int(s.byte()), s.byte(), s.size()
	if len(queues) == 0 {
		return
	}
	mem := queues[which%len(queues)]
	off := [...]int{0, 4, 128, 256, 60, 56, 32, 124}[where&7]
	if where&0x80 != 0 {
		off = int(where&0x7f) * 8
	}
	if off+4 <= len(mem) {
		binary.NativeEndian.PutUint32(mem[off:], value)
	}
}

func (k *hostileKernel) Open(string) (uapi.File, error) {
	if err := k.refuse(); err != nil {
		return nil, err
	}
	k.files++
	return k, nil
}

// Adopt takes a descriptor over; if it cannot it closes it.
func (k *hostileKernel) AdoptBlocking(fd int32) (uapi.File, error) { return k.Adopt(fd) }

func (k *hostileKernel) Adopt(int32) (uapi.File, error) {
	if err := k.refuse(); err != nil {
		k.files--
		return nil, err
	}
	return &hostileEvents{k: k}, nil
}

func (k *hostileKernel) Stat(string) (uint64, error) { return 0, syscall.ENOENT }

// hostileEvents is a channel on which events come in as the script says: any, also cut
// short. When the script is used up the channel fails.
type hostileEvents struct {
	k      *hostileKernel
	closed bool
}

func (e *hostileEvents) Read(ctx context.Context, p []byte) (int, error) {
	switch {
	case e.closed:
		return 0, net.ErrClosed
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case len(*e.k.script) == 0:
		return 0, syscall.EIO
	}
	if err := e.k.refuse(); err != nil {
		return 0, err
	}
	clear(p)
	switch how := e.k.script.byte(); {
	case how < 0x80: // the name of some object
		p[0] = e.k.script.byte()
	case how < 0xc0:
		n := min(int(how&0x1f), len(p))
		*e.k.script = (*e.k.script)[copy(p[:n], *e.k.script):]
		return n, nil
	default:
		*e.k.script = (*e.k.script)[copy(p, *e.k.script):]
	}
	return len(p), nil
}

func (e *hostileEvents) Close() error {
	if !e.closed {
		e.closed = true
		e.k.files--
	}
	return nil
}

func (e *hostileEvents) Ioctl(uint32, unsafe.Pointer) error { return syscall.ENOTTY }

func (e *hostileEvents) Write(context.Context, []byte) (int, error) { return 0, syscall.EINVAL }

func (e *hostileEvents) Map(int64, int, int) ([]byte, error) { return nil, syscall.ENODEV }

func (e *hostileEvents) Unmap([]byte) error { return syscall.EINVAL }
