package oracle

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestStep: the words of a line.
func TestStep(t *testing.T) {
	s := parseStep("send q3 0x10 imm flags=s imm=7 sge=m0:1:2")
	if s.Verb != "send" || s.num(1) != 16 || s.opt("imm") != 7 || !s.has("imm") || s.has("flags") || s.arg(7) != "" || index(s.arg(0)) != 3 {
		t.Errorf("got %+v", s)
	}
	if got := at([]string{"zero", "one"}, "q1"); got != "one" {
		t.Errorf("q1 is %q, want one", got)
	}
	if got := at([]string{"zero"}, "q1"); got != "" {
		t.Errorf("q1 is %q, want nothing", got)
	}
}

// TestSplit: scenarios have a beginning and an end.
func TestSplit(t *testing.T) {
	got, err := Split("scenario a\npd p0\nend\n\nscenario b\nend\n")
	if diff := cmp.Diff([]string{"scenario a\npd p0\nend\n", "scenario b\nend\n"}, got); diff != "" || err != nil {
		t.Errorf("%v, (-want +got)\n%s", err, diff)
	}
	for _, text := range []string{"pd p0\nend\n", "scenario a\npd p0\n"} {
		if _, err := Split(text); err == nil {
			t.Errorf("%q passes", text)
		}
	}
}

// TestTraces cuts a trace, and what is before the first scenario is nobody's.
func TestTraces(t *testing.T) {
	names, byName := Traces("lost\n== a\n1\n2\n== b\n3\n")
	if diff := cmp.Diff([]string{"a", "b"}, names); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"a": "1\n2", "b": "3"}, byName); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestDiffer: equal lists do not differ, and all others do.
func TestDiffer(t *testing.T) {
	one := []string{"a", "b"}
	if got := Differ(one, []string{"a", "b"}); got != "" {
		t.Errorf("equal lists differ: %s", got)
	}
	for _, other := range [][]string{nil, {"a"}, {"a", "c"}, {"a", "b", "c"}, {"b", "b"}} {
		if Differ(one, other) == "" || Differ(other, one) == "" {
			t.Errorf("%q and %q do not differ", one, other)
		}
	}
}

// TestPlain: what is excused on one side is not on the other, and nothing is but in its place.
func TestPlain(t *testing.T) {
	for _, tt := range []struct {
		scenario, line string
		side           Side
		want           string // "" for none
	}{
		{"x", "device command 1=2 -> ok", SideC, ""},
		{"x", "device command 1=2 -> ok", SideGo, "device command 1=2 -> ok"},
		{"x", "query device 2=1 -> ENOSPC", SideC, ""},
		{"x", "create completion queue 1=7f 7=async? 1000=01 -> ok", SideC, "create completion queue 1=7f 1000=01 -> ok"},
		{"x", "create completion queue 1=7f 7=async? 1000=01 -> ok", SideGo, "create completion queue 1=7f 7=async? 1000=01 -> ok"},
		{"x", "# poll c0: 1", Both, "# poll c0: 1"},
		{"completion of nobody", "# poll c0: 1", Both, ""},
		{
			"x", "  s0 request 1: 00000000 00000200 00000010 00000001 00000001 00000200 00000010 00000001 00000000 00000100 00000000 00000000", SideC,
			"  s0 request 1: 00000001 00000200 00000010 00000001",
		},
		{
			"x", "  s0 request 1: 00000000 00000200 00000010 00000001", SideGo,
			"  s0 request 1: 00000000 00000200 00000010 00000001",
		},
	} {
		var c Comparison
		if got := strings.Join(c.Plain(tt.scenario, tt.line+"\n", tt.side), "\n"); got != tt.want {
			t.Errorf("%s, side %d: %q\nbecomes %q, want %q", tt.scenario, tt.side, tt.line, got, tt.want)
		}
	}
}

// TestGenerate: a seed makes one scenario, another another, and all are whole.
func TestGenerate(t *testing.T) {
	seen := make(map[string]bool)
	var all strings.Builder
	for seed := range uint64(200) {
		text := Generate(seed)
		if text != Generate(seed) || seen[text] {
			t.Fatalf("seed %d is not one scenario", seed)
		}
		seen[text] = true
		all.WriteString(text)
	}
	if got, err := Split(all.String()); err != nil || len(got) != 200 {
		t.Errorf("%d scenarios, %v, want 200", len(got), err)
	}
	for _, verb := range []string{"bind", "arm", "event", "resize", "modify", "close", "srq", "spost", "query", "cqe c0 q0 sendfail", "stale", "nth=", "linv", "flags=i"} {
		if !strings.Contains(all.String(), verb) {
			t.Errorf("no %q in 200 scenarios", verb)
		}
	}
}
