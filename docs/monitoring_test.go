package docs

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

var (
	metricName = regexp.MustCompile(`\brdma_ping_[a-z_]+\b`)
	yamlBlock  = regexp.MustCompile("(?s)```yaml\n(.*?)```")
	reasonRow  = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| [^|]+ \\|$")
	reasonLine = regexp.MustCompile(`(?m)^\treason\w+ += "([a-z_]+)"`)
)

// TestMonitoring: the page names the metrics and reasons that there are, all of them and no
// others, and its YAML is YAML.
func TestMonitoring(t *testing.T) {
	page := read(t, "monitoring.md")
	names := func(text string) []string {
		found := map[string]bool{}
		for _, name := range metricName.FindAllString(text, -1) {
			found[strings.TrimSuffix(name, "_bucket")] = true
		}
		return slices.Sorted(maps.Keys(found))
	}
	want := names(read(t, "../cmd/rdma-ping/exporter_metrics.go"))
	if diff := cmp.Diff(want, names(page)); diff != "" || len(want) < 8 {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
	reasons := func(r *regexp.Regexp, text string) (found []string) {
		for _, m := range r.FindAllStringSubmatch(text, -1) {
			found = append(found, m[1])
		}
		return slices.Sorted(slices.Values(found))
	}
	known := reasons(reasonLine, read(t, "../cmd/rdma-ping/exporter_reason.go"))
	if diff := cmp.Diff(known, reasons(reasonRow, page)); diff != "" || len(known) < 8 {
		t.Errorf("reasons (-want +got):\n%s", diff)
	}
	blocks := yamlBlock.FindAllStringSubmatch(page, -1)
	for _, m := range blocks {
		var v map[string]any
		if err := yaml.Unmarshal([]byte(m[1]), &v); err != nil || len(v) != 1 {
			t.Errorf("%v in:\n%s", err, m[1])
		}
	}
	if len(blocks) != 3 {
		t.Errorf("%d blocks of YAML", len(blocks))
	}
}
