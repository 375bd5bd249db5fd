package uverbs

import (
	"github.com/pureverbs/rdma/internal/provider"
	"github.com/pureverbs/rdma/internal/provider/mlx5"
	"github.com/pureverbs/rdma/internal/provider/rxe"
	"github.com/pureverbs/rdma/internal/provider/siw"
	"github.com/pureverbs/rdma/internal/uapi"
)

// The queues of the few drivers behind a static switch. There is no interface: the compiler
// sees each callee, so work requests and completions of callers stay off the heap.

// cqRing is the memory of a completion queue: one of the pointers is set, none once closed.
type cqRing struct {
	rxe  *rxe.CQ
	mlx5 *mlx5.CQ
	siw  *siw.CQ
}

func (r *cqRing) open() bool { return r.rxe != nil || r.mlx5 != nil || r.siw != nil }

func (r *cqRing) advance() (bool, error) {
	switch {
	case r.rxe != nil:
		return r.rxe.Advance()
	case r.mlx5 != nil:
		return r.mlx5.Advance()
	}
	return r.siw.Advance()
}

func (r *cqRing) current() (id uint64, status provider.WCStatus) {
	switch {
	case r.rxe != nil:
		return r.rxe.ID(), r.rxe.Status()
	case r.mlx5 != nil:
		return r.mlx5.ID(), r.mlx5.Status()
	}
	return r.siw.ID(), r.siw.Status()
}

func (r *cqRing) decode(wc *provider.WC) {
	switch {
	case r.rxe != nil:
		r.rxe.Decode(wc)
	case r.mlx5 != nil:
		r.mlx5.Decode(wc)
	default:
		r.siw.Decode(wc)
	}
}

// armsByCall tells whether the kernel must be called to arm the queue. Elsewhere arm does
// it, in shared memory or a register.
func (r *cqRing) armsByCall() bool { return r.rxe != nil }

func (r *cqRing) arm(solicitedOnly bool) {
	if r.mlx5 != nil {
		r.mlx5.Arm(solicitedOnly)
		return
	}
	r.siw.Arm(solicitedOnly)
}

func (r *cqRing) armByCall(bell *uapi.Doorbell, solicitedOnly bool) error {
	only := uint32(0)
	if solicitedOnly {
		only = 1
	}
	copy(bell.Body()[4:], uapi.Bytes(&only))
	return bell.Ring()
}

func (r *cqRing) release() {
	switch {
	case r.rxe != nil:
		r.rxe.Release()
	case r.mlx5 != nil:
		r.mlx5.Release()
	default:
		r.siw.Release()
	}
}

// forget drops what a dead queue pair left.
func (r *cqRing) forget(num uint32, qp *qpRings) {
	switch {
	case r.rxe != nil:
		r.rxe.Forget(num)
	case r.mlx5 != nil:
		r.mlx5.Forget(qp.mlx5)
	case r.siw != nil:
		r.siw.Forget(num)
	}
}

func (r *cqRing) close() (err error) {
	switch {
	case r.rxe != nil:
		err = r.rxe.Close()
	case r.mlx5 != nil:
		err = r.mlx5.Close()
	case r.siw != nil:
		err = r.siw.Close()
	}
	*r = cqRing{}
	return err
}

// qpRings is the memory of a queue pair: one of the pointers is set, none once closed.
type qpRings struct {
	rxe  *rxe.QP
	mlx5 *mlx5.QP
	siw  *siw.QP
}

func (r *qpRings) open() bool { return r.rxe != nil || r.mlx5 != nil || r.siw != nil }

func (r *qpRings) send(wr *provider.SendWR, total uint32) error {
	switch {
	case r.rxe != nil:
		return r.rxe.Send(wr, total)
	case r.mlx5 != nil:
		return r.mlx5.Send(wr, total)
	}
	return r.siw.Send(wr, total)
}

// ringsByCall tells whether the kernel must be called to ring the doorbell.
func (r *qpRings) ringsByCall() bool { return r.mlx5 == nil }

// takeSends takes back what was encoded and not published, and on siw also what was and the
// kernel has left lying. On mlx5 nobody does so: the device flushes.
func (r *qpRings) takeSends(taken func(id uint64)) {
	if r.rxe != nil {
		r.rxe.TakeSends(taken)
		return
	}
	r.siw.PublishSend()
	r.siw.TakeSends(taken)
}

func (r *qpRings) dropSend() {
	switch {
	case r.rxe != nil:
		r.rxe.DropSend()
	case r.mlx5 != nil:
		r.mlx5.DropSend()
	default:
		r.siw.DropSend()
	}
}

// inlineRoom is where the inline data of the next request goes.
func (r *qpRings) inlineRoom(op provider.Opcode) []byte {
	switch {
	case r.rxe != nil:
		return r.rxe.InlineRoom()
	case r.mlx5 != nil:
		return r.mlx5.InlineRoom(op)
	}
	return r.siw.InlineRoom()
}

func (r *qpRings) hasRecv() bool {
	switch {
	case r.rxe != nil:
		return r.rxe.HasRecv()
	case r.mlx5 != nil:
		return r.mlx5.HasRecv()
	}
	return r.siw.HasRecv()
}

func (r *qpRings) recv(wr *provider.RecvWR, total uint32) error {
	switch {
	case r.rxe != nil:
		return r.rxe.Recv(wr, total)
	case r.mlx5 != nil:
		return r.mlx5.Recv(wr, total)
	}
	return r.siw.Recv(wr, total)
}

func (r *qpRings) publishRecv() {
	switch {
	case r.rxe != nil:
		r.rxe.PublishRecv()
	case r.mlx5 != nil:
		r.mlx5.PublishRecv()
	default:
		r.siw.PublishRecv()
	}
}

func (r *qpRings) close() (err error) {
	switch {
	case r.rxe != nil:
		err = r.rxe.Close()
	case r.mlx5 != nil:
		err = r.mlx5.Close()
	case r.siw != nil:
		err = r.siw.Close()
	}
	*r = qpRings{}
	return err
}

// srqRing is the memory of a shared receive queue: one of the pointers is set, none once
// closed.
type srqRing struct {
	rxe  *rxe.SRQ
	mlx5 *mlx5.SRQ
	siw  *siw.SRQ
}

func (r *srqRing) open() bool { return r.rxe != nil || r.mlx5 != nil || r.siw != nil }

// recvPlain posts what needs no closer look, up to the first request that does or finds no room.
// The queue takes pieces.
func (r *srqRing) recvPlain(wrs []provider.RecvWR) int {
	switch {
	case r.rxe != nil:
		return r.rxe.RecvPlain(wrs)
	case r.siw != nil:
		return r.siw.RecvPlain(wrs)
	}
	return 0
}

func (r *srqRing) recv(wr *provider.RecvWR, total uint32) error {
	switch {
	case r.rxe != nil:
		return r.rxe.Recv(wr, total)
	case r.mlx5 != nil:
		return r.mlx5.Recv(wr, total)
	}
	return r.siw.Recv(wr, total)
}

func (r *srqRing) publishRecv() {
	switch {
	case r.rxe != nil:
		r.rxe.PublishRecv()
	case r.mlx5 != nil:
		r.mlx5.PublishRecv()
	default:
		r.siw.PublishRecv()
	}
}

func (r *srqRing) close() (err error) {
	switch {
	case r.rxe != nil:
		err = r.rxe.Close()
	case r.mlx5 != nil:
		err = r.mlx5.Close()
	case r.siw != nil:
		err = r.siw.Close()
	}
	*r = srqRing{}
	return err
}
