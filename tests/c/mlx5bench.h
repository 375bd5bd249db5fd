// What the benchmarks of libmlx5 share, in C and through cgo: a queue pair whose device is
// off, and the completion entries that the program writes in its place. Each figure stands
// beside one of uverbs/mlx5bench_linux_test.go: same queues, same requests, same loops.
#pragma once

#include <endian.h>
#include <infiniband/mlx5dv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	BENCH_BATCH = 64,    // operations between two looks at the clock
	BENCH_CHAIN = 16,    // requests of a chain, entries of a call
	BENCH_INLINE = 64,   // bytes
	BENCH_ENTRIES = 127, // of the completion queue
	BENCH_BLOCK = 64,    // bytes of a send queue's unit, and of a completion entry
	BENCH_SEND = 0x0a,   // the device's opcode
};

struct bench {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	struct mlx5dv_cq ring;
	uint32_t written; // entries, in all
	uint32_t blocks;  // of the send queue, that requests have taken, in all

	struct ibv_sge sge;
	struct ibv_send_wr wr[BENCH_CHAIN], *bad;
	struct ibv_wc wc[BENCH_CHAIN];
};

static void bench_check(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		exit(1);
	}
}

static void bench_modify(struct bench *b)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	int err = ibv_modify_qp(b->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	bench_check(!err, "modify to INIT");

	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = b->qp->qp_num,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 1}},
	};
	bench_check(!ibv_query_gid(b->ctx, 1, 0, &attr.ah_attr.grh.dgid), "query GID");
	err = ibv_modify_qp(b->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	bench_check(!err, "modify to RTR");

	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS};
	err = ibv_modify_qp(b->qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
	bench_check(!err, "modify to RTS");
}

// bench_open makes the queues on the first device, in a context of their own: its first queue
// pair has user index 0, which bench_complete counts on.
static inline struct bench *bench_open(int inline_bytes)
{
	struct bench *b = calloc(1, sizeof *b);
	struct ibv_device **list = ibv_get_device_list(NULL);
	bench_check(list && list[0], "no device");
	bench_check((b->ctx = ibv_open_device(list[0])) != NULL, "open");
	bench_check((b->pd = ibv_alloc_pd(b->ctx)) != NULL, "allocate protection domain");
	bench_check((b->cq = ibv_create_cq(b->ctx, BENCH_ENTRIES, NULL, NULL, 0)) != NULL, "create completion queue");
	struct ibv_qp_init_attr init = {
		.send_cq = b->cq, .recv_cq = b->cq, .qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = BENCH_BATCH, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1,
			.max_inline_data = inline_bytes},
	};
	bench_check((b->qp = ibv_create_qp(b->pd, &init)) != NULL, "create queue pair");
	bench_modify(b);
	void *mem = aligned_alloc(4096, 4096);
	bench_check((b->mr = ibv_reg_mr(b->pd, mem, 4096, IBV_ACCESS_LOCAL_WRITE)) != NULL, "register memory");

	// From here on libmlx5 leaves this queue's entries alone when a queue pair goes, which
	// nothing here does.
	struct mlx5dv_obj obj = {.cq = {.in = b->cq, .out = &b->ring}};
	bench_check(!mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ), "find the completion queue's memory");
	bench_check(b->ring.cqe_size == BENCH_BLOCK, "completion entries of 64 bytes");

	b->sge = (struct ibv_sge){.addr = (uintptr_t)mem, .length = BENCH_INLINE, .lkey = b->mr->lkey};
	int flags = inline_bytes ? IBV_SEND_INLINE : 0;
	for (int i = 0; i < BENCH_CHAIN; i++)
		b->wr[i] = (struct ibv_send_wr){
			.wr_id = i, .sg_list = &b->sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = flags};
	return b;
}

// bench_complete writes an entry: the request that began at that block of the send queue, and
// all before it, are done. The byte that hands it over comes last.
static inline void bench_complete(struct bench *b, uint32_t block)
{
	uint8_t *e = (uint8_t *)b->ring.buf + BENCH_BLOCK * (b->written & (b->ring.cqe_cnt - 1));
	struct mlx5_cqe64 *cqe = (struct mlx5_cqe64 *)e;
	cqe->srqn_uidx = 0;
	cqe->sop_drop_qpn = htobe32(BENCH_SEND << 24 | b->qp->qp_num);
	cqe->wqe_counter = htobe16(block);
	__atomic_store_n(&cqe->op_own, (b->written & b->ring.cqe_cnt) != 0, __ATOMIC_RELEASE);
	b->written++;
}

// bench_link makes one chain of the requests.
static inline void bench_link(struct bench *b)
{
	for (int i = 0; i + 1 < BENCH_CHAIN; i++)
		b->wr[i].next = &b->wr[i + 1];
}

// bench_reap completes what a batch of posts left open.
static inline void bench_reap(struct bench *b, int blocks)
{
	b->blocks += BENCH_BATCH * blocks;
	bench_complete(b, b->blocks - blocks);
	bench_check(ibv_poll_cq(b->cq, 1, b->wc) == 1 && !b->wc[0].status, "poll");
}

// bench_fill lets a batch of completions wait to be polled.
static inline void bench_fill(struct bench *b)
{
	struct ibv_send_wr *bad;
	bench_link(b);
	for (int i = 0; i < BENCH_CHAIN; i++)
		b->wr[i].send_flags = IBV_SEND_SIGNALED;
	for (int i = 0; i < BENCH_BATCH; i += BENCH_CHAIN)
		bench_check(!ibv_post_send(b->qp, b->wr, &bad), "post");
	for (int i = 0; i < BENCH_BATCH; i++)
		bench_complete(b, b->blocks++);
}
