//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pureverbs/rdma/internal/discover"
	"github.com/pureverbs/rdma/internal/fakekernel"
)

// runOn runs a command to its end, on a system that differs from its kernel's.
func runOn(t *testing.T, sys *discover.System, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var out, errs bytes.Buffer
	status = run(ctx, args, &out, &errs, sys)
	if ctx.Err() != nil {
		t.Errorf("%q had to be stopped", args)
	}
	return status, out.String(), errs.String()
}

// TestRW47TwoOfFour: four devices, and nodes, or permission, for two of them. All are listed,
// two with the reason; two can be pinged and measured, and what leads to the others names the
// node.
func TestRW47TwoOfFour(t *testing.T) {
	for name, errno := range map[string]syscall.Errno{"missing": syscall.ENOENT, "mode 000": syscall.EACCES} {
		t.Run(name, func(t *testing.T) {
			k := newKernel(t, fakekernel.Options{Devices: make([]fakekernel.Device, 4)})
			sys := k.System()
			nodes := map[string]syscall.Errno{}
			for _, n := range []int{1, 3} {
				nodes[fmt.Sprintf("/dev/infiniband/uverbs%d", n)], nodes[fmt.Sprintf("/dev/char/231:%d", 192+n)] = errno, errno
			}
			sys.Opener = denying{sys.Opener, nodes}
			status, out, errs := runOn(t, sys, "devices", "--json")
			var list []deviceInfo
			if err := json.Unmarshal([]byte(out), &list); err != nil || status != statusOK || errs != "" || len(list) != 4 {
				t.Fatalf("devices: status %d, stderr %q, %v, %d devices", status, errs, err, len(list))
			}
			serve(t, k) // the other host's, where all is well
			perfServe(t, k)
			for i, d := range list {
				node, addr := fmt.Sprintf("/dev/infiniband/uverbs%d", i), fmt.Sprintf("10.9.0.%d", i+1)
				if d.Usable != (i%2 == 0) || d.Usable != (d.Reason == "") || !d.Usable && !strings.Contains(d.Reason, node) {
					t.Errorf("%s: usable %v, reason %q", d.Name, d.Usable, d.Reason)
				}
				for _, line := range []string{"-c 2 -i 0 -I ADDR ADDR", "perf lat -c 10 -I ADDR ADDR"} {
					status, out, errs := runOn(t, sys, strings.Fields(strings.ReplaceAll(line, "ADDR", addr))...)
					if d.Usable && status != statusOK {
						t.Errorf("%s: %s: status %d, stderr %q", d.Name, line, status, errs)
					}
					if !d.Usable && (status != statusError || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, node)) {
						t.Errorf("%s: %s: status %d, stdout %q, stderr %q; want one line with %s", d.Name, line, status, out, errs, node)
					}
				}
			}
		})
	}
}

// TestRW01OneOfTwo: the interface of one device is in another network namespace. The list says
// so, and the other device works.
func TestRW01OneOfTwo(t *testing.T) {
	const hint = "no interface of this device in this network namespace"
	k := newKernel(t, fakekernel.Options{Devices: []fakekernel.Device{{Foreign: true}, {}}})
	status, out, errs := ping(t, k, "devices")
	if status != statusOK || errs != "" || strings.Count(out, hint) != 1 || strings.Index(out, hint) > strings.Index(out, "rxe1: usable") {
		t.Errorf("devices: status %d, stderr %q, stdout:\n%s", status, errs, out)
	}
	serve(t, k)
	perfServe(t, k)
	for _, line := range []string{"-c 2 -i 0 10.9.0.2", "perf lat -c 10 10.9.0.2"} {
		if status, out, errs := ping(t, k, strings.Fields(line)...); status != statusOK {
			t.Errorf("%s: status %d, stderr %q, stdout:\n%s", line, status, errs, out)
		}
	}
}
