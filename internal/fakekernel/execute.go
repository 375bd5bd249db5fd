//go:build linux

package fakekernel

import (
	"net/netip"

	"github.com/pureverbs/rdma/abi"
)

// Statuses of completions: enum ib_wc_status.
const (
	statusSuccess          = 0
	statusLocalLength      = 1
	statusLocalQPOp        = 2
	statusLocalProtection  = 4
	statusFlush            = 5
	statusBind             = 6
	statusLocalAccess      = 8
	statusRemoteInvalid    = 9
	statusRemoteAccess     = 10
	statusRemoteOp         = 11
	statusRetryExceeded    = 12
	statusRNRRetryExceeded = 13
)

const (
	sendFence     = 1
	sendSignaled  = 2
	sendSolicited = 4
	sendInline    = 8

	wcGRH     = 1
	wcWithImm = 2
	wcWithInv = 4 // the kernel's own IB_WC_WITH_INVALIDATE

	wcRecv        = 128
	wcRecvWithImm = 129
)

// wcOpcode is wr_to_wc_opcode.
func wcOpcode(op uint32) uint32 {
	switch op {
	case abi.IB_UVERBS_WR_RDMA_WRITE, abi.IB_UVERBS_WR_RDMA_WRITE_WITH_IMM:
		return abi.IB_UVERBS_WC_RDMA_WRITE
	case abi.IB_UVERBS_WR_RDMA_READ:
		return abi.IB_UVERBS_WC_RDMA_READ
	case abi.IB_UVERBS_WR_ATOMIC_CMP_AND_SWP:
		return abi.IB_UVERBS_WC_COMP_SWAP
	case abi.IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD:
		return abi.IB_UVERBS_WC_FETCH_ADD
	case abi.IB_UVERBS_WR_LOCAL_INV:
		return abi.IB_UVERBS_WC_LOCAL_INV
	case abi.IB_UVERBS_WR_BIND_MW:
		return abi.IB_UVERBS_WC_BIND_MW
	case abi.IB_UVERBS_WR_FLUSH:
		return abi.IB_UVERBS_WC_FLUSH
	case abi.IB_UVERBS_WR_ATOMIC_WRITE:
		return abi.IB_UVERBS_WC_ATOMIC_WRITE
	}
	return abi.IB_UVERBS_WC_SEND
}

// execute carries a send request out, as requester and as responder: sw/rxe/rxe_req.c.
func (rxeDriver) execute(k *Kernel, q *qp, w *work) verdict {
	switch {
	case w.num > int(q.cap.MaxSendSge):
		return verdict{status: statusLocalQPOp}
	case q.fenced(w):
		return verdict{again: tryFence}
	case !k.version.can(q.typ, w.op):
		return verdict{status: statusLocalQPOp}
	}
	switch w.op {
	case abi.IB_UVERBS_WR_LOCAL_INV:
		return verdict{status: k.localInvalidate(q, w)}
	case abi.IB_UVERBS_WR_BIND_MW:
		return verdict{status: k.bindWindow(q, w)}
	}
	switch q.typ {
	case abi.IB_UVERBS_QPT_UD:
		return k.sendDatagram(q, w)
	case abi.IB_UVERBS_QPT_UC:
		return k.sendUnreliable(q, w)
	}
	return k.sendReliable(q, w)
}

// fenced tells whether a request has to wait for those before it. LOCAL INVALIDATE waits
// for all of them.
func (q *qp) fenced(w *work) bool {
	pending := q.sq.pending(&q.f.k.nic.old)
	return pending && (w.op == abi.IB_UVERBS_WR_LOCAL_INV || w.flags&sendFence != 0 && q.reading > 0)
}

// needsCredit tells whether an operation counts against max_rd_atomic.
func (w *work) needsCredit() bool { return w.brings() || w.op == abi.IB_UVERBS_WR_ATOMIC_WRITE }

func (k *Kernel) sendReliable(q *qp, w *work) verdict {
	if w.needsCredit() && q.attr.MaxRdAtomic == 0 {
		return verdict{again: tryNever} // waits for a credit that does not come
	}
	if status := k.nic.gather(q, w); status != statusSuccess {
		return verdict{status: status}
	}
	peer := k.peer(q)
	switch {
	case peer == nil, peer.recvPSN != q.sendPSN, tooBig(q, w):
		return verdict{again: tryAck}
	case fragmented(q, peer, w):
		return verdict{status: statusRemoteInvalid, peer: peer, broken: true}
	}
	v := k.respond(peer, q, w)
	if v.again != notTrying {
		return v
	}
	n := packets(q, w)
	q.sendPSN = (q.sendPSN + n) & psnMask
	peer.recvPSN = (peer.recvPSN + n) & psnMask
	if v.status == statusSuccess && w.brings() && !k.nic.bring(q, w) {
		v.status = statusLocalProtection
	}
	return v
}

