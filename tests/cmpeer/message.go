package cmpeer

import (
	"context"
	"errors"
	"fmt"

	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/tests/pingpong/peer"
	"github.com/pureverbs/rdma/uverbs"
)

// messageSize is that of rdma_server, rdma_client and their relatives.
const messageSize = 16

// Message is rdma_client and rdma_server: the client sends one message, the server another,
// and both leave. With OneWay it is rdma_xclient and rdma_xserver in the mode of reliable
// connections: the server does not answer. The queues have room for one message, which is
// sent inline.
type Message struct {
	Options
	OneWay bool
	Text   [messageSize]byte // what this side sends

	mr *uverbs.MR
}

// options are those of the connection. Until a message comes the memory holds another byte
// than any that the C programs send, which is 0.
func (m *Message) options() *rdmacm.Options {
	return &rdmacm.Options{
		QP:        uverbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInline: messageSize},
		SignalAll: true,
		System:    m.System,
		Prepare: func(c *rdmacm.Conn) (err error) {
			if m.mr, err = c.AllocMR(messageSize, uverbs.AccessLocalWrite); err != nil {
				return err
			}
			for i := range m.mr.Bytes() {
				m.mr.Bytes()[i] = 0xee
			}
			_, err = c.QP().PostRecv([]uverbs.RecvWR{{SGL: []uverbs.SGE{m.mr.SGE(0, messageSize)}}})
			return err
		},
	}
}

// Serve serves one client and returns what it sent.
func (m *Message) Serve(ctx context.Context) (got []byte, err error) {
	var owned peer.Owned
	defer func() { err = errors.Join(err, owned.Close()) }()
	l, err := rdmacm.Listen(ctx, m.Addr.String(), m.options())
	if l, err = peer.Own(&owned, l, err); err != nil {
		return nil, err
	}
	m.listening()
	r, err := l.Next(ctx)
	if err != nil {
		return nil, err
	}
	o := m.options()
	if m.OneWay { // the number of a shared receive queue, of which there is none
		o.ConnParam.PrivateData = make([]byte, 4)
	}
	c, err := r.Accept(ctx, o)
	if c, err = peer.Own(&owned, c, err); err != nil {
		return nil, err
	}
	if got, err = m.hear(ctx, c); err != nil || m.OneWay {
		return got, err
	}
	return got, m.send(ctx, c)
}

// hear waits for the client's message, on iWARP not for ever.
func (m *Message) hear(ctx context.Context, c *rdmacm.Conn) ([]byte, error) {
	if !iWARP(c.PD().Context()) {
		return m.receive(ctx, c)
	}
	short, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	got, err := m.receive(short, c)
	if err != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("%w (%w)", ErrUnheard, err)
	}
	return got, err
}

// Call is the client. It returns what the server answered.
func (m *Message) Call(ctx context.Context) (got []byte, err error) {
	c, err := rdmacm.Dial(ctx, m.Addr.String(), m.options())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := m.send(ctx, c); err != nil || m.OneWay {
		return nil, err
	}
	return m.answer(ctx, c)
}

// answer waits for the answer. On siw the server may not have seen the question, until
// something more comes. An empty write is one that nobody notices.
func (m *Message) answer(ctx context.Context, c *rdmacm.Conn) ([]byte, error) {
	if !iWARP(c.PD().Context()) {
		return m.receive(ctx, c)
	}
	short, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	got, err := m.receive(short, c)
	if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
		return got, err
	}
	if _, err := c.QP().PostSend([]uverbs.SendWR{{Opcode: uverbs.OpRDMAWrite}}); err != nil {
		return nil, err
	}
	return m.receive(ctx, c)
}

func (m *Message) send(ctx context.Context, c *rdmacm.Conn) error {
	_, err := c.QP().PostSend([]uverbs.SendWR{{
		Opcode: uverbs.OpSend, Flags: uverbs.SendInline, Inline: [][]byte{m.Text[:]},
	}})
	if err != nil {
		return err
	}
	_, err = wait(ctx, c.SendCQ(), 1)
	return err
}

func (m *Message) receive(ctx context.Context, c *rdmacm.Conn) ([]byte, error) {
	wcs, err := wait(ctx, c.RecvCQ(), 1)
	if err != nil {
		return nil, err
	}
	got := make([]byte, wcs[0].ByteLen)
	copy(got, m.mr.Bytes())
	return got, nil
}
