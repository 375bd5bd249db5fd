package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/pureverbs/rdma/rdmacm"
)

// What is said where perftest comes by mistake.
const (
	perftestHint = "then start 'rdma-ping perf serve --perftest', for ib_send_lat, ib_write_lat, ib_read_lat and ib_atomic_lat; " +
		"its bandwidth programs are not spoken"
	perftestTCP = "a program of perftest without -R, which is not spoken: give it -R, and start 'rdma-ping perf serve --perftest'"
)

// perftestOptions say what a server of perftest's programs is to do: they do not say it.
type perftestOptions struct {
	on    bool
	op    string
	size  int
	count uint64
}

func (o *perftestOptions) addFlags(f *pflag.FlagSet) {
	f.BoolVar(&o.on, "perftest", false, "be the server of ib_send_lat, ib_write_lat, ib_read_lat or ib_atomic_lat with -R")
	f.StringVar(&o.op, "op", o.op, "with --perftest: `operation`: send, write, read or atomic")
	f.Var(sizeValue{&o.size, perfMaxSize}, "size", "with --perftest: bytes a message")
	f.Uint64Var(&o.count, "count", o.count, "with --perftest: `messages`")
}

func (o *perftestOptions) what() string {
	return fmt.Sprintf("ib_%s_lat -R -s %d -n %d of perftest", o.op, o.size, o.count)
}

func (o *perftestOptions) check() error {
	if !o.on {
		return nil
	}
	p := o.plan()
	switch err := p.check(); {
	case p.op < perfSend:
		return usagef("--op %q: send, write, read or atomic", o.op)
	case err != nil:
		return &usageError{err}
	}
	return perftestCount(o.count)
}

func perftestCount(n uint64) error {
	if n < 5 || n > 100_000_000 {
		return usagef("--count %d: perftest takes from 5 to 100000000", n)
	}
	return nil
}

func (o *perftestOptions) plan() perfPlan {
	if o.op == "atomic" {
		o.size = 8
	}
	op := max(slices.Index(perfOps, o.op), 0)
	return perfPlan{mode: perfLat, op: perfOp(op), transport: perfRC, cm: true, size: o.size, qps: 1, depth: 1, batch: 1}
}

// checkPerftest refuses what perftest with -R does not do, or not in the same way.
func (o *perfOptions) checkPerftest() error {
	switch {
	case o.tcp || o.plan.transport != perfRC:
		return usagef("--perftest: only its -R is spoken, which has reliable connections (rc) over rdma_cm")
	case o.plan.qps > 1 || len(o.sizes) > 1 || o.duration > 0 || o.plan.verify:
		return usagef("--perftest: one queue pair, one size, --count messages, which are not verified")
	}
	o.warmup = 0
	return perftestCount(o.count)
}

