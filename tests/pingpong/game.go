package main

import (
	"context"
	"fmt"

	"github.com/pureverbs/rdma/tests/pingpong/peer"
	"github.com/pureverbs/rdma/uverbs"
)

// The work requests' IDs are bits, so that what is still open is a set.
const (
	recvID = 1
	sendID = 2
)

// score counts what happened on all queue pairs together, as the C programs do.
type score struct {
	posted, received, sent int
}

// play exchanges messages until as many as asked for have gone each way. The client sends
// first, on each queue pair; from then on each pair sends when its last send has completed
// and a message has come.
func (e *end) play(ctx context.Context, o options) error {
	for i := range e.pairs {
		e.pairs[i].open = recvID
		if o.server != "" {
			if err := e.pairs[i].send(); err != nil {
				return err
			}
		}
	}
	s := score{posted: o.depth}
	wcs := make([]uverbs.WC, 2*len(e.pairs))
	for s.received < o.iters || s.sent < o.iters {
		n, err := peer.Completions(ctx, e.cq, wcs, o.events)
		if err != nil {
			return err
		}
		for i := range wcs[:n] {
			if err := e.turn(&wcs[i], &s, o); err != nil {
				return err
			}
		}
	}
	return nil
}

// turn takes one completion and makes the move that it allows.
func (e *end) turn(wc *uverbs.WC, s *score, o options) error {
	if err := wc.Err(); err != nil {
		return err
	}
	p := e.pairOf(wc.QPNum)
	if p == nil {
		return fmt.Errorf("a completion of queue pair %#x, which is none of ours", wc.QPNum)
	}
	if wc.ID == sendID {
		s.sent++
	} else if err := e.received(wc, s, o); err != nil {
		return err
	}
	if p.open &^= wc.ID; p.open == 0 && s.sent < o.iters {
		return p.send()
	}
	return nil
}

func (e *end) received(wc *uverbs.WC, s *score, o options) error {
	if int(wc.ByteLen) != e.grh+o.size {
		return fmt.Errorf("the peer sent %d bytes, want %d: both sides need the same -s", int(wc.ByteLen)-e.grh, o.size)
	}
	s.received++
	if s.posted--; s.posted > len(e.pairs) {
		return nil
	}
	n := o.depth - s.posted
	s.posted = o.depth
	return e.refill(n)
}

func (e *end) pairOf(num uint32) *pair {
	for i := range e.pairs {
		if e.pairs[i].qp.Num() == num {
			return &e.pairs[i]
		}
	}
	return nil
}

// refill posts n receives, which the shared queue or the only queue pair takes.
func (e *end) refill(n int) (err error) {
	if e.shared {
		_, err = e.srq.PostRecv(e.recvs[:n])
	} else {
		_, err = e.pairs[0].qp.PostRecv(e.recvs[:n])
	}
	return err
}

func (p *pair) send() error {
	p.open = sendID | recvID
	_, err := p.qp.PostSend(p.sends)
	return err
}
