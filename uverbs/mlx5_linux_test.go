package uverbs_test

import (
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/fakekernel"
	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/uverbs"
)

var (
	allocUAR   = fakekernel.Method(abi.MLX5_IB_OBJECT_UAR, abi.MLX5_IB_METHOD_UAR_OBJ_ALLOC)
	destroyUAR = fakekernel.Method(abi.MLX5_IB_OBJECT_UAR, abi.MLX5_IB_METHOD_UAR_OBJ_DESTROY)
)

// tally counts calls of the kernel.
type tally struct{ all, allocs, destroys, maps atomic.Int32 }

func (c *tally) log(call fakekernel.Call) {
	c.all.Add(1)
	switch {
	case allocUAR(call):
		c.allocs.Add(1)
	case destroyUAR(call):
		c.destroys.Add(1)
	case call.Kind == fakekernel.CallMap:
		c.maps.Add(1)
	}
}

// station is an open mlx5 device with a domain and a completion queue.
type station struct {
	ctx *uverbs.Context
	pd  *uverbs.PD
	cq  *uverbs.CQ
}

func newStation(t *testing.T, d *uverbs.Device) *station {
	t.Helper()
	ctx, err := d.Open()
	testutil.Must(t, err)
	pd, err := ctx.AllocPD()
	testutil.Must(t, err)
	cq, err := ctx.CreateCQ(64, nil)
	testutil.Must(t, err)
	return &station{ctx, pd, cq}
}

func (s *station) close(t *testing.T) {
	t.Helper()
	testutil.Must(t, errors.Join(s.cq.Close(), s.pd.Close(), s.ctx.Close()))
}

var someRoom = uverbs.QPCap{MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInline: 32}

func (s *station) queuePairs(t *testing.T, n int) (all []*uverbs.QP) {
	t.Helper()
	for range n {
		qp, err := s.pd.CreateQP(&uverbs.QPInitAttr{SendCQ: s.cq, Cap: someRoom})
		testutil.Must(t, err)
		all = append(all, qp)
	}
	return all
}

// TestMLX5Registers: a page for completion queues, two for four queue pairs, and six that all
// the others share; they are used again, and go with the context. Without BlueFlame one page
// does it all. What the kernel made with the context is mapped, and there is nothing to ask
// for.
func TestMLX5Registers(t *testing.T) {
	type counts struct{ Allocs, Maps, Destroys int32 }
	for name, tt := range map[string]struct {
		device fakekernel.MLX5
		off    bool
		want   counts
	}{
		"dynamic":            {want: counts{9, 9, 9}},
		"off":                {off: true, want: counts{1, 1, 1}},
		"the CPU cannot":     {fakekernel.MLX5{NoBlueFlame: true}, false, counts{1, 1, 1}},
		"static":             {fakekernel.MLX5{StaticUARs: true}, false, counts{0, 8, 0}},
		"static and off":     {fakekernel.MLX5{StaticUARs: true}, true, counts{0, 8, 0}},
		"static, CPU cannot": {fakekernel.MLX5{StaticUARs: true, NoBlueFlame: true}, false, counts{0, 8, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			testutil.NoLeaks(t)
			var calls tally
			k, device := fake(t, fakekernel.Options{Devices: mlx5With(tt.device), Log: calls.log})
			d := device(t)
			d.NoBlueFlame = tt.off
			s := newStation(t, d)
			for range 2 {
				for _, qp := range s.queuePairs(t, 24) {
					testutil.Must(t, qp.Close())
				}
			}
			all := s.queuePairs(t, 24)
			for _, qp := range all {
				testutil.Must(t, qp.Close())
			}
			s.close(t)
			if got := (counts{calls.allocs.Load(), calls.maps.Load(), calls.destroys.Load()}); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
			if n := k.Counts(); n != (fakekernel.Counts{}) {
				t.Errorf("left in the kernel: %+v", n)
			}
		})
	}
}

// TestMLX5NoSystemCalls: posting, polling and arming are stores and loads.
func TestMLX5NoSystemCalls(t *testing.T) {
	var calls tally
	s := suite(t, fakekernel.Options{Devices: mlx5, Log: calls.log})
	for name, step := range s.HotPath(t) {
		before := calls.all.Load()
		for range 40 {
			step()
		}
		if n := calls.all.Load() - before; n != 0 {
			t.Errorf("%s: %d calls of the kernel", name, n)
		}
	}
}

// TestMLX5NoRegisters: without a register nothing can be rung; without one more the others
// are shared.
func TestMLX5NoRegisters(t *testing.T) {
	k, device := fake(t, fakekernel.Options{Devices: mlx5})
	ctx, err := device(t).Open()
	testutil.Must(t, err)
	defer ctx.Close()
	for _, match := range []func(fakekernel.Call) bool{allocUAR, fakekernel.Kind(fakekernel.CallMap)} {
		cancel := k.Fail(match, syscall.ENOMEM)
		if _, err := ctx.CreateCQ(8, nil); !errors.Is(err, syscall.ENOMEM) {
			t.Errorf("completion queue: got %v, want ENOMEM", err)
		}
		cancel()
	}
	s := newStation(t, device(t))
	for _, match := range []func(fakekernel.Call) bool{allocUAR, fakekernel.Kind(fakekernel.CallMap)} {
		cancel := k.Fail(match, syscall.ENOMEM)
		for _, qp := range s.queuePairs(t, 8) {
			testutil.Must(t, qp.Close())
		}
		cancel()
	}
	s.close(t)
}

