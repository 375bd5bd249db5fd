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

// call is a row of the tables of libibverbs.md.
type call struct{ c, here, devices, from, remarks string }

var (
	row      = regexp.MustCompile("(?m)^\\| `(_?\\w*ibv_\\w+)` \\|.*$")
	ours     = regexp.MustCompile("^`uverbs\\.[\\w.]+`(, `uverbs\\.[\\w.]+`)*$")
	reason   = regexp.MustCompile(`^(not needed|not yet|never): \S.*$`)
	goName   = regexp.MustCompile(`^(?:uverbs\.)?([A-Z]\w*\.[A-Z]\w*|[A-Z]\w*[a-z]\w*)$`)
	noDevice = []string{"any", "none"}
	devices  = append([]string{"rxe, siw", "rxe", "siw"}, noDevice...)
	kernels  = []string{"5.10", "5.12", "5.14", "6.3", "6.15", "7.2"}
)

func calls(t *testing.T) (calls []call) {
	t.Helper()
	for _, m := range row.FindAllStringSubmatch(read(t, "libibverbs.md"), -1) {
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

// TestLibibverbsComplete: there is one row for each function of libibverbs.
func TestLibibverbsComplete(t *testing.T) {
	want := strings.Fields(read(t, "testdata/libibverbs.txt"))
	if len(want) != 195 {
		t.Fatalf("the list of names has %d, want 195", len(want))
	}
	var got []string
	for _, c := range calls(t) {
		got = append(got, c.c)
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows of libibverbs.md differ from the names of libibverbs (-want +got):\n%s", diff)
	}
}

// TestLibibverbsRows: what a row names exists, and what it does not name has a reason.
func TestLibibverbsRows(t *testing.T) {
	known := map[string]bool{}
	exported(t, "internal/provider", known)
	exported(t, "uverbs", known)
	for _, c := range calls(t) {
		if !ours.MatchString(c.here) {
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
		if ok := slices.Contains(kernels, c.from); ok == (c.devices == "any") || !ok && c.from != "any" {
			t.Errorf("%s: from %q with devices %q, want one of %q or, without a device, any", c.c, c.from, c.devices, kernels)
		}
	}
}

// TestLibibverbsProse: names of Go in the text and the remarks exist, also without "uverbs.".
func TestLibibverbsProse(t *testing.T) {
	known := map[string]bool{}
	exported(t, "internal/provider", known)
	exported(t, "uverbs", known)
	checked := 0
	for _, code := range inCode.FindAllString(read(t, "libibverbs.md"), -1) {
		if m := goName.FindStringSubmatch(strings.Trim(code, "`")); m != nil {
			checked++
			if name := "uverbs." + m[1]; !known[name] && m[1] != "Close" { // Close of any of them
				t.Errorf("libibverbs.md: there is no %s", name)
			}
		}
	}
	if checked < 150 {
		t.Errorf("only %d names found in libibverbs.md", checked)
	}
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
	for _, c := range calls(t) {
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
