// Measures what a message costs where both ends are in this process, on one thread: posting it
// and polling for its completion, libibverbs and the kernel together. tests/onebench is the
// same in Go, step by step.
//
//	onebench rxe|siw ADDRESS COUNT
//
// Each line of output is "sample one-DEVICE-OPERATION-SIZE-bBATCH c VALUE", in microseconds a
// message: BATCH of them are posted as one chain, each signaled, and polled for with room for as
// many. The bytes are compared before and after the loop that is measured, not in it.
//
// A poll that finds nothing gives the CPU up. Where there is one CPU and the device is a thread
// of the kernel's, it would be the scheduler that is measured otherwise.
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BATCH = 16, SIZE = 4096, PORT = 7190, RESOURCES = 16 };

struct end {
	struct rdma_cm_id *id;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	unsigned char *mem; // BATCH slots of SIZE bytes
	struct ibv_sge sge[BATCH];
};

static struct end client, server;
static struct ibv_pd *pd;
static struct ibv_send_wr sends[BATCH];
static struct ibv_recv_wr recvs[BATCH];

static void check(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		exit(1);
	}
}

static void open_end(struct end *e, struct rdma_cm_id *id)
{
	e->id = id;
	if (!pd)
		check((pd = ibv_alloc_pd(id->verbs)) != NULL, "protection domain");
	check((e->cq = ibv_create_cq(id->verbs, 2 * BATCH, NULL, NULL, 0)) != NULL, "completion queue");
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC, .send_cq = e->cq, .recv_cq = e->cq,
		.cap = {.max_send_wr = BATCH, .max_recv_wr = BATCH, .max_send_sge = 1, .max_recv_sge = 1},
	};
	check(!rdma_create_qp(id, pd, &attr), "queue pair");
	check(!posix_memalign((void **)&e->mem, 4096, BATCH * SIZE), "memory");
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	if (id->verbs->device->transport_type != IBV_TRANSPORT_IWARP)
		access |= IBV_ACCESS_REMOTE_ATOMIC;
	check((e->mr = ibv_reg_mr(pd, e->mem, BATCH * SIZE, access)) != NULL, "memory region");
	for (int i = 0; i < BATCH; i++)
		e->sge[i] = (struct ibv_sge){(uintptr_t)e->mem + i * SIZE, SIZE, e->mr->lkey};
}

// connect_ends makes a connection with itself, on one event channel.
static void connect_ends(const char *address)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(PORT)};
	struct rdma_conn_param param = {
		.responder_resources = RESOURCES, .initiator_depth = RESOURCES, .retry_count = 7, .rnr_retry_count = 7,
	};
	struct rdma_cm_id *listener, *caller;
	check(ch != NULL, "event channel");
	check(inet_pton(AF_INET, address, &to.sin_addr) == 1, "address");
	check(!rdma_create_id(ch, &listener, NULL, RDMA_PS_TCP), "id");
	check(!rdma_bind_addr(listener, (struct sockaddr *)&to), "bind");
	check(!rdma_listen(listener, 1), "listen");
	check(!rdma_create_id(ch, &caller, NULL, RDMA_PS_TCP), "id");
	check(!rdma_resolve_addr(caller, NULL, (struct sockaddr *)&to, 2000), "resolve address");
	for (int up = 0; up < 2;) {
		struct rdma_cm_event *ev;
		check(!rdma_get_cm_event(ch, &ev), "event");
		struct rdma_cm_id *id = ev->id;
		enum rdma_cm_event_type type = ev->event;
		rdma_ack_cm_event(ev);
		switch (type) {
		case RDMA_CM_EVENT_ADDR_RESOLVED:
			check(!rdma_resolve_route(id, 2000), "resolve route");
			break;
		case RDMA_CM_EVENT_ROUTE_RESOLVED:
			open_end(&client, id);
			check(!rdma_connect(id, &param), "connect");
			break;
		case RDMA_CM_EVENT_CONNECT_REQUEST:
			open_end(&server, id);
			check(!rdma_accept(id, &param), "accept");
			break;
		case RDMA_CM_EVENT_ESTABLISHED:
			up++;
			break;
		default:
			fprintf(stderr, "connect: %s\n", rdma_event_str(type));
			exit(1);
		}
	}
}

static void prepare(enum ibv_wr_opcode opcode, int size)
{
	for (int i = 0; i < BATCH; i++) {
		client.sge[i].length = size;
		sends[i] = (struct ibv_send_wr){
			.wr_id = i, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED, .sg_list = &client.sge[i], .num_sge = 1,
		};
		uint64_t remote = (uintptr_t)server.mem + i * SIZE;
		if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
			sends[i].wr.atomic.remote_addr = remote;
			sends[i].wr.atomic.rkey = server.mr->rkey;
			sends[i].wr.atomic.compare_add = 1;
		} else if (opcode != IBV_WR_SEND) {
			sends[i].wr.rdma.remote_addr = remote;
			sends[i].wr.rdma.rkey = server.mr->rkey;
		}
		recvs[i] = (struct ibv_recv_wr){.wr_id = i, .sg_list = &server.sge[i], .num_sge = 1};
	}
}

