/* Requests. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "oracle.h"

/* pieces reads a list of pieces. */
static int pieces(struct ibv_sge *sge, const char *list)
{
	int n = 0;

	if (!list || strcmp(list, "0") == 0)
		return 0;
	while (n < MAXSGE) {
		int m, used;
		long off, len;

		if (sscanf(list, "m%d:%li:%li%n", &m, &off, &len, &used) != 3)
			break;
		sge[n++] = (struct ibv_sge){ (uintptr_t)mrs[m]->addr + off, len, mrs[m]->lkey };
		if (list[used] != ',')
			break;
		list += used + 1;
	}
	return n;
}

/* key is the remote key of a region or a window. */
static uint32_t key(const char *name) { return *name == 'w' ? mwkeys[idx(name)] : mrs[idx(name)]->rkey; }

static int flags_of(const char *letters)
{
	int f = 0;

	for (; letters && *letters; letters++)
		f |= *letters == 'f' ? IBV_SEND_FENCE : *letters == 's' ? IBV_SEND_SIGNALED :
		     *letters == 'e' ? IBV_SEND_SOLICITED : *letters == 'i' ? IBV_SEND_INLINE : 0;
	return f;
}

static enum ibv_wr_opcode opcode_of(const char *name)
{
	static const struct { const char *name; enum ibv_wr_opcode op; } all[] = {
		{ "send", IBV_WR_SEND }, { "imm", IBV_WR_SEND_WITH_IMM }, { "inv", IBV_WR_SEND_WITH_INV },
		{ "write", IBV_WR_RDMA_WRITE }, { "writeimm", IBV_WR_RDMA_WRITE_WITH_IMM }, { "read", IBV_WR_RDMA_READ },
		{ "swap", IBV_WR_ATOMIC_CMP_AND_SWP }, { "add", IBV_WR_ATOMIC_FETCH_AND_ADD },
		{ "linv", IBV_WR_LOCAL_INV }, { "bind", IBV_WR_BIND_MW },
	};

	for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
		if (strcmp(all[i].name, name) == 0)
			return all[i].op;
	errno = EINVAL;
	die(name);
	return IBV_WR_SEND;
}

/* put_remote sets what an operation on the peer's memory needs: REGION:OFFSET[:WHOSE KEY]. */
static void put_remote(struct ibv_send_wr *wr, const char *to)
{
	uint64_t addr = (uintptr_t)mrs[idx(to)]->addr + number(strchr(to, ':') + 1);
	const char *second = strchr(strchr(to, ':') + 1, ':');
	uint32_t rkey = key(second ? second + 1 : to);

	if (wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr->wr.atomic.remote_addr = addr;
		wr->wr.atomic.rkey = rkey;
		wr->wr.atomic.compare_add = optnum("add");
		wr->wr.atomic.swap = optnum("swap");
		return;
	}
	wr->wr.rdma.remote_addr = addr;
	wr->wr.rdma.rkey = rkey;
}

static void put_bind(struct send *s)
{
	int w = idx(opt("mw"));
	uint32_t next = ibv_inc_rkey(mwkeys[w]);

	s->wr.bind_mw.mw = mws[w];
	s->wr.bind_mw.rkey = mwkeys[w] = next;
	s->wr.bind_mw.bind_info = (struct ibv_mw_bind_info){
		.mr = mrs[idx(opt("mr"))], .addr = (uintptr_t)mrs[idx(opt("mr"))]->addr + optnum("off"),
		.length = optnum("len"), .mw_access_flags = access_of(opt("access")),
	};
}

void add_send(void)
{
	struct list *l = &lists[self()];
	struct send *s = &l->send[l->nsend++ % MAXLIST];

	memset(&s->wr, 0, sizeof s->wr);
	s->wr.wr_id = num(1);
	s->wr.opcode = opcode_of(arg(2));
	s->wr.send_flags = flags_of(opt("flags"));
	s->wr.sg_list = s->sge;
	s->wr.num_sge = pieces(s->sge, opt("sge"));
	s->wr.imm_data = htonl(optnum("imm"));
	if (opt("to"))
		put_remote(&s->wr, opt("to"));
	if (opt("inv"))
		s->wr.invalidate_rkey = key(opt("inv"));
	if (opt("ah")) {
		s->wr.wr.ud.ah = ahs[idx(opt("ah"))];
		s->wr.wr.ud.remote_qpn = optnum("qpn");
		s->wr.wr.ud.remote_qkey = optnum("qkey");
	}
	if (opt("mw"))
		put_bind(s);
}

/* take_binds notes the keys of the windows that requests bind, as programs have to. */
static void take_binds(struct list *l, int n)
{
	for (int i = 0; i < n; i++)
		if (l->send[i].wr.opcode == IBV_WR_BIND_MW)
			l->send[i].wr.bind_mw.mw->rkey = l->send[i].wr.bind_mw.rkey;
}

void do_post(void)
{
	struct list *l = &lists[self()];
	struct ibv_send_wr *bad = NULL;
	int listed = l->nsend, n = listed, failed = 0;

	l->nsend = 0;
	for (int i = 0; i < n; i++)
		l->send[i].wr.next = i + 1 < n ? &l->send[i + 1].wr : NULL;
	if (n > 0)
		failed = ibv_post_send(qps[self()], &l->send[0].wr, &bad);
	if (failed)
		for (n = 0; &l->send[n].wr != bad; n++)
			;
	take_binds(l, listed);
	mark("post %s: %d %s", arg(0), n, verdict(failed));
}

void add_recv(struct list *l)
{
	struct recv *r = &l->recv[l->nrecv++ % MAXLIST];

	r->wr = (struct ibv_recv_wr){ .wr_id = num(1), .sg_list = r->sge, .num_sge = pieces(r->sge, arg(2)) };
}

/* post_recvs posts what is listed, to a queue pair or a shared queue. */
void post_recvs(struct list *l, struct ibv_qp *q, struct ibv_srq *s)
{
	struct ibv_recv_wr *bad = NULL;
	int n = l->nrecv, failed = 0;

	l->nrecv = 0;
	for (int i = 0; i < n; i++)
		l->recv[i].wr.next = i + 1 < n ? &l->recv[i + 1].wr : NULL;
	if (n > 0)
		failed = q ? ibv_post_recv(q, &l->recv[0].wr, &bad) : ibv_post_srq_recv(s, &l->recv[0].wr, &bad);
	if (failed)
		for (n = 0; &l->recv[n].wr != bad; n++)
			;
	mark("%s %s: %d %s", words[0], arg(0), n, verdict(failed));
}

void do_bind(void)
{
	struct ibv_mw *w = mws[idx(arg(1))];
	struct ibv_mw_bind b = {
		.wr_id = num(2), .send_flags = flags_of(arg(3)),
		.bind_info = { .mr = num(6) ? mrs[idx(arg(4))] : NULL, .length = num(6), .mw_access_flags = access_of(arg(7)) },
	};
	int failed;

	if (num(6))
		b.bind_info.addr = (uintptr_t)mrs[idx(arg(4))]->addr + num(5);
	failed = ibv_bind_mw(qps[self()], w, &b);
	mwkeys[idx(arg(1))] = w->rkey;
	mark("bind %s: %s 0x%x", arg(0), verdict(failed), w->rkey);
}
