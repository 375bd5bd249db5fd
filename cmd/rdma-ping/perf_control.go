package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/uverbs"
)

// perfControl carries the messages of the control connection, each perfMsgLen bytes. One
// goroutine sends and another receives.
type perfControl interface {
	send(ctx context.Context, b []byte) error
	// receive is used up when its context has ended.
	receive(ctx context.Context) ([]byte, error)
	// local is the own address.
	local() netip.Addr
	close() error
}

// tcpControl is a control connection over TCP.
type tcpControl struct{ conn net.Conn }

func (c *tcpControl) local() netip.Addr {
	return c.conn.LocalAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
}

func (c *tcpControl) close() error { return c.conn.Close() }

func (c *tcpControl) send(ctx context.Context, b []byte) error {
	deadline, _ := ctx.Deadline()
	if err := c.conn.SetWriteDeadline(deadline); err != nil {
		return err
	}
	_, err := c.conn.Write(b)
	return err
}

// receive looks at the first bytes before the others come: strangers say less.
func (c *tcpControl) receive(ctx context.Context) ([]byte, error) {
	stop := context.AfterFunc(ctx, func() { c.conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	b := make([]byte, perfMsgLen)
	n, err := io.ReadAtLeast(c.conn, b, perfHeadLen)
	if err == nil {
		if _, err = checkPerf(b[:n]); err == nil {
			_, err = io.ReadFull(c.conn, b[n:])
		}
	}
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, io.EOF) && n == 0, errors.Is(err, net.ErrClosed):
		return nil, errPeerGone
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, fmt.Errorf("message is cut short: %w", errPeerGone)
	}
	return b, err
}

// cmControl is a control connection of rdma_cm.
type cmControl struct {
	conn *rdmacm.Conn
	mr   *uverbs.MR
	wc   [1]uverbs.WC // of the receiver
}

// perfSlots is how many messages may come before the first is read. The last slot of the
// region is for sending.
const perfSlots = 4

func perfControlCaps() uverbs.QPCap {
	return uverbs.QPCap{MaxSendWR: 2, MaxRecvWR: perfSlots, MaxSendSGE: 1, MaxRecvSGE: 1}
}

// prepare is for [rdmacm.Options]: nothing of the region is open to the peer.
func (c *cmControl) prepare(conn *rdmacm.Conn) (err error) {
	c.conn = conn
	if c.mr, err = conn.AllocMR((perfSlots+1)*perfMsgLen, uverbs.AccessLocalWrite); err != nil {
		return err
	}
	for i := range perfSlots {
		if err := c.postRecv(uint64(i)); err != nil {
			return err
		}
	}
	return nil
}

func (c *cmControl) postRecv(slot uint64) error {
	_, err := c.conn.QP().PostRecv([]uverbs.RecvWR{{ID: slot, SGL: []uverbs.SGE{c.mr.SGE(int(slot)*perfMsgLen, perfMsgLen)}}})
	return err
}

func (c *cmControl) local() netip.Addr { return c.conn.LocalAddr().Addr() }

func (c *cmControl) close() error {
	c.conn.Disconnect() // if the peer was first there is nothing to say
	return c.conn.Close()
}

func (c *cmControl) send(ctx context.Context, b []byte) error {
	const off = perfSlots * perfMsgLen
	wr := uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.SendSignaled, SGL: []uverbs.SGE{c.mr.SGE(off, copy(c.mr.Bytes()[off:], b))}}
	if _, err := c.conn.QP().PostSend([]uverbs.SendWR{wr}); err != nil {
		return err
	}
	for {
		var wc [1]uverbs.WC
		if _, err := c.conn.SendCQ().Wait(ctx, wc[:]); err != nil {
			return err
		}
		if wc[0].Status != uverbs.WCSuccess {
			return perfFailed(&wc[0])
		}
		if wc[0].Opcode == uverbs.WCSend { // else a reminder, see link.remind
			return nil
		}
	}
}

func (c *cmControl) receive(ctx context.Context) ([]byte, error) {
	if _, err := c.conn.RecvCQ().Wait(ctx, c.wc[:]); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, err
	}
	wc := &c.wc[0]
	if wc.Status != uverbs.WCSuccess {
		return nil, perfFailed(wc)
	}
	if wc.ID >= perfSlots || wc.ByteLen > perfMsgLen {
		return nil, fmt.Errorf("completion of receive %d with %d bytes was never asked for", wc.ID, wc.ByteLen)
	}
	off := int(wc.ID) * perfMsgLen
	b := append([]byte(nil), c.mr.Bytes()[off:off+int(wc.ByteLen)]...)
	return b, c.postRecv(wc.ID)
}

// perfFailed is the error of a completion. A request that was flushed says only that the
// connection is over.
func perfFailed(wc *uverbs.WC) error {
	if wc.Status == uverbs.WCFlushError {
		return errPeerGone
	}
	return wc.Err()
}

// perfPeer is the other side of a control connection. Its messages are read as they come,
// so that its end is noticed at any time.
type perfPeer struct {
	control perfControl
	in      chan []byte
	ctx     context.Context // ends with the peer, and with that of newPerfPeer
	cancel  context.CancelCauseFunc
	done    chan struct{}
}

func newPerfPeer(ctx context.Context, c perfControl) *perfPeer {
	p := &perfPeer{control: c, in: make(chan []byte, perfSlots), done: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancelCause(ctx)
	go p.read()
	return p
}

func (p *perfPeer) read() {
	defer close(p.done)
	for {
		b, err := p.control.receive(p.ctx)
		if err != nil {
			p.cancel(err)
			return
		}
		select {
		case p.in <- b:
		default:
			p.cancel(errors.New("the peer sends without waiting for its turn"))
			return
		}
	}
}

func (p *perfPeer) close() error {
	p.cancel(errPeerGone)
	<-p.done
	return p.control.close()
}

// send says one thing.
func (p *perfPeer) send(b []byte) error {
	ctx, cancel := context.WithTimeout(p.ctx, perfPatience)
	defer cancel()
	err := p.control.send(ctx, b)
	if cause := context.Cause(p.ctx); err != nil && cause != nil {
		return cause
	}
	return err
}

// next waits for the next message of the peer. What it said before it left counts.
func (p *perfPeer) next(patience time.Duration) ([]byte, error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case b := <-p.in:
		return b, nil
	case <-timer.C:
		return nil, errTimeout
	case <-p.ctx.Done():
	}
	select {
	case b := <-p.in:
		return b, nil
	default:
		return nil, context.Cause(p.ctx)
	}
}

// perfPatience is how long the peer may take for what takes no time.
const perfPatience = 10 * time.Second

// perfExpect waits for a message of a kind.
func perfExpect[T perfBody](p *perfPeer, kind perfKind, patience time.Duration) (T, error) {
	b, err := p.next(patience)
	if err != nil {
		var none T
		return none, err
	}
	return parsePerf[T](b, kind)
}