// sendUnreliable: whatever goes wrong on the other side, here it went well.
func (k *Kernel) sendUnreliable(q *qp, w *work) verdict {
	if status := k.nic.gather(q, w); status != statusSuccess {
		return verdict{status: status}
	}
	q.sendPSN = (q.sendPSN + packets(q, w)) & psnMask
	peer := k.peer(q)
	if peer == nil || tooBig(q, w) || fragmented(q, peer, w) {
		return verdict{}
	}
	v := k.respond(peer, q, w)
	peer.recvPSN = q.sendPSN // the first packet of a message is taken whatever its number
	return v
}

// packets is how many packets a message takes, on the way to the peer or from it.
func packets(q *qp, w *work) uint32 {
	mtu := uint32(128) << q.attr.PathMtu
	if w.isAtomic() || w.op == abi.IB_UVERBS_WR_FLUSH {
		return 1
	}
	return max((w.length+mtu-1)/mtu, 1)
}

// tooBig tells whether a packet is too big for one of the interfaces that it passes.
func tooBig(q *qp, w *work) bool {
	return q.attr.PathMtu > q.f.dev.MTU && w.length > q.f.dev.mtu()
}

// fragmented tells whether the message comes in packets of a size that the peer, who has
// another path MTU, does not expect.
func fragmented(q, peer *qp, w *work) bool {
	mtu := uint32(128) << min(q.attr.PathMtu, peer.attr.PathMtu)
	return q.attr.PathMtu != peer.attr.PathMtu && !w.brings() && w.length > mtu
}

// gather lists the local memory of a request that sends something, and returns the status
// that it ends with if that is not to be had.
func (n *nic) gather(q *qp, w *work) uint32 {
	n.local = n.local[:0]
	if w.brings() || w.op == abi.IB_UVERBS_WR_FLUSH {
		return statusSuccess
	}
	if w.inline() {
		if int(w.length) > len(w.data) {
			return statusLocalQPOp
		}
		n.local = append(n.local, spanOf(w.data[:w.length]))
		return statusSuccess
	}
	var err memErr
	n.local, err = w.collect(n.local, q, w.length, 0)
	switch err {
	case memOK:
		return statusSuccess
	case memRange:
		return statusLocalProtection
	}
	return statusLocalQPOp
}

// bring puts what an operation brings where it belongs.
func (n *nic) bring(q *qp, w *work) bool {
	size := w.length
	if w.isAtomic() {
		if size = 8; w.length < size {
			return false
		}
	}
	var err memErr
	n.local, err = w.collect(n.local[:0], q, size, abi.IB_UVERBS_ACCESS_LOCAL_WRITE)
	return err == memOK && n.move(n.local, n.remote, int(size)) == nil
}

// peer is the queue pair at the other end, nil if nothing would reach it, or, of a reliable
// connection, no answer would come.
func (k *Kernel) peer(q *qp) *qp {
	d := k.deviceAt(netip.AddrFrom16(q.attr.Dest.Dgid).Unmap())
	if d == nil || k.cut || q.f.dev.dead {
		return nil
	}
	p := d.qps[q.attr.DestQpNum]
	if p == nil || !p.receives() || p.typ != q.typ || p.protocol() != q.protocol() || !p.hears(q) {
		return nil
	}
	if q.typ == abi.IB_UVERBS_QPT_RC && p.attr.DestQpNum != q.num {
		return nil
	}
	return p
}

// receives tells whether the state is one in which packets are taken.
func (q *qp) receives() bool { return q.state >= stateRTR && q.state != stateError && !q.gone }

// hears tells whether packets of a connection come from the address that is at its other
// end, to the one at this end: check_addr in sw/rxe/rxe_recv.c.
func (q *qp) hears(from *qp) bool {
	return q.attr.Dest.Dgid == from.sourceGID() && from.attr.Dest.Dgid == q.sourceGID()
}

func (q *qp) sourceGID() [16]byte {
	return [16]byte(bytesOf(&q.f.dev.gids[q.attr.Dest.SgidIndex].Gid))
}

// protocol is RoCE v1 or v2: they do not understand each other.
func (q *qp) protocol() uint32 { return q.f.dev.gids[q.attr.Dest.SgidIndex].GidType }
