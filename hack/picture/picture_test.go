//go:build unix

package main

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden file anew")

// TestPicture draws a recording, in which lines are cut, written over, too long and coloured.
func TestPicture(t *testing.T) {
	out := filepath.Join(t.TempDir(), "picture.svg")
	o := options{out: out, cast: "testdata/session.cast", title: "a <title>", columns: 40, gap: time.Second}
	if err := o.run(nil); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	const golden = "testdata/session.svg"
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", golden, diff)
	}
}

func TestScreen(t *testing.T) {
	rec := recording{
		{1, "booting\r\n$ on"}, {2, "e\r\n10%\r"}, {3, "20%\rdone\x1b[K\r\n\r\n"}, {4, "\x1b[3"}, {5, "1mred\x1b[0m \xe2"}, {6, "\x96\x88\r\na\tb\b\bc\r\n"},
		{7, "0123456789abcdef"}, {8, "\x1b]0;title\x07"},
	}
	want := []line{{1, "booting"}, {1, "$ one"}, {2, "done"}, {3, ""}, {6, "red █"}, {6, "a      cb"}, {7, "0123456789"}, {7, "abcdef"}}
	if diff := cmp.Diff(want, rec.lines(10), cmp.AllowUnexported(line{})); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	short := []line{{0, "$ one"}, {1, "done"}, {2, ""}, {3, "red █"}}
	got := session([]line{{1, "booting"}, {10, "$ one"}, {11, "done"}, {13, ""}, {13, "red █"}, {20, ""}}, 1)
	short[3].at = 2
	if diff := cmp.Diff(short, got, cmp.AllowUnexported(line{})); diff != "" {
		t.Errorf("session (-want +got):\n%s", diff)
	}
}

// TestRecord: a command has a terminal of the size that was asked for, and its failure counts.
func TestRecord(t *testing.T) {
	rec, err := record([]string{"sh", "-c", "echo '$ size'; stty size; test -t 0 && test -t 1 && echo terminal"}, 77)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "cast")
	if err := saveCast(name, rec, 77); err != nil {
		t.Fatal(err)
	}
	again, err := loadCast(name)
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, l := range again.lines(77) {
		texts = append(texts, l.text)
	}
	if diff := cmp.Diff([]string{"$ size", "60 77", "terminal"}, texts); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	if _, err := record([]string{"sh", "-c", "exit 3"}, 80); err == nil {
		t.Error("a command that fails is recorded")
	}
}
