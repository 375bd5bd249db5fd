package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// perfTarget is what the output says about a run.
type perfTarget struct {
	plan       *perfPlan
	addr       netip.AddrPort
	device     string
	connection string
	waiting
	sizes []int
}

// time is what the times of a latency stand for.
func (p *perfPlan) time() string {
	if p.op == perfSend || p.op == perfWrite {
		return "half round trip"
	}
	return "round trip"
}

// perfResult is what a round measured.
type perfResult struct {
	size     int
	messages uint64
	took     time.Duration
	rate     float64    // messages a second
	times    *perfTimes // of a latency
	lost     uint64
	corrupt  bool
}

// gbits is in 1e9 bits a second, mib in 1048576 bytes a second.
func (r *perfResult) gbits() float64 { return r.rate * float64(r.size) * 8 / 1e9 }
func (r *perfResult) mib() float64   { return r.rate * float64(r.size) / (1 << 20) }

// perfReporter prints a run.
type perfReporter interface {
	start(t *perfTarget)
	result(r *perfResult)
	end()
}

func newPerfReporter(w io.Writer, o *perfOptions) perfReporter {
	switch {
	case o.json:
		return &perfJSON{enc: json.NewEncoder(w)}
	case o.csv:
		return &perfCSV{w: csv.NewWriter(w)}
	}
	return &perfTable{w: w, histogram: o.histogram}
}

// perfTable is for people.
type perfTable struct {
	w         io.Writer
	target    *perfTarget
	histogram histogramChoice
	results   []*perfResult
}

func (p *perfTable) start(t *perfTarget) {
	p.target = t
	how := []string{t.plan.transport.String()}
	if t.plan.qps > 1 {
		how = append(how, fmt.Sprintf("%d queue pairs", t.plan.qps))
	}
	if t.plan.mode == perfBW {
		how = append(how, fmt.Sprintf("depth %d", t.plan.depth))
		if t.plan.batch > 1 {
			how = append(how, fmt.Sprintf("batches of %d", t.plan.batch))
		}
		if t.plan.bidirectional {
			how = append(how, "both ways")
		}
	}
	how = append(how, t.waiting.String())
	fmt.Fprintf(p.w, "%v of %v, %v: %s\n", t.plan.mode, t.plan.op, sizesText(t.sizes), strings.Join(how, ", "))
	fmt.Fprintf(p.w, "to %v over %s, connected %s\n\n", t.addr, t.device, t.connection)
	if t.plan.mode == perfLat {
		fmt.Fprintf(p.w, "%s in us\n%10s %10s %9s %9s %9s %9s %9s %9s %9s%s\n", t.plan.time(),
			"bytes", "messages", "min", "avg", "p50", "p90", "p99", "p99.9", "max", p.lostTitle())
		return
	}
	fmt.Fprintf(p.w, "%10s %10s %12s %12s %14s%s\n", "bytes", "messages", "Gb/s", "MiB/s", "messages/s", p.lostTitle())
}

func (p *perfTable) lostTitle() string {
	if p.target.plan.reliable() {
		return ""
	}
	return fmt.Sprintf(" %8s", "lost")
}

func (p *perfTable) result(r *perfResult) {
	p.results = append(p.results, r)
	fmt.Fprintf(p.w, "%10d %10d", r.size, r.messages)
	if p.target.plan.mode == perfLat {
		for _, d := range r.times.columns() {
			fmt.Fprintf(p.w, " %9.2f", micros(d))
		}
	} else {
		fmt.Fprintf(p.w, " %12.3f %12.2f %14.0f", r.gbits(), r.mib(), r.rate)
	}
	if !p.target.plan.reliable() {
		fmt.Fprintf(p.w, " %8d", r.lost)
	}
	if r.corrupt {
		fmt.Fprint(p.w, "  WRONG CONTENTS")
	}
	fmt.Fprintln(p.w)
}

// end draws the times. A sweep would fill screens, and is not drawn unless that is asked for.
func (p *perfTable) end() {
	for _, r := range p.results {
		if len(p.target.sizes) > 1 && !p.histogram.forced() || !p.histogram.wanted(p.w, r.times.n) {
			continue
		}
		title := fmt.Sprintf("%s in us, %s", p.target.plan.time(), formatSize(r.size))
		fmt.Fprintf(p.w, "\n%s", drawHistogram(title, r.times.hist, canvasFor(p.w)))
	}
}

// columns are min, avg, p50, p90, p99, p99.9 and max.
func (t *perfTimes) columns() [7]time.Duration {
	return [...]time.Duration{t.min, t.mean(), t.percentile(50), t.percentile(90), t.percentile(99), t.percentile(99.9), t.max}
}

// perfCSV prints a line a size, with all that the run was in each.
type perfCSV struct {
	w      *csv.Writer
	target *perfTarget
}

func (p *perfCSV) start(t *perfTarget) {
	p.target = t
	head := []string{"operation", "transport", "queue_pairs", "depth", "batch", "bidirectional", "bytes", "messages"}
	if t.plan.mode == perfLat {
		kind := strings.ReplaceAll(t.plan.time(), " ", "_")
		for _, name := range []string{"min", "avg", "p50", "p90", "p99", "p99.9", "max"} {
			head = append(head, kind+"_"+name+"_us")
		}
	} else {
		head = append(head, "seconds", "gbit_per_s", "mib_per_s", "messages_per_s")
	}
	p.write(append(head, "lost", "corrupt"))
}

// write prints a line at once: a sweep may take long.
func (p *perfCSV) write(line []string) {
	p.w.Write(line) //nolint:errcheck // as for all output
	p.w.Flush()
}

func (p *perfCSV) result(r *perfResult) {
	plan := p.target.plan
	line := []string{
		plan.op.String(), strings.ToLower(plan.transport.String()), strconv.Itoa(plan.qps), strconv.Itoa(plan.depth), strconv.Itoa(plan.batch),
		strconv.FormatBool(plan.bidirectional), strconv.Itoa(r.size), strconv.FormatUint(r.messages, 10),
	}
	number := func(v float64, digits int) { line = append(line, strconv.FormatFloat(v, 'f', digits, 64)) }
	if plan.mode == perfLat {
		for _, d := range r.times.columns() {
			number(micros(d), 3)
		}
	} else {
		number(r.took.Seconds(), 6)
		number(r.gbits(), 6)
		number(r.mib(), 3)
		number(r.rate, 1)
	}
	p.write(append(line, strconv.FormatUint(r.lost, 10), strconv.FormatBool(r.corrupt)))
}

func (p *perfCSV) end() {}
