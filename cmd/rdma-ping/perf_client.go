package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/pureverbs/rdma/rdmacm"
	"github.com/pureverbs/rdma/uverbs"
)

// run connects, measures each size, and gives everything back.
func (c *perfClient) run(ctx context.Context) (err error) {
	dev, err := c.meet(ctx)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, c.close(), c.peer.close())
		if c.opts.tcp {
			err = errors.Join(err, dev.Close())
		}
		if err != nil {
			err = firstError(err)
		}
	}()
	if err := c.agree(ctx, dev); err != nil {
		return err
	}
	c.out.start(c.target(dev.Device().Name()))
	defer c.out.end()
	for _, size := range c.opts.sizes {
		r := c.opts.round(size)
		result, err := c.round(&r)
		if err != nil {
			return perfEnded(ctx, err)
		}
		c.report(result)
	}
	return nil
}

// perfEnded prefers the wish of the user to what came of it.
func perfEnded(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil {
		return cause
	}
	return err
}

// meet makes the control connection, and opens the device.
func (c *perfClient) meet(ctx context.Context) (*uverbs.Context, error) {
	wait, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if c.opts.tcp {
		return c.meetTCP(ctx, wait)
	}
	control := new(cmControl)
	conn, err := rdmacm.Dial(wait, c.addr.String(), &rdmacm.Options{
		QP: perfControlCaps(), Source: c.source, Prepare: control.prepare, System: c.app.cmOptions(),
		ConnParam: rdmacm.ConnParam{PrivateData: perfHello(perfHelloBody{}), RetryCount: 7, RNRRetryCount: 7},
	})
	if err != nil {
		return nil, perfRejected(err, &dialError{c.addr, c.source.Addr(), firstError(err)})
	}
	if _, err := parsePerf[perfHelloBody](conn.PrivateData(), perfKindHello); err != nil {
		return nil, errors.Join(fmt.Errorf("the server at %v is no 'rdma-ping perf serve': %w", c.addr, err), conn.Close())
	}
	c.peer = newPerfPeer(ctx, control)
	return conn.PD().Context(), nil
}

func (c *perfClient) meetTCP(ctx, wait context.Context) (*uverbs.Context, error) {
	var d net.Dialer
	if c.source.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(c.source)
	}
	conn, err := d.DialContext(wait, "tcp", c.addr.String())
	if err != nil {
		return nil, fmt.Errorf("%w; is 'rdma-ping perf serve --tcp' running there?", err)
	}
	control := &tcpControl{conn}
	dev, err := c.app.perfDevice(c.opts.device, control.local(), c.opts.gidIndex)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	c.peer = newPerfPeer(ctx, control)
	return dev, nil
}

// agree brings everything to where rounds can begin.
func (c *perfClient) agree(ctx context.Context, dev *uverbs.Context) error {
	if err := c.plan.supported(dev.Device()); err != nil {
		return err
	}
	if c.plan.byHand() {
		if err := c.findWay(dev); err != nil {
			return err
		}
	}
	if err := c.build(dev); err != nil {
		return err
	}
	grant, err := c.grant()
	if err != nil {
		return perfEnded(ctx, err)
	}
	if !c.plan.byHand() {
		if err := c.dialLanes(ctx, grant.Token); err != nil {
			return c.whyEnded(ctx, err)
		}
	}
	return c.whyEnded(ctx, c.introduce())
}

// grant sends the plan and waits for the server to take it.
func (c *perfClient) grant() (perfGrantBody, error) {
	if cm, ok := c.peer.control.(*cmControl); ok {
		defer (&link{conn: cm.conn}).remind()()
	}
	if err := c.peer.send(perfMessage(perfKindPlan, c.plan.body())); err != nil {
		return perfGrantBody{}, err
	}
	return perfExpect[perfGrantBody](c.peer, perfKindGrant, c.timeout+perfPatience)
}

func (c *perfClient) findWay(dev *uverbs.Context) (err error) {
	local := c.peer.control.local()
	if c.way, err = findPerfWay(dev, local, c.opts.gidIndex); err != nil {
		return err
	}
	return c.within(c.way.mtu.Bytes())
}

