// Command cgobench measures posting and polling as mlx5bench.c does, from Go through cgo and
// libibverbs: what a Go program would use without this module. It prints lines
// "sample NAME cgo VALUE", in nanoseconds an operation, and NAME-min.
//
//	cgobench [BATCHES]
//
// It is written as one would who wants it fast: work requests and completions live in C's
// memory and are used again, so that nothing is allocated and cgo has no pointers to check;
// fields are set and read by Go directly; each post and each poll is one call of C, of
// ibv_post_send and ibv_poll_cq themselves, a chain and sixteen completions too. Inline data
// is in C's memory as well. It is a module of its own because it needs cgo, which this
// repository's module never does.
package main

// #cgo CFLAGS: -O2 -I${SRCDIR}/..
// #cgo LDFLAGS: -lmlx5 -libverbs
// #include "mlx5bench.h"
import "C"

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"
)

const (
	batch = C.BENCH_BATCH
	chain = C.BENCH_CHAIN
)

// bench is C's: queues, requests and completions.
type bench struct {
	c   *C.struct_bench
	sum uint64 // of the numbers of completions
}

func open(inline int) *bench { return &bench{C.bench_open(C.int(inline)), 0} }

func check(ok bool, what string) {
	if !ok {
		fmt.Fprintln(os.Stderr, "cgobench:", what)
		os.Exit(1)
	}
}

// The loops; each is batch operations.

func (b *bench) postEach() {
	wr, bad := &b.c.wr[0], &b.c.bad
	for i := range batch {
		wr.wr_id = C.uint64_t(i)
		if i == batch-1 {
			wr.send_flags |= C.IBV_SEND_SIGNALED
		}
		check(C.ibv_post_send(b.c.qp, wr, bad) == 0, "post")
	}
	wr.send_flags &^= C.IBV_SEND_SIGNALED
}

func (b *bench) postChains() {
	last := &b.c.wr[chain-1]
	for i := 0; i < batch; i += chain {
		if i == batch-chain {
			last.send_flags |= C.IBV_SEND_SIGNALED
		}
		check(C.ibv_post_send(b.c.qp, &b.c.wr[0], &b.c.bad) == 0, "post")
	}
	last.send_flags &^= C.IBV_SEND_SIGNALED
}

func (b *bench) pollEach() {
	wc := &b.c.wc[0]
	for range batch {
		check(C.ibv_poll_cq(b.c.cq, 1, wc) == 1, "poll")
		check(wc.status == C.IBV_WC_SUCCESS, "completion")
		b.sum += uint64(wc.wr_id)
	}
}

func (b *bench) pollMany() {
	for range batch / chain {
		check(C.ibv_poll_cq(b.c.cq, chain, &b.c.wc[0]) == chain, "poll")
		for i := range b.c.wc {
			check(b.c.wc[i].status == C.IBV_WC_SUCCESS, "completion")
			b.sum += uint64(b.c.wc[i].wr_id)
		}
	}
}

func (b *bench) pollEmpty() {
	for range batch {
		check(C.ibv_poll_cq(b.c.cq, 1, &b.c.wc[0]) == 0, "poll")
	}
}

// loop is what is measured.
type loop struct {
	name               string
	inline             int
	before, run, after func(*bench)
}

func loops() []loop {
	nothing := func(*bench) {}
	link := func(b *bench) { C.bench_link(b.c) }
	fill := func(b *bench) { C.bench_fill(b.c) }
	reap := func(b *bench) { C.bench_reap(b.c, 1) }
	reap2 := func(b *bench) { C.bench_reap(b.c, 2) }
	return []loop{
		{"mlx5-post", 0, nothing, (*bench).postEach, reap},
		{"mlx5-post-chain16", 0, link, (*bench).postChains, reap},
		{"mlx5-post-inline64", C.BENCH_INLINE, nothing, (*bench).postEach, reap2},
		{"mlx5-poll", 0, fill, (*bench).pollEach, nothing},
		{"mlx5-poll16", 0, fill, (*bench).pollMany, nothing},
		{"mlx5-poll-empty", 0, nothing, (*bench).pollEmpty, nothing},
	}
}

// batch runs one batch and returns how long it took.
func (l *loop) batch(b *bench, born time.Time) time.Duration {
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

// measure runs batches, a tenth of them unmeasured to warm up.
func (l *loop) measure(suffix string, batches int) {
	b, born := open(l.inline), time.Now()
	took, cost := make([]time.Duration, batches), clockCost(born)
	for i := -batches / 10; i < batches; i++ {
		if d := l.batch(b, born); i >= 0 {
			took[i] = d - cost
		}
	}
	slices.Sort(took)
	fmt.Printf("sample %s%s cgo %.3f\n", l.name, suffix, float64(took[batches/2])/batch)
	fmt.Printf("sample %s%s-min cgo %.3f\n", l.name, suffix, float64(took[0])/batch)
}

func main() {
	batches, suffix := 4000, ""
	if len(os.Args) > 1 {
		n, err := strconv.Atoi(os.Args[1])
		check(err == nil && n > 0, "usage: cgobench [BATCHES]")
		batches = n
	}
	if os.Getenv("MLX5_SINGLE_THREADED") == "1" {
		suffix = "-single"
	}
	for _, l := range loops() {
		l.measure(suffix, batches)
	}
}
