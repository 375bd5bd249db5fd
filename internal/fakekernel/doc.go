// Package fakekernel is the kernel's side of RDMA in Go: uverbs with rxe devices, and
// rdma_cm. It stands behind the seams of internal/uapi and internal/discover, so that
// everything above runs unchanged in a plain test, data transfer included, without a
// device and without privileges.
//
// It answers as Linux 6.1 does. Requests are checked against the schema that also builds
// them (internal/uapi), with the kernel's errnos. Objects live in tables per open file,
// with the kernel's rules of what may end while what is in use. Queues are memory that is
// mapped twice, once for each side, laid out as rxe lays them out. Work requests of
// reliable connections are carried out between any two queue pairs of the same Kernel.
//
// What a request points at is read and written with process_vm_readv and
// process_vm_writev on the process itself: a wrong address is EFAULT, as it would be in
// the kernel, and the race detector does not mistake the kernel for a goroutine.
//
// Tests make trouble with [Kernel.Fail] (a call fails), [Kernel.Cut] (nothing arrives),
// [Kernel.RaiseQP] and [Kernel.RaisePort] (asynchronous events), [Kernel.CM] (events of the
// connection manager), [Kernel.Rings] (a queue holds rubbish), [Kernel.Unplug] (a device
// goes) and [Options] (order of completions, slow calls, limits).
//
// Not there: UD, UC, SRQ, AH, memory windows, atomics, multicast, iWARP, and the
// commands of the write interface that this module does not issue. An id of rdma_cm can
// be moved to another file only by a caller that knows the old file's number, which
// uapi.File does not tell.
package fakekernel