// runPerftest is the client of a server of perftest.
func (c *perfClient) runPerftest(ctx context.Context) (err error) {
	dial := func(ctx context.Context, try func(context.Context) error) error {
		for { // the C server stops listening for a moment between two connections
			err := try(ctx)
			if err == nil || ctx.Err() != nil || !errors.Is(err, syscall.ECONNREFUSED) {
				return err
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	control := new(cmControl)
	_, err = rdmacm.Dial(ctx, c.addr.String(), &rdmacm.Options{
		QP: perfControlCaps(), Source: c.source, Prepare: control.prepare, System: c.app.cmOptions(),
	})
	if err != nil {
		return perfRejected(err, &dialError{c.addr, c.source.Addr(), firstError(err)})
	}
	t := &perftest{perfSide: &c.perfSide, count: c.opts.count, connect: func(ctx context.Context, l *perfLane) error {
		return dial(ctx, func(ctx context.Context) error { return l.dial(ctx, c.addr, c.source, nil, c.app.cmOptions()) })
	}}
	t.started = func() { c.out.start(c.target(control.conn.PD().Context().Device().Name())) }
	m, err := t.run(ctx, control)
	if err != nil {
		return perfEnded(ctx, err)
	}
	c.report(&perfResult{size: c.plan.size, messages: m.measured, times: m.times})
	c.out.end()
	return nil
}

// perftest serves a client of perftest. Others wait meanwhile.
func (s *perfService) perftest(ctx context.Context, ln *rdmacm.Listener, req *rdmacm.Request) {
	if !isRping(req.PrivateData()) {
		s.reject(req, &perfRefusal{reason: perfProtocol, why: "it is no program of perftest, for which --perftest is"})
		return
	}
	peer, begin := req.RemoteAddr(), time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, s.opts.maxTime, errPerfTime)
	defer cancel()
	control := new(cmControl)
	_, err := req.Accept(ctx, &rdmacm.Options{QP: perfControlCaps(), Prepare: control.prepare})
	if err == nil {
		side := &perfSide{plan: s.opts.perftest.plan(), serving: true, waiting: s.opts.waiting, timeout: perfPatience}
		t := &perftest{perfSide: side, count: s.opts.perftest.count, started: func() {}, connect: func(ctx context.Context, l *perfLane) error {
			next, err := ln.Next(ctx)
			if err != nil {
				return err
			}
			return l.accept(ctx, next)
		}}
		_, err = t.run(ctx, control)
	}
	took := time.Since(begin).Round(time.Millisecond)
	switch {
	case err == nil:
		s.served.Add(1)
		s.print("%v left: %s in %v", peer, s.opts.perftest.what(), took)
	case !errors.Is(err, context.Canceled):
		s.print("%v dropped: %s in %v", peer, oneLine(firstError(err).Error()), took)
	}
}

// perftest is a run with a program of perftest on the other side.
type perftest struct {
	*perfSide
	count   uint64
	connect func(context.Context, *perfLane) error
	started func()
}

func (t *perftest) run(ctx context.Context, control *cmControl) (m *perfMeasure, err error) {
	t.peer = newPerfPeer(ctx, control)
	defer func() { err = errors.Join(err, t.close(), t.peer.close()) }()
	dev := control.conn.PD().Context()
	if err := t.plan.supported(dev.Device()); err != nil {
		return nil, err
	}
	port, err := dev.QueryPort(1)
	if err != nil {
		return nil, err
	}
	if err := t.build(dev); err != nil {
		return nil, err
	}
	talk := perftestTalk{peer: t.peer, client: !t.serving}
	forget := (&link{conn: control.conn}).remind()
	err = talk.greet(port.ActiveMTU)
	forget()
	if err != nil {
		return nil, err
	}
	l := t.lanes[0]
	if err := talk.pair(ctx, func(ctx context.Context) error { return t.connect(ctx, l) }); err != nil {
		return nil, err
	}
	own, peer, err := t.meet(talk, l)
	if err != nil {
		return nil, err
	}
	t.started()
	ctx, stop := l.follow(t.peer.ctx)
	defer stop()
	if m, err = t.play(ctx, l); err != nil {
		return nil, err
	}
	if t.plan.op != perfWrite { // then they tell each other that they are done
		if err := talk.step(own, peer); err != nil {
			return nil, err
		}
	}
	return m, t.farewell(l)
}

// meet exchanges addresses until both sides are ready.
func (t *perftest) meet(talk perftestTalk, l *perfLane) (own, peer perftestDest, err error) {
	l.describe(nil)
	own = perftestDest{Reads: 1, QPN: l.me.QPN, PSN: l.me.PSN, RKey: l.me.RKey, Addr: l.me.Addr}
	if peer, err = talk.swap(own); err != nil {
		return own, peer, err
	}
	// How long the memory is they do not say.
	err = l.meet(perfLaneBody{QPN: peer.QPN, PSN: peer.PSN, RKey: peer.RKey, Addr: peer.Addr, Length: uint32(t.plan.size)})
	for range 2 {
		if err == nil {
			err = talk.step(own, peer)
		}
	}
	if err == nil {
		err = l.prepare(&perfRound{size: t.plan.size})
	}
	if err == nil {
		err = talk.step(own, peer)
	}
	return own, peer, err
}

// farewell: the client disconnects, the server waits for that.
func (t *perftest) farewell(l *perfLane) error {
	if !t.serving {
		return nil
	}
	select {
	case <-l.conn.Done():
		return nil
	case <-time.After(perfPatience):
		return errTimeout
	}
}

func (t *perftest) play(ctx context.Context, l *perfLane) (*perfMeasure, error) {
	m := &perfMeasure{times: newPerfTimes()}
	g := newGuard(ctx)
	defer g.close()
	r := &perfRound{size: t.plan.size, count: t.count}
	if t.serving && (t.plan.op == perfRead || t.plan.op == perfAtomic) {
		return m, nil // the device serves
	}
	if t.plan.op == perfWrite && !t.serving { // the server writes first
		if _, err := l.awaitByte(g.start(l.timeout), r.size-1, 0); err != nil {
			return nil, err
		}
		g.stop()
	}
	for i := uint64(1); i <= t.count; i++ {
		took, err := t.once(g, l, r, i)
		if err != nil {
			return nil, fmt.Errorf("message %d of %d: %w", i, t.count, err)
		}
		if took > 0 {
			m.times.add(took)
			m.measured++
		}
	}
	return m, nil
}

// once makes message i; the time is 0 where there is none to tell.
func (t *perftest) once(g *guard, l *perfLane, r *perfRound, i uint64) (time.Duration, error) {
	switch {
	case t.plan.op == perfSend && t.serving:
		ctx := g.start(l.timeout)
		defer g.stop()
		return 0, t.echo(ctx, l, r.size)
	case t.plan.op == perfWrite && !t.serving:
		ctx := g.start(l.timeout)
		defer g.stop()
		want := byte(i + 1)
		if i == t.count {
			want = byte(i) // it has come: there is no answer to the last
		}
		took, err := l.writeOnce(ctx, r.size, byte(i), byte(i), want)
		return took / 2, err
	}
	return l.once(g, r, i)
}

// echo takes a message and sends one.
func (t *perftest) echo(ctx context.Context, l *perfLane, size int) error {
	for came := 0; came == 0; {
		wcs, _, err := l.wait.wait(ctx)
		got, err := l.taken(wcs, err)
		if err != nil {
			return err
		}
		if came = got.received; came > 0 && got.bytes != size {
			return fmt.Errorf("the peer sent %d bytes, want %d: both sides need the same size", got.bytes, size)
		}
	}
	return l.post(1, size)
}
