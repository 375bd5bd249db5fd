package boot

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestPlanRoundTrip(t *testing.T) {
	for name, p := range map[string]Plan{
		"empty": {},
		"full": {
			Groups: []string{"net", "rxe"},
			Links:  []Link{{"rxe0", "rxe", "dum0"}, {"rxea", "rxe", "va"}},
			Shares: []string{"host", "src"},
		},
	} {
		got := Parse("console=ttyS0 quiet " + strings.Join(p.Words(), " ") + "\n")
		if d := cmp.Diff(p, got, cmpopts.EquateEmpty()); d != "" {
			t.Errorf("%s: want - got +\n%s", name, d)
		}
	}
}

func TestParseBrokenLink(t *testing.T) {
	got := Parse("lab.links=rxe0,a:b")
	want := Plan{Links: []Link{{Name: "rxe0"}, {Name: "a", Type: "b"}}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("want - got +\n%s", d)
	}
}
