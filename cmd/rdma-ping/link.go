package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/uverbs"
)

// slots is a region cut into pieces of equal size, each for one message at a time.
type slots struct {
	mr     *uverbs.MR
	stride int
}

// slotAlign keeps slots of different messages out of each other's cache lines.
const slotAlign = 64

func allocSlots(pd *uverbs.PD, n, size int) (slots, error) {
	stride := (size + slotAlign - 1) / slotAlign * slotAlign
	// Local write only: no peer can name this memory.
	mr, err := pd.AllocMR(n*stride, uverbs.AccessLocalWrite)
	return slots{mr: mr, stride: stride}, err
}

func (s *slots) bytes(i, n int) []byte {
	off := i * s.stride
	return s.mr.Bytes()[off : off+n : off+n]
}

func (s *slots) sge(i, n int) uverbs.SGE { return s.mr.SGE(i*s.stride, n) }

// link is a connection with the memory and the queues that both protocols use, on either
// side. One goroutine works on it.
type link struct {
	conn       *rdmacm.Conn
	pd         *uverbs.PD
	ownPD      bool // pd is ours to close, not the connection's
	slots      slots
	frame      int // bytes of a receive
	regions    []*uverbs.MR
	recv, send waiter
	sendWR     [2]uverbs.SendWR
	sendSGE    [1]uverbs.SGE
	infos      [2][rpingInfoLen]byte
	inline     [2][1][]byte
	recvWR     [1]uverbs.RecvWR
	recvSGE    [1]uverbs.SGE

	// ended is an error that came together with something that had to be dealt with
	// first. It is reported by the next wait: a flush is not repeated.
	ended error
}

// queueSizes are for the deepest use: the client's window, or in rping's protocol a read,
// a write and two messages.
func queueSizes() uverbs.QPCap {
	return uverbs.QPCap{
		MaxSendWR: maxWindow + 2, MaxRecvWR: maxWindow + 1, MaxSendSGE: 1, MaxRecvSGE: 1,
		MaxInline: rpingInfoLen,
	}
}

// allocate registers n slots of frame bytes for the link, in pd.
func (l *link) allocate(pd *uverbs.PD, n, frame int) (err error) {
	l.pd, l.frame = pd, frame
	l.slots, err = allocSlots(pd, n, frame)
	if err == nil {
		l.regions = append(l.regions, l.slots.mr)
	}
	return err
}

// attach takes over a new connection and makes n slots from first on ready to receive.
func (l *link) attach(conn *rdmacm.Conn, first, n int, spin bool) error {
	l.conn = conn
	l.recv = waiter{cq: conn.RecvCQ(), spin: spin}
	l.send = waiter{cq: conn.SendCQ(), spin: spin}
	l.recvWR[0].SGL = l.recvSGE[:]
	for i := range n {
		if err := l.postRecv(first + i); err != nil {
			return err
		}
	}
	return nil
}

// register adds a region that is closed with the link.
func (l *link) register(size int, access uverbs.AccessFlags) (*uverbs.MR, error) {
	mr, err := l.pd.AllocMR(size, access)
	if err == nil {
		l.regions = append(l.regions, mr)
	}
	return mr, err
}

// release closes a region before its time; nil is none.
func (l *link) release(mr *uverbs.MR) error {
	if mr == nil {
		return nil
	}
	l.regions = slices.DeleteFunc(l.regions, func(r *uverbs.MR) bool { return r == mr })
	return mr.Close()
}

// close says goodbye and gives everything back: the regions before their protection domain,
// the queue pair before it too. It serves as well where the handshake failed half-way.
func (l *link) close() error {
	var qpErr error
	if l.conn != nil {
		l.conn.Disconnect() // if the peer was first there is nothing to say
		qpErr = l.conn.QP().Close()
	}
	err := errors.Join(qpErr, l.free())
	if l.conn != nil {
		err = errors.Join(err, l.conn.Close())
	}
	return err
}

// free closes the regions, and the protection domain if it is not the connection's.
func (l *link) free() (err error) {
	for _, mr := range l.regions {
		err = errors.Join(err, mr.Close())
	}
	l.regions = nil
	if l.ownPD && err == nil {
		err = l.pd.Close()
	}
	return err
}

// postRecv makes slot i ready for a message.
func (l *link) postRecv(i int) error {
	l.recvSGE[0] = l.slots.sge(i, l.frame)
	l.recvWR[0].ID = uint64(i)
	_, err := l.conn.QP().PostRecv(l.recvWR[:])
	return err
}

// postSend sends the first n bytes of slot i, which is busy until the completion.
func (l *link) postSend(i, n int) error {
	l.sendSGE[0] = l.slots.sge(i, n)
	l.sendWR[0] = uverbs.SendWR{ID: uint64(i), Opcode: uverbs.OpSend, Flags: uverbs.SendSignaled, SGL: l.sendSGE[:]}
	_, err := l.conn.QP().PostSend(l.sendWR[:1])
	return err
}

// failed explains a completion with an error. A receive that was flushed says only that
// the connection is over; why, a completion of the send queue may say.
func (l *link) failed(wc *uverbs.WC) error {
	if wc.Status != uverbs.WCFlushError {
		return wc.Err()
	}
	left, _ := l.send.poll()
	for i := range left {
		if s := left[i].Status; s != uverbs.WCSuccess && s != uverbs.WCFlushError {
			return left[i].Err()
		}
	}
	return errPeerGone
}

// follow returns a context that also ends, with errPeerGone, when the connection does.
func follow(parent context.Context, conn *rdmacm.Conn) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	go func() {
		select {
		case <-conn.Done():
			cancel(goneError(conn.Err()))
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// goneError is errPeerGone if the connection ended in order, otherwise what broke it.
func goneError(err error) error {
	if err == nil || errors.Is(err, rdmacm.ErrDisconnected) {
		return errPeerGone
	}
	return fmt.Errorf("connection lost: %w", err)
}
