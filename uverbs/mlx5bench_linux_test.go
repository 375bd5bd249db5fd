package uverbs

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/fakekernel"
)

// The same queues, requests, completions and loops as in tests/c/mlx5bench.h and mlx5bench.c,
// which hack/bench runs in turn with this.

const (
	benchBatch   = 64  // operations between two looks at the clock
	benchChain   = 16  // requests of a chain, entries of a call
	benchInline  = 64  // bytes
	benchEntries = 127 // of the completion queue
	benchEntry   = 64  // bytes
	benchSend    = 0x0a
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// mlx5Bench is a queue pair whose device is off: the completions are written by the test.
type mlx5Bench struct {
	t    testing.TB
	qp   *QP
	cq   *CQ
	ring []byte // of the completion queue

	written uint32 // entries, in all
	blocks  uint32 // of the send queue, that requests have taken, in all
	sum     uint64 // of the numbers of completions

	wrs [benchChain]SendWR
	wcs [benchChain]WC
}

// newMLX5Bench makes the queues in a context of their own: its first queue pair has user
// index 0, which complete counts on.
func newMLX5Bench(t testing.TB, dev *Device, inline int, single bool) *mlx5Bench {
	ctx, err := dev.Open()
	must(t, err)
	pd, err := ctx.AllocPD()
	must(t, err)
	b := &mlx5Bench{t: t}
	b.cq, err = ctx.CreateCQAttr(&CQInitAttr{CQE: benchEntries, SingleGoroutine: single})
	must(t, err)
	for _, mem := range ctx.k.queues {
		if len(mem) == (benchEntries+1)*benchEntry {
			b.ring = mem
		}
	}
	b.qp, err = pd.CreateQP(&QPInitAttr{
		SendCQ: b.cq, SingleGoroutine: single,
		Cap: QPCap{MaxSendWR: benchBatch, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInline: uint32(inline)},
	})
	must(t, err)
	b.connect(ctx)
	mr, err := pd.AllocMR(4096, AccessLocalWrite)
	must(t, err)
	for i := range b.wrs {
		wr := SendWR{ID: uint64(i), Opcode: OpSend, SGL: []SGE{mr.SGE(0, benchInline)}}
		if inline > 0 {
			wr.SGL, wr.Flags, wr.Inline = nil, SendInline, [][]byte{mr.Bytes()[:inline]}
		}
		b.wrs[i] = wr
	}
	return b
}

// connect connects the queue pair with itself.
func (b *mlx5Bench) connect(ctx *Context) {
	gids, err := ctx.GIDTable()
	must(b.t, err)
	must(b.t, b.qp.Modify(&QPAttr{State: StateInit, PortNum: 1},
		QPAttrState|QPAttrPKeyIndex|QPAttrPort|QPAttrAccessFlags))
	must(b.t, b.qp.Modify(&QPAttr{
		State: StateRTR, PathMTU: MTU1024, DestQPNum: b.qp.Num(),
		AH: AHAttr{DGID: gids[0].GID, SGIDIndex: uint8(gids[0].Index), HopLimit: 1, IsGlobal: true, PortNum: 1},
	}, QPAttrState|QPAttrAV|QPAttrPathMTU|QPAttrDestQPN|QPAttrRQPSN|QPAttrMaxDestRDAtomic|QPAttrMinRNRTimer))
	must(b.t, b.qp.Modify(&QPAttr{State: StateRTS},
		QPAttrState|QPAttrTimeout|QPAttrRetryCnt|QPAttrRNRRetry|QPAttrSQPSN|QPAttrMaxQPRDAtomic))
}

// complete writes an entry: the request that began at that block of the send queue, and all
// before it, are done.
func (b *mlx5Bench) complete(block uint32) {
	e := b.ring[b.written%(benchEntries+1)*benchEntry:][:benchEntry]
	binary.BigEndian.PutUint32(e[32:], 0)
	binary.BigEndian.PutUint32(e[56:], benchSend<<24|b.qp.Num())
	binary.BigEndian.PutUint16(e[60:], uint16(block))
	e[63] = byte(b.written / (benchEntries + 1) & 1)
	b.written++
}

// reap completes what a batch of posts left open.
func (b *mlx5Bench) reap(blocks uint32) {
	b.blocks += benchBatch * blocks
	b.complete(b.blocks - blocks)
	if n, err := b.cq.Poll(b.wcs[:1]); n != 1 || b.wcs[0].Status != WCSuccess {
		b.wrong("poll", n, err)
	}
}

// fill lets a batch of completions wait to be polled.
func (b *mlx5Bench) fill() {
	for i := range b.wrs {
		b.wrs[i].Flags |= SendSignaled
	}
	for range benchBatch / benchChain {
		if n, err := b.qp.PostSend(b.wrs[:]); n != benchChain {
			b.wrong("post", n, err)
		}
	}
	for range benchBatch {
		b.complete(b.blocks)
		b.blocks++
	}
}

// wrong ends the test; it stays out of the loops below, which gcc gets inlined as well.
func (b *mlx5Bench) wrong(what string, n int, err error) {
	b.t.Fatalf("%s: %d, %v; %v", what, n, err, b.wcs[0].Status)
}

// The loops; each is benchBatch operations.

func (b *mlx5Bench) postEach() {
	wrs := b.wrs[:1]
	for i := range benchBatch {
		wrs[0].ID = uint64(i)
		if i == benchBatch-1 {
			wrs[0].Flags |= SendSignaled
		}
		if n, err := b.qp.PostSend(wrs); n != 1 {
			b.wrong("post", n, err)
		}
	}
	wrs[0].Flags &^= SendSignaled
}

func (b *mlx5Bench) postChains() {
	last := &b.wrs[benchChain-1]
	for i := 0; i < benchBatch; i += benchChain {
		if i == benchBatch-benchChain {
			last.Flags |= SendSignaled
		}
		if n, err := b.qp.PostSend(b.wrs[:]); n != benchChain {
			b.wrong("post", n, err)
		}
	}
	last.Flags &^= SendSignaled
}

func (b *mlx5Bench) pollEach() {
	wcs := b.wcs[:1]
	for range benchBatch {
		if n, err := b.cq.Poll(wcs); n != 1 || wcs[0].Status != WCSuccess {
			b.wrong("poll", n, err)
		}
		b.sum += wcs[0].ID
	}
}

func (b *mlx5Bench) pollMany() {
	for range benchBatch / benchChain {
		n, err := b.cq.Poll(b.wcs[:])
		if n != benchChain {
			b.wrong("poll", n, err)
		}
		for i := range b.wcs {
			if b.wcs[i].Status != WCSuccess {
				b.wrong("completion", n, err)
			}
			b.sum += b.wcs[i].ID
		}
	}
}

func (b *mlx5Bench) pollEmpty() {
	for range benchBatch {
		if n, err := b.cq.Poll(b.wcs[:1]); n != 0 || err != nil {
			b.wrong("poll", n, err)
		}
	}
}

// mlx5Loop is what is measured.
type mlx5Loop struct {
	name               string
	inline             int
	blocks             uint32 // that a request takes
	before, run, after func(*mlx5Bench)
	fills              bool // before makes a batch of completions
}

func mlx5Loops() []mlx5Loop {
	nothing := func(*mlx5Bench) {}
	reap1, reap2 := func(b *mlx5Bench) { b.reap(1) }, func(b *mlx5Bench) { b.reap(2) }
	return []mlx5Loop{
		{"mlx5-post", 0, 1, nothing, (*mlx5Bench).postEach, reap1, false},
		{"mlx5-post-chain16", 0, 1, nothing, (*mlx5Bench).postChains, reap1, false},
		{"mlx5-post-inline64", benchInline, 2, nothing, (*mlx5Bench).postEach, reap2, false},
		{"mlx5-poll", 0, 1, (*mlx5Bench).fill, (*mlx5Bench).pollEach, nothing, true},
		{"mlx5-poll16", 0, 1, (*mlx5Bench).fill, (*mlx5Bench).pollMany, nothing, true},
		{"mlx5-poll-empty", 0, 1, nothing, (*mlx5Bench).pollEmpty, nothing, false},
	}
}

// batch runs one batch and returns how long it took.
func (l *mlx5Loop) batch(b *mlx5Bench, born time.Time) time.Duration {
	l.before(b)
	from := time.Since(born) // one look at the clock, where time.Now is two
	l.run(b)
	till := time.Since(born)
	l.after(b)
	return till - from
}

// clockCost is what two looks at the clock take with nothing between them.
func clockCost(born time.Time) time.Duration {
	least := time.Hour
	for range 10000 {
		from := time.Since(born)
		least = min(least, time.Since(born)-from)
	}
	return least
}

// measure runs batches, a tenth of them unmeasured to warm up, and returns the median and the
// least, in nanoseconds an operation.
func (l *mlx5Loop) measure(b *mlx5Bench, batches int) (median, least float64) {
	born := time.Now()
	took, cost := make([]time.Duration, batches), clockCost(born)
	for i := -batches / 10; i < batches; i++ {
		if d := l.batch(b, born); i >= 0 {
			took[i] = d - cost
		}
	}
	if want := uint64(batches+batches/10) * benchBatch * (benchChain - 1) / 2; l.fills && b.sum != want {
		b.t.Errorf("the numbers of the completions add up to %d, want %d", b.sum, want)
	}
	slices.Sort(took)
	return float64(took[batches/2]) / benchBatch, float64(took[0]) / benchBatch
}

// TestMLX5Cost prints what posting and polling take while the device is off, as mlx5bench.c
// does: "sample NAME go VALUE", and NAME-min. That is where RDMA_MLX5_BENCH is a number of
// batches, under the launcher of the simulated device with -noexec; see hack/bench.sh. Here
// MLX5_SINGLE_THREADED=1, libmlx5's own switch, stands for the promise SingleGoroutine.
// Elsewhere a few batches on the fake kernel show that the loops do what they say.
//
// Nothing is allocated.
func TestMLX5Cost(t *testing.T) {
	batches, err := strconv.Atoi(os.Getenv("RDMA_MLX5_BENCH"))
	if err != nil {
		k := fakekernel.New(fakekernel.Options{
			Root:    t.TempDir(),
			Devices: []fakekernel.Device{{Driver: abi.RDMA_DRIVER_MLX5, MLX5: fakekernel.MLX5{NoExec: true}}},
		})
		t.Cleanup(func() { k.Close() })
		for suffix, single := range map[string]bool{"": false, "-single": true} {
			mlx5Cost(t, mlx5Device(t, WithSystem(k.System())), 20, single, suffix, io.Discard)
		}
		return
	}
	single, suffix := os.Getenv("MLX5_SINGLE_THREADED") == "1", ""
	if single {
		suffix = "-single"
	}
	mlx5Cost(t, mlx5Device(t), batches, single, suffix, os.Stdout)
}

func mlx5Device(t *testing.T, opts ...Option) *Device {
	devs, err := Devices(opts...)
	must(t, err)
	if len(devs) == 0 || devs[0].Driver() != "mlx5" {
		t.Fatal("no mlx5 device")
	}
	return devs[0]
}

func mlx5Cost(t *testing.T, dev *Device, batches int, single bool, suffix string, w io.Writer) {
	for _, l := range mlx5Loops() {
		t.Run(l.name+suffix, func(t *testing.T) {
			b := newMLX5Bench(t, dev, l.inline, single)
			median, least := l.measure(b, batches)
			fmt.Fprintf(w, "sample %s%s go %.3f\nsample %s%s-min go %.3f\n", l.name, suffix, median, l.name, suffix, least)
			if n := testing.AllocsPerRun(100, func() { l.batch(b, time.Time{}) }); n != 0 {
				t.Errorf("%v allocations a batch", n)
			}
		})
	}
}
