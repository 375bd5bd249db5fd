package main

import (
	"math"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
)

// The logarithmic axes are linear ones of logarithms, of base 10 for times and base 2 for
// sizes: on those of the library the place of the label takes half of the picture.

// timeLog is the place of a time in nanoseconds on an axis of microseconds.
func timeLog(nanos float64) float64 { return math.Log10(max(nanos, 1) / 1e3) }

// setRange gives an axis its ends; one value alone gets some room around it.
func setRange(a *plot.Axis, low, high float64) {
	if low == high {
		low, high = low-0.05, high+0.05
	}
	a.Min, a.Max = low, high
}

// timeTicks puts labels at powers of ten, and between them too where there are few of them.
func timeTicks(low, high float64) (ticks []plot.Tick) {
	labelled := map[int]bool{1: true, 2: true, 5: true}
	switch {
	case high-low < 0.6: // so near to each other that they could be on a linear scale
		ticks = plot.DefaultTicks{}.Ticks(math.Pow(10, low), math.Pow(10, high))
		for i := range ticks {
			ticks[i].Value = math.Log10(ticks[i].Value)
		}
		return ticks
	case high-low > 4:
		labelled = map[int]bool{1: true}
	}
	for exp := math.Floor(low); exp <= high; exp++ {
		for i := 1; i < 10; i++ {
			t := plot.Tick{Value: exp + math.Log10(float64(i))}
			if t.Value < low || t.Value > high {
				continue
			}
			if labelled[i] {
				t.Label = strconv.FormatFloat(float64(i)*math.Pow(10, exp), 'f', max(0, -int(exp)), 64)
			}
			ticks = append(ticks, t)
		}
	}
	return ticks
}

// sizeTicks puts labels at powers of two, or at every second, third ... where there are many.
func sizeTicks(low, high float64) (ticks []plot.Tick) {
	first, last := math.Ceil(low), math.Floor(high)
	if last <= first {
		return []plot.Tick{sizeTick(low), sizeTick(high)}
	}
	step := max(1, math.Ceil((last-first+1)/12))
	for exp := first; exp <= last; exp++ {
		t := sizeTick(exp)
		if math.Mod(exp-first, step) != 0 {
			t.Label = ""
		}
		ticks = append(ticks, t)
	}
	return ticks
}

func sizeTick(exp float64) plot.Tick {
	text := formatSize(int(math.Round(math.Exp2(exp))))
	return plot.Tick{Value: exp, Label: strings.NewReplacer(" bytes", " B", " byte", " B").Replace(text)}
}

// countTicks are at whole numbers only.
func countTicks(low, high float64) (ticks []plot.Tick) {
	if high < 8 {
		for v := math.Ceil(low); v <= high; v++ {
			ticks = append(ticks, plot.Tick{Value: v, Label: strconv.Itoa(int(v))})
		}
		return ticks
	}
	for _, t := range (plot.DefaultTicks{}).Ticks(low, high) {
		if t.Label != "" {
			t.Label = strconv.FormatFloat(t.Value, 'f', -1, 64)
		}
		if t.Value == math.Trunc(t.Value) {
			ticks = append(ticks, t)
		}
	}
	return ticks
}
