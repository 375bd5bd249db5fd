package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"
)

// reporter prints what happens, line by line.
type reporter interface {
	start(t *target)
	reply(t *target, seq uint64, rtt time.Duration)
	lost(t *target, seq uint64, why string)
	summary(t *target, s *stats)
}

func newReporter(w io.Writer, o *pingOptions) reporter {
	if o.json {
		return &jsonReporter{enc: json.NewEncoder(w), quiet: o.quiet}
	}
	return &textReporter{w: w, quiet: o.quiet}
}

// textReporter prints the lines of ping(8).
type textReporter struct {
	w     io.Writer
	quiet bool
	begun bool
	line  []byte // reused: a line a round trip, and there may be very many
}

func (r *textReporter) start(t *target) {
	r.begun = true
	fmt.Fprintf(r.w, "PING %s (%v) over %s: %s of data", t.name, t.addr, t.device, byteCount(t.size))
	if t.protocol == "rping" {
		fmt.Fprint(r.w, ", rping protocol")
	}
	fmt.Fprintln(r.w)
}

func (r *textReporter) reply(t *target, seq uint64, rtt time.Duration) {
	if r.quiet {
		return
	}
	b := append(r.line[:0], byteCount(t.size)...)
	b = append(b, " from "...)
	b = t.addr.Addr().AppendTo(b)
	b = append(b, ": seq="...)
	b = strconv.AppendUint(b, seq, 10)
	b = append(b, " time="...)
	b = strconv.AppendFloat(b, micros(rtt), 'f', 1, 64)
	r.line = append(b, " us\n"...)
	r.w.Write(r.line)
}

func (r *textReporter) lost(t *target, seq uint64, why string) {
	if !r.quiet {
		fmt.Fprintf(r.w, "no answer from %v: seq=%d (%s)\n", t.addr.Addr(), seq, why)
	}
}

func (r *textReporter) summary(t *target, s *stats) {
	if !r.begun {
		return
	}
	fmt.Fprintf(r.w, "\n--- %s rdma-ping statistics ---\n", t.name)
	fmt.Fprintf(r.w, "%d sent, %d received, %d lost (%.1f%%), time %.2f s\n",
		s.sent(), s.count(), s.lost, s.lossPercent(), s.took.Seconds())
	if s.corrupt > 0 {
		fmt.Fprintf(r.w, "%d of the lost were answered with wrong contents\n", s.corrupt)
	}
	if s.count() == 0 {
		return
	}
	fmt.Fprintf(r.w, "rtt min/avg/max/stddev = %.1f/%.1f/%.1f/%.1f us\n",
		micros(s.min), s.mean/1e3, micros(s.max), micros(s.stddev()))
	fmt.Fprintf(r.w, "p50/p99 = %.1f/%.1f us\n", micros(s.percentile(50)), micros(s.percentile(99)))
}

func micros(d time.Duration) float64 { return float64(d) / 1e3 }

// byteCount is the plain number, as ping(8) has it.
func byteCount(n int) string {
	if n == 1 {
		return "1 byte"
	}
	return strconv.Itoa(n) + " bytes"
}
