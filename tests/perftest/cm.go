package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
	"time"

	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/tests/pingpong/peer"
	"github.com/pureverbs/rdma/uverbs"
)

// cmLink is a handshake over a connection of the connection manager. The queue pair of the
// test is on a second connection, to the same port.
type cmLink struct {
	o        options
	listener *rdmacm.Listener // nil on the client
	conn     *rdmacm.Conn
	data     *rdmacm.Conn // the second one
	mr       *uverbs.MR   // what comes, then what goes
	heard    bool         // something has come
	owned    peer.Owned
}

// errUnheard is a fault of siw, in all kernels up to 7.2 at least: while it accepts a
// connection it answers the client first and only then watches for what the client sends. A
// client that is quick enough in between is not heard until it sends more, which the clients
// of this protocol do not. C programs hang in the same way.
var errUnheard = errors.New("the first message was not heard: siw missed it, or the peer sent none")

const patience = 10 * time.Second

// room is more than any message of the handshake has.
const room = 64

func meetByCM(ctx context.Context, o options) (_ *cmLink, err error) {
	l := &cmLink{o: o}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	if o.server == "" {
		listener, err := rdmacm.Listen(ctx, "0.0.0.0:"+strconv.Itoa(o.port), nil) // C clients know IPv4 only
		if l.listener, err = peer.Own(&l.owned, listener, err); err != nil {
			return nil, err
		}
	}
	l.conn, err = l.open(ctx, &l.owned, uverbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}, l.prepare)
	return l, err
}

// open makes a connection. The C server stops listening between the two, and needs a
// moment before each: who comes at the wrong moment is rejected and tries again.
func (l *cmLink) open(ctx context.Context, owned *peer.Owned, caps uverbs.QPCap, prepare func(*rdmacm.Conn) error) (*rdmacm.Conn, error) {
	o := &rdmacm.Options{QP: caps, Prepare: prepare}
	if l.listener != nil {
		r, err := l.listener.Next(ctx)
		if err != nil {
			return nil, err
		}
		c, err := r.Accept(ctx, o)
		return peer.Own(owned, c, err)
	}
	for {
		c, err := rdmacm.Dial(ctx, net.JoinHostPort(l.o.server, strconv.Itoa(l.o.port)), o)
		if err == nil || ctx.Err() != nil || !errors.Is(err, syscall.ECONNREFUSED) {
			return peer.Own(owned, c, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (l *cmLink) prepare(c *rdmacm.Conn) (err error) {
	if l.mr, err = c.AllocMR(2*room, uverbs.AccessLocalWrite); err != nil {
		return err
	}
	return l.postRecv(c)
}

func (l *cmLink) postRecv(c *rdmacm.Conn) error {
	_, err := c.QP().PostRecv([]uverbs.RecvWR{{SGL: []uverbs.SGE{l.mr.SGE(0, room)}}})
	return err
}

func (l *cmLink) context() *uverbs.Context { return l.conn.PD().Context() }

func (l *cmLink) close() error { return l.owned.Close() }

func (l *cmLink) send(ctx context.Context, b []byte) error {
	sge := l.mr.SGE(room, copy(l.mr.Bytes()[room:], b))
	wr := uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.SendSignaled, SGL: []uverbs.SGE{sge}}
	if _, err := l.conn.QP().PostSend([]uverbs.SendWR{wr}); err != nil {
		return err
	}
	_, err := l.completion(ctx, l.conn.SendCQ())
	return err
}

// receive takes one message and makes room for the next one, which the peer sends only
// after it has got an answer.
func (l *cmLink) receive(ctx context.Context, n int) ([]byte, error) {
	wc, err := l.listen(ctx)
	if err != nil {
		return nil, err
	}
	l.heard = true
	if int(wc.ByteLen) != n {
		return nil, fmt.Errorf("the peer sent %d bytes, want %d", wc.ByteLen, n)
	}
	b := make([]byte, n)
	copy(b, l.mr.Bytes())
	return b, l.postRecv(l.conn)
}

// listen waits for a message, for the first one on iWARP not for ever.
func (l *cmLink) listen(ctx context.Context) (*uverbs.WC, error) {
	if l.heard || l.context().Device().Protocol() != "iw" {
		return l.completion(ctx, l.conn.RecvCQ())
	}
	short, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	wc, err := l.completion(short, l.conn.RecvCQ())
	if short.Err() != nil && ctx.Err() == nil {
		return nil, errUnheard
	}
	return wc, err
}

func (l *cmLink) completion(ctx context.Context, cq *uverbs.CQ) (*uverbs.WC, error) {
	var wcs [1]uverbs.WC
	if _, err := cq.Wait(ctx, wcs[:]); err != nil {
		return nil, err
	}
	return &wcs[0], wcs[0].Err()
}

func (l *cmLink) encode(d dest) []byte          { return d.binary() }
func (l *cmLink) decode(b []byte) (dest, error) { return parseBinary(b) }
func (l *cmLink) destLen() int                  { return binaryLen }

// pair makes the second connection. Before and after it the two sides wait for each other,
// with addresses that are still empty.
func (l *cmLink) pair(ctx context.Context, h handshake, e *end) (err error) {
	if err := h.step(ctx, dest{}, dest{}); err != nil {
		return err
	}
	l.data, err = l.open(ctx, &e.owned, e.caps(), func(c *rdmacm.Conn) (err error) {
		e.mr, err = c.AllocMR(2*e.slot(), uverbs.AccessLocalWrite|e.accessOn(c.PD().Context()))
		return err
	})
	if err != nil {
		return err
	}
	e.qp, e.sendCQ, e.recvCQ = l.data.QP(), l.data.SendCQ(), l.data.RecvCQ()
	e.describe(uverbs.GID{})
	return h.step(ctx, dest{}, dest{})
}

func (l *cmLink) connect(*end) error { return nil }

// farewell: the client disconnects, the server waits for that.
func (l *cmLink) farewell(ctx context.Context, _ bool) error {
	if l.listener == nil {
		return nil
	}
	select {
	case <-l.data.Done():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
