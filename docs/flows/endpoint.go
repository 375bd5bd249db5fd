// Package flows holds the programs of the page docs/flows.md, which says what they are. Their
// steps carry the numbers of that page.
package flows

import (
	"context"
	"errors"
	"fmt"

	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/uverbs"
)

// room is the size of a message's memory.
const room = 256

// endpoint is one end of a connection, made step by step: what Dial and Accept do by
// themselves. The first room bytes of its memory are to receive into, the others to send from.
type endpoint struct {
	id      *rdmacm.ID
	pd      *uverbs.PD
	channel *uverbs.CompChannel
	sendCQ  *uverbs.CQ
	recvCQ  *uverbs.CQ
	qp      *uverbs.QP
	mr      *uverbs.MR
}

// prepare makes all that a connection needs.
func (e *endpoint) prepare(id *rdmacm.ID) error {
	if err := e.open(id); err != nil {
		return err
	}
	return e.register()
}

// open makes the protection domain, the completion queues and the queue pair, on the device
// that the id leads to.
func (e *endpoint) open(id *rdmacm.ID) error {
	e.id = id
	device, err := id.Context()
	if err != nil {
		return err
	}
	if e.pd, err = device.AllocPD(); err != nil {
		return err
	}
	if e.channel, err = device.NewCompChannel(); err != nil {
		return err
	}
	if e.sendCQ, err = device.CreateCQ(4, e.channel); err != nil {
		return err
	}
	if e.recvCQ, err = device.CreateCQ(4, e.channel); err != nil {
		return err
	}
	e.qp, err = id.CreateQP(e.pd, &uverbs.QPInitAttr{
		Type: uverbs.QPTypeRC, SendCQ: e.sendCQ, RecvCQ: e.recvCQ, SignalAll: true,
		Cap: uverbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1},
	})
	return err
}

// register makes the memory known to the device, and posts the first receive.
func (e *endpoint) register() (err error) {
	if e.mr, err = e.pd.AllocMR(2*room, uverbs.AccessLocalWrite); err != nil {
		return err
	}
	return e.postReceive()
}

func (e *endpoint) postReceive() error {
	_, err := e.qp.PostRecv([]uverbs.RecvWR{{SGL: []uverbs.SGE{e.mr.SGE(0, room)}}})
	return err
}

// receive waits for a message, and posts the next receive before anybody can answer.
func (e *endpoint) receive(ctx context.Context) (string, error) {
	wc, err := completion(ctx, e.recvCQ)
	if err != nil {
		return "", err
	}
	text := string(e.mr.Bytes()[:wc.ByteLen])
	return text, e.postReceive()
}

func (e *endpoint) send(ctx context.Context, text string) error {
	n := copy(e.mr.Bytes()[room:], text)
	_, err := e.qp.PostSend([]uverbs.SendWR{{Opcode: uverbs.OpSend, SGL: []uverbs.SGE{e.mr.SGE(room, n)}}})
	if err != nil {
		return err
	}
	_, err = completion(ctx, e.sendCQ)
	return err
}

// close takes all down, in the opposite order. What was never made is nil, and Close does
// nothing on it.
func (e *endpoint) close() error {
	return closeAll(
		closer(e.qp), closer(e.mr), closer(e.sendCQ), closer(e.recvCQ), closer(e.channel), closer(e.pd), closer(e.id))
}

// closer is the Close of a thing that may be missing.
func closer[T any, P interface {
	*T
	Close() error
}](p P) func() error {
	return func() error {
		if p == nil {
			return nil
		}
		return p.Close()
	}
}

func closeAll(closers ...func() error) error {
	var errs []error
	for _, c := range closers {
		errs = append(errs, c())
	}
	return errors.Join(errs...)
}

// completion waits for one completion, asleep, and tells its failure as an error.
func completion(ctx context.Context, cq *uverbs.CQ) (uverbs.WC, error) {
	var wc [1]uverbs.WC
	if _, err := cq.Wait(ctx, wc[:]); err != nil {
		return wc[0], err
	}
	return wc[0], wc[0].Err()
}

// next waits for an event, which has to be a certain one.
func next(ctx context.Context, events *rdmacm.EventChannel, want rdmacm.EventType) (*rdmacm.Event, error) {
	ev, err := events.NextEvent(ctx)
	switch {
	case err != nil:
		return nil, err
	case ev.Err != nil:
		return nil, ev.Err
	case ev.Type != want:
		return nil, fmt.Errorf("event %v, want %v", ev.Type, want)
	}
	return ev, nil
}
