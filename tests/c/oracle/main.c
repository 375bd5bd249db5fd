/*
 * Carries oracle scenarios out by libibverbs, on the first RDMA device: a simulated one, whose
 * supervisor writes a trace. The language is described in tests/oracle/doc.go, and
 * tests/oracle is the same interpreter in Go.
 *
 *	oracle SCENARIOS
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "oracle.h"

static int faults; /* a userfaultfd, by which the supervisor hears doorbells; 0 or less: none */
struct ibv_context *ctx;
struct ibv_pd *pds[MAXOBJ];
struct ibv_mr *mrs[MAXOBJ];
struct ibv_comp_channel *chans[MAXOBJ];
struct ibv_cq *cqs[MAXOBJ];
struct ibv_srq *srqs[MAXOBJ];
struct ibv_qp *qps[MAXOBJ];
struct ibv_ah *ahs[MAXOBJ];
struct ibv_mw *mws[MAXOBJ];
uint32_t mwkeys[MAXOBJ];
struct list lists[MAXOBJ], srqlists[MAXOBJ];
char *words[MAXWORDS];
int nwords;
char made[8 * MAXOBJ][8];
int nmade;

enum { USER_MODE_ONLY = 1 }; /* of userfaultfd */

static void do_scenario(struct ibv_device *dev, const char *line)
{
	nmade = 0;
	for (int i = 0; i < MAXOBJ; i++)
		lists[i].nsend = lists[i].nrecv = srqlists[i].nrecv = 0;
	for (int i = 0; i < ARENA_SIZE; i++)
		ARENA[i] = i * 7 + (i >> 8) + 13;
	mark("%s", line);
	ctx = ibv_open_device(dev);
	if (!ctx)
		die("open device");
	if (faults > 0)
		mark("bells %d", faults);
	mark("open");
}

static int destroy(const char *name)
{
	int i = idx(name);

	switch (*name) {
	case 'p': return ibv_dealloc_pd(pds[i]);
	case 'm': return ibv_dereg_mr(mrs[i]);
	case 'h': return ibv_destroy_comp_channel(chans[i]);
	case 'c': return ibv_destroy_cq(cqs[i]);
	case 's': return ibv_destroy_srq(srqs[i]);
	case 'q': return ibv_destroy_qp(qps[i]);
	case 'a': return ibv_destroy_ah(ahs[i]);
	case 'w': return ibv_dealloc_mw(mws[i]);
	}
	return EINVAL;
}

static void do_close(void)
{
	for (int i = 0; i < nmade; i++)
		if (strcmp(made[i], arg(0)) == 0) {
			memmove(made[i], made[i + 1], (--nmade - i) * sizeof made[0]);
			mark("close %s: %s", arg(0), verdict(destroy(arg(0))));
			return;
		}
	mark("close %s: absent", arg(0));
}

static void do_end(void)
{
	int failed = 0;

	while (nmade > 0)
		failed |= destroy(made[--nmade]);
	failed |= ibv_close_device(ctx);
	mark("end : %s", verdict(failed));
}

static const struct { const char *verb; void (*run)(void); } steps[] = {
	{ "pd", do_pd }, { "mr", do_mr }, { "rereg", do_rereg }, { "ch", do_ch }, { "cq", do_cq }, { "resize", do_resize },
	{ "srq", do_srq }, { "limit", do_limit }, { "squery", do_squery }, { "qp", do_qp }, { "ah", do_ah }, { "mw", do_mw },
	{ "modify", do_modify }, { "query", do_query }, { "send", add_send }, { "post", do_post }, { "bind", do_bind },
	{ "poll", do_poll }, { "arm", do_arm }, { "event", do_event }, { "close", do_close }, { "end", do_end },
};

static void step(struct ibv_device *dev, char *line)
{
	static char whole[4096];

	line[strcspn(line, "\n")] = 0;
	snprintf(whole, sizeof whole, "%s", line);
	split(line);
	if (nwords == 0 || *words[0] == '#')
		return;
	if (strcmp(words[0], "scenario") == 0)
		do_scenario(dev, whole);
	else if (strcmp(words[0], "run") == 0 || strcmp(words[0], "cqe") == 0)
		mark("%s", whole);
	else if (strcmp(words[0], "recv") == 0)
		add_recv(&lists[self()]);
	else if (strcmp(words[0], "srecv") == 0)
		add_recv(&srqlists[self()]);
	else if (strcmp(words[0], "rpost") == 0)
		post_recvs(&lists[self()], qps[self()], NULL);
	else if (strcmp(words[0], "spost") == 0)
		post_recvs(&srqlists[self()], NULL, srqs[self()]);
	else {
		for (unsigned i = 0; i < sizeof steps / sizeof *steps; i++)
			if (strcmp(steps[i].verb, words[0]) == 0) {
				steps[i].run();
				return;
			}
		errno = EINVAL;
		die(whole);
	}
}

int main(int argc, char **argv)
{
	static char line[4096];
	struct ibv_device **all;
	FILE *f;

	if (argc != 2 || !(f = fopen(argv[1], "r"))) {
		fprintf(stderr, "usage: oracle SCENARIOS\n");
		return 1;
	}
	if (mmap(ARENA, ARENA_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != ARENA)
		die("map the arena");
	faults = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | USER_MODE_ONLY);
	all = ibv_get_device_list(NULL);
	if (!all || !all[0])
		die("list devices");
	while (fgets(line, sizeof line, f))
		step(all[0], line);
	return 0;
}
