/* What the parts of the oracle's C side share: see main.c. */
#ifndef ORACLE_H
#define ORACLE_H

#include <infiniband/verbs.h>
#include <stdint.h>

enum { MAXOBJ = 64, MAXLIST = 256, MAXSGE = 64, MAXWORDS = 64, ARENA_SIZE = 1 << 16 };

/* The arena is at the same address as in the Go side. */
#define ARENA ((uint8_t *)0x1000000000)

/* A request with its pieces. */
struct send {
	struct ibv_send_wr wr;
	struct ibv_sge sge[MAXSGE];
};

struct recv {
	struct ibv_recv_wr wr;
	struct ibv_sge sge[MAXSGE];
};

/* Requests that are to be posted. */
struct list {
	struct send send[MAXLIST];
	struct recv recv[MAXLIST];
	int nsend, nrecv;
};

/* The objects of the scenario, by number. */
extern struct ibv_context *ctx;
extern struct ibv_pd *pds[MAXOBJ];
extern struct ibv_mr *mrs[MAXOBJ];
extern struct ibv_comp_channel *chans[MAXOBJ];
extern struct ibv_cq *cqs[MAXOBJ];
extern struct ibv_srq *srqs[MAXOBJ];
extern struct ibv_qp *qps[MAXOBJ];
extern struct ibv_ah *ahs[MAXOBJ];
extern struct ibv_mw *mws[MAXOBJ];
extern uint32_t mwkeys[MAXOBJ]; /* of windows, once all that is listed is posted */
extern struct list lists[MAXOBJ], srqlists[MAXOBJ];

/* The words of the line, and the objects that are open, in the order of making. */
extern char *words[MAXWORDS];
extern int nwords;
extern char made[8 * MAXOBJ][8];
extern int nmade;

/* words.c */
void die(const char *what) __attribute__((noreturn));
void mark(const char *format, ...) __attribute__((format(printf, 1, 2)));
void split(char *line);
const char *arg(int i);
const char *opt(const char *key);
int has(const char *word);
uint64_t number(const char *s);
uint64_t num(int i);
uint64_t optnum(const char *key);
int idx(const char *name);
int self(void);
int keep(void *object);
const char *verdict(int failed);
int access_of(const char *letters);
void fill_gid(union ibv_gid *gid);

/* objects.c */
void do_pd(void);
void do_mr(void);
void do_rereg(void);
void do_ch(void);
void do_cq(void);
void do_resize(void);
void do_srq(void);
void do_limit(void);
void do_squery(void);
void do_qp(void);
void do_ah(void);
void do_mw(void);

/* qp.c */
void do_modify(void);
void do_query(void);

/* post.c */
void add_send(void);
void add_recv(struct list *l);
void post_recvs(struct list *l, struct ibv_qp *q, struct ibv_srq *s);
void do_post(void);
void do_bind(void);

/* poll.c */
void do_poll(void);
void do_arm(void);
void do_event(void);
#endif
