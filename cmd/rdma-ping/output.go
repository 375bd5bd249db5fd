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

// jsonReporter prints an object a line; "type" says which: start, reply, lost, summary.
type jsonReporter struct {
	enc   *json.Encoder
	quiet bool
	begun bool
}

type jsonStart struct {
	Type     string `json:"type"`
	Name     string `json:"name"`
	Address  string `json:"address"`
	Device   string `json:"device"`
	Protocol string `json:"protocol"`
	Bytes    int    `json:"bytes"`
}

type jsonReply struct {
	Type    string  `json:"type"`
	Address string  `json:"address"`
	Bytes   int     `json:"bytes"`
	Seq     uint64  `json:"seq"`
	RTT     float64 `json:"rtt_us"`
}

type jsonLost struct {
	Type   string `json:"type"`
	Seq    uint64 `json:"seq"`
	Reason string `json:"reason"`
}

type jsonRTT struct {
	Min    float64 `json:"min"`
	Avg    float64 `json:"avg"`
	Max    float64 `json:"max"`
	StdDev float64 `json:"stddev"`
	P50    float64 `json:"p50"`
	P99    float64 `json:"p99"`
}

type jsonSummary struct {
	Type     string   `json:"type"`
	Sent     uint64   `json:"sent"`
	Received uint64   `json:"received"`
	Lost     uint64   `json:"lost"`
	Corrupt  uint64   `json:"corrupt"`
	Loss     float64  `json:"loss_percent"`
	Time     float64  `json:"time_s"`
	RTT      *jsonRTT `json:"rtt_us,omitempty"` // absent if nothing was received
}

func (r *jsonReporter) start(t *target) {
	r.begun = true
	r.enc.Encode(jsonStart{"start", t.name, t.addr.String(), t.device, t.protocol, t.size})
}

func (r *jsonReporter) reply(t *target, seq uint64, rtt time.Duration) {
	if !r.quiet {
		r.enc.Encode(jsonReply{"reply", t.addr.Addr().String(), t.size, seq, micros(rtt)})
	}
}

func (r *jsonReporter) lost(_ *target, seq uint64, why string) {
	if !r.quiet {
		r.enc.Encode(jsonLost{"lost", seq, why})
	}
}

func (r *jsonReporter) summary(_ *target, s *stats) {
	if !r.begun {
		return
	}
	out := jsonSummary{
		Type: "summary", Sent: s.sent(), Received: s.count(), Lost: s.lost, Corrupt: s.corrupt,
		Loss: s.lossPercent(), Time: s.took.Seconds(),
	}
	if s.count() > 0 {
		out.RTT = &jsonRTT{
			Min: micros(s.min), Avg: s.mean / 1e3, Max: micros(s.max), StdDev: micros(s.stddev()),
			P50: micros(s.percentile(50)), P99: micros(s.percentile(99)),
		}
	}
	r.enc.Encode(out)
}
