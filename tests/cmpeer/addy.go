package cmpeer

import (
	"context"
	"errors"
	"fmt"

	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/tests/pingpong/peer"
	"github.com/pureverbs/rdma/uverbs"
)

// AddyPort is the port of udaddy, which takes no other.
const AddyPort = 7174

// Addy is udaddy: datagram queue pairs find each other by service id resolution. On each the
// client sends messages with its queue pair number as immediate data, and the server sends as
// many back.
//
// A C server receives all messages into the same memory, and sends that: the header of the
// last one, and as much of the message as fits behind it.
type Addy struct {
	Options
	Fleet
}

// Serve answers as many clients as there are connections, with a queue pair for each.
func (a *Addy) Serve(ctx context.Context) (err error) {
	a.reset()
	var listener peer.Owned
	defer func() { err = errors.Join(err, a.close(), listener.Close()) }()
	ch, err := a.listen(&listener, rdmacm.PortSpaceUDP)
	if err != nil {
		return err
	}
	// Nothing is established: the answer is all that the server does.
	if err := loop(ctx, ch, a.all(up), a.serverEvent); err != nil {
		return err
	}
	return a.serveAll(ctx)
}

func (a *Addy) serverEvent(ev *rdmacm.Event) error {
	if ev.Type != rdmacm.EventConnectRequest {
		return nil
	}
	n := a.add(ev.ID)
	if err := n.open(a.slots(), a.Size, uverbs.QPTypeUD); err != nil {
		return err
	}
	n.up = true
	return n.id.Accept(rdmacm.ConnParam{QPNum: n.qp.Num()})
}

func (a *Addy) serveAll(ctx context.Context) error {
	if a.slots() == 0 {
		return nil
	}
	for _, n := range a.order {
		if _, err := n.hear(ctx, 0); err != nil {
			return err
		}
	}
	for _, n := range a.order {
		if err := n.echo(); err != nil {
			return err
		}
	}
	for _, n := range a.order {
		if _, err := wait(ctx, n.sendCQ, n.slots); err != nil {
			return err
		}
	}
	return nil
}

// hear waits for all messages, each of which has to name the queue pair that sent it: that of
// the peer, if it is known.
func (n *node) hear(ctx context.Context, from uint32) ([][]byte, error) {
	messages, wcs, err := n.receive(ctx)
	if err != nil {
		return nil, err
	}
	if from == 0 {
		from = wcs[0].SrcQP
	}
	for i, wc := range wcs {
		if !wc.HasImm() || wc.Imm != from || wc.SrcQP != from {
			return nil, fmt.Errorf("message %d is from queue pair %#x and names %#x, want %#x", i, wc.SrcQP, wc.Imm, from)
		}
	}
	n.first = wcs[0]
	return messages, nil
}

// echo sends all messages back to where the first one came from.
func (n *node) echo() error {
	ah, err := n.pd.CreateAHFromWC(&n.first, n.mr.Bytes()[:uverbs.GRHSize], uint8(n.id.PortNum()))
	if ah, err = peer.Own(&n.owned, ah, err); err != nil {
		return err
	}
	attr, err := n.qp.Query(uverbs.QPAttrQKey) // the same on both sides
	if err != nil {
		return err
	}
	n.to = ah.Dest(n.first.Imm, attr.QKey)
	return n.sendTo(slotsFrom(0, n.slots))
}

func (n *node) sendTo(slots []int) error {
	return n.send(slots, uverbs.SendWR{Opcode: uverbs.OpSendImm, Imm: n.qp.Num(), Dest: n.to})
}

// Call is the client. It returns what was sent and what came back, on each connection.
func (a *Addy) Call(ctx context.Context) (sent, got [][][]byte, err error) {
	a.reset()
	ch, err := rdmacm.NewEventChannel(a.System...)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, a.close(), ch.Close()) }()
	if err := a.dial(ch, rdmacm.PortSpaceUDP, &a.Options); err != nil {
		return nil, nil, err
	}
	if err := loop(ctx, ch, a.all(up), a.clientEvent); err != nil || a.slots() == 0 {
		return nil, nil, err
	}
	sent, got = make([][][]byte, len(a.order)), make([][][]byte, len(a.order))
	for i, n := range a.order {
		for slot := range a.Messages {
			sent[i] = append(sent[i], pattern(n.slot(a.Messages+slot), i*a.Messages+slot))
		}
		if err := n.sendTo(slotsFrom(a.Messages, a.Messages)); err != nil {
			return nil, nil, err
		}
	}
	for i, n := range a.order {
		if got[i], err = n.hear(ctx, n.peer); err != nil {
			return nil, nil, err
		}
		for slot, b := range sent[i] { // the memory goes with the node
			sent[i][slot] = append([]byte(nil), b...)
		}
	}
	return sent, got, nil
}

func (a *Addy) clientEvent(ev *rdmacm.Event) error {
	n := a.nodes[ev.ID]
	switch ev.Type {
	case rdmacm.EventAddrResolved:
		return n.id.ResolveRoute(resolveTimeout)
	case rdmacm.EventRouteResolved:
		if err := n.open(a.slots(), a.Size, uverbs.QPTypeUD); err != nil {
			return err
		}
		return n.id.Connect(rdmacm.ConnParam{})
	case rdmacm.EventEstablished:
		ah, err := n.pd.CreateAH(&ev.UD.AH)
		if ah, err = peer.Own(&n.owned, ah, err); err != nil {
			return err
		}
		n.to, n.peer, n.up = ah.Dest(ev.UD.QPNum, ev.UD.QKey), ev.UD.QPNum, true
	}
	return nil
}
