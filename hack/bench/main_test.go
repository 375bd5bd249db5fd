package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

func TestReport(t *testing.T) {
	const both = "sample x c 10\nsample x go 12\nsample x c 20\nsample x go 18\nsample x c 30\nsample x go 60\n"
	const all = both + "sample x cgo 120\nsample x cgo 90\nsample x cgo 60\n"
	for name, tt := range map[string]struct {
		text  string
		value valuer
		want  string // the end of what is reported; empty: an error
	}{
		"of medians":       {both, ofMedians, "\nratio x 0.900 0.900 2.000\n"},
		"of ratios":        {both, ofRatios, "\nratio x 1.200 0.900 2.000\n"},
		"cgo":              {all, ofRatios, "\nratio x 1.200 0.900 2.000\nratio-cgo x 0.200 0.100 1.000\n"},
		"nothing":          {"hello\nsample x c y\n", ofMedians, ""},
		"a side is absent": {"sample x c 10\n", ofMedians, ""},
		"cgo lacks rounds": {both + "sample x cgo 1\n", ofMedians, ""},
	} {
		s := samples{}
		s.collect(strings.NewReader(tt.text), io.Discard)
		var b bytes.Buffer
		switch err := (&table{kind: "ratio", value: tt.value, spread: extremes, unit: nanoseconds}).report(&b, s); {
		case tt.want == "" && err == nil:
			t.Errorf("%s: no error, but %q", name, b.String())
		case tt.want != "" && (err != nil || !strings.HasSuffix(b.String(), tt.want)):
			t.Errorf("%s: got %q, %v; want it to end in %q", name, b.String(), err, tt.want)
		}
	}
}

func TestCollectPassesOn(t *testing.T) {
	var others bytes.Buffer
	samples{}.collect(strings.NewReader("PASS\nsample x c 1\nsample x c one\n"), &others)
	if want := "PASS\nsample x c one\n"; others.String() != want {
		t.Errorf("got %q, want %q", others.String(), want)
	}
}
