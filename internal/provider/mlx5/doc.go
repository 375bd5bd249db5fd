// Package mlx5 drives ConnectX devices (mlx5_ib): driver id 1, ABI version 1.
//
// Unlike those of the software devices, all queues are memory of this side: they are
// allocated before the create call, whose driver part carries their addresses, and the device
// reads and writes them by itself. Nothing but a doorbell tells it of new requests: a record
// of two counters in memory, and a store to a device register (UAR). Device structures are
// big-endian, those of the kernel have the host's order.
//
// A send queue is a ring of 64-byte blocks; a request takes as many as it needs. Blocks come
// back when a completion is polled that covers them. A receive queue is a ring of slots of
// equal size, a shared one a linked list through its slots. A completion queue is a ring of
// 64-byte entries whose owner bit changes its meaning with each round.
//
// What the device writes is data to be judged: which queue pair, request or slot a
// completion names is checked against what is open, and what cannot be is ErrCorrupt.
//
// Facts: include/uapi/rdma/mlx5-abi.h; drivers/infiniband/hw/mlx5; the behaviour of libmlx5
// 44 and 65, whose bytes in the queues are the same as those written here.
package mlx5
