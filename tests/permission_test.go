//go:build linux

package tests

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/pureverbs/rdma/internal/testutil"
)

// TestRW47NoPermission: a node that may not be opened is named, and the others work.
func TestRW47NoPermission(t *testing.T) {
	testutil.Lab(t, "RW47")
	other := extraLink(t, "x7")
	testutil.Must(t, os.Chmod(other.Path(), 0))
	out, err := nobody(exec.Command(testutil.Command(t, "rdma-ping"), "devices")).CombinedOutput()
	text := string(out)
	if err != nil || !strings.Contains(text, other.Path()) || !strings.Contains(text, "permission") || !strings.Contains(text, testutil.Device(t).Name()) {
		t.Errorf("devices: %v, want both devices, and the node that may not be opened:\n%s", err, text)
	}
}
