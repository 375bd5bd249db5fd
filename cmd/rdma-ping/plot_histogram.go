package main

import (
	"fmt"
	"image/color"
	"math"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// distribution is what a histogram shows of times. Its percentiles are those of the output.
type distribution struct {
	hist       *hdrhistogram.Histogram
	n          uint64
	min, max   time.Duration
	percentile func(float64) time.Duration
}

func (s *stats) distribution() *distribution {
	return &distribution{s.hist, s.n, s.min, s.max, s.percentile}
}

func (t *perfTimes) distribution() *distribution {
	return &distribution{t.hist, t.n, t.min, t.max, t.percentile}
}

// bins cuts the range into pieces of one width on the axis of times, and counts. The
// histogram is finer than they are; what lies across two of them counts where its middle is.
func (d *distribution) bins() []plotter.HistogramBin {
	low, high := timeLog(float64(d.min)), timeLog(float64(d.max))
	if low == high {
		low, high = low-0.01, high+0.01
	}
	n := int(min(max(math.Sqrt(float64(d.n)), 10), 100)) | 1 // odd: a time that is alone is in the middle
	width := (high - low) / float64(n)
	bins := make([]plotter.HistogramBin, n)
	for i := range bins {
		bins[i].Min, bins[i].Max = low+float64(i)*width, low+float64(i+1)*width
	}
	for _, bar := range d.hist.Distribution() {
		if bar.Count > 0 {
			i := int((timeLog(float64(bar.From+bar.To)/2) - low) / width)
			bins[min(max(i, 0), n-1)].Weight += float64(bar.Count)
		}
	}
	return bins
}

// plotMarks are the percentiles that a histogram shows. The colours are for the colour-blind
// as well.
var plotMarks = [...]struct {
	name   string
	p      float64
	color  color.RGBA
	dashes []vg.Length
}{
	{"p50", 50, color.RGBA{0, 114, 178, 255}, nil},
	{"p90", 90, color.RGBA{0, 158, 115, 255}, []vg.Length{6, 2}},
	{"p99", 99, color.RGBA{213, 94, 0, 255}, []vg.Length{4, 2}},
	{"p99.9", 99.9, color.RGBA{204, 121, 167, 255}, []vg.Length{2, 2}},
}

// plotHistogram shows how many messages took how long, with marks at percentiles.
func plotHistogram(title, what string, d *distribution) (*plot.Plot, error) {
	if d.n == 0 {
		return nil, errNothing
	}
	p := newPlot(title, what+" in microseconds, logarithmic", "number of messages")
	bars := &plotter.Histogram{Bins: d.bins(), FillColor: color.Gray{200}, LineStyle: plotter.DefaultLineStyle}
	bars.LineStyle.Width = vg.Points(0.25)
	p.Add(bars)
	setRange(&p.X, bars.Bins[0].Min, bars.Bins[len(bars.Bins)-1].Max)
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.TickerFunc(timeTicks), plot.TickerFunc(countTicks)
	top := p.Y.Max
	p.Y.Max *= 1.3 // for the legend
	for _, m := range plotMarks {
		at := d.percentile(m.p)
		x := timeLog(float64(at))
		line := &plotter.Line{XYs: plotter.XYs{{X: x, Y: 0}, {X: x, Y: top}}, LineStyle: plotter.DefaultLineStyle}
		line.Color, line.Dashes, line.Width = m.color, m.dashes, vg.Points(1.5)
		p.Add(line)
		p.Legend.Add(fmt.Sprintf("%s = %.1f us", m.name, micros(at)), line)
	}
	return p, nil
}

// pingPlot is the picture of a run of ping.
func pingPlot(t *target, s *stats) (*plot.Plot, error) {
	title := fmt.Sprintf("RDMA round trips to %s over %s\n%s of data, %d sent, %d answered, %d lost",
		t.name, t.device, byteCount(t.size), s.sent(), s.count(), s.lost)
	return plotHistogram(title, "round-trip time", s.distribution())
}
