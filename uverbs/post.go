package uverbs

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/pureverbs/rdma/internal/provider"
)

// maxMessage is the longest message of any transport (IBTA volume 1, 9.7.7.1.1).
const maxMessage = 1 << 31

// PostSend hands send work requests to the device, in order, with one doorbell for all of
// them, and returns how many. It does not wait and does not allocate. Requests after the
// first one that is refused are not looked at, and none is half posted.
//
// Of unsignaled requests nothing is heard, so every so often one must be signaled, to know
// that they are done. A slot of the queue comes back when the device is done with it, on
// rxe and siw before its completion is polled, on mlx5 with the poll: it is for the program
// to have no more requests open than the completion queue has room for. What is posted in StateError
// completes with WCFlushError.
//
// Errors: ErrQueueFull when the queue has no room for more; ErrInvalid; ErrNotSupported for
// an operation that [QP.Supports] denies; net.ErrClosed; EINVAL while the queue pair is not
// in state RTS or beyond. Source: ibv_post_send(3).
func (q *QP) PostSend(wrs []SendWR) (int, error) {
	if q.sqMu.kind == byMutex {
		return q.postSends(wrs)
	}
	q.sqMu.lockWord()
	if ring := q.rings.mlx5; ring != nil && q.State() >= StateRTS && ring.PostPlain(mirrorSends(wrs)) {
		q.sqMu.unlockWord()
		return len(wrs), nil
	}
	return q.postSends(wrs)
}

// postSends is PostSend for all devices and requests. The queue is locked already, unless by a
// mutex.
func (q *QP) postSends(wrs []SendWR) (n int, err error) {
	q.sqMu.lockMutex()
	if q.State() >= StateRTS {
		switch r := &q.rings; {
		case r.rxe != nil:
			n = r.rxe.SendPlain(mirrorSends(wrs), q.plain)
		case r.siw != nil:
			n = r.siw.SendPlain(mirrorSends(wrs), q.plain)
		}
	}
	if n == 0 || n < len(wrs) {
		n, err = q.putSends(wrs, n)
	}
	var rung error
	if n > 0 {
		rung = q.ring()
	}
	if q.sqMu.kind == byMutex { // unlockMutex, were it inlined
		q.sqMu.mu.Unlock()
	}
	q.sqMu.unlockWord()
	if rung != nil || err != nil {
		return q.posted(n, err, rung)
	}
	return n, nil
}

// posted is the answer to a post of which n requests reached the queue.
func (q *QP) posted(n int, err, rung error) (int, error) {
	if rung != nil && q.iWARP() {
		q.bury() // the connection has ended: what was posted completes so
		rung = nil
	}
	if rung != nil {
		err = q.explainRing(rung)
	}
	if err != nil {
		return n, q.postError("post send", n, err)
	}
	return n, nil
}

