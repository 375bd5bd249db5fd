package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// exporterPeer is one target of an exporter. One goroutine works on it.
type exporterPeer struct {
	*exporter
	name    string
	metrics *peerMetrics
	said    string
}

// run connects and pings until the context ends, and again after whatever goes wrong.
func (p *exporterPeer) run(ctx context.Context) {
	for tries := 0; ; tries++ {
		answered, err := p.session(ctx)
		if ctx.Err() != nil {
			return
		}
		p.say(explain(err))
		if answered {
			tries = 0
		}
		if !sleepUntil(ctx, time.Now().Add(backoff(tries))) {
			return
		}
	}
}

// backoff is how long to wait before the next try: 1 to 2 s, at last 1 to 30 s. Where in
// between is a matter of chance, so that many do not come all at once.
func backoff(tries int) time.Duration {
	return time.Second + rand.N(min(time.Second<<min(tries, 8), 29*time.Second))
}

// say prints what is new about the target.
func (p *exporterPeer) say(text string) {
	if text != p.said {
		p.said = text
		p.print("%s: %s", p.name, text)
	}
}

// session is the life of a connection. answered tells whether it was of use.
func (p *exporterPeer) session(ctx context.Context) (answered bool, err error) {
	c, err := p.connect(ctx)
	if err != nil {
		if ctx.Err() == nil {
			p.metrics.connectErrors[connectReason(err)].Inc()
		}
		return false, err
	}
	p.say("connected to " + c.target.addr.String() + " over " + c.target.device)
	down := p.metrics.up(&c.target)
	answered, err = p.ping(ctx, c)
	down()
	return answered, errors.Join(err, c.link.close())
}

func (p *exporterPeer) connect(ctx context.Context) (*pinging, error) {
	addr, source, err := pingAddrs(ctx, p.opts, p.name)
	if err != nil {
		return nil, err
	}
	if err := p.app.usableDevice(); err != nil {
		return nil, err
	}
	c := &pinging{opts: p.opts, target: target{name: p.name, addr: addr, size: p.opts.size}}
	return c, c.dial(ctx, source, p.app.cmOptions())
}

// ping pings until the connection or the context ends.
func (p *exporterPeer) ping(ctx context.Context, c *pinging) (answered bool, err error) {
	ctx, cancel := follow(ctx, c.link.conn)
	defer cancel()
	client, err := c.client(ctx)
	if err != nil {
		return false, err
	}
	next := time.Now()
	for seq := uint64(1); sleepUntil(ctx, next); seq++ {
		next = time.Now().Add(p.opts.interval)
		ok, err := p.once(c, client, seq)
		if err != nil {
			return answered, err
		}
		answered = answered || ok
	}
	return answered, context.Cause(ctx)
}

// once makes one round trip and counts it, unless the exporter is stopped meanwhile. An error
// is about the connection.
func (p *exporterPeer) once(c *pinging, client pinger, seq uint64) (answered bool, err error) {
	if seq == 1 {
		defer c.link.remind()()
	}
	rtt, err := client.ping(seq)
	reason := ""
	switch {
	case err == nil:
		p.metrics.rtt.Observe(rtt.Seconds())
	case errors.As(err, new(*lostError)):
		reason, err = lostTimeout, nil
	case errors.As(err, new(*corruptError)):
		reason, err = lostCorrupt, nil
	case errors.Is(err, context.Canceled):
		return false, err
	default:
		reason = lostDisconnected
	}
	p.metrics.requests.Inc()
	if reason == "" {
		return true, nil
	}
	p.metrics.lost[reason].Inc()
	return false, err
}
