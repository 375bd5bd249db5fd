/* Completions. */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "oracle.h"

enum { MAXPOLL = 20 }; /* a mark has to name all completions in one path */

/* print says of a completion what means something in it. */
static int print(char *to, const struct ibv_wc *wc)
{
	int n;

	if (wc->status != IBV_WC_SUCCESS)
		return sprintf(to, "; 0x%llx status %d vendor 0x%x qp 0x%x", (unsigned long long)wc->wr_id, wc->status,
			       wc->vendor_err, wc->qp_num);
	n = sprintf(to, "; 0x%llx op %d flags 0x%x qp 0x%x", (unsigned long long)wc->wr_id, wc->opcode, wc->wc_flags, wc->qp_num);
	if (wc->opcode == IBV_WC_RDMA_READ || wc->opcode == IBV_WC_COMP_SWAP || wc->opcode == IBV_WC_FETCH_ADD)
		n += sprintf(to + n, " len %u", wc->byte_len);
	if (!(wc->opcode & IBV_WC_RECV))
		return n;
	n += sprintf(to + n, " len %u src 0x%x slid 0x%x sl %u path %u", wc->byte_len, wc->src_qp, wc->slid, wc->sl,
		     wc->dlid_path_bits);
	if (wc->wc_flags & IBV_WC_WITH_IMM)
		return n + sprintf(to + n, " imm 0x%x", ntohl(wc->imm_data));
	if (wc->wc_flags & IBV_WC_WITH_INV)
		return n + sprintf(to + n, " inv 0x%x", wc->invalidated_rkey);
	return n + sprintf(to + n, " pkey 0x%x", wc->pkey_index);
}

void do_poll(void)
{
	static struct ibv_wc wc[MAXPOLL];
	static char text[MAXPOLL * 200];
	int max = num(1) < MAXPOLL ? (int)num(1) : MAXPOLL, n, at;

	memset(wc, 0, sizeof wc);
	n = ibv_poll_cq(cqs[self()], max, wc);
	if (has("bad")) {
		mark("poll %s: %s", arg(0), verdict(n < 0));
		return;
	}
	at = sprintf(text, n < 0 ? "0 refused" : "%d", n);
	for (int i = 0; i < n; i++)
		at += print(text + at, &wc[i]);
	mark("poll %s: %s", arg(0), text);
}

void do_arm(void) { mark("arm %s: %s", arg(0), verdict(ibv_req_notify_cq(cqs[self()], has("se")))); }

void do_event(void)
{
	struct ibv_cq *q;
	void *unused;
	int i = 0;

	if (ibv_get_cq_event(chans[self()], &q, &unused)) {
		mark("event %s: none", arg(0));
		return;
	}
	ibv_ack_cq_events(q, 1);
	while (cqs[i] != q)
		i++;
	mark("event %s: c%d", arg(0), i);
}
