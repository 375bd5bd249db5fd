package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra/doc"

	"github.com/pureverbs/rdma/internal/testutil"
)

// TestManPages compares docs/man with what the commands say of themselves;
// go test -run TestManPages -update writes the pages.
func TestManPages(t *testing.T) {
	const committed = "../../docs/man"
	made := manPages(t)
	if len(made) < 8 {
		t.Errorf("only %d pages", len(made))
	}
	if *update {
		for name := range pagesIn(t, committed) {
			testutil.Must(t, os.Remove(filepath.Join(committed, name)))
		}
		for name, text := range made {
			testutil.Must(t, os.WriteFile(filepath.Join(committed, name), []byte(text), 0o666))
		}
	}
	if diff := cmp.Diff(pagesIn(t, committed), made); diff != "" {
		t.Errorf("docs/man is out of date; mend it with: go test ./cmd/rdma-ping -run TestManPages -update (-want +got)\n%s", diff)
	}
}

// manPages are the pages of all commands, by file name. They have no date: they change with
// the commands only.
func manPages(t *testing.T) map[string]string {
	t.Helper()
	a := &app{stdout: io.Discard, stderr: io.Discard}
	root := a.rootCommand()
	root.DisableAutoGenTag = true
	dir, never := t.TempDir(), time.Time{}
	testutil.Must(t, doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "pureverbs", Manual: "RDMA", Date: &never}, dir))
	pages := pagesIn(t, dir)
	polish := strings.NewReplacer(`"Jan 0001"`, `""`, "[=false]", "")
	for name, text := range pages {
		pages[name] = polish.Replace(text)
	}
	return pages
}

// pagesIn reads the pages of section 1 in a folder.
func pagesIn(t *testing.T, dir string) map[string]string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.1"))
	testutil.Must(t, err)
	texts := map[string]string{}
	for _, name := range names {
		b, err := os.ReadFile(name)
		testutil.Must(t, err)
		texts[filepath.Base(name)] = string(b)
	}
	return texts
}
