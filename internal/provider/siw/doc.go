// Package siw drives siw, the kernel's software iWARP device: driver id 18, ABI version 1
// (5.10 to 7.2 lay the queues out alike).
//
// Each queue is one mapping shared with the kernel: a power of two of equal slots. Who owns
// a slot is said by the flags in it, and each side counts its position for itself. A work
// request is handed over by setting VALID, and comes back, flags cleared, as soon as the
// kernel has copied it: long before its completion. A completion is handed over by the
// kernel, and goes back by clearing its flags.
//
// What the kernel does not do: atomics, immediate data, memory windows, datagrams. It drops
// completions for which the completion queue has no room, and since the slots of requests
// come back early, a full send queue does not keep a program from that.
//
// Facts: include/uapi/rdma/siw-abi.h; drivers/infiniband/sw/siw/siw_qp.c, siw_qp_tx.c,
// siw_qp_rx.c, siw_verbs.c.
package siw
