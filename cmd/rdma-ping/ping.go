package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/spf13/pflag"
)

type pingOptions struct {
	count    uint64
	interval time.Duration
	size     int
	timeout  time.Duration
	port     uint16
	source   string
	poll     bool
	rping    bool
	json     bool
	quiet    bool
}

func defaultPingOptions() pingOptions {
	return pingOptions{interval: time.Second, size: 56, timeout: 5 * time.Second, port: defaultPort}
}

func (o *pingOptions) addFlags(f *pflag.FlagSet) {
	f.Uint64VarP(&o.count, "count", "c", 0, "stop after this many `requests` (default until Ctrl-C)")
	f.VarP(secondsValue{&o.interval, 0, 24 * time.Hour}, "interval", "i", "time between requests; 0 sends the next as soon as the answer is there")
	f.VarP(sizeValue{&o.size, maxData}, "size", "s", "bytes of data in a message: 56, 4k, 1MiB")
	f.VarP(secondsValue{&o.timeout, time.Millisecond, time.Hour}, "timeout", "W", "how long to wait for each answer")
	f.Uint16VarP(&o.port, "port", "p", o.port, "`port` of the server, if ADDR names none")
	f.StringVarP(&o.source, "source", "I", "", "`address` to send from")
	f.BoolVar(&o.poll, "poll", false, "spin instead of waiting for events: lower latency, takes a CPU")
	f.BoolVar(&o.rping, "rping", false, "speak rping's protocol (RDMA READ and WRITE), also to rdma-ping serve")
	f.BoolVar(&o.json, "json", false, "print one JSON object a line")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "print the summary only")
}

// target is what the lines of output say about the connection.
type target struct {
	name     string // as the user gave it
	addr     netip.AddrPort
	device   string
	size     int
	protocol string
}

// ping is the client from the address to the summary. An error is about what kept it from
// running; losses are in the exit status.
func (a *app) ping(ctx context.Context, o *pingOptions, text string) error {
	addr, source, err := pingAddrs(ctx, o, text)
	if err != nil {
		return err
	}
	if o.rping && o.size == 0 {
		return usagef("--rping needs a size of at least 1 (-s)")
	}
	if err := a.usableDevice(); err != nil {
		return err
	}
	host, _, _ := splitAddr(text, o.port)
	p := &pinging{opts: o, target: target{name: host, addr: addr, size: o.size}, stats: newStats()}
	p.out = newReporter(a.stdout, o)
	if err := p.dial(ctx, source, a.cmOptions()); err != nil {
		return err
	}
	runErr := p.run(ctx)
	if err := p.link.close(); err != nil && runErr == nil {
		runErr = err
	}
	p.out.summary(&p.target, p.stats)
	if runErr != nil {
		fmt.Fprintf(a.stderr, "rdma-ping: %s\n", explain(runErr))
	}
	a.status = p.stats.status(runErr)
	return nil
}

func pingAddrs(ctx context.Context, o *pingOptions, text string) (addr, source netip.AddrPort, err error) {
	addr, err = resolveAddr(ctx, text, o.port)
	if err != nil || o.source == "" {
		return addr, source, err
	}
	from, err := netip.ParseAddr(o.source)
	if err != nil {
		return addr, source, usagef("source %q is not an IP address", o.source)
	}
	source, err = checkZone(netip.AddrPortFrom(from.Unmap(), 0))
	if err == nil && from.Unmap().Is4() != addr.Addr().Is4() {
		err = usagef("source %v and %v are not of one family", from, addr.Addr())
	}
	return addr, source, err
}

// pinging is a run of the client.
type pinging struct {
	opts   *pingOptions
	target target
	link   link
	answer hello // of the server; version 0 if it is rping
	out    reporter
	stats  *stats
}

// run pings until the count is reached or the context ends. The error says what ended it
// before its time.
func (p *pinging) run(ctx context.Context) error {
	ctx, cancel := follow(ctx, p.link.conn)
	defer cancel()
	c, err := p.client(ctx)
	if err != nil {
		return err
	}
	p.out.start(&p.target)
	p.stats.begin()
	defer p.stats.end()
	next := time.Now()
	for seq := uint64(1); p.opts.count == 0 || seq <= p.opts.count; seq++ {
		if seq > 1 && !sleepUntil(ctx, next) {
			return unlessStopped(context.Cause(ctx))
		}
		next = time.Now().Add(p.opts.interval)
		if done, err := p.record(ctx, seq, c); done || err != nil {
			return err
		}
	}
	return nil
}

// record makes one round trip and notes how it went. done is true if the user has stopped
// it: a request that was under way then counts neither as sent nor as lost.
func (p *pinging) record(ctx context.Context, seq uint64, c pinger) (done bool, err error) {
	if seq == 1 {
		defer p.link.remind()()
	}
	rtt, err := c.ping(seq)
	if err == nil {
		p.stats.received(rtt)
		p.out.reply(&p.target, seq, rtt)
		return false, nil
	}
	return p.failed(seq, err)
}

func (p *pinging) failed(seq uint64, err error) (done bool, _ error) {
	var (
		missing *lostError
		wrong   *corruptError
	)
	switch {
	case errors.As(err, &missing):
		p.stats.lost++
		p.out.lost(&p.target, seq, missing.why)
		return false, nil
	case errors.As(err, &wrong):
		p.stats.lost++
		p.stats.corrupt++
		p.out.lost(&p.target, seq, "wrong contents: "+wrong.why)
		return false, nil
	case errors.Is(err, context.Canceled):
		return true, nil
	}
	p.stats.lost++
	p.out.lost(&p.target, seq, "connection lost")
	return false, p.ended(err)
}

// ended adds what rping's protocol leaves unsaid.
func (p *pinging) ended(err error) error {
	if p.answer.version == 0 && !p.opts.rping && p.stats.count() == 0 {
		return fmt.Errorf("%w; rping -s takes no more than its own -S, 64 bytes unless told: is -s %d too large?", err, p.opts.size)
	}
	return err
}

// unlessStopped turns the wish of the user to stop into no error.
func unlessStopped(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// sleepUntil reports false if the context ended first.
func sleepUntil(ctx context.Context, t time.Time) bool {
	d := time.Until(t)
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// client chooses the protocol by what the server's private data are.
func (p *pinging) client(ctx context.Context) (pinger, error) {
	if p.answer.version == 0 {
		p.target.protocol = "rping"
		return newRpingClient(ctx, &p.link, p.opts.size, p.opts.timeout)
	}
	p.target.protocol = "rdma-ping"
	return newEchoClient(ctx, &p.link, p.opts.size, int(p.answer.window), p.opts.timeout), nil
}
