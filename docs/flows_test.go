package docs

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	stepFile    = regexp.MustCompile(`\]\((flows/\w+\.go)\)`)
	stepRow     = regexp.MustCompile(`(?m)^\| (\d+) ([^|]+?) \|`)
	stepComment = regexp.MustCompile(`(?m)^\s*// (\d+) (.+)$`)
)

// TestFlowSteps: the steps of each table of flows.md, numbered from 1, are in its program, all
// of them and no others. A program may name them in another order than they are taken in.
func TestFlowSteps(t *testing.T) {
	programs := 0
	for section := range strings.SplitSeq(read(t, "flows.md"), "\n## ") {
		rows := stepRow.FindAllStringSubmatch(section, -1)
		if rows == nil {
			continue
		}
		file := stepFile.FindStringSubmatch(section)
		if file == nil {
			t.Fatalf("no program: %.40q...", section)
		}
		programs++
		want, got := numbered(t, rows), map[string]string{}
		for _, m := range stepComment.FindAllStringSubmatch(read(t, file[1]), -1) {
			if got[m[1]] != "" {
				t.Errorf("%s has step %s twice", file[1], m[1])
			}
			got[m[1]] = m[2]
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("steps of flows.md differ from those of %s (-page +program):\n%s", file[1], diff)
		}
	}
	if programs != 6 {
		t.Errorf("%d programs found, want 6", programs)
	}
}

// TestJVerbsSteps: the steps of each table are numbered from 1.
func TestJVerbsSteps(t *testing.T) {
	tables := 0
	for table := range strings.SplitSeq(read(t, "jverbs-flow.md"), "\n\n") {
		if rows := stepRow.FindAllStringSubmatch(table, -1); rows != nil {
			tables++
			numbered(t, rows)
			if n := strings.Count(table, "\n|") - 1 - strings.Count(table, "\n| all of "); n != len(rows) {
				t.Errorf("%d of %d rows have a number:\n%s", len(rows), n, table)
			}
		}
	}
	if tables != 4 {
		t.Errorf("%d tables with numbered steps found, want 4", tables)
	}
}

// numbered are the steps by their numbers, which have to count up.
func numbered(t *testing.T, rows [][]string) map[string]string {
	t.Helper()
	steps := map[string]string{}
	for i, m := range rows {
		if want := "| " + strconv.Itoa(i+1) + " "; !strings.HasPrefix(m[0], want) {
			t.Errorf("step %q is the %dth", m[0], i+1)
		}
		steps[m[1]] = m[2]
	}
	return steps
}
