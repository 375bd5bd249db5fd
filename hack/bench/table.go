package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// table is how samples become rows.
type table struct {
	kind   string // of a row: its first word
	value  valuer
	spread spreader
	unit   func(name string) string
}

func (t *table) report(w io.Writer, s samples) error {
	if len(s) == 0 {
		return fmt.Errorf("the job gave no sample")
	}
	for _, name := range slices.Sorted(maps.Keys(s)) {
		if err := t.reportName(w, name, s[name]); err != nil {
			return err
		}
	}
	return nil
}

func (t *table) reportName(w io.Writer, name string, by map[string][]float64) error {
	c, g, cgo := by["c"], by["go"], by["cgo"]
	if len(c) == 0 || len(c) != len(g) || len(cgo) > 0 && len(cgo) != len(g) {
		return fmt.Errorf("%s: %d samples of C, %d of Go, %d of cgo", name, len(c), len(g), len(cgo))
	}
	medians, least := fmt.Sprintf("c %.1f go %.1f", median(c), median(g)), fmt.Sprintf("%.1f and %.1f", slices.Min(c), slices.Min(g))
	if len(cgo) > 0 {
		medians += fmt.Sprintf(" cgo %.1f", median(cgo))
		least += fmt.Sprintf(" and %.1f", slices.Min(cgo))
	}
	fmt.Fprintf(w, "cost %s %s (%s, medians of %d; least %s)\n", name, medians, t.unit(name), len(c), least)
	t.row(w, t.kind, name, g, c)
	if len(cgo) > 0 {
		t.row(w, t.kind+"-cgo", name, g, cgo)
	}
	return nil
}

func (t *table) row(w io.Writer, kind, name string, a, b []float64) {
	low, high := t.spread(ratios(a, b))
	fmt.Fprintf(w, "%s %s %.3f %.3f %.3f\n", kind, name, t.value(a, b), low, high)
}

// instructions is the unit of the lab: its microseconds are thousand instructions.
func instructions(name string) string {
	switch {
	case strings.HasPrefix(name, "start-") && strings.HasSuffix(name, "-kB"):
		return "kB of the client"
	case strings.HasPrefix(name, "start-"):
		return "thousand instructions of the client's process"
	case strings.HasSuffix(name, "-kB"):
		return "kB of the client a connection"
	}
	return "thousand instructions an iteration"
}

func microseconds(string) string { return "microseconds an iteration" }
func nanoseconds(string) string  { return "ns an operation" }
