package main

import (
	"encoding/xml"
	"errors"
	"fmt"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gonum.org/v1/plot"

	"github.com/pureverbs/rdma/internal/testutil"
)

// timesOf are times of some shape.
func timesOf(n int, at func(i int) time.Duration) *stats {
	s := newStats()
	for i := range n {
		s.received(at(i))
	}
	return s
}

var spreads = map[string]*stats{
	"one":        timesOf(1, func(int) time.Duration { return 5 * time.Microsecond }),
	"the same":   timesOf(500, func(int) time.Duration { return time.Second }),
	"two":        timesOf(2, func(i int) time.Duration { return time.Duration(1+i) * time.Millisecond }),
	"no time":    timesOf(3, func(i int) time.Duration { return time.Duration(i) }),
	"even":       timesOf(1000, func(i int) time.Duration { return time.Duration(1+i) * time.Microsecond }),
	"far apart":  timesOf(20000, func(i int) time.Duration { return time.Duration(math.Pow(10, 3+float64(i%8))) }),
	"near":       timesOf(300, func(i int) time.Duration { return 7*time.Microsecond + time.Duration(i) }),
	"off limits": timesOf(10, func(i int) time.Duration { return longest + time.Duration(i)*time.Minute }),
}

// TestPlotBins: each answer is in a bin, bins lie side by side from the least to the greatest
// time, and what is in them is what was measured.
func TestPlotBins(t *testing.T) {
	for name, s := range spreads {
		bins := s.distribution().bins()
		sum := 0.0
		for i, b := range bins {
			sum += b.Weight
			if b.Max <= b.Min || i > 0 && math.Abs(b.Min-bins[i-1].Max) > 1e-9 {
				t.Errorf("%s: bin %d from %v to %v", name, i, b.Min, b.Max)
			}
		}
		if sum != float64(s.count()) {
			t.Errorf("%s: %v in the bins, %d answers", name, sum, s.count())
		}
		low, high := bins[0].Min, bins[len(bins)-1].Max
		for _, at := range []time.Duration{s.min, s.max, s.percentile(50), s.percentile(99.9)} {
			if x := timeLog(float64(at)); x < low-1e-9 || x > high+1e-9 {
				t.Errorf("%s: %v is outside of the picture", name, at)
			}
		}
	}
	for _, b := range spreads["even"].distribution().bins() {
		want := 0.0
		for i := range 1000 {
			if x := timeLog(float64(1+i) * 1e3); x >= b.Min && x < b.Max {
				want++
			}
		}
		if math.Abs(b.Weight-want) > 1 { // one on either side of an end
			t.Errorf("from %v to %v: %v, want %v", b.Min, b.Max, b.Weight, want)
		}
	}
}

// TestPlotTicks: there are labels to read, whatever the range.
func TestPlotTicks(t *testing.T) {
	for name, ticks := range map[string][]plot.Tick{
		"0.5 3 5": labelled(timeTicks(-0.4, 1)), "1 us to 1 hour": labelled(timeTicks(0, 9.6)),
		"near": labelled(timeTicks(0.8, 0.9)), "sizes": labelled(sizeTicks(1, 23)), "9 to 15": labelled(sizeTicks(math.Log2(9), math.Log2(15))),
		"1 count": labelled(countTicks(0, 1.3)), "7 counts": labelled(countTicks(0, 7.9)), "counts": labelled(countTicks(0, 3e8)),
	} {
		if len(ticks) < 2 || len(ticks) > 14 {
			t.Errorf("%s: %d labels: %v", name, len(ticks), ticks)
		}
	}
	for _, tick := range timeTicks(-2, 3) {
		if v, err := strconv.ParseFloat(tick.Label, 64); tick.Label != "" && (err != nil || math.Abs(math.Log10(v)-tick.Value) > 1e-9) {
			t.Errorf("%q is at %v", tick.Label, tick.Value)
		}
	}
	if got := sizeTick(math.Log2(3 << 10)).Label; got != "3 KiB" {
		t.Errorf("3 KiB is called %q", got)
	}
}

func labelled(ticks []plot.Tick) []plot.Tick {
	return slices.DeleteFunc(ticks, plot.Tick.IsMinor)
}

var upright = regexp.MustCompile(`<path d="M([0-9.]+),([0-9.]+)L([0-9.]+),([0-9.]+)" style="fill:none;stroke:#([0-9A-F]{6});`)

// TestPlotMarks looks for the lines in the drawing: they stand where the percentiles belong on
// a logarithmic axis, and the legend says the same figures as the summary.
func TestPlotMarks(t *testing.T) {
	s := timesOf(1000, func(i int) time.Duration { return time.Duration(1+i) * time.Microsecond })
	p, err := pingPlot(&target{name: "<host>", device: "rxe0", size: 56}, s)
	testutil.Must(t, err)
	text := drawn(t, p)
	at := map[string]float64{}
	for _, m := range upright.FindAllStringSubmatch(text, -1) {
		if m[1] == m[3] && m[2] != m[4] {
			x, err := strconv.ParseFloat(m[1], 64)
			testutil.Must(t, err)
			at[m[5]] = x
		}
	}
	x50, x99 := at["0072B2"], at["D55E00"]
	for colour, us := range map[string]float64{"009E73": 900, "CC79A7": 999} {
		want := x50 + (x99-x50)*math.Log(us/500)/math.Log(990./500)
		if got := at[colour]; math.Abs(got-want) > 1 {
			t.Errorf("%v us are at %v, want %v; all: %v", us, got, want, at)
		}
	}
	for _, want := range []string{
		fmt.Sprintf("p50 = %.1f us", micros(s.percentile(50))), "p90 = 900.", "p99 = 990.", "p99.9 = 999.", "microseconds", "number of messages",
		"RDMA round trips to &lt;host&gt; over rxe0", "56 bytes of data, 1000 sent, 1000 answered, 0 lost", "Helvetica",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %q in the picture", want)
		}
	}
}

// drawn is a picture as SVG.
func drawn(t *testing.T, p *plot.Plot) string {
	t.Helper()
	f := plotFile(filepath.Join(t.TempDir(), "x.svg"))
	testutil.Must(t, f.write(p))
	b, err := os.ReadFile(string(f))
	testutil.Must(t, err)
	return string(b)
}

// TestPlotShapes draws all there may be: whatever was measured, nothing panics.
func TestPlotShapes(t *testing.T) {
	for name, s := range spreads {
		p, err := pingPlot(&target{name: "host", device: "rxe0"}, s)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		drawn(t, p)
	}
	if _, err := pingPlot(&target{}, newStats()); !errors.Is(err, errNothing) {
		t.Errorf("without answers: %v", err)
	}
}

// isPicture reads a picture to its end.
func isPicture(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	testutil.Must(t, err)
	defer f.Close()
	if strings.EqualFold(filepath.Ext(path), ".png") {
		if img, err := png.Decode(f); err != nil || img.Bounds().Dx() < 600 {
			t.Errorf("%s: %v", path, err)
		}
		return
	}
	d, depth, n := xml.NewDecoder(f), 0, 0
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		testutil.Must(t, err)
		switch token.(type) {
		case xml.StartElement:
			depth, n = depth+1, n+1
		case xml.EndElement:
			depth--
		}
	}
	if depth != 0 || n < 20 {
		t.Errorf("%s: %d elements, %d of them open", path, n, depth)
	}
}
