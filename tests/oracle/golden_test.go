//go:build linux

package oracle

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/pureverbs/rdma/internal/testutil"
)

// The goldens hold scenarios and what libibverbs does in them, less what the allow-list
// excuses. With them the comparison runs where there is neither rdma-core nor a privilege.
//
//	go test ./tests/oracle -run Golden -oracle.write
const (
	goldenRandom = 40
	goldenCut    = "\n--- traces\n"
)

func goldenFile(m mode) string { return "testdata/" + m.name + ".gz" }

// TestGolden carries the scenarios of the goldens out in this process.
func TestGolden(t *testing.T) {
	for i, m := range modes {
		if m.kernel != "" {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			if *write {
				writeGolden(t, i)
			}
			scenarios, want := readGolden(t, m)
			var cmp Comparison
			names, traces := Traces(traceHere(t, m, scenarios))
			wantNames, wantTraces := Traces(want)
			if strings.Join(names, "\n") != strings.Join(wantNames, "\n") {
				t.Fatalf("%d scenarios, want %d", len(names), len(wantNames))
			}
			for _, name := range names {
				c := silent(wantTraces[name])
				if d := Differ(c, cmp.Plain(name, traces[name], SideGo)); d != "" {
					t.Errorf("scenario %q, %s", name, d)
				}
			}
			t.Logf("%d scenarios", len(names))
		})
	}
}

// silent is a trace without the doorbells that were heard, which is not possible within one
// process.
func silent(trace string) (lines []string) {
	for line := range strings.Lines(trace) {
		if !strings.HasPrefix(line, "  bell ") && !strings.HasPrefix(line, "  bell:") {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
	}
	return lines
}

func readGolden(t testing.TB, m mode) (scenarios, traces string) {
	t.Helper()
	f, err := os.Open(goldenFile(m))
	testutil.Must(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	testutil.Must(t, err)
	b, err := io.ReadAll(z)
	testutil.Must(t, err)
	scenarios, traces, ok := strings.Cut(string(b), goldenCut)
	if !ok {
		t.Fatalf("%s is no golden", f.Name())
	}
	return scenarios + "\n", traces
}

// writeGolden asks all versions of rdma-core, which must be of one opinion.
func writeGolden(t *testing.T, i int) {
	needLauncher(t)
	m := modes[i]
	all, err := Fixed()
	testutil.Must(t, err)
	for n := range goldenRandom {
		all = append(all, Generate(uint64(1000*i+n)))
	}
	text := strings.Join(all, "")
	var first string
	for name, prefix := range cores(t) {
		plain := plainTraces(traceC(t, m, text, prefix))
		if first == "" {
			first = plain
		}
		if plain != first {
			t.Fatalf("%s: rdma-core %s differs from another version", m.name, name)
		}
	}
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	testutil.Must(t, err)
	_, err = io.WriteString(z, strings.TrimSuffix(text, "\n")+goldenCut+first)
	testutil.Must(t, err)
	testutil.Must(t, z.Close())
	testutil.Must(t, os.MkdirAll("testdata", 0o755))
	testutil.Must(t, os.WriteFile(goldenFile(m), b.Bytes(), 0o644))
}

// plainTraces are the traces of C less what is excused.
func plainTraces(text string) string {
	var b strings.Builder
	var cmp Comparison
	names, traces := Traces(text)
	for _, name := range names {
		b.WriteString("== " + name + "\n")
		for _, line := range cmp.Plain(name, traces[name], SideC) {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}
