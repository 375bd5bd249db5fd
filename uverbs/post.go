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
// A request's slot stays taken until a completion of it or of a later one was polled, so
// among unsignaled requests every so often one must be signaled.
//
// Errors: ErrQueueFull when the queue has no room for more; ErrInvalid; net.ErrClosed;
// EINVAL while the queue pair is not in state RTS or beyond. Source: ibv_post_send(3).
func (q *QP) PostSend(wrs []SendWR) (int, error) {
	q.sqMu.Lock()
	defer q.sqMu.Unlock()
	n, err := q.putSends(wrs)
	if n > 0 {
		q.rxe.PublishSend()
		if rung := q.bell.Ring(); rung != nil {
			return n, q.postError("post send", n, q.explainRing(rung))
		}
	}
	if err != nil {
		return n, q.postError("post send", n, err)
	}
	return n, nil
}

func (q *QP) putSends(wrs []SendWR) (int, error) {
	if q.rxe == nil {
		return 0, net.ErrClosed
	}
	if q.State() < StateRTS { // the kernel would refuse the doorbell, not the request
		return 0, errNotRTS
	}
	for i := range wrs {
		total, err := q.checkSend(&wrs[i])
		if err == nil {
			err = q.rxe.Send((*provider.SendWR)(&wrs[i]), total)
		}
		if err != nil {
			return i, err
		}
	}
	return len(wrs), nil
}

// checkSend looks at all of a request before the first byte of it is written, and returns
// the message's length.
func (q *QP) checkSend(wr *SendWR) (uint32, error) {
	if wr.Opcode > OpRDMARead {
		return 0, errOpcode
	}
	if wr.Flags&^(SendFence|SendSignaled|SendSolicited|SendInline) != 0 {
		return 0, errFlags
	}
	if wr.Flags&SendInline == 0 {
		if wr.Inline != nil {
			return 0, errInlineFlag
		}
		return sumSGL(wr.SGL, q.cap.MaxSendSGE)
	}
	if wr.Opcode == OpRDMARead {
		return 0, errInlineRead
	}
	if len(wr.SGL) > 0 {
		return 0, errInlineSGL
	}
	total := uint64(0)
	for _, piece := range wr.Inline {
		total += uint64(len(piece))
	}
	if total > uint64(q.cap.MaxInline) {
		return 0, errInlineLength
	}
	return uint32(total), nil
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
// should be before the peer can send.
//
// Errors: as PostSend. After the pair went to StateError the completion of a receive is
// not sure to come. Source: ibv_post_recv(3).
func (q *QP) PostRecv(wrs []RecvWR) (int, error) {
	q.rqMu.Lock()
	defer q.rqMu.Unlock()
	n, err := q.putRecvs(wrs)
	if n > 0 {
		q.rxe.PublishRecv()
	}
	if err != nil {
		return n, q.postError("post receive", n, err)
	}
	return n, nil
}

func (q *QP) putRecvs(wrs []RecvWR) (int, error) {
	switch {
	case q.rxe == nil:
		return 0, net.ErrClosed
	case !q.rxe.HasRecv():
		return 0, errNoRecvQueue
	case q.State() == StateReset:
		return 0, errReset
	}
	for i := range wrs {
		total, err := sumSGL(wrs[i].SGL, q.cap.MaxRecvSGE)
		if err == nil {
			err = q.rxe.Recv((*provider.RecvWR)(&wrs[i]), total)
		}
		if err != nil {
			return i, err
		}
	}
	return len(wrs), nil
}

// The mistakes of a work request. They are values so that the hot path does not allocate;
// postError adds the numbers.
var (
	errOpcode       = fmt.Errorf("%w: unknown operation", ErrInvalid)
	errFlags        = fmt.Errorf("%w: unknown flags", ErrInvalid)
	errInlineFlag   = fmt.Errorf("%w: Inline without the flag SendInline", ErrInvalid)
	errInlineRead   = fmt.Errorf("%w: an RDMA READ cannot be inline", ErrInvalid)
	errInlineSGL    = fmt.Errorf("%w: inline data belongs into Inline, not into SGL", ErrInvalid)
	errInlineLength = fmt.Errorf("%w: more inline data than Cap().MaxInline", ErrInvalid)
	errPieces       = fmt.Errorf("%w: more pieces than the queue pair was made for", ErrInvalid)
	errOutside      = fmt.Errorf("%w: a piece is not within its memory region", ErrInvalid)
	errLength       = fmt.Errorf("%w: more than 2 GiB in one message", ErrInvalid)
	errNoRecvQueue  = fmt.Errorf("%w: the queue pair has no receive queue", ErrInvalid)
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

func (q *QP) explainRing(err error) error {
	if errors.Is(err, syscall.EINVAL) {
		return fmt.Errorf("the kernel refuses the doorbell: the queue pair is not in state RTS: %w", err)
	}
	return err
}
