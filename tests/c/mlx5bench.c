// Measures posting and polling of libmlx5 while the device is off. Run it under the launcher
// of the simulated device with -noexec. Each line of output is "sample NAME c VALUE", in
// nanoseconds an operation: NAME is the median of the batches, NAME-min the least.
//
//	mlx5bench [BATCHES]
//
// With MLX5_SINGLE_THREADED=1 in the environment libmlx5 takes no locks; the names have
// -single in them then.
#include <time.h>

#include "mlx5bench.h"

static int64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int order(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
	return (x > y) - (x < y);
}

struct loop {
	const char *name;
	int inline_bytes, blocks; // that a request takes
	void (*before)(struct bench *);
	void (*run)(struct bench *, uint64_t *sum); // BENCH_BATCH operations
	void (*after)(struct bench *, int blocks);
};

static void post_each(struct bench *b, uint64_t *sum)
{
	struct ibv_send_wr *bad, *wr = b->wr;
	for (int i = 0; i < BENCH_BATCH; i++) {
		wr->wr_id = i;
		if (i == BENCH_BATCH - 1)
			wr->send_flags |= IBV_SEND_SIGNALED;
		bench_check(!ibv_post_send(b->qp, wr, &bad), "post");
	}
	wr->send_flags &= ~IBV_SEND_SIGNALED;
}

static void post_chains(struct bench *b, uint64_t *sum)
{
	struct ibv_send_wr *bad, *last = &b->wr[BENCH_CHAIN - 1];
	for (int i = 0; i < BENCH_BATCH; i += BENCH_CHAIN) {
		if (i == BENCH_BATCH - BENCH_CHAIN)
			last->send_flags |= IBV_SEND_SIGNALED;
		bench_check(!ibv_post_send(b->qp, b->wr, &bad), "post");
	}
	last->send_flags &= ~IBV_SEND_SIGNALED;
}

static void poll_each(struct bench *b, uint64_t *sum)
{
	for (int i = 0; i < BENCH_BATCH; i++) {
		bench_check(ibv_poll_cq(b->cq, 1, b->wc) == 1, "poll");
		bench_check(b->wc[0].status == IBV_WC_SUCCESS, "completion");
		*sum += b->wc[0].wr_id;
	}
}

static void poll_many(struct bench *b, uint64_t *sum)
{
	for (int i = 0; i < BENCH_BATCH; i += BENCH_CHAIN) {
		bench_check(ibv_poll_cq(b->cq, BENCH_CHAIN, b->wc) == BENCH_CHAIN, "poll");
		for (int k = 0; k < BENCH_CHAIN; k++) {
			bench_check(b->wc[k].status == IBV_WC_SUCCESS, "completion");
			*sum += b->wc[k].wr_id;
		}
	}
}

static void poll_empty(struct bench *b, uint64_t *sum)
{
	for (int i = 0; i < BENCH_BATCH; i++)
		bench_check(ibv_poll_cq(b->cq, 1, b->wc) == 0, "poll");
}

static void nothing(struct bench *b) {}

static void none_open(struct bench *b, int blocks) {}

static const struct loop loops[] = {
	{"mlx5-post", 0, 1, nothing, post_each, bench_reap},
	{"mlx5-post-chain16", 0, 1, bench_link, post_chains, bench_reap},
	{"mlx5-post-inline64", BENCH_INLINE, 2, nothing, post_each, bench_reap},
	{"mlx5-poll", 0, 1, bench_fill, poll_each, none_open},
	{"mlx5-poll16", 0, 1, bench_fill, poll_many, none_open},
	{"mlx5-poll-empty", 0, 1, nothing, poll_empty, none_open},
};

// clock_cost is what two looks at the clock take with nothing between them.
static int64_t clock_cost(void)
{
	int64_t least = INT64_MAX;
	for (int i = 0; i < 10000; i++) {
		int64_t from = now(), took = now() - from;
		least = took < least ? took : least;
	}
	return least;
}

// measure runs batches, a tenth of them unmeasured to warm up.
static void measure(const struct loop *l, const char *suffix, int batches)
{
	struct bench *b = bench_open(l->inline_bytes);
	int64_t *took = malloc(batches * sizeof *took), cost = clock_cost();
	uint64_t sum = 0;
	int warm = batches / 10;
	for (int i = -warm; i < batches; i++) {
		l->before(b);
		int64_t from = now();
		l->run(b, &sum);
		int64_t till = now();
		l->after(b, l->blocks);
		if (i >= 0)
			took[i] = till - from - cost;
	}
	if (l->before == bench_fill)
		bench_check(sum == (uint64_t)(warm + batches) * BENCH_BATCH * (BENCH_CHAIN - 1) / 2, "sum of the numbers");
	qsort(took, batches, sizeof *took, order);
	printf("sample %s%s c %.3f\n", l->name, suffix, took[batches / 2] / (double)BENCH_BATCH);
	printf("sample %s%s-min c %.3f\n", l->name, suffix, took[0] / (double)BENCH_BATCH);
	free(took);
}

int main(int argc, char **argv)
{
	const char *single = getenv("MLX5_SINGLE_THREADED");
	const char *suffix = single && !strcmp(single, "1") ? "-single" : "";
	int batches = argc > 1 ? atoi(argv[1]) : 4000;
	for (size_t i = 0; i < sizeof loops / sizeof *loops; i++)
		measure(&loops[i], suffix, batches);
	return 0;
}
