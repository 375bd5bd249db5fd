package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pureverbs/rdma/uverbs"
)

// perfStream measures bandwidth on one queue pair: it keeps as many messages under way as
// planned, or takes those of the peer, or both at once.
type perfStream struct {
	*perfLane
	r      *perfRound
	m      *perfMeasure
	sender bool
	sent   func() // called once all is sent

	under    int    // messages that are not complete
	complete uint64 // messages that are
	credit   int    // messages that the peer has receives for, where it takes any
	credited uint64 // messages that the peer has acknowledged
	taken    int    // messages that came since the last credit was given
	owed     int    // credits that found no place in the queue yet
	giving   int    // credits whose sends are not complete
	finished bool   // this side has sent all
}

// perfStall is how long a sender of an unreliable transport waits for credits that may be
// lost, before it goes on without.
const perfStall = 200 * time.Millisecond

func (s *perfStream) run(ctx context.Context) error {
	s.credit = s.plan.window()
	if !s.sender {
		s.finish()
	}
	g := newGuard(ctx)
	defer g.close()
	for {
		if ctx.Err() != nil { // a wait need not notice: what it waits for may be there
			return context.Cause(ctx)
		}
		if err := s.push(); err != nil {
			return err
		}
		if s.sender && !s.finished && s.allDone() {
			s.finish()
		}
		if s.finished && s.passive() {
			return nil
		}
		if err := s.step(ctx, g); err != nil {
			return err
		}
	}
}

// passive tells whether there is nothing to do but to send.
func (s *perfStream) passive() bool { return s.plan.op != perfSend }

func (s *perfStream) finish() {
	s.finished = true
	if s.m.last.IsZero() {
		s.m.last = time.Now()
	}
	s.sent()
}

// step waits for completions and takes them.
func (s *perfStream) step(ctx context.Context, g *guard) error {
	if s.finished { // the peer alone knows when
		wcs, at, err := s.wait.wait(ctx)
		return s.take(wcs, at, err)
	}
	limit := s.timeout
	if !s.plan.reliable() {
		limit = perfStall
	}
	wcs, at, err := s.wait.wait(g.start(limit))
	g.stop()
	if !errors.Is(err, errTimeout) {
		return s.take(wcs, at, err)
	}
	if s.plan.reliable() {
		return fmt.Errorf("%d messages of %s under way: nothing happens for %v", s.under, formatSize(s.r.size), limit)
	}
	// Credits are lost, or messages, and with them what would have been answered.
	s.credit, s.credited = s.plan.window(), s.m.sent
	return nil
}

// wants is how many messages are still to be sent.
func (s *perfStream) wants() int {
	if !s.sender || s.finished {
		return 0
	}
	warm := uint64(s.r.warmup)
	switch {
	case s.m.sent < warm:
		return int(min(warm-s.m.sent, uint64(s.plan.batch)))
	case s.complete < warm:
		return 0 // what counts begins when nothing else is under way
	case s.m.sent == warm:
		s.m.first = time.Now()
	case s.r.count == 0 && time.Since(s.m.first) >= s.r.duration:
		return 0
	}
	if s.r.count == 0 {
		return s.plan.batch
	}
	return int(min(warm+s.r.count-s.m.sent, uint64(s.plan.batch)))
}

// push posts batches while there is room for whole ones, and credits that are due.
func (s *perfStream) push() error {
	for n := s.wants(); n > 0; n = s.wants() {
		if s.under+n > s.plan.depth || s.plan.op == perfSend && s.credit < n {
			break
		}
		if err := s.post(n, s.r.size); err != nil {
			return err
		}
		s.under += n
		s.credit -= n
		s.m.sent += uint64(n)
	}
	for ; s.owed > 0 && s.giving < s.plan.credits(); s.owed-- {
		if err := s.postCredit(); err != nil {
			return err
		}
		s.giving++
	}
	return nil
}

// allDone tells whether all is sent, and, where the peer takes messages, that it has done so
// but for those that are too few for a credit.
func (s *perfStream) allDone() bool {
	if s.under > 0 || s.wants() > 0 {
		return false
	}
	q := uint64(s.plan.quantum())
	return s.plan.op != perfSend || s.credited >= s.m.sent/q*q
}

// take looks at completions.
func (s *perfStream) take(wcs []uverbs.WC, at time.Time, err error) error {
	if err != nil {
		return err
	}
	for i := range wcs {
		wc := &wcs[i]
		switch {
		case wc.Status != uverbs.WCSuccess:
			return s.failed(wc)
		case wc.ID == perfIDRecv:
			err = s.receive(wc, at)
		case wc.ID == perfIDCredit:
			s.giving--
		default:
			err = s.completed(int(wc.ID), at)
		}
		if err != nil {
			return err
		}
	}
	return s.fillSome()
}

// fillSome posts receives in place of used ones.
func (s *perfStream) fillSome() error {
	if s.plan.op != perfSend {
		return nil
	}
	return s.fill()
}

// completed notes n messages that are done. No batch has messages to warm up and others.
func (s *perfStream) completed(n int, at time.Time) error {
	if n > s.under {
		return fmt.Errorf("completion of %d messages, %d are under way", n, s.under)
	}
	s.under -= n
	s.complete += uint64(n)
	if s.complete > uint64(s.r.warmup) {
		s.m.measured += uint64(n)
		s.done.Add(uint64(n))
		s.m.last = at
	}
	return nil
}

// receive takes a message: an empty one is a credit.
func (s *perfStream) receive(wc *uverbs.WC, at time.Time) error {
	s.posted--
	n := int(wc.ByteLen) - s.plan.grh()
	switch {
	case s.plan.op != perfSend:
		return errors.New("the peer sent a message that was not agreed")
	case n == 0:
		s.credit = min(s.credit+s.plan.quantum(), s.plan.window())
		s.credited += uint64(s.plan.quantum())
		if s.sender && !s.finished {
			s.m.last = at
		}
		return nil
	case n != s.r.size && s.plan.reliable():
		return fmt.Errorf("message of %d bytes, agreed were %d", n, s.r.size)
	}
	s.came.Add(1)
	if s.taken++; s.taken == s.plan.quantum() {
		s.taken = 0
		s.owed++
	}
	return nil
}
