// Package uverbs is libibverbs for Go without libibverbs: it speaks the kernel's uverbs
// interface and drives the device's queues itself, without cgo.
//
// RDMA lets an adapter move bytes between the memories of two programs, on one machine or
// on two, without their kernels on the way. A program tells the adapter which memory it may
// use, puts work requests into queues, and finds out later how each of them ended.
//
// # The objects
//
// [Devices] lists what the kernel knows. A [Device] is opened into a [Context], and all else
// is made from that:
//
//	Device
//	└─ Context            an open device
//	   ├─ CompChannel     wakes those who wait for completions
//	   ├─ CQ              completion queue: how work requests ended; on a CompChannel, or polled
//	   └─ PD              protection domain: what is in it works together, and with nothing else
//	      ├─ MR           memory region: memory that the device may use
//	      ├─ MW           memory window: part of a region, with a key that is quick to change
//	      ├─ AH           address handle: where a datagram goes
//	      ├─ SRQ          shared receive queue
//	      └─ QP           queue pair: sends and receives; reports to a CQ, may receive from an SRQ
//
// Two queue pairs of a connected type are introduced to each other, each knowing the other's
// number and address: package rdmacm does that over the network, [QP.Modify] by hand. From
// then on:
//
//	n, err := qp.PostRecv([]uverbs.RecvWR{{ID: 1, SGL: []uverbs.SGE{mr.SGE(0, 2048)}}})
//	n, err = qp.PostSend([]uverbs.SendWR{{ID: 2, Opcode: uverbs.OpSend,
//		Flags: uverbs.SendSignaled, SGL: []uverbs.SGE{mr.SGE(2048, 5)}}})
//	n, err = cq.Wait(context.Background(), wcs)
//
// The example of the package is this from beginning to end.
//
// Children keep their parents alive: closing a parent with open children fails with
// [ErrBusy] and changes nothing. Close may be called any number of times, at any time, also
// while others post or wait: they get net.ErrClosed.
//
// # Transports
//
// The type of a queue pair says what the network promises:
//
//   - [QPTypeRC], reliable connected: each message arrives once and in order, or the pair
//     fails. All operations: SEND into the peer's next receive, RDMA WRITE and READ of its
//     memory, atomics, memory windows.
//   - [QPTypeUC], unreliable connected: a lost packet loses its message, and nobody is told.
//     SEND and RDMA WRITE.
//   - [QPTypeUD], unreliable datagram: messages of at most one packet to any queue pair, or to
//     a multicast group. SEND only, each with its destination, see [AH.Dest]. The receiver
//     needs [GRHSize] bytes of room before the message.
//
// [QP.Supports] tells whether an operation is there: type, device and kernel decide.
//
// # The life of a work request
//
// A receive is posted before its message comes. On RC a message that finds none is repeated
// after a pause, see QPAttr.MinRNRTimer; on UC and UD it is lost. Messages take the receives
// in their order, one each, and must fit.
//
// [QP.PostSend] and [QP.PostRecv] copy the requests into the queue and return at once. The
// slices are the program's again; the memory that they name is not. It belongs to the device
// until the completion: neither read nor write it meanwhile. The race detector does not see
// the device. Only the bytes of SendWR.Inline are free at once, they are copied by the post.
// [SendBuilder] posts without slices of requests.
//
// Then the device works, and puts a completion ([WC]) into the completion queue, with the
// request's ID and its status. A receive always reports, and so does a failure. A send reports
// success only if it was posted with [SendSignaled], or the pair was made with SignalAll; its
// completion says that the sends before it are done, too. So every so often one must be
// signaled.
//
// [ErrQueueFull] says that a queue has no place: poll, then post the rest. The completion queue
// must have room for all that can be outstanding: what finds none is lost.
//
// # Polling and waiting
//
// [CQ.Poll] looks into the queue and returns, without a call to the kernel unless something
// failed. [CQ.Start] does the same one by one, and decodes only what is asked for. [CQ.Wait]
// polls, spins for a moment if that has helped lately, asks for an event, polls again and then
// sleeps until there is a completion or its context ends. A sleeping goroutine costs no thread,
// and any number may wait for one queue. Who never waits needs no [CompChannel].
//
// News that belongs to no request (a queue pair or the device failed, a port went down, a
// shared receive queue runs low) comes from [Context.NextAsyncEvent].
//
// # Errors
//
// Methods fail with an [Error] that says what was tried and, where the kernel's errno alone
// misleads, the likely reason. errors.Is finds the errno, a context's error, net.ErrClosed or
// one of these: [ErrInvalid], the argument is wrong and the kernel was not asked;
// [ErrNotSupported], device, driver or kernel cannot; [ErrQueueFull]; [ErrBusy]; [ErrCorrupt].
//
// That a work request failed is no error of Poll or Wait but the status of its completion:
// look at [WC.Err] of each.
//
// # When a connection fails
//
// The first failure moves an RC queue pair to [StateError]. All requests that are still in its
// queues, and all that are posted later, complete with [WCFlushError]: who counts completions
// gets one for each request that is due one. Some drivers leave requests lying in this state;
// then the library makes their completions. Receives in a shared receive queue stay there, for
// the other pairs.
//
// [QP.Close] is abrupt: requests end without a completion, and completions that were not polled
// are dropped, so that none is taken for one of a later queue pair with the same number. To
// see all of them, move the pair to StateError, poll, then close.
//
// # The iWARP device siw
//
// siw runs over TCP and can do less: RC only, without immediate data, atomics and memory
// windows. An RDMA READ fills one piece, inline data are at most 80 bytes. A message that finds
// no receive ends the connection. Package rdmacm alone connects its queue pairs, [QP.Modify]
// has little to say, and the side that called connect must send first.
//
// # ConnectX devices: mlx5
//
// The queues of mlx5 are memory of this process, of which the device knows: posting, polling
// and arming are loads and stores, without a call of the kernel. What [QP.Cap] grants is more
// than was asked for as a rule, for sizes are powers of two. The slots of requests come back
// when completions are polled, see [ErrQueueFull]. A queue pair that fails, or is moved to
// StateError, is flushed by the device; [QP.State] hears of a failure from [QP.Query].
// [Device.NoBlueFlame] is for doubts about the CPU's write combining. None of this has driven
// hardware yet: it was tested with a simulated device.
//
// # Concurrency
//
// Everything is safe for concurrent use. PostSend, PostRecv, Poll and Arm allocate nothing and
// take one lock, that of the send queue, the receive queue or the completion queue.
//
// Where even an uncontended lock is too much, QPInitAttr.SingleGoroutine and
// CQInitAttr.SingleGoroutine do without. They are a promise: one goroutine at a time uses the
// object, for a completion queue also all queue pairs that report into it. Only the race
// detector checks it.
//
// # Coming from C
//
// docs/libibverbs.md of this module has the name here for each function of libibverbs, and
// where the two differ.
//
// # Requirements
//
// Linux 5.10 or newer and access to the device's node, /dev/infiniband/uverbsN; no
// privilege. Registered memory counts against RLIMIT_MEMLOCK. On other systems everything
// compiles and fails with "RDMA needs Linux".
package uverbs
