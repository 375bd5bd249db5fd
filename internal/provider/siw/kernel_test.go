package siw

import (
	"encoding/binary"
	"os"
	"testing"

	"github.com/pureverbs/rdma/internal/provider"
	"github.com/pureverbs/rdma/mmio"
)

// The tests play the kernel on plain bytes, by offset: what is checked here is the layout of
// siw-abi.h as it was measured, not what the package says of it.

var ne = binary.NativeEndian

const (
	sqeSize = 120
	rqeSize = 112
	cqeSize = 32
)

// mapping is one call of the mapper.
type mapping struct {
	Off    int64
	Length int
}

// kernel maps what is asked for and keeps it.
type kernel struct {
	asked  []mapping
	mem    map[int64][]byte
	short  map[int64]int   // bytes that a mapping lacks
	fail   map[int64]error // what it fails with
	closed int
}

func (k *kernel) mapper(off int64, length int) (*mmio.Region, error) {
	k.asked = append(k.asked, mapping{off, length})
	if err := k.fail[off]; err != nil {
		return nil, err
	}
	mem := make([]byte, length-k.short[off])
	if k.mem == nil {
		k.mem = make(map[int64][]byte)
	}
	k.mem[off] = mem
	return mmio.NewRegion(mem, func([]byte) error { k.closed++; return nil }), nil
}

// answer writes a driver's response, 32 bits by 32 bits.
func answer(out []byte, words ...uint32) {
	for i, w := range words {
		ne.PutUint32(out[4*i:], w)
	}
}

// key is the 64-bit mapping key of a response, as answer takes it.
func key(k uint64) (a, b uint32) {
	var m [8]byte
	ne.PutUint64(m[:], k)
	return ne.Uint32(m[:]), ne.Uint32(m[4:])
}

func pages(n int) int {
	page := os.Getpagesize()
	return (n + page - 1) / page * page
}

var full = provider.QPCap{MaxSendSGE: 6, MaxRecvSGE: 6, MaxInline: 80}

// openQP makes a queue pair of n send and n receive requests, and returns its queues.
func openQP(t testing.TB, n uint32, plan *QPPlan) (q *QP, sq, rq []byte) {
	t.Helper()
	k := new(kernel)
	sqKey, rqKey := int64(pages(1)), int64(64*pages(1))
	s0, s1 := key(uint64(sqKey))
	r0, r1 := key(uint64(rqKey))
	answer(plan.Out(), 17, n, n, 0, s0, s1, r0, r1)
	q, err := plan.Attach(k.mapper, full)
	if err != nil {
		t.Fatal(err)
	}
	return q, k.mem[sqKey][:n*sqeSize], k.mem[rqKey][:n*rqeSize]
}

func openCQ(t testing.TB, n uint32) (*CQ, []byte) {
	t.Helper()
	k := new(kernel)
	p := new(CQPlan)
	answer(p.Out(), 5, n, 0, 0)
	q, err := p.Attach(k.mapper)
	if err != nil {
		t.Fatal(err)
	}
	return q, k.mem[0][:n*cqeSize+8]
}

// soil fills slots with what an earlier lap may have left, but for the flags.
func soil(mem []byte, slot int) {
	for i := range mem {
		mem[i] = 0xee
	}
	for off := 8; off < len(mem); off += slot {
		ne.PutUint16(mem[off:], 0)
	}
}

// flagsOf reads the flags of a work request.
func flagsOf(mem []byte, slot, i int) uint16 { return ne.Uint16(mem[i*slot+8:]) }

// consume is the kernel taking a work request.
func consume(mem []byte, slot, i int) (id uint64) {
	id = ne.Uint64(mem[i*slot:])
	ne.PutUint16(mem[i*slot+8:], 0)
	return id
}

// cqe is a completion.
type cqe struct {
	id     uint64
	flags  uint8
	opcode uint8
	status uint16
	bytes  uint32
	stag   uint32
	qp     uint64
}

func putCQE(mem []byte, i int, c cqe) {
	e := mem[i*cqeSize : (i+1)*cqeSize]
	ne.PutUint64(e, c.id)
	e[8], e[9] = c.flags, c.opcode
	ne.PutUint16(e[10:], c.status)
	ne.PutUint32(e[12:], c.bytes)
	ne.PutUint64(e[16:], 0)
	ne.PutUint32(e[16:], c.stag)
	ne.PutUint64(e[24:], c.qp)
}

// next reads the oldest completion and keeps its slot.
func next(q *CQ, wc *provider.WC) (bool, error) {
	ok, err := q.Advance()
	if ok {
		q.Decode(wc)
	}
	return ok, err
}

// pollOne polls for one.
func pollOne(q *CQ, wc *provider.WC) (ok, failed bool, err error) {
	wcs := []provider.WC{*wc}
	n, failed, err := q.Poll(wcs)
	*wc = wcs[0]
	return n == 1, failed, err
}

// poll reads all completions and keeps their slots.
func poll(t testing.TB, q *CQ) (wcs []provider.WC) {
	t.Helper()
	for {
		var wc provider.WC
		ok, err := next(q, &wc)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return wcs
		}
		wcs = append(wcs, wc)
	}
}

func ids(wcs []provider.WC) (ids []uint64) {
	for i := range wcs {
		ids = append(ids, wcs[i].ID)
	}
	return ids
}
