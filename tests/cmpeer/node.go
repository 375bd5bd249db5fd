package cmpeer

import (
	"bytes"
	"context"
	"fmt"

	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/tests/pingpong/peer"
	"github.com/pureverbs/rdma/uverbs"
)

// node is one connection: its id and what it stands on. Its memory is slots to receive into,
// then as many to send from. A datagram's slot begins with room for the header.
type node struct {
	id     *rdmacm.ID
	pd     *uverbs.PD
	sendCQ *uverbs.CQ
	recvCQ *uverbs.CQ
	qp     *uverbs.QP
	mr     *uverbs.MR
	slots  int
	size   int
	grh    int
	owned  peer.Owned
	up     bool
	gone   bool

	// of datagrams
	peer  uint32 // the number of the peer's queue pair
	to    uverbs.Dest
	first uverbs.WC // the first message
}

// newNode takes an id over. It is closed with the node.
func newNode(id *rdmacm.ID) *node {
	n := &node{id: id}
	n.owned = append(n.owned, id)
	return n
}

// open makes the queue pair on the device of the id, which has one by now, and posts a
// receive into each slot.
func (n *node) open(slots, size int, typ uverbs.QPType) (err error) {
	n.slots, n.size = slots, size
	if typ == uverbs.QPTypeUD {
		n.grh = uverbs.GRHSize
	}
	ctx, err := n.id.Context()
	if err != nil {
		return err
	}
	pd, err := ctx.AllocPD()
	if n.pd, err = peer.Own(&n.owned, pd, err); err != nil {
		return err
	}
	if err := n.openQueues(ctx); err != nil {
		return err
	}
	depth := uint32(max(slots, 1))
	n.qp, err = n.id.CreateQP(n.pd, &uverbs.QPInitAttr{
		Type: typ, SendCQ: n.sendCQ, RecvCQ: n.recvCQ, SignalAll: true,
		Cap: uverbs.QPCap{MaxSendWR: depth, MaxRecvWR: depth, MaxSendSGE: 1, MaxRecvSGE: 1},
	})
	if n.qp, err = peer.Own(&n.owned, n.qp, err); err != nil || slots == 0 {
		return err
	}
	mr, err := n.pd.AllocMR(2*slots*(n.grh+size), uverbs.AccessLocalWrite)
	if n.mr, err = peer.Own(&n.owned, mr, err); err != nil {
		return err
	}
	return n.post()
}

func (n *node) openQueues(ctx *uverbs.Context) error {
	ch, err := ctx.NewCompChannel()
	if ch, err = peer.Own(&n.owned, ch, err); err != nil {
		return err
	}
	cq, err := ctx.CreateCQ(max(n.slots, 1), ch)
	if n.sendCQ, err = peer.Own(&n.owned, cq, err); err != nil {
		return err
	}
	cq, err = ctx.CreateCQ(max(n.slots, 1), ch)
	n.recvCQ, err = peer.Own(&n.owned, cq, err)
	return err
}

func (n *node) post() error {
	wrs := make([]uverbs.RecvWR, n.slots)
	for i := range wrs {
		wrs[i] = uverbs.RecvWR{ID: uint64(i), SGL: []uverbs.SGE{n.mr.SGE(i*(n.grh+n.size), n.grh+n.size)}}
	}
	_, err := n.qp.PostRecv(wrs)
	return err
}

// at is where the message of a slot begins.
func (n *node) at(slot int) int { return slot*(n.grh+n.size) + n.grh }

func (n *node) slot(i int) []byte { return n.mr.Bytes()[n.at(i):][:n.size] }

// send sends one message from each of these slots, all alike but for the memory.
func (n *node) send(slots []int, like uverbs.SendWR) error {
	wrs := make([]uverbs.SendWR, len(slots))
	for i, slot := range slots {
		wrs[i] = like
		wrs[i].SGL = []uverbs.SGE{n.mr.SGE(n.at(slot), n.size)}
	}
	_, err := n.qp.PostSend(wrs)
	return err
}

// receive waits until a message is in each slot.
func (n *node) receive(ctx context.Context) ([][]byte, []uverbs.WC, error) {
	wcs, err := wait(ctx, n.recvCQ, n.slots)
	if err != nil {
		return nil, nil, err
	}
	messages := make([][]byte, n.slots)
	for i, wc := range wcs {
		if int(wc.ID) != i || int(wc.ByteLen) != n.grh+n.size {
			return nil, nil, fmt.Errorf("message %d is in slot %d with %d bytes, want %d bytes in order", i, wc.ID, int(wc.ByteLen)-n.grh, n.size)
		}
		messages[i] = bytes.Clone(n.slot(i))
	}
	return messages, wcs, nil
}
