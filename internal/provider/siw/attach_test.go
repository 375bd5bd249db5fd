package siw

import (
	"errors"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pureverbs/rdma/internal/provider"
)

// inval is SIW_INVAL_UOBJ_KEY.
const inval = 0x90000

// attaching is one way to attach, with the kernel's answer.
type attaching struct {
	name string
	run  func(k *kernel) error
}

func asCQ(entries uint32, cqKey uint64) func(*kernel) error {
	return func(k *kernel) error {
		p := new(CQPlan)
		a, b := key(cqKey)
		answer(p.Out(), 5, entries, a, b)
		_, err := p.Attach(k.mapper)
		return err
	}
}

func asQP(sqe, rqe uint32, sqKey, rqKey uint64, granted provider.QPCap) func(*kernel) error {
	return func(k *kernel) error {
		p := new(QPPlan)
		s0, s1 := key(sqKey)
		r0, r1 := key(rqKey)
		answer(p.Out(), 17, sqe, rqe, 0, s0, s1, r0, r1)
		q, err := p.Attach(k.mapper, granted)
		if err == nil && q.HasRecv() != (rqe > 0) {
			return errors.New("HasRecv is wrong")
		}
		return err
	}
}

func asSRQ(entries uint32, srqKey uint64, sge uint32) func(*kernel) error {
	return func(k *kernel) error {
		p := new(SRQPlan)
		a, b := key(srqKey)
		answer(p.Out(), entries, 0, a, b)
		_, err := p.Attach(k.mapper, sge)
		return err
	}
}

// TestMappings: the kernel takes exactly the length it made, in whole pages. Any multiple of
// the page size is a key, also 0 and the number that once meant "none".
func TestMappings(t *testing.T) {
	page := uint64(os.Getpagesize())
	tests := []struct {
		attaching
		want []mapping
	}{
		{attaching{"CQ of 1", asCQ(1, 0)}, []mapping{{0, pages(40)}}},
		{attaching{"CQ", asCQ(1024, 3*page)}, []mapping{{int64(3 * page), pages(1024*32 + 8)}}},
		{attaching{"greatest CQ", asCQ(1<<22, inval)}, []mapping{{inval, pages(32<<22 + 8)}}},
		{attaching{"QP", asQP(64, 256, page, 9*page, full)}, []mapping{{int64(page), pages(64 * 120)}, {int64(9 * page), pages(256 * 112)}}},
		{attaching{"QP, keys swapped", asQP(1, 1, inval, 0, full)}, []mapping{{inval, pages(120)}, {0, pages(112)}}},
		{attaching{"QP without receives", asQP(2, 0, page, 0, provider.QPCap{})}, []mapping{{int64(page), pages(240)}}},
		{attaching{"QP without receives, old key", asQP(2, 0, page, inval, full)}, []mapping{{int64(page), pages(240)}}},
		{attaching{"SRQ", asSRQ(1<<19, 7*page, 6)}, []mapping{{int64(7 * page), pages(112 << 19)}}},
	}
	for _, tt := range tests {
		k := new(kernel)
		if err := tt.run(k); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if diff := cmp.Diff(tt.want, k.asked); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
}

// TestNonsense: what cannot be a queue is refused before it is mapped.
func TestNonsense(t *testing.T) {
	page := uint64(os.Getpagesize())
	tests := []attaching{
		{"CQ of 0", asCQ(0, page)},
		{"CQ of 3", asCQ(3, page)},
		{"CQ of 2^23", asCQ(1<<23, page)},
		{"CQ of 2^31", asCQ(1<<31, page)},
		{"odd key", asCQ(4, page+8)},
		{"great key", asCQ(4, 1<<63)},
		{"SQ of 0", asQP(0, 1, page, 2*page, full)},
		{"SQ of 5", asQP(5, 1, page, 2*page, full)},
		{"7 pieces to send", asQP(4, 4, page, 2*page, provider.QPCap{MaxSendSGE: 7})},
		{"7 pieces to receive", asQP(4, 4, page, 2*page, provider.QPCap{MaxRecvSGE: 7})},
		{"81 bytes inline", asQP(4, 4, page, 2*page, provider.QPCap{MaxInline: 81})},
		{"SRQ of 0", asSRQ(0, page, 1)},
		{"SRQ of 12", asSRQ(12, page, 1)},
		{"SRQ of 7 pieces", asSRQ(8, page, 7)},
	}
	for _, tt := range tests {
		k := new(kernel)
		if err := tt.run(k); !errors.Is(err, provider.ErrCorrupt) {
			t.Errorf("%s: got %v, want ErrCorrupt", tt.name, err)
		}
		if len(k.asked) > 0 {
			t.Errorf("%s: was mapped: %v", tt.name, k.asked)
		}
	}
}

// TestAttachUndone: what fails half way leaves no mapping.
func TestAttachUndone(t *testing.T) {
	page := uint64(os.Getpagesize())
	broken := errors.New("broken")
	tests := []struct {
		attaching
		kernel kernel
		want   error
		closed int
	}{
		{attaching{"no SQ", asQP(4, 4, page, 2*page, full)}, kernel{fail: map[int64]error{int64(page): broken}}, broken, 0},
		{attaching{"no RQ", asQP(4, 4, page, 2*page, full)}, kernel{fail: map[int64]error{int64(2 * page): broken}}, broken, 1},
		{attaching{"RQ of nonsense", asQP(4, 3, page, 2*page, full)}, kernel{}, provider.ErrCorrupt, 1},
		{attaching{"short SQ", asQP(4, 4, page, 2*page, full)}, kernel{short: map[int64]int{int64(page): 1}}, provider.ErrCorrupt, 1},
		{attaching{"short CQ", asCQ(4, page)}, kernel{short: map[int64]int{int64(page): int(page)}}, provider.ErrCorrupt, 1},
		{attaching{"short SRQ", asSRQ(4, page, 1)}, kernel{short: map[int64]int{int64(page): 8}}, provider.ErrCorrupt, 1},
		{attaching{"no CQ", asCQ(4, page)}, kernel{fail: map[int64]error{int64(page): broken}}, broken, 0},
	}
	for _, tt := range tests {
		if err := tt.run(&tt.kernel); !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, err, tt.want)
		}
		if tt.kernel.closed != tt.closed {
			t.Errorf("%s: %d mappings closed, want %d", tt.name, tt.kernel.closed, tt.closed)
		}
	}
}

