package main

import (
	"fmt"
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics is what an exporter serves. Label values are the targets, fixed at the start, and
// short lists of reasons.
type metrics struct {
	registry                *prometheus.Registry
	rtt                     *prometheus.HistogramVec
	requests, lost          *prometheus.CounterVec
	connects, connectErrors *prometheus.CounterVec
	connected, info         *prometheus.GaugeVec
}

func newMetrics() *metrics {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	f := promauto.With(registry)
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return f.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, append([]string{"target"}, labels...))
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return f.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	gauge("rdma_ping_build_info", "1, with the version in the labels.", "version", "goversion").
		WithLabelValues(version(), runtime.Version()).Set(1)
	return &metrics{
		registry: registry,
		rtt: f.NewHistogramVec(prometheus.HistogramOpts{
			Name: "rdma_ping_rtt_seconds", Help: "Round trips that were answered.",
			Buckets: rttBuckets(), NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160,
			NativeHistogramMinResetDuration: time.Hour,
		}, []string{"target"}),
		requests:      counter("rdma_ping_requests_total", "Requests sent, both answered and lost ones."),
		lost:          counter("rdma_ping_lost_total", "Requests without a good answer, by reason.", "reason"),
		connects:      counter("rdma_ping_connects_total", "Connections that came about."),
		connectErrors: counter("rdma_ping_connect_errors_total", "Connections that did not come about, by reason.", "reason"),
		connected:     gauge("rdma_ping_connected", "1 while there is a connection to the target, else 0.", "target"),
		info:          gauge("rdma_ping_peer_info", "1 while there is a connection: where it leads, and from which device.", "target", "address", "device"),
	}
}

// rttBuckets are 1, 2 and 5 of each power of ten from 1 us to 1 s, for servers that do not
// take native histograms.
func rttBuckets() (bounds []float64) {
	for scale := 1e6; scale > 1; scale /= 10 {
		bounds = append(bounds, 1/scale, 2/scale, 5/scale) // products are not the nearest numbers
	}
	return append(bounds, 1)
}

// peerMetrics are those of one target, all of them there from the start.
type peerMetrics struct {
	metrics             *metrics
	name                string
	rtt                 prometheus.Observer
	requests, connects  prometheus.Counter
	lost, connectErrors map[string]prometheus.Counter
	connected           prometheus.Gauge
}

func (m *metrics) peer(name string) *peerMetrics {
	byReason := func(v *prometheus.CounterVec, reasons []string) map[string]prometheus.Counter {
		counters := map[string]prometheus.Counter{}
		for _, r := range reasons {
			counters[r] = v.WithLabelValues(name, r)
		}
		return counters
	}
	return &peerMetrics{
		metrics: m, name: name, rtt: m.rtt.WithLabelValues(name),
		requests: m.requests.WithLabelValues(name), lost: byReason(m.lost, lostReasons()),
		connects: m.connects.WithLabelValues(name), connectErrors: byReason(m.connectErrors, connectReasons()),
		connected: m.connected.WithLabelValues(name),
	}
}

// up notes a connection, until down is called.
func (p *peerMetrics) up(t *target) (down func()) {
	p.connects.Inc()
	p.connected.Set(1)
	p.metrics.info.WithLabelValues(p.name, t.addr.String(), t.device).Set(1)
	return func() {
		p.connected.Set(0)
		p.metrics.info.DeletePartialMatch(prometheus.Labels{"target": p.name})
	}
}

const indexPage = `<!DOCTYPE html>
<html lang="en"><title>rdma-ping</title>
<h1>rdma-ping %s</h1>
<p>Round trips over RDMA, for ever.
<p><a href="/metrics">metrics</a>, <a href="/healthz">health</a>
</html>
`

// handler is what is served: the metrics, a page that leads to them, and a sign of life.
func (m *metrics) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		Registry: m.registry, MaxRequestsInFlight: 8, Timeout: 10 * time.Second, EnableOpenMetrics: true,
	}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprintf(w, indexPage, version())
	})
	return mux
}
