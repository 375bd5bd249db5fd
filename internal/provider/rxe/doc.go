// Package rxe drives rdma_rxe, the kernel's software RoCE device: driver id 14, ABI
// versions 1 and 2 (5.10 to 7.2 lay the queues out alike).
//
// Each queue is one mapping shared with the kernel: a header with two masked indices, then
// a power of two of equal slots. The producer fills the slot and then publishes its index;
// the consumer reads the index and then the slot. A work request stays unchanged from its
// publication until its completion, because the kernel works in the slot itself.
//
// Facts: include/uapi/rdma/rdma_user_rxe.h; drivers/infiniband/sw/rxe/rxe_queue.h.
package rxe
