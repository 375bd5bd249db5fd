package main

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// perfPicture keeps what a reporter prints, for the picture of it.
type perfPicture struct {
	perfReporter
	target  *perfTarget
	results []*perfResult
}

func (p *perfPicture) start(t *perfTarget) {
	p.target = t
	p.perfReporter.start(t)
}

func (p *perfPicture) result(r *perfResult) {
	p.results = append(p.results, r)
	p.perfReporter.result(r)
}

// errOneSize is a curve of a single point.
var errOneSize = errors.New("nothing to plot: bandwidth is drawn against the size, which takes several sizes: --sizes 64..1M")

// oneSize tells whether sizes are one and the same.
func oneSize(sizes []int) bool { return slices.Min(sizes) == slices.Max(sizes) }

// plot draws what was measured: times of one size as a histogram, of several and bandwidth
// as curves.
func (p *perfPicture) plot() (*plot.Plot, error) {
	t := p.target
	slices.SortStableFunc(p.results, func(a, b *perfResult) int { return a.size - b.size })
	switch {
	case t.plan.mode == perfBW && oneSize(t.sizes):
		return nil, errOneSize
	case t.plan.mode == perfBW:
		return p.bandwidth()
	case oneSize(t.sizes):
		times := newPerfTimes()
		for _, r := range p.results {
			times.merge(r.times)
		}
		title := fmt.Sprintf("%s\n%s, %d messages", p.title(), formatSize(t.sizes[0]), times.n)
		return plotHistogram(title, t.plan.time(), times.distribution())
	}
	return p.latency()
}

// title is the first line.
func (p *perfPicture) title() string {
	t := p.target
	text := fmt.Sprintf("RDMA %v of %v (%v) to %v over %s", t.plan.mode, t.plan.op, t.plan.transport, t.addr, t.device)
	if t.plan.bidirectional {
		text += ", both ways"
	}
	if t.plan.qps > 1 {
		text += fmt.Sprintf(", %d queue pairs", t.plan.qps)
	}
	return text
}

// latency has a curve for each of two percentiles.
func (p *perfPicture) latency() (*plot.Plot, error) {
	out := p.sweep(p.target.plan.time() + " in microseconds, logarithmic")
	for _, m := range plotMarks {
		if m.p != 50 && m.p != 99 {
			continue
		}
		var points plotter.XYs
		for _, r := range p.results {
			if r.times.n > 0 {
				points = append(points, plotter.XY{X: sizeLog(r.size), Y: timeLog(float64(r.times.percentile(m.p)))})
			}
		}
		if len(points) == 0 {
			return nil, errNothing
		}
		curve, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return nil, err
		}
		curve.Color, curve.Dashes, curve.Width, dots.Color = m.color, m.dashes, vg.Points(1.5), m.color
		out.Add(curve, dots)
		out.Legend.Add(m.name, curve, dots)
	}
	out.Legend.Left = true
	setRange(&out.Y, out.Y.Min, out.Y.Max+(out.Y.Max-out.Y.Min)/6) // with room for the legend
	out.Y.Tick.Marker = plot.TickerFunc(timeTicks)
	return out, nil
}

// bandwidth has one curve, from zero on.
func (p *perfPicture) bandwidth() (*plot.Plot, error) {
	out := p.sweep("Gb/s (1e9 bits a second)")
	points := make(plotter.XYs, len(p.results))
	for i, r := range p.results {
		points[i] = plotter.XY{X: sizeLog(r.size), Y: r.gbits()}
	}
	curve, dots, err := plotter.NewLinePoints(points)
	if err != nil {
		return nil, err
	}
	curve.Color, curve.Width, dots.Color = plotMarks[0].color, vg.Points(1.5), plotMarks[0].color
	out.Add(curve, dots)
	out.Y.Min = 0
	return out, nil
}

// sweep is an empty picture with the sizes from left to right.
func (p *perfPicture) sweep(y string) *plot.Plot {
	sizes := p.target.sizes
	out := newPlot(p.title()+"\n"+sizesText(sizes)+p.each(), "size of a message, logarithmic", y)
	out.Add(plotter.NewGrid())
	setRange(&out.X, sizeLog(slices.Min(sizes)), sizeLog(slices.Max(sizes)))
	out.X.Tick.Marker = plot.TickerFunc(sizeTicks)
	return out
}

// each is the number of messages of each size, if it is the same of all.
func (p *perfPicture) each() string {
	n := p.results[0].messages
	if slices.ContainsFunc(p.results, func(r *perfResult) bool { return r.messages != n }) {
		return ""
	}
	return fmt.Sprintf(", %d messages each", n)
}

func sizeLog(size int) float64 { return math.Log2(float64(size)) }
