package main

import (
	"encoding/json"
	"strings"
)

// perfJSON prints an object a line; "type" says which: start, latency, bandwidth.
type perfJSON struct {
	enc    *json.Encoder
	target *perfTarget
}

type perfJSONStart struct {
	Type          string `json:"type"`
	Mode          string `json:"mode"`
	Operation     string `json:"operation"`
	Transport     string `json:"transport"`
	Address       string `json:"address"`
	Device        string `json:"device"`
	Connection    string `json:"connection"`
	QueuePairs    int    `json:"queue_pairs"`
	Depth         int    `json:"depth"`
	Batch         int    `json:"batch"`
	Bidirectional bool   `json:"bidirectional"`
	Poll          bool   `json:"poll"`
	Block         bool   `json:"block"`
	Sizes         []int  `json:"sizes"`
}

type perfJSONTimes struct {
	Min  float64 `json:"min"`
	Avg  float64 `json:"avg"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p99_9"`
	Max  float64 `json:"max"`
}

type perfJSONLatency struct {
	Type     string        `json:"type"`
	Bytes    int           `json:"bytes"`
	Messages uint64        `json:"messages"`
	Lost     uint64        `json:"lost"`
	Corrupt  bool          `json:"corrupt"`
	Of       string        `json:"time"` // what the times stand for
	Times    perfJSONTimes `json:"us"`
}

type perfJSONBandwidth struct {
	Type     string  `json:"type"`
	Bytes    int     `json:"bytes"`
	Messages uint64  `json:"messages"`
	Lost     uint64  `json:"lost"`
	Corrupt  bool    `json:"corrupt"`
	Seconds  float64 `json:"seconds"`
	Gbits    float64 `json:"gbit_per_s"`
	MiB      float64 `json:"mib_per_s"`
	Rate     float64 `json:"messages_per_s"`
}

func (p *perfJSON) start(t *perfTarget) {
	p.target = t
	p.enc.Encode(perfJSONStart{
		Type: "start", Mode: t.plan.mode.String(), Operation: t.plan.op.String(), Transport: strings.ToLower(t.plan.transport.String()),
		Address: t.addr.String(), Device: t.device, Connection: t.connection, QueuePairs: t.plan.qps, Depth: t.plan.depth,
		Batch: t.plan.batch, Bidirectional: t.plan.bidirectional, Poll: t.poll, Block: t.block, Sizes: t.sizes,
	})
}

func (p *perfJSON) result(r *perfResult) {
	if p.target.plan.mode == perfBW {
		p.enc.Encode(perfJSONBandwidth{
			Type: "bandwidth", Bytes: r.size, Messages: r.messages, Lost: r.lost, Corrupt: r.corrupt,
			Seconds: r.took.Seconds(), Gbits: r.gbits(), MiB: r.mib(), Rate: r.rate,
		})
		return
	}
	d := r.times.columns()
	p.enc.Encode(perfJSONLatency{
		Type: "latency", Bytes: r.size, Messages: r.messages, Lost: r.lost, Corrupt: r.corrupt, Of: p.target.plan.time(),
		Times: perfJSONTimes{micros(d[0]), micros(d[1]), micros(d[2]), micros(d[3]), micros(d[4]), micros(d[5]), micros(d[6])},
	})
}

func (p *perfJSON) end() {}
