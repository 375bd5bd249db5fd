package docs

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pureverbs/rdma/internal/provider"
	"github.com/pureverbs/rdma/internal/provider/siw"
)

// table is a page that has a row for each function of a library of C.
type table struct {
	library  string
	row      *regexp.Regexp // of a function, whose name is the first group
	names    int            // that testdata has
	packages []string       // that the page speaks of
	kernels  []string       // that a row may be from
	prose    int            // names of Go in the text, at least
}

var tables = []table{
	{
		"libibverbs", regexp.MustCompile("(?m)^\\| `(_?\\w*ibv_\\w+)` \\|.*$"), 195, []string{"uverbs"},
		[]string{"5.10", "5.12", "5.14", "6.3", "6.15", "7.2"}, 150,
	},
	{
		"librdmacm", regexp.MustCompile("(?m)^\\| `(r\\w+)` \\|.*$"), 74 + 18, []string{"uverbs", "rdmacm"},
		[]string{"5.10", "7.2"}, 50,
	},
}

// call is a row of the tables.
type call struct{ c, here, devices, from, remarks string }

var (
	ours   = regexp.MustCompile("^`(rdmacm|uverbs)\\.[\\w.]+`(, `(rdmacm|uverbs)\\.[\\w.]+`)*$")
	reason = regexp.MustCompile(`^(not needed|not yet|never): \S.*$`)
	// goName is one with or without its package: a method or field, or a name of several humps.
	goName  = regexp.MustCompile(`^(?:uverbs\.|rdmacm\.)?([A-Z]\w*\.[A-Z]\w*|[A-Z]\w*[a-z]\w*)$`)
	devices = []string{"rxe, siw", "rxe", "siw", "any", "none"}
)

func (p *table) text(t *testing.T) string { return read(t, p.library+".md") }

func (p *table) calls(t *testing.T) (calls []call) {
	t.Helper()
	for _, m := range p.row.FindAllStringSubmatch(p.text(t), -1) {
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

// known are the names of the packages that the page speaks of.
func (p *table) known(t *testing.T) map[string]bool {
	t.Helper()
	known := map[string]bool{}
	for _, path := range append([]string{"internal/provider"}, p.packages...) {
		exported(t, path, known)
	}
	return known
}

func eachTable(t *testing.T, f func(t *testing.T, p *table)) {
	for i := range tables {
		t.Run(tables[i].library, func(t *testing.T) { f(t, &tables[i]) })
	}
}

// TestCallsComplete: there is one row for each function of the library.
func TestCallsComplete(t *testing.T) {
	eachTable(t, func(t *testing.T, p *table) {
		want := strings.Fields(read(t, "testdata/"+p.library+".txt"))
		if len(want) != p.names {
			t.Fatalf("the list of names has %d, want %d", len(want), p.names)
		}
		var got []string
		for _, c := range p.calls(t) {
			got = append(got, c.c)
		}
		slices.Sort(want)
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("rows differ from the names of the library (-want +got):\n%s", diff)
		}
	})
}

// TestCallsRows: what a row names exists, and what it does not name has a reason.
func TestCallsRows(t *testing.T) {
	eachTable(t, func(t *testing.T, p *table) {
		known := p.known(t)
		for _, c := range p.calls(t) {
			if !ours.MatchString(c.here) {
				c.checkNone(t)
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
			if ok := slices.Contains(p.kernels, c.from); ok == (c.devices == "any") || !ok && c.from != "any" {
				t.Errorf("%s: from %q with devices %q, want one of %q or, without a device, any", c.c, c.from, c.devices, p.kernels)
			}
		}
	})
}

// checkNone checks a row that has no Go name.
func (c *call) checkNone(t *testing.T) {
	t.Helper()
	if !reason.MatchString(c.here) {
		t.Errorf("%s: %q is neither Go names nor a reason why there is none", c.c, c.here)
	}
	if c.devices != "-" || c.from != "-" {
		t.Errorf("%s: devices %q, from %q; want none, for there is no Go name", c.c, c.devices, c.from)
	}
}

// TestCallsProse: names of Go in the text and the remarks exist, also without their package.
func TestCallsProse(t *testing.T) {
	eachTable(t, func(t *testing.T, p *table) {
		known := p.known(t)
		checked := 0
		for _, code := range inCode.FindAllString(p.text(t), -1) {
			m := goName.FindStringSubmatch(strings.Trim(code, "`"))
			if m == nil || m[1] == "Close" { // of any of them
				continue
			}
			checked++
			if !slices.ContainsFunc(p.packages, func(pkg string) bool { return known[pkg+"."+m[1]] }) {
				t.Errorf("there is no %s", m[1])
			}
		}
		if checked < p.prose {
			t.Errorf("only %d names found", checked)
		}
	})
}

// TestLibibverbsOperations: the operations of a send queue are on the devices whose drivers
// have them.
func TestLibibverbsOperations(t *testing.T) {
	ops := map[string]provider.Opcode{
		"ibv_wr_send": provider.OpSend, "ibv_wr_send_imm": provider.OpSendImm, "ibv_wr_send_inv": provider.OpSendInvalidate,
		"ibv_wr_rdma_write": provider.OpRDMAWrite, "ibv_wr_rdma_write_imm": provider.OpRDMAWriteImm,
		"ibv_wr_rdma_read": provider.OpRDMARead, "ibv_wr_atomic_cmp_swp": provider.OpCompareSwap,
		"ibv_wr_atomic_fetch_add": provider.OpFetchAdd, "ibv_wr_atomic_write": provider.OpAtomicWrite,
		"ibv_wr_flush": provider.OpFlush, "ibv_wr_bind_mw": provider.OpBindMW, "ibv_wr_local_inv": provider.OpLocalInvalidate,
	}
	for _, c := range tables[0].calls(t) {
		op, ok := ops[c.c]
		if !ok {
			continue
		}
		delete(ops, c.c)
		want := "rxe"
		if op.In(siw.Ops) {
			want = "rxe, siw"
		}
		if c.devices != want {
			t.Errorf("%s: devices %q, the drivers say %q", c.c, c.devices, want)
		}
	}
	if len(ops) > 0 {
		t.Errorf("rows not found: %v", ops)
	}
}
