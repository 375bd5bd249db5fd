package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/spf13/pflag"

	"github.com/pureverbs/rdma/rdmacm"
)

type pingOptions struct {
	count    uint64
	interval time.Duration
	size     int
	timeout  time.Duration
	deadline time.Duration // 0: none
	port     uint16
	source   string
	waiting
	rping     bool
	flood     bool
	json      bool
	quiet     bool
	stamps    bool
	histogram histogramChoice
	plot      plotFile
}

func defaultPingOptions() pingOptions {
	return pingOptions{interval: time.Second, size: 56, timeout: 5 * time.Second, port: defaultPort}
}

func (o *pingOptions) addFlags(f *pflag.FlagSet) {
	f.Uint64VarP(&o.count, "count", "c", 0, "stop after this many `requests` to each ADDR (default until Ctrl-C)")
	f.VarP(secondsValue{&o.interval, 0, 24 * time.Hour}, "interval", "i", "time between requests; 0 sends the next as soon as the answer is there")
	f.BoolVarP(&o.flood, "flood", "f", false, "-i 0 without a line each; a terminal shows a dot for each open request")
	f.VarP(sizeValue{&o.size, maxData}, "size", "s", "bytes of data in a message: 56, 4k, 1MiB")
	f.VarP(secondsValue{&o.timeout, time.Millisecond, time.Hour}, "timeout", "W", "how long to wait for each answer")
	f.VarP(secondsValue{&o.deadline, 0, 10000 * time.Hour}, "deadline", "w", "stop after this time, whatever was sent; 0 is never")
	f.Uint16VarP(&o.port, "port", "p", o.port, "`port` of the server, if ADDR names none")
	f.StringVarP(&o.source, "source", "I", "", "`address` to send from")
	o.waiting.addFlags(f, "ADDR")
	f.BoolVar(&o.rping, "rping", false, "speak rping's protocol (RDMA READ and WRITE), also to rdma-ping serve")
	f.BoolVar(&o.json, "json", false, "print one JSON object a line")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "print the summary only")
	f.BoolVarP(&o.stamps, "timestamp", "D", false, "print the Unix time before each line")
	o.histogram.addFlag(f, "the answers, at the end")
	o.plot.addFlag(f)
}

// complete fills in what depends on other flags, and checks what goes together.
func (o *pingOptions) complete(f *pflag.FlagSet) error {
	switch {
	case o.count == 0 && f.Changed("count"):
		return usagef("-c 0: at least 1; without -c it goes on until Ctrl-C")
	case o.rping && o.size == 0:
		return usagef("--rping needs a size of at least 1 (-s)")
	case o.json && o.histogram.forced():
		return usagef("--json and --histogram exclude each other")
	}
	if o.flood && !f.Changed("interval") {
		o.interval = 0
	}
	return o.waiting.check()
}

// target is what the lines of output say about the connection.
type target struct {
	name     string // as the user gave it
	addr     netip.AddrPort
	portToo  bool // lines name the port: the user did
	device   string
	size     int
	protocol string
}

// appendPeer adds what tells the lines of targets apart.
func (t *target) appendPeer(b []byte) []byte {
	if t.portToo {
		return t.addr.AppendTo(b)
	}
	return t.addr.Addr().AppendTo(b)
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

// errDeadline ends what -w ends.
var errDeadline = errors.New("the deadline (-w) has come")

// pinging is a run of the client, to one target.
type pinging struct {
	opts   *pingOptions
	target target
	link   link
	answer hello // of the server; version 0 if it is rping
	out    reporter
	stats  *stats
	begun  bool  // there is something to sum up
	late   bool  // the deadline has ended it
	err    error // what ended it before its time, or kept it from beginning
}

func newPinging(o *pingOptions, text string, out reporter) *pinging {
	return &pinging{opts: o, target: target{name: text, size: o.size}, out: out, stats: newStats()}
}

// live is a target from its address to its end.
func (p *pinging) live(ctx context.Context, opts []rdmacm.Option) {
	addr, source, err := pingAddrs(ctx, p.opts, p.target.name)
	p.target.addr, p.target.portToo = addr, addr.Port() != p.opts.port
	if err == nil {
		err = p.dial(ctx, source, opts)
	}
	if err == nil {
		err = p.run(ctx)
		if closeErr := p.link.close(); err == nil {
			err = closeErr
		}
	}
	p.err = err
}

// status is the exit status as if there were no other targets.
func (p *pinging) status() int {
	if !p.begun {
		return statusError
	}
	if p.late && p.stats.count() < p.opts.count {
		return statusLost
	}
	return p.stats.status(p.err)
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
	p.begun = true
	p.out.start(&p.target)
	p.stats.begin()
	defer p.stats.end()
	next := time.Now()
	for seq := uint64(1); p.opts.count == 0 || seq <= p.opts.count; seq++ {
		if seq > 1 && !sleepUntil(ctx, next) {
			return p.stopped(context.Cause(ctx))
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
	p.out.sent(&p.target)
	begin := time.Now()
	rtt, err := c.ping(seq)
	if err == nil {
		p.stats.received(rtt)
		p.out.reply(&p.target, seq, rtt)
		return false, nil
	}
	// But -w often is there to find out whether an answer comes.
	if errors.Is(err, errDeadline) && time.Since(begin) > p.stats.max {
		p.missed(seq, "the deadline has come", false)
	}
	return p.failed(seq, err)
}

// missed notes a request without an answer, or with a wrong one.
func (p *pinging) missed(seq uint64, why string, corrupt bool) {
	p.stats.missed(corrupt)
	p.out.lost(&p.target, seq, why)
}

func (p *pinging) failed(seq uint64, err error) (done bool, _ error) {
	var (
		missing *lostError
		wrong   *corruptError
	)
	switch {
	case errors.As(err, &missing):
		p.missed(seq, missing.why, false)
		return false, nil
	case errors.As(err, &wrong):
		p.missed(seq, "wrong contents: "+wrong.why, true)
		return false, nil
	case p.stopped(err) == nil:
		return true, nil
	}
	p.missed(seq, "connection lost", false)
	return false, p.ended(err)
}

// ended adds what rping's protocol leaves unsaid.
func (p *pinging) ended(err error) error {
	if p.answer.version == 0 && !p.opts.rping && p.stats.count() == 0 {
		return fmt.Errorf("%w; rping -s takes no more than its own -S, 64 bytes unless told: is -s %d too large?", err, p.opts.size)
	}
	return err
}

// stopped turns the wish of the user to stop into no error.
func (p *pinging) stopped(err error) error {
	switch {
	case errors.Is(err, errDeadline):
		p.late = true
		return nil
	case errors.Is(err, context.Canceled):
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
