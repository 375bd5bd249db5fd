package cmpeer

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/uverbs"
)

// Key is mckey: some join a multicast group, one of them sends messages with its queue pair
// number as immediate data.
type Key struct {
	System   []rdmacm.Option
	Group    netip.Addr
	Source   netip.Addr // the interface
	Messages int
	Size     int
	SendOnly bool // the sender does not receive

	mr *uverbs.MR
}

func (k *Key) slot() int { return uverbs.GRHSize + k.Size }

func (k *Key) join(ctx context.Context, prepare func(*rdmacm.Conn) error) (*rdmacm.Group, error) {
	return rdmacm.JoinMulticast(ctx, k.Group.String(), &rdmacm.Options{
		QP:        uverbs.QPCap{MaxSendWR: uint32(k.Messages), MaxRecvWR: uint32(k.Messages), MaxSendSGE: 1, MaxRecvSGE: 1},
		SignalAll: true, SendOnly: k.SendOnly, Source: netip.AddrPortFrom(k.Source, 0), System: k.System,
		Prepare: func(c *rdmacm.Conn) (err error) {
			if k.mr, err = c.AllocMR(k.Messages*k.slot(), uverbs.AccessLocalWrite); err != nil {
				return err
			}
			return prepare(c)
		},
	})
}

// Receive joins, calls joined, waits for all messages and returns them.
func (k *Key) Receive(ctx context.Context, joined func()) (messages [][]byte, err error) {
	g, err := k.join(ctx, func(c *rdmacm.Conn) error {
		wrs := make([]uverbs.RecvWR, k.Messages)
		for i := range wrs {
			wrs[i] = uverbs.RecvWR{ID: uint64(i), SGL: []uverbs.SGE{k.mr.SGE(i*k.slot(), k.slot())}}
		}
		_, err := c.QP().PostRecv(wrs)
		return err
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	joined()
	wcs, err := wait(ctx, g.RecvCQ(), k.Messages)
	if err != nil {
		return nil, err
	}
	for i, wc := range wcs {
		if int(wc.ID) != i || int(wc.ByteLen) != k.slot() || !wc.HasImm() || wc.Imm != wc.SrcQP {
			return nil, fmt.Errorf("message %d is in slot %d with %d bytes, from queue pair %#x and names %#x",
				i, wc.ID, int(wc.ByteLen)-uverbs.GRHSize, wc.SrcQP, wc.Imm)
		}
		messages = append(messages, append([]byte(nil), k.mr.Bytes()[i*k.slot():][uverbs.GRHSize:k.slot()]...))
	}
	return messages, nil
}

// Send joins and sends all messages.
func (k *Key) Send(ctx context.Context) (err error) {
	g, err := k.join(ctx, func(*rdmacm.Conn) error { return nil })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	wrs := make([]uverbs.SendWR, k.Messages)
	for i := range wrs {
		pattern(k.mr.Bytes()[i*k.slot():][:k.Size], i)
		wrs[i] = uverbs.SendWR{
			Opcode: uverbs.OpSendImm, Imm: g.QP().Num(), Dest: g.Dest(), SGL: []uverbs.SGE{k.mr.SGE(i*k.slot(), k.Size)},
		}
	}
	if _, err := g.QP().PostSend(wrs); err != nil {
		return err
	}
	_, err = wait(ctx, g.SendCQ(), k.Messages)
	return err
}
