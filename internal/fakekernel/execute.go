//go:build linux

package fakekernel

import (
	"net/netip"
	"time"

	"github.com/pureverbs/rdma/abi"
)

// Statuses of completions: enum ib_wc_status.
const (
	statusSuccess          = 0
	statusLocalQPOp        = 2
	statusLocalProtection  = 4
	statusFlush            = 5
	statusRemoteInvalid    = 9
	statusRemoteAccess     = 10
	statusRemoteOp         = 11
	statusRetryExceeded    = 12
	statusRNRRetryExceeded = 13
)

const (
	sendSignaled  = 2
	sendSolicited = 4
	sendInline    = 8

	wcGRH     = 1
	wcWithImm = 2

	wcRecv        = 128
	wcRecvWithImm = 129
)

func hasImm(op uint32) bool {
	return op == abi.IB_UVERBS_WR_SEND_WITH_IMM || op == abi.IB_UVERBS_WR_RDMA_WRITE_WITH_IMM
}

func wcOpcode(op uint32) uint32 {
	switch op {
	case abi.IB_UVERBS_WR_RDMA_WRITE, abi.IB_UVERBS_WR_RDMA_WRITE_WITH_IMM:
		return abi.IB_UVERBS_WC_RDMA_WRITE
	case abi.IB_UVERBS_WR_RDMA_READ:
		return abi.IB_UVERBS_WC_RDMA_READ
	}
	return abi.IB_UVERBS_WC_SEND
}

// verdict is how a request went.
type verdict struct {
	again  uint8         // not done at all yet, and why
	rnr    time.Duration // tryRNR: after this time
	status uint32        // of the send request

	peer   *qp            // the responder, if the request consumed one of its receives or broke it
	recv   bool           // a receive request ends
	wc     abi.IbUverbsWc // its completion
	sol    bool           // that raises a solicited event
	broken bool           // the responder goes to error
}

// finish does what the responder still has to do.
func (v *verdict) finish(k *Kernel) {
	if v.recv {
		v.peer.recv.post(&v.wc, v.sol)
		v.peer.rq.consume()
	}
	if v.broken {
		k.enter(v.peer, stateError)
	}
}

// execute carries a send request out, as requester and as responder.
func (k *Kernel) execute(q *qp, w *abi.RxeSendWqe, data []byte) verdict {
	op := w.Wr.Opcode
	if op > abi.IB_UVERBS_WR_RDMA_READ {
		return verdict{status: statusLocalQPOp}
	}
	access := uint32(0)
	if op == abi.IB_UVERBS_WR_RDMA_READ {
		if q.attr.MaxRdAtomic == 0 {
			return verdict{again: tryNever} // waits for a credit that does not come
		}
		access = abi.IB_UVERBS_ACCESS_LOCAL_WRITE
	}
	if !k.nic.gather(q, w, data, access) {
		return verdict{status: statusLocalProtection}
	}
	peer := k.peer(q)
	if peer == nil || peer.recvPSN != q.sendPSN {
		return verdict{again: tryAck}
	}
	if fragmented(q, peer, w) {
		return verdict{status: statusRemoteInvalid, peer: peer, broken: true}
	}
	v := k.respond(peer, w)
	if v.again == notTrying {
		n := packets(q, w.Dma.Length)
		q.sendPSN = (q.sendPSN + n) & psnMask
		peer.recvPSN = (peer.recvPSN + n) & psnMask
	}
	return v
}

// packets is how many packets a message of n bytes takes.
func packets(q *qp, n uint32) uint32 {
	mtu := uint32(128) << q.attr.PathMtu
	return max((n+mtu-1)/mtu, 1)
}

// fragmented tells whether the message comes in packets of a size that the peer, who has
// another path MTU, does not expect.
func fragmented(q, peer *qp, w *abi.RxeSendWqe) bool {
	mtu := uint32(128) << min(q.attr.PathMtu, peer.attr.PathMtu)
	return q.attr.PathMtu != peer.attr.PathMtu && w.Wr.Opcode != abi.IB_UVERBS_WR_RDMA_READ && w.Dma.Length > mtu
}

// gather lists the local memory of a send request.
func (n *nic) gather(q *qp, w *abi.RxeSendWqe, data []byte, access uint32) bool {
	n.local = n.local[:0]
	if w.Wr.SendFlags&sendInline != 0 && w.Wr.Opcode != abi.IB_UVERBS_WR_RDMA_READ {
		if int(w.Dma.Length) > len(data) {
			return false
		}
		n.local = append(n.local, span{Base: addrOf(data), Len: int(w.Dma.Length)})
		return true
	}
	var ok bool
	n.local, ok = list(n.local, q, w.Dma.NumSge, w.Dma.Length, data, access)
	return ok
}

// list appends the memory of a scatter/gather list, as much as limit; false if a key or an
// address is wrong, or the list is too short.
func list(to []span, q *qp, num, limit uint32, data []byte, access uint32) ([]span, bool) {
	for i := range int(num) {
		if limit == 0 {
			break
		}
		if (i+1)*sgeSize > len(data) || len(to) == cap(to) {
			return to, false
		}
		e := view[abi.RxeSge](data[i*sgeSize:])
		n := min(e.Length, limit)
		s, ok := q.f.dev.local(q.pd, e.Lkey, e.Addr, n, access)
		if !ok {
			return to, false
		}
		to = append(to, s)
		limit -= n
	}
	return to, limit == 0
}

// peer is the queue pair at the other end, nil if no answer would come.
func (k *Kernel) peer(q *qp) *qp {
	d := k.deviceAt(netip.AddrFrom16(q.attr.Dest.Dgid).Unmap())
	if d == nil || k.cut || q.f.dev.dead {
		return nil
	}
	p := d.qps[q.attr.DestQpNum]
	if p == nil || p.state < stateRTR || p.state == stateError || p.attr.DestQpNum != q.num || p.protocol() != q.protocol() {
		return nil
	}
	return p
}

// protocol is RoCE v1 or v2: they do not understand each other.
func (q *qp) protocol() uint32 { return q.f.dev.gids[q.attr.Dest.SgidIndex].GidType }
