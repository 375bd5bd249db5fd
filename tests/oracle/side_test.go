//go:build linux

package oracle

import (
	"strings"
	"testing"

	"github.com/pureverbs/rdma/internal/testutil"
)

// batch is how many random scenarios a process carries out.
const batch = 500

// TestSideBySide has libibverbs and this library carry out the same scenarios on a simulated
// device: the fixed ones and -oracle.random random ones, in each mode, with the rdma-core that
// is installed and with the newest.
func TestSideBySide(t *testing.T) {
	needLauncher(t)
	versions := cores(t)
	if len(versions) < 2 {
		t.Log("the newest rdma-core is not here; run: hack/rdma-core-newest.sh")
	}
	fixed, err := Fixed()
	testutil.Must(t, err)
	for i, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			var cmp Comparison
			compare(t, m, &cmp, versions, "fixed", append(fixed, longOnce(i)...))
			if i == 0 {
				checkAllowed(t, &cmp)
			}
			for from := 0; from < *random; from += batch {
				var some []string
				for n := from; n < min(from+batch, *random); n++ {
					some = append(some, Generate(*seed+uint64(i)*1_000_000_000+uint64(n)))
				}
				if compare(t, m, &cmp, versions, "random", some) > 0 {
					break
				}
			}
			for i, n := range cmp.Used {
				t.Logf("%8d times: %s", n, allowed[i].Reason)
			}
		})
	}
}

// longOnce: one mode shows it.
func longOnce(i int) []string {
	if i > 0 || *random < batch {
		return nil
	}
	return []string{Long()}
}

// checkAllowed: each entry of the allow-list says why, and there is a scenario that needs it.
func checkAllowed(t *testing.T, cmp *Comparison) {
	t.Helper()
	for i, n := range cmp.Used {
		if n == 0 || len(allowed[i].Reason) < 20 {
			t.Errorf("allowance %d is of no use, or gives no reason: %q", i, allowed[i].Reason)
		}
	}
}

// compare holds the Go side against each version of the C side.
func compare(t *testing.T, m mode, cmp *Comparison, versions map[string][]string, what string, scenarios []string) (differ int) {
	t.Helper()
	text := strings.Join(scenarios, "")
	g := traceGo(t, m, text)
	if !strings.Contains(g, "\n  register ") || !strings.Contains(g, "\n  bell ") {
		t.Errorf("%s: no doorbell was seen", m.name)
	}
	for name, prefix := range versions {
		differ += same(t, cmp, m.name+" "+what+" "+name, traceC(t, m, text, prefix), g)
	}
	t.Logf("%d %s scenarios, %d versions of rdma-core", len(scenarios), what, len(versions))
	return differ
}
