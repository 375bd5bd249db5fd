package main

import (
	"encoding/json"
	"sync"
	"time"
)

// jsonReporter prints an object a line; "type" says which: start, reply, lost, summary,
// failed. "target" is what the user called the target.
type jsonReporter struct {
	mu     sync.Mutex
	enc    *json.Encoder
	quiet  bool
	stamps bool
	now    func() time.Time
}

type jsonStart struct {
	Type     string `json:"type"`
	Target   string `json:"target"`
	Address  string `json:"address"`
	Device   string `json:"device"`
	Protocol string `json:"protocol"`
	Bytes    int    `json:"bytes"`
}

type jsonReply struct {
	Type      string  `json:"type"`
	Target    string  `json:"target"`
	Address   string  `json:"address"`
	Bytes     int     `json:"bytes"`
	Seq       uint64  `json:"seq"`
	RTT       float64 `json:"rtt_us"`
	Timestamp float64 `json:"timestamp_s,omitempty"` // Unix time
}

type jsonLost struct {
	Type      string  `json:"type"`
	Target    string  `json:"target"`
	Seq       uint64  `json:"seq"`
	Reason    string  `json:"reason"`
	Timestamp float64 `json:"timestamp_s,omitempty"`
}

type jsonFailed struct {
	Type   string `json:"type"`
	Target string `json:"target"`
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
	Target   string   `json:"target"`
	Sent     uint64   `json:"sent"`
	Received uint64   `json:"received"`
	Lost     uint64   `json:"lost"`
	Corrupt  uint64   `json:"corrupt"`
	Loss     float64  `json:"loss_percent"`
	Time     float64  `json:"time_s"`
	RTT      *jsonRTT `json:"rtt_us,omitempty"` // absent if nothing was received
}

// print writes one line, in one piece.
func (r *jsonReporter) print(object any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.enc.Encode(object) //nolint:errcheck // as for all output
}

// stamp is 0 if no times are wanted.
func (r *jsonReporter) stamp() float64 {
	if !r.stamps {
		return 0
	}
	return float64(r.now().UnixMicro()) / 1e6
}

func (r *jsonReporter) start(t *target) {
	r.print(jsonStart{"start", t.name, t.addr.String(), t.device, t.protocol, t.size})
}

func (r *jsonReporter) sent(*target) {}

func (r *jsonReporter) reply(t *target, seq uint64, rtt time.Duration) {
	if !r.quiet {
		r.print(jsonReply{"reply", t.name, t.addr.Addr().String(), t.size, seq, micros(rtt), r.stamp()})
	}
}

func (r *jsonReporter) lost(t *target, seq uint64, why string) {
	if !r.quiet {
		r.print(jsonLost{"lost", t.name, seq, why, r.stamp()})
	}
}

func (r *jsonReporter) failed(t *target, why string) {
	r.print(jsonFailed{"failed", t.name, why})
}

func (r *jsonReporter) table([]*pinging) {} // the summaries say it all

func (r *jsonReporter) summary(t *target, s *stats) {
	out := jsonSummary{
		Type: "summary", Target: t.name, Sent: s.sent(), Received: s.count(), Lost: s.lost, Corrupt: s.corrupt,
		Loss: s.lossPercent(), Time: s.took.Seconds(),
	}
	if s.count() > 0 {
		out.RTT = &jsonRTT{
			Min: micros(s.min), Avg: s.mean / 1e3, Max: micros(s.max), StdDev: micros(s.stddev()),
			P50: micros(s.percentile(50)), P99: micros(s.percentile(99)),
		}
	}
	r.print(out)
}
