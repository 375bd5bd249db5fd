package docs

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	howtoCode = regexp.MustCompile("(?s)```go\n(.*?)```")
	howtoFile = regexp.MustCompile(`\]\((\w+\.go)\)`)
)

// TestHowto: each page names its program, shows code that is in it, word for word, is short,
// and is in the index with that program.
func TestHowto(t *testing.T) {
	index := read(t, "howto/README.md")
	names, err := filepath.Glob("howto/*.md")
	if err != nil || len(names) < 7 {
		t.Fatalf("%d pages found, %v", len(names), err)
	}
	for _, name := range names {
		page := filepath.Base(name)
		if page == "README.md" {
			continue
		}
		text := read(t, name)
		if n := strings.Count(text, "\n"); n > 80 {
			t.Errorf("%s has %d lines, at most 80 is the rule", name, n)
		}
		file := howtoFile.FindStringSubmatch(text)
		blocks := howtoCode.FindAllStringSubmatch(text, -1)
		if file == nil || len(blocks) == 0 {
			t.Errorf("%s names no program, or shows none of it", name)
			continue
		}
		program := read(t, "howto/"+file[1])
		for _, b := range blocks {
			if !strings.Contains(program, b[1]) {
				t.Errorf("%s: not in %s:\n%s", name, file[1], b[1])
			}
		}
		if row := regexp.MustCompile(`(?m)^\|.*\(` + regexp.QuoteMeta(page) + `\).*\(` + file[1] + `\)`); !row.MatchString(index) {
			t.Errorf("howto/README.md has no row with %s and %s", page, file[1])
		}
	}
}
