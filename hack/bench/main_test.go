package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestReport(t *testing.T) {
	s := collect(strings.NewReader("sample x c 10\nsample x go 12\nsample x c 20\nsample x go 18\nsample x c 30\nsample x go 60\n"))
	var b bytes.Buffer
	if err := s.report(&b); err != nil {
		t.Fatal(err)
	}
	if want := "ratio x 0.900 0.900 2.000\n"; !strings.HasSuffix(b.String(), want) {
		t.Errorf("got %q, want it to end in %q", b.String(), want)
	}
	if err := (samples{}).report(&b); err == nil {
		t.Error("no sample is no result")
	}
	if err := collect(strings.NewReader("sample x c 10\n")).report(&b); err == nil {
		t.Error("a missing side is no result")
	}
}
