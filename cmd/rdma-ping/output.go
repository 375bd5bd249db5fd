package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"
)

// reporter prints what happens. Targets that are pinged at the same time share one: each
// call prints whole lines, in one piece.
type reporter interface {
	start(t *target)
	sent(t *target)
	reply(t *target, seq uint64, rtt time.Duration)
	lost(t *target, seq uint64, why string)
	summary(t *target, s *stats)
	// failed is about a target that could not be pinged, which has neither start nor summary.
	failed(t *target, why string)
	// table compares targets, at the end of all.
	table(all []*pinging)
}

func newReporter(w io.Writer, o *pingOptions) reporter {
	if o.json {
		return &jsonReporter{enc: json.NewEncoder(w), quiet: o.quiet || o.flood, stamps: o.stamps, now: time.Now}
	}
	return &textReporter{
		w: w, quiet: o.quiet || o.flood, stamps: o.stamps, now: time.Now, histogram: o.histogram,
		dots: o.flood && !o.quiet && isTerminal(w),
	}
}

// textReporter prints the lines of ping(8).
type textReporter struct {
	mu        sync.Mutex
	w         io.Writer
	quiet     bool
	dots      bool // one for each request that is without an answer
	stamps    bool
	histogram histogramChoice
	now       func() time.Time
	line      []byte // reused: a line a round trip, and there may be very many
}

// write prints b, which was made of r.line.
func (r *textReporter) write(b []byte) {
	r.line = b
	r.w.Write(b) //nolint:errcheck // as for all output
}

func (r *textReporter) start(t *target) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := fmt.Appendf(r.line[:0], "PING %s (%v) over %s: %s of data", t.name, t.addr, t.device, byteCount(t.size))
	if t.protocol == "rping" {
		b = append(b, ", rping protocol"...)
	}
	r.write(append(b, '\n'))
}

func (r *textReporter) sent(*target) {
	if !r.dots {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.write(append(r.line[:0], '.'))
}

func (r *textReporter) reply(t *target, seq uint64, rtt time.Duration) {
	if r.quiet && !r.dots {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dots {
		r.write(append(r.line[:0], "\b \b"...))
		return
	}
	b := append(r.stamp(r.line[:0]), byteCount(t.size)...)
	b = append(b, " from "...)
	b = t.appendPeer(b)
	b = append(b, ": seq="...)
	b = strconv.AppendUint(b, seq, 10)
	b = append(b, " time="...)
	b = strconv.AppendFloat(b, micros(rtt), 'f', 1, 64)
	r.write(append(b, " us\n"...))
}

// stamp adds the time as ping -D does.
func (r *textReporter) stamp(b []byte) []byte {
	if !r.stamps {
		return b
	}
	now := r.now()
	return fmt.Appendf(b, "[%d.%06d] ", now.Unix(), now.Nanosecond()/1000)
}

func (r *textReporter) lost(t *target, seq uint64, why string) {
	if r.quiet {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	b := append(r.stamp(r.line[:0]), "no answer from "...)
	r.write(fmt.Appendf(t.appendPeer(b), ": seq=%d (%s)\n", seq, why))
}

func (r *textReporter) summary(t *target, s *stats) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := fmt.Appendf(r.line[:0], "\n--- %s rdma-ping statistics ---\n", t.name)
	b = fmt.Appendf(b, "%d sent, %d received, %d lost (%.1f%%), time %.2f s\n",
		s.sent(), s.count(), s.lost, s.lossPercent(), s.took.Seconds())
	if s.corrupt > 0 {
		b = fmt.Appendf(b, "%d of the lost were answered with wrong contents\n", s.corrupt)
	}
	if s.count() > 0 {
		b = fmt.Appendf(b, "rtt min/avg/max/stddev = %.1f/%.1f/%.1f/%.1f us\n",
			micros(s.min), s.mean/1e3, micros(s.max), micros(s.stddev()))
		b = fmt.Appendf(b, "p50/p99 = %.1f/%.1f us\n", micros(s.percentile(50)), micros(s.percentile(99)))
	}
	if r.histogram.wanted(r.w, s.count()) {
		b = append(append(b, '\n'), drawHistogram("rtt in us, "+t.name, s.hist, canvasFor(r.w))...)
	}
	r.write(b)
}

func (r *textReporter) failed(*target, string) {} // its line is on stderr

// table is the end of fping's output, with what ping says in it.
func (r *textReporter) table(all []*pinging) {
	r.mu.Lock()
	defer r.mu.Unlock()
	width := len("target")
	for _, p := range all {
		width = max(width, utf8.RuneCountInString(p.target.name))
	}
	b := fmt.Appendf(r.line[:0], "\n%-*s %10s %10s %8s %10s %10s %10s\n", width, "target", "sent", "received", "loss", "min us", "avg us", "max us")
	for _, p := range all {
		b = fmt.Appendf(b, "%-*s", width, p.target.name)
		s := p.stats
		switch {
		case !p.begun:
			b = append(b, "  could not be pinged"...)
		case s.count() == 0:
			b = fmt.Appendf(b, " %10d %10d %7.1f%% %10s %10s %10s", s.sent(), 0, s.lossPercent(), "-", "-", "-")
		default:
			b = fmt.Appendf(b, " %10d %10d %7.1f%% %10.1f %10.1f %10.1f",
				s.sent(), s.count(), s.lossPercent(), micros(s.min), s.mean/1e3, micros(s.max))
		}
		b = append(b, '\n')
	}
	r.write(b)
}

func micros(d time.Duration) float64 { return float64(d) / 1e3 }

// byteCount is the plain number, as ping(8) has it.
func byteCount(n int) string {
	if n == 1 {
		return "1 byte"
	}
	return strconv.Itoa(n) + " bytes"
}
