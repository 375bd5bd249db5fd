package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pureverbs/rdma/uverbs"
)

// perfSide is one side of a run: what client and server have in common.
type perfSide struct {
	plan    perfPlan
	serving bool
	waiting
	timeout time.Duration
	peer    *perfPeer
	way     *perfWay // nil where rdma_cm connects the queue pairs
	lanes   []*perfLane
}

// byHand tells whether the queue pairs are connected by hand: over TCP, and where rdma_cm
// has no connections of the type. They then take the way of the control connection.
func (p *perfPlan) byHand() bool { return !p.cm || p.transport != perfRC }

// build makes the lanes, but for queue pairs that rdma_cm connects.
func (s *perfSide) build(c *uverbs.Context) error {
	for i := range s.plan.qps {
		l := &perfLane{plan: &s.plan, index: i, serving: s.serving, timeout: s.timeout}
		s.lanes = append(s.lanes, l)
		if err := l.make(c, &s.waiting); err != nil {
			return err
		}
		if s.way != nil {
			if err := l.init(s.way); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *perfSide) close() error {
	var err error
	for _, l := range s.lanes {
		err = errors.Join(err, l.close())
	}
	return err
}

// introduce exchanges what the two ends of each queue pair have to know, and connects those
// that are connected by hand. The server is first to be ready.
func (s *perfSide) introduce() error {
	for _, l := range s.lanes {
		l.describeOnce(s.way)
		if !s.serving {
			if err := s.peer.send(perfMessage(perfKindLane, l.me)); err != nil {
				return err
			}
		}
		peer, err := perfExpect[perfLaneBody](s.peer, perfKindLane, perfPatience)
		if err == nil {
			err = l.meet(peer)
		}
		if err == nil && s.way != nil {
			err = l.connect(s.way)
		}
		if err == nil && s.serving {
			err = s.peer.send(perfMessage(perfKindLane, l.me))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// perfCrew are the lanes at work in a round.
type perfCrew struct {
	lanes    []*perfLane
	round    *perfRound
	measures []*perfMeasure
	errs     []error
	cancel   context.CancelCauseFunc
	working  sync.WaitGroup
	sending  sync.WaitGroup
	ended    chan struct{} // closed when all have returned
	sent     chan struct{} // closed when nobody has more to send
}

// start lets all lanes work. An error of one ends the session.
func (s *perfSide) start(r *perfRound) *perfCrew {
	c := &perfCrew{
		lanes: s.lanes, round: r, measures: make([]*perfMeasure, len(s.lanes)), errs: make([]error, len(s.lanes)),
		ended: make(chan struct{}), sent: make(chan struct{}),
	}
	ctx, cancel := context.WithCancelCause(s.peer.ctx)
	c.cancel = cancel
	for i, l := range s.lanes {
		c.sending.Add(1)
		c.working.Go(func() {
			var once sync.Once
			sent := func() { once.Do(c.sending.Done) }
			defer sent()
			ctx, stop := l.follow(ctx)
			defer stop()
			if c.measures[i], c.errs[i] = l.work(ctx, r, sent); c.errs[i] != nil {
				s.peer.cancel(c.errs[i])
			}
		})
	}
	go func() { c.sending.Wait(); close(c.sent) }()
	go func() { c.working.Wait(); close(c.ended) }()
	return c
}

// follow returns a context that also ends with the connection of the queue pair.
func (l *perfLane) follow(ctx context.Context) (context.Context, context.CancelFunc) {
	if l.conn == nil {
		return ctx, func() {}
	}
	return follow(ctx, l.conn)
}

// stop ends the round and returns what went wrong first, before it was over.
func (c *perfCrew) stop() error {
	c.cancel(errRoundOver)
	<-c.ended
	<-c.sent
	var first error
	for _, err := range c.errs {
		if err != nil && (first == nil || errors.Is(first, errPeerGone)) {
			first = err
		}
	}
	return first
}

// came is how many messages have come in this round.
func (c *perfCrew) came() (n uint64) {
	for _, l := range c.lanes {
		n += l.came.Load()
	}
	return n
}

// settled is the sum of what the lanes measured. peerSent is what the peer says that it
// sent.
func (c *perfCrew) settled(peerSent uint64) perfTotal {
	t := perfTotal{came: c.came(), times: newPerfTimes()}
	for i, m := range c.measures {
		if m == nil {
			continue
		}
		l := c.lanes[i]
		l.settle(c.round, m, max(l.came.Load(), peerSent))
		t.add(m)
		t.corrupt = t.corrupt || l.corrupt
	}
	return t
}

// perfTotal is the sum of a round on one side.
type perfTotal struct {
	sent, measured, lost, came uint64
	first, last                time.Time
	times                      *perfTimes
	corrupt                    bool
}

func (t *perfTotal) add(m *perfMeasure) {
	if m.measured > 0 {
		if t.measured == 0 || m.first.Before(t.first) {
			t.first = m.first
		}
		if m.last.After(t.last) {
			t.last = m.last
		}
	}
	t.sent += m.sent
	t.measured += m.measured
	t.lost += m.lost
	t.times.merge(m.times)
}

func (t *perfTotal) took() time.Duration { return t.last.Sub(t.first) }

// describeOnce fills in what the peer has to know, unless that is done.
func (l *perfLane) describeOnce(way *perfWay) {
	if l.me.QPN == 0 {
		l.describe(way)
	}
}

// prepare makes all lanes ready for a round.
func (s *perfSide) prepare(r *perfRound) error {
	for _, l := range s.lanes {
		if err := l.prepare(r); err != nil {
			return fmt.Errorf("prepare a round of %s: %w", formatSize(r.size), err)
		}
	}
	return nil
}
