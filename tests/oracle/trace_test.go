//go:build linux

package oracle

import (
	"bytes"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/fakekernel"
	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/uverbs"
)

// arena is one for all tests: it is at one place.
var arena = sync.OnceValues(NewArena)

// traceHere carries scenarios out in this process and returns the trace. The device is that of
// the launcher.
func traceHere(t testing.TB, m mode, text string) string {
	t.Helper()
	how := m.how
	how.NoExec = true
	var out bytes.Buffer
	k := fakekernel.New(fakekernel.Options{
		Root: t.TempDir(), Kernel: m.kernelVersion(), Trace: &out,
		Devices: []fakekernel.Device{{
			Driver: abi.RDMA_DRIVER_MLX5, MLX5: how, V1: true, MTU: 5, NetDev: "lo", IfIndex: 1,
			Addrs: []netip.Addr{netip.MustParseAddr("fe80::a:1"), netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()},
		}},
	})
	defer k.Close()
	devices, err := uverbs.Devices(uverbs.WithSystem(k.System()))
	testutil.Must(t, err)
	devices[0].NoBlueFlame = m.off
	mem, err := arena()
	testutil.Must(t, err)
	r := Runner{Device: devices[0], Arena: mem, Mark: func(text string) error {
		if err := k.Mark(text); err != unix.ENOENT { //nolint:errorlint // the kernel's bare word
			return err
		}
		return nil
	}}
	if err := r.Run(strings.NewReader(text)); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	return out.String()
}
