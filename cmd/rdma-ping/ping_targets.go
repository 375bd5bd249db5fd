package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"gonum.org/v1/plot"
)

// pings is a run of the client with all its targets.
type pings struct {
	*app
	all []*pinging
}

// ping is the client from the addresses to the summaries. An error is about what kept it
// from running; losses, and some of several targets failing, are in the exit status.
func (a *app) ping(ctx context.Context, o *pingOptions, texts []string) error {
	if err := o.check(ctx, texts); err != nil {
		return err
	}
	if err := o.plot.check(); err != nil {
		return err
	}
	if err := a.usableDevice(); err != nil {
		return err
	}
	if o.deadline > 0 {
		limited, cancel := context.WithTimeoutCause(ctx, o.deadline, errDeadline)
		defer cancel()
		ctx = limited
	}
	p, out := &pings{app: a}, newReporter(a.stdout, o)
	for _, text := range texts {
		p.all = append(p.all, newPinging(o, text, out))
	}
	defer p.watch()()
	p.run(ctx)
	for _, t := range p.all {
		if t.begun {
			out.summary(&t.target, t.stats)
		}
	}
	if len(p.all) == 1 {
		return p.one()
	}
	if a.status = p.status(); a.status != statusError {
		out.table(p.all)
	}
	return nil
}

// check finds what is wrong with addresses before anything is sent to any of them. Names
// are looked up later, when one that is not known does not hold up the others.
func (o *pingOptions) check(ctx context.Context, texts []string) error {
	if o.plot != "" && len(texts) > 1 {
		return usagef("--plot draws one ADDR, got %d", len(texts))
	}
	for _, text := range texts {
		_, name, err := parseAddr(text, o.port)
		if err == nil && name == "" {
			_, _, err = pingAddrs(ctx, o, text)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// run pings all targets at the same time, until all have ended.
func (p *pings) run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, t := range p.all {
		wg.Go(func() {
			t.live(ctx, p.cmOptions())
			if t.err != nil && !t.begun {
				t.out.failed(&t.target, explain(t.err))
			}
			if t.err != nil && len(p.all) > 1 {
				fmt.Fprintf(p.stderr, "rdma-ping: %s: %s\n", t.target.name, explain(t.err))
			}
		})
	}
	wg.Wait()
}

// one is the end of a run with one target: an error is about that.
func (p *pings) one() error {
	t := p.all[0]
	if !t.begun {
		return t.err
	}
	if t.err != nil {
		fmt.Fprintf(p.stderr, "rdma-ping: %s\n", explain(t.err))
	}
	p.app.status = t.status()
	p.picture(t.opts.plot, func() (*plot.Plot, error) { return pingPlot(&t.target, t.stats) })
	return nil
}

// status is the exit status of several targets.
func (p *pings) status() int {
	failed, status := 0, statusOK
	for _, t := range p.all {
		switch t.status() {
		case statusError:
			failed++
		case statusLost:
			status = statusLost
		}
	}
	switch failed {
	case 0:
		return status
	case len(p.all):
		return statusError
	}
	return statusLost
}

// watch prints a line for each target on SIGQUIT, Ctrl-\, until stop is called.
func (p *pings) watch() (stop func()) {
	quit, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(quit, syscall.SIGQUIT)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-quit:
				fmt.Fprint(p.stderr, p.progress())
			case <-done:
				return
			}
		}
	})
	return func() {
		signal.Stop(quit)
		close(done)
		wg.Wait()
	}
}

func (p *pings) progress() (text string) {
	if isTerminal(p.stderr) {
		text = "\r" // over the ^\ that the terminal shows
	}
	for _, t := range p.all {
		if len(p.all) > 1 {
			text += t.target.name + ": "
		}
		text += t.stats.progress() + "\n"
	}
	return text
}
