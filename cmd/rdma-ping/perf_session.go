package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/uverbs"
)

// perfSession is one client of perf serve, from its plan on.
type perfSession struct {
	perfSide
	opts     *perfServeOptions
	dev      *uverbs.Context // of the control connection
	gidIndex int
	token    uint64
	requests chan *rdmacm.Request // of queue pairs
	rounds   int
	came     uint64
}

// errPerfTime ends a session that takes too long.
var errPerfTime = errors.New("its time is over")

// run serves the client until it leaves. Nothing that it says is taken on trust.
func (s *perfSession) run(ctx context.Context, control perfControl) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.opts.maxTime, errPerfTime)
	defer cancel()
	s.peer = newPerfPeer(ctx, control)
	defer func() { err = errors.Join(err, s.close(), s.peer.close()) }()
	if err := s.agree(); err != nil {
		return s.refuse(err)
	}
	if !s.plan.byHand() {
		if err := s.acceptLanes(ctx); err != nil {
			return err
		}
	}
	if err := s.introduce(); err != nil {
		return err
	}
	for {
		b, err := perfExpect[perfBeginBody](s.peer, perfKindBegin, s.opts.idle)
		if err == nil {
			err = s.round(b)
		}
		switch {
		case errors.Is(err, errPeerGone) && s.rounds > 0:
			return nil
		case err != nil:
			return s.refuse(err)
		}
	}
}

// agree takes the plan and makes what it needs.
func (s *perfSession) agree() error {
	b, err := perfExpect[perfPlanBody](s.peer, perfKindPlan, min(perfPatience, s.opts.idle))
	if err != nil {
		return err
	}
	if s.plan, err = b.plan(); err != nil {
		return &perfRefusal{reason: perfProtocol, why: err.Error()}
	}
	if err := s.opts.allow(&s.plan); err != nil {
		return err
	}
	if _, cm := s.peer.control.(*cmControl); cm != s.plan.cm {
		return &perfRefusal{reason: perfProtocol, why: "the plan is for another kind of connection"}
	}
	if err := s.plan.supported(s.dev.Device()); err != nil {
		return &perfRefusal{reason: perfDevice, why: err.Error()}
	}
	if s.plan.byHand() {
		if s.way, err = findPerfWay(s.dev, s.peer.control.local(), s.gidIndex); err != nil {
			return &perfRefusal{reason: perfDevice, why: oneLine(err.Error())}
		}
	}
	if err := s.build(s.dev); err != nil {
		reason := perfMemory
		if errors.Is(err, uverbs.ErrNotSupported) {
			reason = perfDevice
		}
		return &perfRefusal{reason: reason, why: oneLine(err.Error())}
	}
	return s.peer.send(perfMessage(perfKindGrant, perfGrantBody{Token: s.token}))
}

// refuse tells the client why, as far as it is to know, and returns why.
func (s *perfSession) refuse(err error) error {
	refusal := &perfRefusal{reason: perfProtocol}
	old := (*perfVersionError)(nil)
	switch {
	case errors.As(err, &refusal):
	case errors.As(err, &old):
		refusal.reason = perfOld
	case errors.Is(err, errPerfTime):
		refusal.reason, refusal.limit = perfTooLong, uint32(s.opts.maxTime.Seconds())
	case errors.Is(err, errNotPerf), errors.Is(err, errPerfest), s.peer.ctx.Err() != nil:
		return err // it would not understand, or is not there
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	// That it does not arrive is none of our concern.
	_ = s.peer.control.send(ctx, perfMessage(perfKindRefuse, perfRefuseBody{Reason: refusal.reason, Limit: refusal.limit}))
	return err
}

// acceptLanes takes the connections of the queue pairs, which come with the session's token.
func (s *perfSession) acceptLanes(ctx context.Context) error {
	for _, l := range s.lanes {
		wait, cancel := context.WithTimeout(ctx, acceptTimeout)
		err := s.acceptLane(wait, l)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *perfSession) acceptLane(ctx context.Context, l *perfLane) error {
	select {
	case req := <-s.requests:
		if err := l.accept(ctx, req); err != nil {
			return err
		}
		return l.greet(ctx)
	case <-s.peer.ctx.Done():
		return context.Cause(s.peer.ctx)
	case <-ctx.Done():
		return fmt.Errorf("queue pair %d: %w", l.index, errTimeout)
	}
}

// round does the server's part of one measurement.
func (s *perfSession) round(b perfBeginBody) error {
	r := &perfRound{size: int(b.Size), warmup: int(b.Warmup), count: b.Count, duration: time.Duration(b.Duration)}
	if b.Duration > uint64(perfMaxTime) {
		r.duration = -1
	}
	if err := r.check(&s.plan); err != nil {
		return err
	}
	if r.duration > s.opts.maxTime {
		return &perfRefusal{reason: perfTooLong, limit: uint32(s.opts.maxTime.Seconds()), why: fmt.Sprintf("a round of %v, --max-time is %v", r.duration, s.opts.maxTime)}
	}
	if err := s.prepare(r); err != nil {
		return err
	}
	crew := &perfCrew{lanes: s.lanes, round: r, measures: make([]*perfMeasure, len(s.lanes))}
	if s.plan.active() {
		crew = s.start(r)
	} else {
		for i := range crew.measures {
			crew.measures[i] = new(perfMeasure)
		}
	}
	end, err := s.awaitEnd(crew)
	if err == nil && s.plan.active() {
		s.awaitRest(crew, end.Sent)
	}
	if s.plan.active() {
		if crewErr := crew.stop(); crewErr != nil && (err == nil || errors.Is(err, errPeerGone)) {
			err = crewErr
		}
	}
	if err != nil {
		return err
	}
	t := crew.settled(end.Sent)
	s.rounds++
	s.came += t.came
	result := perfResultBody{Received: t.came, Sent: t.sent, Measured: t.measured, Nanos: uint64(max(t.took(), 0))}
	if t.corrupt {
		result.Corrupt = 1
	}
	return s.peer.send(perfMessage(perfKindResult, result))
}

// awaitEnd says that the round may begin, and waits for the client to have sent all.
func (s *perfSession) awaitEnd(crew *perfCrew) (end perfEndBody, err error) {
	if err := s.peer.send(perfMessage(perfKindReady, struct{}{})); err != nil {
		return end, err
	}
	return perfExpect[perfEndBody](s.peer, perfKindEnd, s.opts.maxTime)
}

// perfQuiet is how long nothing may come before what has not come counts as lost.
const perfQuiet = 100 * time.Millisecond

// awaitRest waits for what the client has sent and for what the server has to send, unless
// nothing comes any more.
func (s *perfSession) awaitRest(crew *perfCrew, sent uint64) {
	select {
	case <-crew.sent:
	case <-crew.ended:
	}
	if s.plan.mode == perfLat || s.plan.op != perfSend {
		return
	}
	tick := time.NewTicker(perfQuiet)
	defer tick.Stop()
	for was := crew.came(); crew.came() < sent; {
		select {
		case <-time.After(time.Millisecond):
		case <-tick.C:
			if crew.came() == was {
				return
			}
			was = crew.came()
		case <-crew.ended:
			return
		}
	}
}

func (s *perfSession) summary() string {
	return fmt.Sprintf("%d rounds, %d messages came", s.rounds, s.came)
}
