// Package uverbs is libibverbs for Go without libibverbs: it speaks the kernel's uverbs
// interface and drives the device's queues itself, without cgo.
//
// # The objects
//
// A [Device] is opened into a [Context]. From it come protection domains ([PD]), completion
// channels ([CompChannel]) and completion queues ([CQ]); from a protection domain memory
// regions ([MR]) and queue pairs ([QP]). Two queue pairs are connected, each knowing the
// other's number and address: package rdmacm does that over the network, [QP.Modify] by
// hand.
//
//	devs, err := uverbs.Devices()
//	ctx, err := devs[0].Open()
//	pd, err := ctx.AllocPD()
//	mr, err := pd.AllocMR(4096, uverbs.AccessLocalWrite)
//	ch, err := ctx.NewCompChannel()
//	cq, err := ctx.CreateCQ(64, ch)
//	qp, err := pd.CreateQP(&uverbs.QPInitAttr{SendCQ: cq, Cap: uverbs.QPCap{
//		MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 1, MaxRecvSGE: 1}})
//	... connect ...
//	n, err := qp.PostRecv([]uverbs.RecvWR{{ID: 1, SGL: []uverbs.SGE{mr.SGE(0, 2048)}}})
//	n, err = qp.PostSend([]uverbs.SendWR{{ID: 2, Opcode: uverbs.OpSend,
//		Flags: uverbs.SendSignaled, SGL: []uverbs.SGE{mr.SGE(2048, 5)}}})
//	n, err = cq.Wait(context.Background(), wcs)
//
// # Rules
//
// Posting hands memory to the device until the completion comes: neither read nor write it
// meanwhile. The race detector does not see the device.
//
// Children keep their parents alive: closing a parent with open children fails with
// [ErrBusy] and changes nothing. Close may be called any number of times, at any time, also
// while others post or wait: they get net.ErrClosed.
//
// Everything is safe for concurrent use. PostSend, PostRecv, Poll and Arm allocate nothing
// and take one lock.
//
// # Requirements
//
// Linux 5.10 or newer and access to the device's node, /dev/infiniband/uverbsN; no
// privilege. Registered memory counts against RLIMIT_MEMLOCK. On other systems everything
// compiles and fails with "RDMA needs Linux".
package uverbs