// dialLanes makes a connection of rdma_cm for each queue pair.
func (c *perfClient) dialLanes(ctx context.Context, token uint64) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	for _, l := range c.lanes {
		err := l.dial(ctx, c.addr, c.source, perfHello(perfHelloBody{Token: token}), c.app.cmOptions())
		if err != nil {
			return perfRejected(err, &dialError{c.addr, c.source.Addr(), firstError(err)})
		}
		if err := l.greet(ctx); err != nil {
			return fmt.Errorf("queue pair %d: %w", l.index, err)
		}
	}
	return nil
}

// whyEnded prefers what the server says to what came of it.
func (c *perfClient) whyEnded(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if cause := ctx.Err(); cause != nil {
		return cause
	}
	if refusal := (*perfRefusal)(nil); errors.As(err, &refusal) {
		return err
	}
	if b, nextErr := c.peer.next(100 * time.Millisecond); nextErr == nil {
		if _, said := parsePerf[perfRefuseBody](b, perfKindReady); said != nil && errors.As(said, new(*perfRefusal)) {
			return said
		}
	}
	return err
}

// round measures one size.
func (c *perfClient) round(r *perfRound) (*perfResult, error) {
	if err := c.prepare(r); err != nil {
		return nil, err
	}
	begin := perfBeginBody{Size: uint32(r.size), Warmup: uint32(r.warmup), Count: r.count, Duration: uint64(r.duration)}
	if err := c.peer.send(perfMessage(perfKindBegin, begin)); err != nil {
		return nil, c.whyEnded(context.Background(), err)
	}
	if _, err := perfExpect[struct{}](c.peer, perfKindReady, c.timeout+perfPatience); err != nil {
		return nil, err
	}
	crew := c.start(r)
	stop := c.progress.watch(crew)
	result, err := c.outcome(crew, r)
	stop()
	if crewErr := crew.stop(); crewErr != nil && (err == nil || errors.Is(err, errPeerGone)) {
		err = crewErr
	}
	if err != nil {
		return nil, c.whyEnded(context.Background(), err)
	}
	return c.sum(crew, r, result)
}

// outcome waits until all is sent, says so, and waits for what the server says to it.
func (c *perfClient) outcome(crew *perfCrew, r *perfRound) (result perfResultBody, err error) {
	<-crew.sent
	if c.peer.ctx.Err() != nil { // not all is sent: it ended before its time
		return result, context.Cause(c.peer.ctx)
	}
	sent := uint64(0)
	for _, l := range crew.lanes {
		sent += l.gone.Load()
	}
	if err := c.peer.send(perfMessage(perfKindEnd, perfEndBody{Sent: sent})); err != nil {
		return result, err
	}
	patience := c.timeout + perfPatience + r.duration
	if c.plan.bidirectional && r.count > 0 {
		patience = perfMaxTime // it has as much to send, and says when it cannot
	}
	return perfExpect[perfResultBody](c.peer, perfKindResult, patience)
}

// sum puts what the two sides measured together.
func (c *perfClient) sum(crew *perfCrew, r *perfRound, peer perfResultBody) (*perfResult, error) {
	t := crew.settled(peer.Sent)
	out := &perfResult{size: r.size, messages: t.measured, took: t.took(), times: t.times, lost: t.lost, corrupt: t.corrupt || peer.Corrupt != 0}
	if seconds := t.took().Seconds(); seconds > 0 {
		out.rate = float64(t.measured) / seconds
	}
	if c.plan.mode == perfBW && c.plan.op == perfSend && !c.plan.reliable() {
		out.lost = missing(t.sent, peer.Received) + missing(peer.Sent, t.came)
	}
	if !c.plan.bidirectional {
		return out, nil
	}
	if peer.Measured > peer.Sent || peer.Sent > perfMaxCount || peer.Nanos > uint64(perfMaxTime) || peer.Measured > 0 && peer.Nanos == 0 {
		return nil, fmt.Errorf("the server says that it sent %d messages in %d ns, which cannot be", peer.Measured, peer.Nanos)
	}
	out.messages += peer.Measured
	if peer.Measured > 0 {
		out.rate += float64(peer.Measured) / (float64(peer.Nanos) / 1e9)
	}
	out.took = max(out.took, time.Duration(peer.Nanos))
	return out, nil
}

func missing(sent, came uint64) uint64 { return sent - min(sent, came) }
