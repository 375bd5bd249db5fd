package main

import (
	"fmt"
	"io"
	"time"
)

// perfProgress shows on a terminal how far a round is: rate and remaining time, on a line
// that is wiped out at the end. Elsewhere it shows nothing.
type perfProgress struct {
	w     io.Writer // nil: no terminal
	every time.Duration
	o     *perfOptions
	round int
}

func newProgress(w io.Writer, o *perfOptions) *perfProgress {
	p := &perfProgress{every: 200 * time.Millisecond, o: o}
	if isTerminal(w) {
		p.w = w
	}
	return p
}

// watch shows a round until stop is called.
func (p *perfProgress) watch(c *perfCrew) (stop func()) {
	p.round++
	if p.w == nil {
		return func() {}
	}
	begin := time.Now()
	quit, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		tick := time.NewTicker(p.every)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				fmt.Fprint(p.w, "\r\x1b[K")
				return
			case <-tick.C:
				done := uint64(0)
				for _, l := range c.lanes {
					done += l.done.Load()
				}
				fmt.Fprintf(p.w, "\r\x1b[K%s", p.line(c.round, done, time.Since(begin)))
			}
		}
	}()
	return func() {
		close(quit)
		<-gone
	}
}

// line is what a round looks like that has done some messages in some time.
func (p *perfProgress) line(r *perfRound, done uint64, took time.Duration) string {
	share := 0.0
	if r.count > 0 {
		share = float64(done) / float64(r.count) / float64(p.o.plan.qps)
	} else {
		share = took.Seconds() / r.duration.Seconds()
	}
	share = min(share, 1)
	rate := float64(done) / max(took.Seconds(), 1e-9)
	text := fmt.Sprintf("%s (%d of %d): %3.0f%%, %.0f messages/s", formatSize(r.size), p.round, len(p.o.sizes), 100*share, rate)
	if p.o.plan.mode == perfBW {
		text += fmt.Sprintf(", %.3f Gb/s", rate*float64(r.size)*8/1e9)
	}
	if share > 0 {
		left := time.Duration(float64(took) * (1 - share) / share)
		text += fmt.Sprintf(", %v left", left.Round(time.Second))
	}
	return text
}