func TestClose(t *testing.T) {
	k := new(kernel)
	q, c, s := new(QPPlan), new(CQPlan), new(SRQPlan)
	page := uint32(os.Getpagesize())
	a, b := key(uint64(page))
	answer(q.Out(), 17, 4, 4, 0, 0, 0, a, b)
	answer(c.Out(), 5, 4, 0, 0)
	answer(s.Out(), 4, 0, 0, 0)
	qp, err1 := q.Attach(k.mapper, full)
	cq, err2 := c.Attach(k.mapper)
	srq, err3 := s.Attach(k.mapper, 1)
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	for i, close := range []func() error{qp.Close, cq.Close, srq.Close} {
		if err := close(); err != nil || k.closed != i+2 {
			t.Errorf("close %d: %v, %d mappings closed in all", i, err, k.closed)
		}
	}
}

// TestPlans: the lengths of what the driver is asked and answers, and the key's place.
func TestPlans(t *testing.T) {
	mr := &MRPlan{Key: 0x5a}
	if diff := cmp.Diff([]byte{0x5a, 0, 0, 0, 0, 0, 0, 0}, mr.In()); diff != "" {
		t.Error(diff)
	}
	answer(mr.Out(), 0x1234565a, 0)
	if got := mr.STag(); got != 0x1234565a {
		t.Errorf("the tag is %#x", got)
	}
	got := []int{len(mr.Out()), len(new(CQPlan).Out()), len(new(QPPlan).Out()), len(new(SRQPlan).Out()), ContextOut}
	if diff := cmp.Diff([]int{8, 16, 32, 16, 8}, got); diff != "" {
		t.Error(diff)
	}
}
