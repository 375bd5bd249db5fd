/* Steps that make objects. */
#include <fcntl.h>

#include "oracle.h"

void do_pd(void)
{
	pds[self()] = ibv_alloc_pd(ctx);
	mark("pd %s: %s", arg(0), verdict(!keep(pds[self()])));
}

void do_mr(void)
{
	mrs[self()] = ibv_reg_mr(pds[idx(arg(1))], ARENA + num(2), num(3), access_of(arg(4)));
	mark("mr %s: %s", arg(0), verdict(!keep(mrs[self()])));
}

void do_rereg(void)
{
	int failed = ibv_rereg_mr(mrs[self()], IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS, NULL,
				  ARENA + num(1), num(2), access_of(arg(3)));

	mark("rereg %s: %s", arg(0), verdict(failed));
}

void do_ch(void)
{
	chans[self()] = ibv_create_comp_channel(ctx);
	if (chans[self()])
		fcntl(chans[self()]->fd, F_SETFL, O_NONBLOCK);
	mark("ch %s: %s", arg(0), verdict(!keep(chans[self()])));
}

void do_cq(void)
{
	struct ibv_cq *q = ibv_create_cq(ctx, (int)num(1), NULL, opt("ch") ? chans[idx(opt("ch"))] : NULL, 0);

	cqs[self()] = q;
	if (keep(q))
		mark("cq %s: ok %d", arg(0), q->cqe);
	else
		mark("cq %s: refused", arg(0));
}

void do_resize(void)
{
	struct ibv_cq *q = cqs[self()];
	int failed = ibv_resize_cq(q, (int)num(1));
	struct ibv_wc none;

	ibv_poll_cq(q, 0, &none); /* tells the device how far the queue is consumed, which resizing leaves to the next poll */
	mark("resize %s: %s %d", arg(0), verdict(failed), q->cqe);
}

void do_srq(void)
{
	struct ibv_srq_init_attr a = { .attr = { .max_wr = num(2), .max_sge = num(3) } };

	srqs[self()] = ibv_create_srq(pds[idx(arg(1))], &a);
	mark("srq %s: %s", arg(0), verdict(!keep(srqs[self()])));
}

void do_limit(void)
{
	struct ibv_srq_attr a = { .srq_limit = num(1) };

	mark("limit %s: %s", arg(0), verdict(ibv_modify_srq(srqs[self()], &a, IBV_SRQ_LIMIT)));
}

void do_squery(void)
{
	struct ibv_srq_attr a = { 0 };
	int failed = ibv_query_srq(srqs[self()], &a);

	mark("squery %s: %s limit %u", arg(0), verdict(failed), a.srq_limit);
}

static enum ibv_qp_type type_of(const char *name)
{
	return name[1] == 'd' ? IBV_QPT_UD : name[0] == 'u' ? IBV_QPT_UC : IBV_QPT_RC;
}

void do_qp(void)
{
	struct ibv_qp_init_attr a = {
		.qp_type = type_of(arg(1)), .send_cq = cqs[idx(arg(3))], .recv_cq = cqs[idx(arg(4))],
		.srq = opt("srq") ? srqs[idx(opt("srq"))] : NULL, .sq_sig_all = has("all"),
		.cap = { .max_send_wr = num(5), .max_recv_wr = num(6), .max_send_sge = num(7), .max_recv_sge = num(8),
			 .max_inline_data = num(9) },
	};

	qps[self()] = ibv_create_qp(pds[idx(arg(2))], &a);
	if (keep(qps[self()]))
		mark("qp %s: ok %u %u %u %u %u", arg(0), a.cap.max_send_wr, a.cap.max_recv_wr, a.cap.max_send_sge,
		     a.cap.max_recv_sge, a.cap.max_inline_data);
	else
		mark("qp %s: refused", arg(0));
}

void do_ah(void)
{
	struct ibv_ah_attr a = {
		.is_global = 1, .port_num = 1, .sl = optnum("sl"), .static_rate = optnum("rate"),
		.grh = { .flow_label = optnum("flow"), .hop_limit = optnum("hop"), .traffic_class = optnum("class"),
			 .sgid_index = optnum("sgid") },
	};

	fill_gid(&a.grh.dgid);
	ahs[self()] = ibv_create_ah(pds[idx(arg(1))], &a);
	mark("ah %s: %s", arg(0), verdict(!keep(ahs[self()])));
}

void do_mw(void)
{
	struct ibv_mw *w = ibv_alloc_mw(pds[idx(arg(1))], num(2) == 1 ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2);

	mws[self()] = w;
	if (keep(w))
		mark("mw %s: ok 0x%x", arg(0), mwkeys[self()] = w->rkey);
	else
		mark("mw %s: refused", arg(0));
}
