//go:build linux

package fakekernel

import "github.com/pureverbs/rdma/abi"

// execute carries a send request out as the device does.
func (mlx5Driver) execute(k *Kernel, q *qp, w *work) verdict {
	switch {
	case q.fenced(w):
		return verdict{again: tryFence}
	case !mlx5Can(q.typ, w.op):
		return verdict{status: statusLocalQPOp}
	case w.length > mlx5MaxMessage && !w.isAtomic():
		return verdict{status: statusLocalLength}
	}
	var v verdict
	switch {
	case w.op == opNop:
		return verdict{}
	case w.op == abi.IB_UVERBS_WR_LOCAL_INV:
		return verdict{status: k.invalidateMLX5(q, w)}
	case w.op == abi.IB_UVERBS_WR_BIND_MW:
		return verdict{status: k.bindWindow(q, w)}
	case q.typ == abi.IB_UVERBS_QPT_UD && w.length > 128<<maxMTU:
		return verdict{status: statusLocalLength}
	case q.typ == abi.IB_UVERBS_QPT_UD:
		v = k.sendDatagram(q, w)
	case q.typ == abi.IB_UVERBS_QPT_UC:
		v = k.sendUnreliable(q, w)
	default:
		v = k.sendReliable(q, w)
	}
	if v.status == statusLocalQPOp { // a key that is none
		v.status = statusLocalProtection
	}
	return v
}

// mlx5Can tells whether a type of queue pairs has an operation.
func mlx5Can(typ uint8, op uint32) bool {
	switch op {
	case abi.IB_UVERBS_WR_SEND, abi.IB_UVERBS_WR_SEND_WITH_IMM, opNop:
		return true
	case abi.IB_UVERBS_WR_RDMA_WRITE, abi.IB_UVERBS_WR_RDMA_WRITE_WITH_IMM, abi.IB_UVERBS_WR_SEND_WITH_INV,
		abi.IB_UVERBS_WR_BIND_MW, abi.IB_UVERBS_WR_LOCAL_INV:
		return typ != abi.IB_UVERBS_QPT_UD
	case abi.IB_UVERBS_WR_RDMA_READ, abi.IB_UVERBS_WR_ATOMIC_CMP_AND_SWP, abi.IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD:
		return typ == abi.IB_UVERBS_QPT_RC
	}
	return false
}

// concludeMLX5 is the answer of a reliable responder: IBTA volume 1, 9.9.3. A receive
// request is taken by what it is needed for, and by nothing that failed before; where no
// completion tells of the end, an asynchronous event does.
func (p *qp) concludeMLX5(w *work, n nak, held bool) verdict {
	switch n {
	case nakNone:
		if held {
			return p.received(w)
		}
		return verdict{}
	case nakRNR:
		return p.notReady()
	case nakAccess:
		return verdict{status: statusRemoteAccess, peer: p, broken: true, event: asyncAccess}
	case nakMalformed:
		return p.refuse(true, statusRemoteOp, statusLocalProtection)
	case nakInvalidate:
		return p.refuse(true, statusRemoteAccess, statusLocalAccess)
	}
	if w.isSend() {
		return p.refuse(true, statusRemoteInvalid, statusLocalLength)
	}
	return verdict{status: statusRemoteInvalid, peer: p, broken: true, event: asyncQPRequest}
}

// dropMLX5 is that of a responder that does not answer. A receive request that does not do
// is the receiver's own fault, and ends his queue pair.
func (p *qp) dropMLX5(w *work, n nak, held bool) verdict {
	switch {
	case n == nakNone && held:
		return p.received(w)
	case n == nakMalformed:
		return p.refuse(true, statusSuccess, statusLocalProtection)
	case n == nakLength:
		return p.refuse(true, statusSuccess, statusLocalLength)
	case n == nakInvalidate:
		return p.refuse(true, statusSuccess, statusLocalAccess)
	}
	return verdict{}
}
