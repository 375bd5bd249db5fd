// Package fakekernel is the kernel's side of RDMA in Go: uverbs with rxe, siw and mlx5
// devices, and rdma_cm. It stands behind the seams of internal/uapi and internal/discover,
// so that everything above runs unchanged in a plain test, data transfer included, without
// a device and without privileges.
//
// It answers as Linux 6.1 does, or another version by [Options]. Requests are checked against the schema that also builds
// them (internal/uapi), with the kernel's errnos. Objects live in tables per open file,
// with the kernel's rules of what may end while what is in use. Queues are memory that is
// mapped twice, once for each side, laid out as the driver lays them out. Work requests
// are carried out between any two queue pairs of the same Kernel that can be connected.
//
// rxe has all that the real one has: queue pairs of the types RC, UC and UD, shared receive
// queues, address handles, multicast groups within the Kernel, memory windows, atomics,
// FLUSH and ATOMIC WRITE. A request is carried out in one step, so nothing is ever seen
// half done, and a datagram's two completions are not moved by AckDelay and AckFirst.
//
// siw is iWARP: its queue pairs are connected by rdma_cm alone, which then speaks of TCP.
// See [Options.LaxMPA] for who may send first.
//
// mlx5 is the driver's commands and a model of the device behind it, see [Device.MLX5]: its
// queues are the user's memory, and a goroutine watches the registers that he writes.
// Requests, completions and doorbells have the device's own layout, and what a program does
// wrong ends in the device's syndromes. Queue pairs are RC, UC and UD, with shared receive
// queues and memory windows. Data in completions, compressed completions, ECE, rate limits,
// signatures, moderation, XRC, work queues and all of DEVX but the question for
// capabilities are not there. Between two goroutines' doorbells the device sees one.
//
// What a request points at is read and written with process_vm_readv and
// process_vm_writev on the process itself, or on another that has the file open: a wrong
// address is EFAULT, as it would be in the kernel, and the race detector does not mistake
// the kernel for a goroutine.
//
// rdma_cm has all commands, those of 7.2 by [Options.Kernel]: connections, services of
// datagrams (SIDR), multicast, paths, options, ECE, addresses of family AF_IB as far as
// Ethernet takes them, and moving ids between files by a descriptor that also polls.
//
// Tests make trouble with [Kernel.Fail] (a call fails), [Kernel.Cut] (nothing arrives),
// [Kernel.LoseCM] (one message of the connection manager does not), [Kernel.RaiseCM] (any of
// its events, on any ids, in any state), [Kernel.RaiseQP] and [Kernel.RaisePort] (asynchronous
// events), [Kernel.CM] (what ids there are, and records that are rubbish), [Kernel.Rings] (a
// queue holds rubbish), [Kernel.Unplug] and [Kernel.Disassociate] (a device goes) and [Options]
// (order of completions, slow calls, limits). A client that dies is a file that is closed; one
// whose host dies is that with its messages lost, see [Kernel.LoseCM].
//
// Not there: InfiniBand's subnet administration, and with it port space IPoIB beyond the
// wildcard and services by name; on-demand paging; the commands of the write interface that
// this module does not issue; a stale connection, that is a queue pair's number that the peer
// still remembers; and the minute for which an id cannot be destroyed after its request, or
// its reply, was taken back by REJECT.
package fakekernel
