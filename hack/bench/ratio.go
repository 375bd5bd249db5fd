package main

import "slices"

// A valuer makes one ratio of the rounds of a and b.
type valuer func(a, b []float64) float64

func ofMedians(a, b []float64) float64 { return median(a) / median(b) }

// ofRatios suits a machine whose speed changes from round to round.
func ofRatios(a, b []float64) float64 { return median(ratios(a, b)) }

func ratios(a, b []float64) []float64 {
	r := make([]float64, len(a))
	for i := range a {
		r[i] = a[i] / b[i]
	}
	return r
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}

// A spreader says how far the rounds' ratios are apart.
type spreader func(ratios []float64) (low, high float64)

func extremes(r []float64) (low, high float64) { return slices.Min(r), slices.Max(r) }

// quartiles are the medians of the lower and of the upper half, the middle one in both.
func quartiles(r []float64) (low, high float64) {
	r = slices.Sorted(slices.Values(r))
	n := len(r)
	return median(r[:(n+1)/2]), median(r[n/2:])
}
