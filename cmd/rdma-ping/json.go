package main

import (
	"encoding/json"
	"time"
)

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
