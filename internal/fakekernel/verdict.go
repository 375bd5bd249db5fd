//go:build linux

package fakekernel

import (
	"time"

	"github.com/pureverbs/rdma/abi"
)

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
	event  uint32         // an asynchronous event of the responder, 0: none
}

// finish does what the responder still has to do.
func (v *verdict) finish(k *Kernel) {
	if v.recv {
		k.nic.wc = v.wc
		v.peer.rq.consume() // first: who sees the completion may post at once
		v.peer.recv.post(&k.nic.wc, v.sol)
	}
	if v.event != 0 {
		v.peer.raise(v.event)
	}
	if v.broken {
		k.enter(v.peer, stateError)
	}
}

// nak is what a responder has against a request: the error states of sw/rxe/rxe_resp.c,
// named by the classes of IBTA volume 1, 9.9.3.
type nak uint8

const (
	nakNone       nak = iota
	nakRNR            // no receive request
	nakInvalid        // not allowed, or not aligned
	nakAccess         // key, bounds or access of remote memory
	nakLength         // a length that cannot be
	nakMalformed      // a receive request that does not do
	nakInvalidate     // a key that cannot be invalidated, after all else went well
)

// conclude turns what the responder has against a request into what both sides see. held
// says that the request has a receive request in hand.
func (k *Kernel) conclude(p *qp, w *work, n nak, held bool) verdict {
	if p.typ != abi.IB_UVERBS_QPT_RC {
		return k.drop(p, w, n, held)
	}
	if p.mlx5() != nil {
		return p.concludeMLX5(w, n, held)
	}
	switch n {
	case nakNone:
		if !held {
			return verdict{}
		}
		return p.received(w)
	case nakRNR:
		return p.notReady()
	case nakAccess:
		v := p.refuse(held, statusRemoteAccess, statusRemoteAccess)
		if k.version >= v702 && !w.hasImm() {
			v.event = asyncAccess
		}
		return v
	case nakMalformed:
		return p.refuse(held, statusRemoteOp, statusLocalQPOp)
	case nakInvalidate:
		return p.refuse(held, statusSuccess, statusRemoteInvalid)
	}
	return p.refuse(held, statusRemoteInvalid, statusRemoteInvalid)
}

// drop is conclude for the services that do not answer. A receive request of a shared
// queue that is in hand cannot go back, so it ends.
func (k *Kernel) drop(p *qp, w *work, n nak, held bool) verdict {
	if p.mlx5() != nil {
		return p.dropMLX5(w, n, held)
	}
	var v verdict
	switch {
	case n == nakNone && held:
		v = p.received(w)
	case n == nakMalformed:
		v = p.refuse(held, statusSuccess, statusLocalQPOp)
	case held && p.srq != nil && n == nakAccess:
		v = p.refuse(held, statusSuccess, statusRemoteAccess)
		v.broken = false
	case held && p.srq != nil && n == nakLength:
		v = p.refuse(held, statusSuccess, statusRemoteInvalid)
		v.broken = false
	}
	return v
}

// received is a good end of the receive request that was looked at last.
func (p *qp) received(w *work) verdict {
	wc := abi.IbUverbsWc{
		WrId: p.f.k.nic.recv.id, Opcode: wcRecv, ByteLen: w.length, QpNum: p.num, WcFlags: wcGRH, PortNum: p.attr.PortNum,
	}
	if w.hasImm() {
		wc.WcFlags |= wcWithImm
		*wc.ExImmData() = w.imm
		if w.isWrite() {
			wc.Opcode = wcRecvWithImm
		}
	}
	if w.op == abi.IB_UVERBS_WR_SEND_WITH_INV {
		wc.WcFlags |= wcWithInv
		*wc.ExInvalidateRkey() = w.invKey
	}
	return verdict{peer: p, recv: true, wc: wc, sol: w.flags&sendSolicited != 0}
}

// refuse is a bad end for both sides. Of a bad completion only id, status and number are
// meant to be looked at, so nothing else is there.
func (p *qp) refuse(held bool, sender, receiver uint32) verdict {
	return verdict{
		status: sender, peer: p, broken: true, recv: held, sol: true,
		wc: abi.IbUverbsWc{WrId: p.f.k.nic.recv.id, Status: receiver, QpNum: p.num},
	}
}

// notReady asks the requester to come back after the time that the responder set.
func (p *qp) notReady() verdict {
	return verdict{again: tryRNR, rnr: rnrDelay(p.attr.MinRnrTimer)}
}

// rnrDelay is the time of an RNR code: IBTA volume 1, table 45.
func rnrDelay(code uint8) time.Duration {
	hundredths := [32]int{
		65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096,
		6144, 8192, 12288, 16384, 24576, 32768, 49152,
	}
	return time.Duration(hundredths[code&31]) * 10 * time.Microsecond
}
