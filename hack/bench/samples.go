package main

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// samples holds the values by name and by who ran: "c", "go" or "cgo".
type samples map[string]map[string][]float64

// collect reads "sample NAME WHO VALUE" lines and passes all others on.
func (s samples) collect(r io.Reader, others io.Writer) {
	for lines := bufio.NewScanner(r); lines.Scan(); {
		f := strings.Fields(lines.Text())
		if len(f) != 4 || f[0] != "sample" {
			fmt.Fprintln(others, lines.Text())
			continue
		}
		v, err := strconv.ParseFloat(f[3], 64)
		if err != nil {
			fmt.Fprintln(others, lines.Text())
			continue
		}
		if s[f[1]] == nil {
			s[f[1]] = map[string][]float64{}
		}
		s[f[1]][f[2]] = append(s[f[1]][f[2]], v)
	}
}

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

func (s samples) report(w io.Writer, value valuer) error {
	if len(s) == 0 {
		return fmt.Errorf("the job gave no sample")
	}
	names := make([]string, 0, len(s))
	for name := range s {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if err := s.reportName(w, name, value); err != nil {
			return err
		}
	}
	return nil
}

func (s samples) reportName(w io.Writer, name string, value valuer) error {
	c, g, cgo := s[name]["c"], s[name]["go"], s[name]["cgo"]
	if len(c) == 0 || len(c) != len(g) || len(cgo) > 0 && len(cgo) != len(g) {
		return fmt.Errorf("%s: %d samples of C, %d of Go, %d of cgo", name, len(c), len(g), len(cgo))
	}
	medians, least := fmt.Sprintf("c %.1f go %.1f", median(c), median(g)), fmt.Sprintf("%.1f and %.1f", slices.Min(c), slices.Min(g))
	if len(cgo) > 0 {
		medians += fmt.Sprintf(" cgo %.1f", median(cgo))
		least += fmt.Sprintf(" and %.1f", slices.Min(cgo))
	}
	fmt.Fprintf(w, "cost %s %s (%s, medians of %d; least %s)\n", name, medians, unit(name), len(c), least)
	row(w, "ratio", name, g, c, value)
	if len(cgo) > 0 {
		row(w, "ratio-cgo", name, g, cgo, value)
	}
	return nil
}

func row(w io.Writer, kind, name string, a, b []float64, value valuer) {
	r := ratios(a, b)
	fmt.Fprintf(w, "%s %s %.3f %.3f %.3f\n", kind, name, value(a, b), slices.Min(r), slices.Max(r))
}

// unit is what the values of that name are in. The lab's microseconds are thousand
// instructions.
func unit(name string) string {
	switch {
	case strings.HasPrefix(name, "mlx5-"):
		return "ns an operation"
	case strings.HasSuffix(name, "-kB"):
		return "kB of the client a connection"
	}
	return "thousand instructions an iteration"
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}
