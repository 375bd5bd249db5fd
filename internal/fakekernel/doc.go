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
// Tests make trouble with [Kernel.Fail] (a call fails), [Kernel.CM] (an event comes),
// [Kernel.Rings] (a queue holds rubbish), [Kernel.Unplug] (a device goes), and [Options].
//
// Not there: UD, UC, SRQ, AH, memory windows, atomics, multicast, iWARP, and the
// commands of the write interface that this module does not issue.
package fakekernel
