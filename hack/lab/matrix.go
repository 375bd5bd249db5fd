//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/pureverbs/rdma/hack/lab/apt"
	"github.com/pureverbs/rdma/hack/lab/kernel"
)

// cell is a kind of guest: each run boots one after the other.
type cell struct {
	kernel kernel.Suite
	device string
}

// cells are the kinds of guests that the user asked for.
func (o *options) cells() []cell {
	var out []cell
	for _, k := range o.kernels {
		for _, d := range o.devices {
			out = append(out, cell{k, d})
		}
	}
	return out
}

// inEach does something with each kind of guest. One that fails does not keep the
// others from it; the user, who wants no more, does.
func inEach(ctx context.Context, cells []cell, do func(cell) result) ([]result, error) {
	var out []result
	for _, c := range cells {
		r := do(c)
		out = append(out, r)
		if ctx.Err() != nil || errors.Is(r.err, context.Canceled) {
			return out, context.Canceled
		}
		if r.err != nil && len(cells) > 1 { // the error of a single one is told in the end
			say("%s: kernel %s, %s: %v", strings.ToUpper(r.verdict()), c.kernel.Kernel, c.device, r.err)
		}
	}
	return out, nil
}

// result is how a run in a cell went.
type result struct {
	cell
	code int   // its exit status
	err  error // why it could not run, or not to its end
	took time.Duration
}

// skipped tells whether the archive no longer has what it takes: everything else
// that is missing is a failure.
func (r result) skipped() bool { return errors.Is(r.err, apt.ErrGone) }

func (r result) verdict() string {
	switch {
	case r.skipped():
		return "skipped"
	case r.err != nil:
		return "NOT RUN"
	case r.code != 0:
		return "FAILED"
	}
	return "ok"
}

// reason is the first line of why, if there is one.
func (r result) reason() string {
	if r.err == nil {
		return ""
	}
	line, _, _ := strings.Cut(r.err.Error(), "\n")
	return line
}

// table shows results, one a line.
func table(results []result) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "KERNEL\tDEVICE\tRESULT")
	for _, r := range results {
		last := r.reason()
		if r.err == nil && r.took > 0 {
			last = fmt.Sprintf("%.0fs", r.took.Seconds())
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", r.kernel.Kernel, r.device, r.verdict(), last)
	}
	_ = w.Flush() // to memory
	return b.String()
}

// conclude gives the exit status of all results together. What a single one could
// not do is its error; of several, those that could not be had are passed over.
func conclude(results []result) (int, error) {
	if len(results) == 1 && results[0].err != nil {
		return exitTrouble, results[0].err
	}
	code, skipped := 0, 0
	for _, r := range results {
		switch {
		case r.skipped():
			skipped++
		case r.err != nil:
			code = max(code, exitTrouble)
		default:
			code = max(code, r.code)
		}
	}
	if skipped == len(results) {
		return exitTrouble, errors.New("all were skipped")
	}
	return code, nil
}