// TestMLX5RefusedKeepsNothing: what the kernel refuses, and what its answer spoils, leaves no
// memory behind.
func TestMLX5RefusedKeepsNothing(t *testing.T) {
	k, device := fake(t, fakekernel.Options{Devices: mlx5})
	s := newStation(t, device(t))
	defer s.close(t)
	testutil.Must(t, s.queuePairs(t, 1)[0].Close()) // what the first one needs stays
	fail := func() {
		for what, f := range map[string]struct {
			match func(fakekernel.Call) bool
			do    func() error
		}{
			"completion queue": {fakekernel.Method(abi.UVERBS_OBJECT_CQ, abi.UVERBS_METHOD_CQ_CREATE), func() error {
				_, err := s.ctx.CreateCQ(1000, nil)
				return err
			}},
			"queue pair": {fakekernel.Method(abi.UVERBS_OBJECT_QP, abi.UVERBS_METHOD_QP_CREATE), func() error {
				_, err := s.pd.CreateQP(&uverbs.QPInitAttr{SendCQ: s.cq, Cap: someRoom})
				return err
			}},
			"shared receive queue": {fakekernel.Method(abi.UVERBS_OBJECT_SRQ, abi.UVERBS_METHOD_SRQ_CREATE), func() error {
				_, err := s.pd.CreateSRQ(&uverbs.SRQInitAttr{MaxWR: 100, MaxSGE: 1})
				return err
			}},
			"resize": {fakekernel.Command(abi.IB_USER_VERBS_CMD_RESIZE_CQ), func() error { return s.cq.Resize(1000) }},
		} {
			cancel := k.Fail(f.match, syscall.ENOMEM)
			if err := f.do(); !errors.Is(err, syscall.ENOMEM) {
				t.Errorf("%s: got %v, want ENOMEM", what, err)
			}
			cancel()
		}
	}
	fail()
	before := testutil.Mappings()
	for range 100 {
		fail()
	}
	if after := testutil.Mappings(); after > before+20 {
		t.Errorf("there are %d mappings, %d were at the start", after, before)
	}
	if s.cq.Cap() >= 1000 {
		t.Errorf("the queue has room for %d", s.cq.Cap())
	}
}

// TestMLX5Forgotten: what a program forgets is closed when it is collected, and the memory of
// its queues goes with it.
func TestMLX5Forgotten(t *testing.T) {
	k, device := fake(t, fakekernel.Options{Devices: mlx5})
	before := testutil.Mappings()
	for range 20 {
		newStation(t, device(t)).queuePairs(t, 3)
	}
	for range 100 {
		runtime.GC()
		if k.Counts() == (fakekernel.Counts{}) {
			break
		}
	}
	if n := k.Counts(); n != (fakekernel.Counts{AsyncChannels: n.AsyncChannels}) {
		t.Errorf("left in the kernel: %+v", n)
	}
	if after := testutil.Mappings(); after > before+20 {
		t.Errorf("there are %d mappings, %d were at the start", after, before)
	}
}

// TestMLX5Sizes: what the program gets is known here, not in the kernel, and a query says the
// same.
func TestMLX5Sizes(t *testing.T) {
	_, device := fake(t, fakekernel.Options{Devices: mlx5})
	s := newStation(t, device(t))
	defer s.close(t)
	for _, tt := range []struct{ ask, want uverbs.QPCap }{
		{uverbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}, uverbs.QPCap{MaxSendWR: 1, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInline: 60}},
		{uverbs.QPCap{MaxSendWR: 5, MaxRecvWR: 6, MaxSendSGE: 2, MaxRecvSGE: 3, MaxInline: 20}, uverbs.QPCap{MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 2, MaxRecvSGE: 4, MaxInline: 60}},
		{uverbs.QPCap{MaxSendWR: 100, MaxRecvWR: 100, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInline: 400}, uverbs.QPCap{MaxSendWR: 102, MaxRecvWR: 128, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInline: 444}},
	} {
		qp, err := s.pd.CreateQP(&uverbs.QPInitAttr{SendCQ: s.cq, Cap: tt.ask})
		testutil.Must(t, err)
		if d := cmp.Diff(tt.want, qp.Cap()); d != "" {
			t.Errorf("asked for %+v (-want +got):\n%s", tt.ask, d)
		}
		attr, err := qp.Query(uverbs.QPAttrCap)
		testutil.Must(t, err)
		if d := cmp.Diff(tt.want, attr.Cap); d != "" {
			t.Errorf("query (-want +got):\n%s", d)
		}
		testutil.Must(t, qp.Close())
	}
	for what, cap := range map[string]uverbs.QPCap{
		"sends": {MaxSendWR: 1 << 20}, "receives": {MaxRecvWR: 1 << 20}, "pieces": {MaxSendWR: 1, MaxSendSGE: 1000},
		"pieces of a receive": {MaxRecvWR: 1, MaxRecvSGE: 1000}, "inline": {MaxSendWR: 1, MaxInline: 5000},
	} {
		if _, err := s.pd.CreateQP(&uverbs.QPInitAttr{SendCQ: s.cq, Cap: cap}); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("too many %s: got %v, want EINVAL", what, err)
		}
	}
	if _, err := s.ctx.CreateCQ(1<<23, nil); !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), "completions") {
		t.Errorf("too large a queue: got %v, want EINVAL and what", err)
	}
}