// chain makes one request of the first batch ones.
static void chain(int batch)
{
	for (int i = 0; i < BATCH; i++) {
		sends[i].next = i + 1 < batch ? &sends[i + 1] : NULL;
		recvs[i].next = i + 1 < batch ? &recvs[i + 1] : NULL;
	}
}

static void reap(struct ibv_cq *cq, int batch)
{
	struct ibv_wc wc[BATCH];
	for (int got = 0; got < batch;) {
		int n = ibv_poll_cq(cq, batch, wc);
		check(n >= 0, "poll");
		for (int i = 0; i < n; i++) {
			if (wc[i].status != IBV_WC_SUCCESS) {
				fprintf(stderr, "completion: %s\n", ibv_wc_status_str(wc[i].status));
				exit(1);
			}
		}
		if (n == 0)
			sched_yield();
		got += n;
	}
}

static void transfer(enum ibv_wr_opcode opcode, int batch, int count)
{
	struct ibv_send_wr *bad_send;
	struct ibv_recv_wr *bad_recv;
	for (int done = 0; done < count; done += batch) {
		if (opcode == IBV_WR_SEND)
			check(!ibv_post_recv(server.id->qp, recvs, &bad_recv), "post receive");
		check(!ibv_post_send(client.id->qp, sends, &bad_send), "post send");
		reap(client.cq, batch);
		if (opcode == IBV_WR_SEND)
			reap(server.cq, batch);
	}
}

// fill writes bytes that depend on their place and on seed; one that is not, zeros.
static void fill(unsigned char *mem, int seed)
{
	for (int i = 0; i < BATCH * SIZE; i++)
		mem[i] = seed ? i + i / SIZE + seed : 0;
}

// verified transfers once with each side's bytes known before: the first size bytes of each of
// the first batch slots arrive, and no others.
static void verified(enum ibv_wr_opcode opcode, int size, int batch)
{
	int reads = opcode == IBV_WR_RDMA_READ;
	unsigned char *from = reads ? server.mem : client.mem, *to = reads ? client.mem : server.mem;
	static unsigned char want[BATCH * SIZE];
	fill(from, 1 + opcode + size + batch);
	fill(to, 0);
	memset(want, 0, sizeof want);
	for (int i = 0; i < batch; i++)
		memcpy(want + i * SIZE, from + i * SIZE, size);
	transfer(opcode, batch, batch);
	check(!memcmp(to, want, sizeof want), "other bytes arrived");
}

// counted says that n fetch-adds counted, and were told so.
static void counted(int n, int batch)
{
	for (int i = 0; i < batch; i++) {
		uint64_t sum, before;
		memcpy(&sum, server.mem + i * SIZE, 8);
		memcpy(&before, client.mem + i * SIZE, 8);
		check(sum == (uint64_t)(n / batch) && before == sum - 1, "the sum of the atomics");
	}
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static void measure(const char *device, const char *name, enum ibv_wr_opcode opcode, int size, int batch, int count)
{
	int atomic = opcode == IBV_WR_ATOMIC_FETCH_AND_ADD, warm = count / 10 / batch * batch;
	count -= count % batch;
	prepare(opcode, size);
	chain(batch);
	if (atomic)
		fill(server.mem, 0);
	else
		verified(opcode, size, batch);
	transfer(opcode, batch, warm);
	double from = now();
	transfer(opcode, batch, count);
	double till = now();
	if (atomic)
		counted(warm + count, batch);
	else
		verified(opcode, size, batch);
	printf("sample one-%s-%s-%s-b%d c %.3f\n", device, name, size == 4096 ? "4k" : size == 64 ? "64" : "8", batch,
	       (till - from) / count);
}

int main(int argc, char **argv)
{
	if (argc != 4) {
		fprintf(stderr, "usage: onebench rxe|siw ADDRESS COUNT\n");
		return 2;
	}
	const char *device = argv[1];
	int count = atoi(argv[3]);
	connect_ends(argv[2]);
	static const struct {
		const char *name;
		enum ibv_wr_opcode opcode;
	} ops[] = {{"send", IBV_WR_SEND}, {"write", IBV_WR_RDMA_WRITE}, {"read", IBV_WR_RDMA_READ}};
	for (int batch = 1; batch <= BATCH; batch += BATCH - 1) {
		for (int i = 0; i < 3; i++) {
			measure(device, ops[i].name, ops[i].opcode, 64, batch, count);
			measure(device, ops[i].name, ops[i].opcode, 4096, batch, count);
		}
		if (client.id->verbs->device->transport_type != IBV_TRANSPORT_IWARP)
			measure(device, "atomic", IBV_WR_ATOMIC_FETCH_AND_ADD, 8, batch, count);
	}
	return 0;
}
