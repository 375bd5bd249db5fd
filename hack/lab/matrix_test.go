//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pureverbs/rdma/hack/lab/apt"
	"github.com/pureverbs/rdma/hack/lab/kernel"
)

func TestTable(t *testing.T) {
	at := func(k, device string) cell { return cell{kernel.Suite{Kernel: k}, device} }
	got := table([]result{
		{cell: at("5.10", "siw"), err: fmt.Errorf("no source: %w", apt.ErrGone)},
		{cell: at("6.1", "rxe"), took: 14400 * time.Millisecond},
		{cell: at("6.12", "rxe"), code: exitFailed, took: time.Second},
		{cell: at("newest", "siw"), err: errors.New("trouble\nof many lines")},
	})
	want := `KERNEL  DEVICE  RESULT
5.10    siw     skipped  no source: no longer in the archive
6.1     rxe     ok       14s
6.12    rxe     FAILED   1s
newest  siw     NOT RUN  trouble
`
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("want - got +\n%s", d)
	}
}

func TestConclude(t *testing.T) {
	ok, failed := result{}, result{code: exitFailed}
	gone, trouble := result{err: fmt.Errorf("x: %w", apt.ErrGone)}, result{err: errors.New("trouble")}
	for name, tt := range map[string]struct {
		in      []result
		code    int
		isError bool
	}{
		"all well":                {[]result{ok, ok}, 0, false},
		"one failed":              {[]result{failed, ok}, exitFailed, false},
		"one is gone":             {[]result{gone, ok}, 0, false},
		"gone and failed":         {[]result{failed, gone}, exitFailed, false},
		"trouble is worst":        {[]result{trouble, failed, ok}, exitTrouble, false},
		"only one, and gone":      {[]result{gone}, exitTrouble, true},
		"only one, and trouble":   {[]result{trouble}, exitTrouble, true},
		"nothing ran":             {[]result{gone, gone}, exitTrouble, true},
		"the only one has failed": {[]result{failed}, exitFailed, false},
	} {
		if code, err := conclude(tt.in); code != tt.code || (err != nil) != tt.isError {
			t.Errorf("%s: got %d, %v; want %d and error %v", name, code, err, tt.code, tt.isError)
		}
	}
}

func TestInEach(t *testing.T) {
	cells := []cell{{kernel.Suite{Kernel: "5.10"}, "rxe"}, {kernel.Suite{Kernel: "6.1"}, "rxe"}, {kernel.Suite{Kernel: "6.12"}, "rxe"}}
	for name, tt := range map[string]struct {
		err  error
		want int
	}{"trouble": {errors.New("trouble"), 3}, "interrupted": {fmt.Errorf("x: %w", context.Canceled), 2}} {
		n := 0
		got, err := inEach(t.Context(), cells, func(c cell) result {
			n++
			if n == 2 {
				return result{cell: c, err: tt.err}
			}
			return result{cell: c}
		})
		if n != tt.want || len(got) != tt.want || (err != nil) != (name == "interrupted") {
			t.Errorf("%s in the second: did %d with %d results, %v; want %d", name, n, len(got), err, tt.want)
		}
	}
}

func TestCodename(t *testing.T) {
	got, err := parseCodename("PRETTY_NAME=\"Debian\"\nVERSION_CODENAME=bookworm\nID=debian\n")
	if got != "bookworm" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := parseCodename("ID=arch\n"); err == nil {
		t.Error("a release without a name was accepted")
	}
}