// putSends encodes requests from the n-th on, up to the first that is refused.
func (q *QP) putSends(wrs []SendWR, n int) (int, error) {
	if err := q.canSend(); err != nil {
		return n, err
	}
	for ; n < len(wrs); n++ {
		total, err := q.checkSend(&wrs[n], 0)
		if err == nil {
			err = q.rings.send((*provider.SendWR)(&wrs[n]), total)
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// canSend tells whether the queue takes send requests at all.
func (q *QP) canSend() error {
	switch {
	case !q.rings.open():
		return errClosed
	case q.State() < StateRTS: // the kernel would refuse the doorbell, not the request
		return errNotRTS
	}
	return nil
}

// checkSend looks at all of a request before the first byte of it is written, and returns
// the message's length. inPlace is how many bytes of inline data are in the queue already.
func (q *QP) checkSend(wr *SendWR, inPlace uint32) (uint32, error) {
	if !q.Supports(wr.Opcode) {
		return 0, q.notSupported(wr.Opcode)
	}
	if wr.Flags&^(SendFence|SendSignaled|SendSolicited|SendInline) != 0 {
		return 0, errFlags
	}
	total, err := q.checkData(wr, inPlace)
	if err == nil && (wr.Opcode > OpRDMARead || q.typ == QPTypeUD) {
		err = q.checkSpecial(wr, total)
	}
	if wr.Opcode == OpRDMARead && q.ctx.prov.readSGE > 0 && len(wr.SGL) > int(q.ctx.prov.readSGE) {
		err = errReadPieces
	}
	return total, err
}

// checkData adds the pieces up.
func (q *QP) checkData(wr *SendWR, inPlace uint32) (uint32, error) {
	if wr.Flags&SendInline == 0 {
		if wr.Inline != nil {
			return 0, errInlineFlag
		}
		return sumSGL(wr.SGL, q.cap.MaxSendSGE)
	}
	if !wr.Opcode.In(q.ctx.prov.inlineOps) {
		return 0, errInlineNoData
	}
	if len(wr.SGL) > 0 {
		return 0, errInlineSGL
	}
	total := uint64(inPlace)
	for _, piece := range wr.Inline {
		total += uint64(len(piece))
	}
	if total > uint64(q.cap.MaxInline) {
		return 0, errInlineLength
	}
	return uint32(total), nil
}

// checkSpecial looks at what only some operations have.
func (q *QP) checkSpecial(wr *SendWR, total uint32) error {
	switch wr.Opcode {
	case OpCompareSwap, OpFetchAdd:
		if total != 8 || len(wr.SGL) != 1 {
			return errAtomicSize
		}
	case OpAtomicWrite:
		if total != 8 || wr.Flags&SendInline == 0 {
			return errAtomicWrite
		}
	case OpBindMW:
		if wr.Bind == nil {
			return errNoBind
		}
		fallthrough
	case OpLocalInvalidate, OpFlush:
		if total > 0 {
			return errNoDataHere
		}
	}
	if q.typ != QPTypeUD {
		return nil
	}
	switch {
	case wr.Dest.AV == nil:
		return errNoDest
	case wr.Dest.AV.PD != any(q.pd):
		return errOtherDomain
	case total > wr.Dest.AV.MTU:
		return errDatagram
	}
	return nil
}

func sumSGL(sgl []SGE, limit uint32) (uint32, error) {
	if uint64(len(sgl)) > uint64(limit) {
		return 0, errPieces
	}
	total := uint64(0)
	for i := range sgl {
		if sgl[i].Length == outside {
			return 0, errOutside
		}
		total += uint64(sgl[i].Length)
	}
	if total > maxMessage {
		return 0, errLength
	}
	return uint32(total), nil
}

// PostRecv hands receive work requests to the device, in order, and returns how many. It
// does not wait and does not allocate. Receives may be posted from state INIT on, and
// should be before the peer can send. What is posted in StateError completes with
// WCFlushError.
//
// A receive for datagrams needs GRHSize bytes before the message.
//
// Errors: as PostSend; ErrInvalid for a queue pair that receives from a shared queue.
// Source: ibv_post_recv(3).
func (q *QP) PostRecv(wrs []RecvWR) (n int, err error) {
	q.rqMu.lockMutex()
	q.rqMu.lockWord()
	if s := q.State(); s != StateReset && s != StateError && q.cap.MaxRecvSGE > 0 {
		switch r := &q.rings; {
		case r.rxe != nil:
			n = r.rxe.RecvPlain(mirrorRecvs(wrs))
		case r.siw != nil:
			n = r.siw.RecvPlain(mirrorRecvs(wrs))
		}
	}
	if n == 0 || n < len(wrs) {
		n, err = q.putRecvs(wrs, n)
		if n > 0 {
			q.rings.publishRecv()
		}
	}
	if q.rqMu.kind == byMutex { // unlockMutex, were it inlined
		q.rqMu.mu.Unlock()
	}
	q.rqMu.unlockWord()
	if err != nil {
		return n, q.postError("post receive", n, err)
	}
	return n, nil
}

// putRecvs encodes requests from the n-th on, up to the first that is refused.
func (q *QP) putRecvs(wrs []RecvWR, n int) (int, error) {
	switch {
	case !q.rings.open():
		return n, errClosed
	case !q.rings.hasRecv():
		return n, errNoRecvQueue
	case q.State() == StateReset:
		return n, errReset
	}
	for ; n < len(wrs); n++ {
		total, err := sumSGL(wrs[n].SGL, q.cap.MaxRecvSGE)
		if err == nil {
			err = q.putRecv((*provider.RecvWR)(&wrs[n]), total)
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

func (q *QP) putRecv(wr *provider.RecvWR, total uint32) error {
	if q.State() == StateError && !q.ctx.k.flushes() { // the kernel does not look at it any more
		q.recv.give(q.flushed(wr.ID, provider.WCRecv))
		return nil
	}
	return q.rings.recv(wr, total)
}

// The mistakes of a work request. They are values so that the hot path does not allocate;
// postError adds the numbers.
var (
	errClosed       = net.ErrClosed
	errOpcode       = fmt.Errorf("%w: unknown operation", ErrInvalid)
	errFlags        = fmt.Errorf("%w: unknown flags", ErrInvalid)
	errInlineFlag   = fmt.Errorf("%w: Inline without the flag SendInline", ErrInvalid)
	errInlineNoData = fmt.Errorf("%w: the operation takes no inline data on this device", ErrInvalid)
	errInlineSGL    = fmt.Errorf("%w: inline data belongs into Inline, not into SGL", ErrInvalid)
	errInlineLength = fmt.Errorf("%w: more inline data than Cap().MaxInline", ErrInvalid)
	errPieces       = fmt.Errorf("%w: more pieces than the queue pair was made for", ErrInvalid)
	errReadPieces   = fmt.Errorf("%w: more pieces than an RDMA READ of this device can fill", ErrInvalid)
	errOutside      = fmt.Errorf("%w: a piece is not within its memory region", ErrInvalid)
	errLength       = fmt.Errorf("%w: more than 2 GiB in one message", ErrInvalid)
	errAtomicSize   = fmt.Errorf("%w: an atomic operation works on one piece of 8 bytes", ErrInvalid)
	errAtomicWrite  = fmt.Errorf("%w: an ATOMIC WRITE carries its 8 bytes inline", ErrInvalid)
	errNoBind       = fmt.Errorf("%w: OpBindMW without Bind", ErrInvalid)
	errNoDataHere   = fmt.Errorf("%w: the operation takes no data", ErrInvalid)
	errNoDest       = fmt.Errorf("%w: a datagram needs Dest, see AH.Dest", ErrInvalid)
	errOtherDomain  = fmt.Errorf("%w: the address handle belongs to another protection domain", ErrInvalid)
	errDatagram     = fmt.Errorf("%w: a datagram is at most one packet long (the port's MTU)", ErrInvalid)
	errNoRecvQueue  = fmt.Errorf("%w: the queue pair has no receive queue of its own", ErrInvalid)
	errReset        = fmt.Errorf("%w: the queue pair is in state RESET: modify it to INIT first", ErrInvalid)
	errNotRTS       = fmt.Errorf("%w: the queue pair cannot send before state RTS", syscall.EINVAL)
)

// postError names the queue pair and the request. A full queue is everyday back-pressure
// and stays the bare sentinel, so that it costs nothing.
func (q *QP) postError(op string, n int, err error) error {
	if errors.Is(err, ErrQueueFull) {
		return err
	}
	return &Error{Op: op, Object: fmt.Sprintf("%s queue pair %d, request %d", q.device, q.num, n), Err: err}
}
