package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"

	"github.com/pureverbs/rdma/tests/pingpong/peer"
	"github.com/pureverbs/rdma/uverbs"
)

// tcpLink is a handshake over TCP; the queue pair is connected by hand.
type tcpLink struct {
	conn  net.Conn
	dev   *uverbs.Context
	gid   uverbs.GID
	owned peer.Owned
}

func meetByTCP(ctx context.Context, o options) (_ *tcpLink, err error) {
	l := &tcpLink{}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	dev, err := peer.Open(o.device)
	if l.dev, err = peer.Own(&l.owned, dev, err); err != nil {
		return nil, err
	}
	if l.gid, err = peer.GID(l.dev, o.gidIndex); err != nil {
		return nil, err
	}
	var conn net.Conn
	if o.server == "" {
		conn, err = peer.Accept(ctx, ":"+strconv.Itoa(o.port))
	} else {
		conn, err = peer.Dial(ctx, net.JoinHostPort(o.server, strconv.Itoa(o.port)))
	}
	l.conn, err = peer.Own(&l.owned, conn, err)
	return l, err
}

func (l *tcpLink) context() *uverbs.Context { return l.dev }

func (l *tcpLink) close() error { return l.owned.Close() }

func (l *tcpLink) send(_ context.Context, b []byte) error {
	_, err := l.conn.Write(b)
	return err
}

func (l *tcpLink) receive(_ context.Context, n int) ([]byte, error) {
	b := make([]byte, n)
	_, err := io.ReadFull(l.conn, b)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("the peer hung up: %w", err)
	}
	return b, err
}

func (l *tcpLink) encode(d dest) []byte          { return d.text() }
func (l *tcpLink) decode(b []byte) (dest, error) { return parseText(b) }
func (l *tcpLink) destLen() int                  { return textLen }

// farewell reads until the peer closes. That it closes with our "done" unread, and so resets
// the connection, is how the C programs end.
func (l *tcpLink) farewell(ctx context.Context, ends bool) error {
	if ends {
		l.send(ctx, []byte("done\x00")) //nolint:errcheck // the peer may have closed already
	}
	l.conn.(interface{ CloseWrite() error }).CloseWrite() //nolint:errcheck // the same
	io.CopyN(io.Discard, l.conn, 64)                      //nolint:errcheck // the same
	return ctx.Err()
}

// pair makes a queue pair in state INIT, with queues and memory.
func (l *tcpLink) pair(_ context.Context, _ handshake, e *end) error {
	pd, err := l.dev.AllocPD()
	if pd, err = peer.Own(&e.owned, pd, err); err != nil {
		return err
	}
	mr, err := pd.AllocMR(2*e.slot(), uverbs.AccessLocalWrite|e.t.access)
	if e.mr, err = peer.Own(&e.owned, mr, err); err != nil {
		return err
	}
	ch, err := l.dev.NewCompChannel()
	if ch, err = peer.Own(&e.owned, ch, err); err != nil {
		return err
	}
	for _, q := range []struct {
		cq **uverbs.CQ
		n  int
	}{{&e.sendCQ, 1}, {&e.recvCQ, e.depth()}} {
		cq, err := l.dev.CreateCQ(q.n, ch)
		if *q.cq, err = peer.Own(&e.owned, cq, err); err != nil {
			return err
		}
	}
	qp, err := pd.CreateQP(&uverbs.QPInitAttr{Type: e.typ(), SendCQ: e.sendCQ, RecvCQ: e.recvCQ, Cap: e.caps()})
	if e.qp, err = peer.Own(&e.owned, qp, err); err != nil {
		return err
	}
	e.describe(l.gid)
	mask := uverbs.QPAttrState | uverbs.QPAttrPKeyIndex | uverbs.QPAttrPort | uverbs.QPAttrAccessFlags
	if e.typ() == uverbs.QPTypeUD {
		mask ^= uverbs.QPAttrAccessFlags ^ uverbs.QPAttrQKey
	}
	return e.qp.Modify(&uverbs.QPAttr{State: uverbs.StateInit, PortNum: 1, QKey: qkey, AccessFlags: e.t.access}, mask)
}

// qkey is that of all datagram queue pairs of the C programs.
const qkey = 0x11111111

// connect brings the queue pair to RTS.
func (l *tcpLink) connect(e *end) error {
	way := uverbs.AHAttr{DGID: e.peer.gid, SGIDIndex: uint8(e.gidIndex), IsGlobal: true, HopLimit: 255, PortNum: 1}
	rtr := uverbs.QPAttr{
		State: uverbs.StateRTR, AH: way, PathMTU: e.mtu, DestQPNum: e.peer.qpn, RQPSN: e.peer.psn,
		MaxDestRDAtomic: 1, MinRNRTimer: uverbs.DefaultMinRNRTimer,
	}
	rts := uverbs.QPAttr{State: uverbs.StateRTS, SQPSN: e.me.psn, Timeout: 14, RetryCnt: 7, RNRRetry: 7, MaxRDAtomic: 1}
	toRTR, toRTS := uverbs.QPAttrState, uverbs.QPAttrState|uverbs.QPAttrSQPSN
	if e.typ() != uverbs.QPTypeUD {
		toRTR |= uverbs.QPAttrAV | uverbs.QPAttrPathMTU | uverbs.QPAttrDestQPN | uverbs.QPAttrRQPSN
	}
	if e.typ() == uverbs.QPTypeRC {
		toRTR |= uverbs.QPAttrMaxDestRDAtomic | uverbs.QPAttrMinRNRTimer
		toRTS |= uverbs.QPAttrTimeout | uverbs.QPAttrRetryCnt | uverbs.QPAttrRNRRetry | uverbs.QPAttrMaxQPRDAtomic
	}
	if err := e.qp.Modify(&rtr, toRTR); err != nil {
		return err
	}
	if err := e.qp.Modify(&rts, toRTS); err != nil {
		return err
	}
	if e.typ() != uverbs.QPTypeUD {
		return nil
	}
	ah, err := e.qp.PD().CreateAH(&way)
	if ah, err = peer.Own(&e.owned, ah, err); err != nil {
		return err
	}
	e.to = ah.Dest(e.peer.qpn, qkey)
	return nil
}
