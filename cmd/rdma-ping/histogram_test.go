package main

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// spread are n times about a median whose logarithms are distributed normally, the same ones
// each time.
func spread(n int, median time.Duration, sigma float64) *hdrhistogram.Histogram {
	h := newStats().hist
	random := rand.New(rand.NewPCG(1, 2))
	for range n {
		h.RecordValue(int64(float64(median) * math.Exp(sigma*random.NormFloat64())))
	}
	return h
}

func TestHistogram(t *testing.T) {
	tail := spread(1000, 5*time.Microsecond, 0.1)
	tail.RecordValues(int64(30*time.Millisecond), 3)
	same := newStats().hist
	same.RecordValues(int64(1234567), 25)
	two := spread(500, 900*time.Nanosecond, 0.05)
	two.Merge(spread(300, 3*time.Microsecond, 0.05))
	var b strings.Builder
	for _, c := range []struct {
		title string
		hist  *hdrhistogram.Histogram
		on    canvas
	}{
		{"wide, ASCII", spread(10000, 120*time.Microsecond, 0.5), canvas{80, true}},
		{"wide, 120 columns", spread(10000, 120*time.Microsecond, 0.5), canvas{120, false}},
		{"narrow", spread(10000, 120*time.Microsecond, 0.1), canvas{80, false}},
		{"very narrow", spread(10000, 120*time.Microsecond, 0.001), canvas{80, false}},
		{"long tail", tail, canvas{80, false}},
		{"two humps, 60 columns", two, canvas{60, false}},
		{"all the same, no space", same, canvas{1, true}},
		{"seven decades", spread(1000, time.Millisecond, 2.5), canvas{80, false}},
		{"one", func() *hdrhistogram.Histogram { h := newStats().hist; h.RecordValue(0); return h }(), canvas{80, false}},
	} {
		b.WriteString(drawHistogram(c.title, c.hist, c.on) + "\n")
	}
	golden(t, "histogram.txt", b.String())
	if got := drawHistogram("none", newStats().hist, canvas{width: 80}); got != "" {
		t.Errorf("nothing is drawn as\n%s", got)
	}
}

// TestHistogramRows checks what holds of any values: rows follow on each other and are not
// too many, nothing is left out, and lines fit.
func TestHistogramRows(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 100 {
		n, median, sigma := 1+random.IntN(2000), time.Duration(1+random.ExpFloat64()*1e6), 3*random.Float64()*random.Float64()
		h := spread(n, median, sigma)
		name := fmt.Sprintf("%d about %v, %v", n, median, sigma)
		rows := histogramRows(h)
		sum, marks := int64(0), ""
		for i, r := range rows {
			sum += r.count
			marks += r.marks
			if r.from >= r.to || i > 0 && r.from != rows[i-1].to {
				t.Errorf("%s: row %d is from %v to %v", name, i, r.from, r.to)
			}
		}
		if len(rows) > histogramMost || sum != h.TotalCount() || marks != " p50 p99" {
			t.Errorf("%s: %d rows, %d of %d values, marks %q", name, len(rows), sum, h.TotalCount(), marks)
		}
		if rows[0].count == 0 || rows[len(rows)-1].count == 0 {
			t.Errorf("%s: empty rows at an end: %+v", name, rows)
		}
		if lo, hi := float64(h.Min()), float64(h.Max()); n > 200 && hi > 4*lo && hi < 1e6*lo && len(rows) < histogramMost/2 {
			t.Errorf("%s: only %d rows from %v to %v", name, len(rows), lo, hi)
		}
		for _, c := range []canvas{{80, true}, {80, false}, {132, false}} {
			for line := range strings.Lines(drawHistogram("times", h, c)) {
				if got := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); got > c.width {
					t.Errorf("%s: %d characters where %d fit: %s", name, got, c.width, line)
				}
			}
		}
	}
}

func TestHistogramWanted(t *testing.T) {
	for choice, want := range map[string][3]bool{ // of 0, 19 and 1000, in a pipe
		"": {}, "auto": {}, "false": {}, "0": {}, "true": {false, true, true}, "1": {false, true, true},
	} {
		var c histogramChoice
		if err := c.Set(choice); err != nil && choice != "" {
			t.Errorf("%q: %v", choice, err)
		}
		if got := [3]bool{c.wanted(&bytes.Buffer{}, 0), c.wanted(&bytes.Buffer{}, 19), c.wanted(&bytes.Buffer{}, 1000)}; got != want {
			t.Errorf("%q: wanted %v, want %v", choice, got, want)
		}
	}
}

func TestUTF8Locale(t *testing.T) {
	for _, tt := range []struct {
		all, ctype, lang string
		want             bool
	}{
		{"", "", "", false},
		{"", "", "C", false},
		{"", "", "C.UTF-8", true},
		{"", "", "en_US.utf8", true},
		{"", "POSIX", "en_US.UTF-8", false},
		{"C", "en_US.UTF-8", "en_US.UTF-8", false},
		{"de_DE.UTF-8", "C", "C", true},
	} {
		env := map[string]string{"LC_ALL": tt.all, "LC_CTYPE": tt.ctype, "LANG": tt.lang}
		if got := utf8Locale(func(name string) string { return env[name] }); got != tt.want {
			t.Errorf("%v: %v", env, got)
		}
	}
}
