package main

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/pureverbs/rdma/tests/pingpong/peer"
	"github.com/pureverbs/rdma/uverbs"
)

// end is this side: its queue pairs and what they stand on.
type end struct {
	*transport
	ctx      *uverbs.Context
	pd       *uverbs.PD
	cq       *uverbs.CQ
	srq      *uverbs.SRQ
	mr       *uverbs.MR
	owned    peer.Owned
	gid      uverbs.GID
	gidIndex int
	pairs    []pair
	recvs    []uverbs.RecvWR // as many as may be posted, made once
}

// pair is a queue pair and how far its exchange is.
type pair struct {
	qp    *uverbs.QP
	psn   uint32
	sends []uverbs.SendWR // one, made once: posting it costs no allocation
	open  uint64          // set of the work requests, by ID, that have not completed since its last send
}

func open(t *transport, o options) (_ *end, err error) {
	e := &end{transport: t, gidIndex: o.gidIndex}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.owned.Close())
		}
	}()
	c, err := peer.Open(o.device)
	if e.ctx, err = peer.Own(&e.owned, c, err); err != nil {
		return nil, err
	}
	if err = e.checkPort(o); err != nil {
		return nil, err
	}
	if err = e.openMemory(o); err != nil {
		return nil, err
	}
	return e, e.openQueues(o)
}

func (e *end) openMemory(o options) error {
	pd, err := e.ctx.AllocPD()
	if e.pd, err = peer.Own(&e.owned, pd, err); err != nil {
		return err
	}
	mr, err := e.pd.AllocMR(e.grh+o.size, uverbs.AccessLocalWrite)
	if e.mr, err = peer.Own(&e.owned, mr, err); err != nil {
		return err
	}
	if o.server != "" {
		for i := range e.mr.Bytes() {
			e.mr.Bytes()[i] = fill
		}
	}
	e.recvs = make([]uverbs.RecvWR, o.depth)
	for i := range e.recvs {
		e.recvs[i] = uverbs.RecvWR{ID: recvID, SGL: []uverbs.SGE{e.mr.SGE(0, e.grh+o.size)}}
	}
	return nil
}

// checkPort finds the own GID; a datagram has to fit into one packet.
func (e *end) checkPort(o options) (err error) {
	if e.gid, err = peer.GID(e.ctx, o.gidIndex); err != nil {
		return err
	}
	port, err := e.ctx.QueryPort(1)
	if err != nil {
		return err
	}
	if e.typ == uverbs.QPTypeUD && o.size > port.ActiveMTU.Bytes() {
		return fmt.Errorf("%d bytes do not fit into a datagram, the port's MTU is %d", o.size, port.ActiveMTU.Bytes())
	}
	return nil
}

func (e *end) openQueues(o options) error {
	newChannel := e.ctx.NewCompChannel
	if o.block {
		newChannel = e.ctx.NewBlockingCompChannel
	}
	ch, err := newChannel()
	if ch, err = peer.Own(&e.owned, ch, err); err != nil {
		return err
	}
	cq, err := e.ctx.CreateCQ(o.depth+o.pairs, ch)
	if e.cq, err = peer.Own(&e.owned, cq, err); err != nil {
		return err
	}
	if e.shared {
		srq, err := e.pd.CreateSRQ(&uverbs.SRQInitAttr{MaxWR: uint32(o.depth), MaxSGE: 1})
		if e.srq, err = peer.Own(&e.owned, srq, err); err != nil {
			return err
		}
	}
	e.pairs = make([]pair, o.pairs)
	for i := range e.pairs {
		if err := e.openPair(&e.pairs[i], o); err != nil {
			return err
		}
	}
	return nil
}

func (e *end) openPair(p *pair, o options) error {
	qp, err := e.pd.CreateQP(&uverbs.QPInitAttr{
		Type: e.typ, SendCQ: e.cq, SRQ: e.srq,
		Cap: uverbs.QPCap{MaxSendWR: 1, MaxRecvWR: uint32(o.depth), MaxSendSGE: 1, MaxRecvSGE: 1},
	})
	if p.qp, err = peer.Own(&e.owned, qp, err); err != nil {
		return err
	}
	p.psn = rand.Uint32() & 0xffffff
	p.sends = []uverbs.SendWR{{
		ID: sendID, Opcode: uverbs.OpSend, Flags: uverbs.SendSignaled, SGL: []uverbs.SGE{e.mr.SGE(e.grh, o.size)},
	}}
	return e.toInit(p.qp)
}

func (e *end) addresses() []address {
	list := make([]address, len(e.pairs))
	for i := range e.pairs {
		list[i] = address{qpn: e.pairs[i].qp.Num(), psn: e.pairs[i].psn, gid: e.gid}
	}
	return list
}

func (e *end) connect(peers []address) error {
	for i := range e.pairs {
		if err := e.transport.connect(e, &e.pairs[i], peers[i]); err != nil {
			return err
		}
	}
	return nil
}
