/* Steps that change queue pairs. */
#include <string.h>

#include "oracle.h"

enum { FIRST_PSN = 0x123456, QKEY = 0x11111111 };

static int init_attr(struct ibv_qp_attr *a, enum ibv_qp_type type)
{
	a->qp_state = IBV_QPS_INIT;
	a->port_num = 1;
	if (type == IBV_QPT_UD) {
		a->qkey = QKEY;
		return IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
	}
	a->qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
	if (type == IBV_QPT_RC)
		a->qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	return IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
}

static int rtr_attr(struct ibv_qp_attr *a, enum ibv_qp_type type)
{
	int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;

	a->qp_state = IBV_QPS_RTR;
	if (type == IBV_QPT_UD)
		return IBV_QP_STATE;
	a->path_mtu = IBV_MTU_1024;
	a->dest_qp_num = opt("peer") ? qps[idx(opt("peer"))]->qp_num : 0;
	a->rq_psn = FIRST_PSN;
	a->ah_attr = (struct ibv_ah_attr){ .is_global = 1, .port_num = 1, .grh = { .hop_limit = 64, .flow_label = 0x51234 } };
	fill_gid(&a->ah_attr.grh.dgid);
	if (type != IBV_QPT_RC)
		return mask;
	a->max_dest_rd_atomic = 4;
	a->min_rnr_timer = 12;
	return mask | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
}

static int rts_attr(struct ibv_qp_attr *a, enum ibv_qp_type type)
{
	a->qp_state = IBV_QPS_RTS;
	a->sq_psn = FIRST_PSN;
	if (type != IBV_QPT_RC)
		return IBV_QP_STATE | IBV_QP_SQ_PSN;
	a->max_rd_atomic = 4;
	a->timeout = 14;
	a->retry_cnt = a->rnr_retry = 7;
	return IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY;
}

void do_modify(void)
{
	struct ibv_qp *q = qps[self()];
	struct ibv_qp_attr a = { 0 };
	const char *to = arg(1);
	int mask = IBV_QP_STATE;

	if (strcmp(to, "init") == 0)
		mask = init_attr(&a, q->qp_type);
	else if (strcmp(to, "rtr") == 0)
		mask = rtr_attr(&a, q->qp_type);
	else if (strcmp(to, "rts") == 0)
		mask = rts_attr(&a, q->qp_type);
	else
		a.qp_state = strcmp(to, "err") == 0 ? IBV_QPS_ERR : IBV_QPS_RESET;
	mark("modify %s: %s", arg(0), verdict(ibv_modify_qp(q, &a, mask)));
}

void do_query(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;

	if (ibv_query_qp(qps[self()], &a, IBV_QP_STATE | IBV_QP_CAP, &init)) {
		mark("query %s: refused", arg(0));
		return;
	}
	mark("query %s: ok %d %u %u %u %u %u rd %u %u dest 0x%x psn 0x%x 0x%x access 0x%x", arg(0), a.qp_state,
	     a.cap.max_send_wr, a.cap.max_recv_wr, a.cap.max_send_sge, a.cap.max_recv_sge, a.cap.max_inline_data,
	     a.max_rd_atomic, a.max_dest_rd_atomic, a.dest_qp_num, a.rq_psn, a.sq_psn, a.qp_access_flags);
}
