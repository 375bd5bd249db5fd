package docs

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	cmRow  = regexp.MustCompile("(?m)^\\| `(r\\w+)` \\|.*$")
	cmOurs = regexp.MustCompile("^`(rdmacm|uverbs)\\.[\\w.]+`(, `(rdmacm|uverbs)\\.[\\w.]+`)*$")
	// bare is a Go name without its package: a method or field, or a name of several humps.
	bare = regexp.MustCompile(`^([A-Z]\w*\.[A-Z]\w*|[A-Z]\w*[a-z]\w*)$`)
)

func cmCalls(t *testing.T) (calls []call) {
	t.Helper()
	for _, m := range cmRow.FindAllStringSubmatch(read(t, "librdmacm.md"), -1) {
		cells := strings.Split(strings.Trim(m[0], "|"), "|")
		if len(cells) != 5 {
			t.Fatalf("%d cells, want 5: %s", len(cells), m[0])
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		calls = append(calls, call{m[1], cells[1], cells[2], cells[3], cells[4]})
	}
	return calls
}

// cmKnown are the names of the packages that the page speaks of.
func cmKnown(t *testing.T) map[string]bool {
	t.Helper()
	known := map[string]bool{}
	for _, path := range []string{"internal/provider", "uverbs", "rdmacm"} {
		exported(t, path, known)
	}
	return known
}

// TestLibrdmacmComplete: there is one row for each function of librdmacm.
func TestLibrdmacmComplete(t *testing.T) {
	want := strings.Fields(read(t, "testdata/librdmacm.txt"))
	if len(want) != 74+18 {
		t.Fatalf("the list of names has %d, want 74 and the 18 inline ones", len(want))
	}
	var got []string
	for _, c := range cmCalls(t) {
		got = append(got, c.c)
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows of librdmacm.md differ from the names of librdmacm (-want +got):\n%s", diff)
	}
}

// TestLibrdmacmRows: what a row names exists, and what it does not name has a reason.
func TestLibrdmacmRows(t *testing.T) {
	known := cmKnown(t)
	for _, c := range cmCalls(t) {
		if !cmOurs.MatchString(c.here) {
			if !reason.MatchString(c.here) {
				t.Errorf("%s: %q is neither Go names nor a reason why there is none", c.c, c.here)
			}
			if c.devices != "-" || c.from != "-" {
				t.Errorf("%s: devices %q, from %q; want none, for there is no Go name", c.c, c.devices, c.from)
			}
			continue
		}
		for name := range strings.SplitSeq(c.here, ", ") {
			if name = strings.Trim(name, "`"); !known[name] {
				t.Errorf("%s: there is no %s", c.c, name)
			}
		}
		if !slices.Contains(devices, c.devices) {
			t.Errorf("%s: devices %q, want one of %q", c.c, c.devices, devices)
		}
		want := []string{"5.10", "7.2"}
		if c.devices == "any" {
			want = []string{"any"}
		}
		if !slices.Contains(want, c.from) {
			t.Errorf("%s: from %q with devices %q, want one of %q", c.c, c.from, c.devices, want)
		}
	}
}

// TestLibrdmacmProse: names of Go in the text and the remarks exist, also without their package.
func TestLibrdmacmProse(t *testing.T) {
	known := cmKnown(t)
	checked := 0
	for _, code := range inCode.FindAllString(read(t, "librdmacm.md"), -1) {
		m := bare.FindStringSubmatch(strings.Trim(code, "`"))
		if m == nil {
			continue
		}
		checked++
		if !known["rdmacm."+m[1]] && !known["uverbs."+m[1]] {
			t.Errorf("librdmacm.md: there is no %s", m[1])
		}
	}
	if checked < 50 {
		t.Errorf("only %d names found in librdmacm.md", checked)
	}
}
