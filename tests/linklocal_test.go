package tests

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/pureverbs/rdma/internal/testutil"
)

// TestRW15LinkLocal: the zone of a link-local address, by name and by number, gets to the
// kernel; without one the error asks for it.
func TestRW15LinkLocal(t *testing.T) {
	dev := testutil.Device(t)
	sameObjects(t)
	ifi, addr := linkLocal(t, dev.NetDevs())
	server := start(t, "listening", "rdma-ping", "serve", "-a", fmt.Sprintf("%v%%%s", addr, ifi.Name))
	for _, zone := range []string{ifi.Name, fmt.Sprint(ifi.Index)} {
		out := client(t, "rdma-ping", "-c", "2", "-i", "20ms", fmt.Sprintf("%v%%%s", addr, zone))
		if !strings.Contains(out, "2 sent, 2 received, 0 lost") {
			t.Errorf("zone %s:\n%s", zone, out)
		}
		client(t, "rping", "-c", "-C", "2", "-p", "7174", "-a", fmt.Sprintf("%v%%%s", addr, ifi.Name))
	}
	says(t, []string{"-c", "1", addr.String()}, "name the interface")
	server.interrupt(t)

	// The C server on all addresses, which learns from the request where the client is.
	rping := start(t, "", "rping", "-s", "-a", "::", "-C", "2", "-p", "7179")
	out := retry(t, "rdma-ping", "-c", "2", "-i", "20ms", "-p", "7179", fmt.Sprintf("%v%%%s", addr, ifi.Name))
	if !strings.Contains(out, "2 sent, 2 received, 0 lost") {
		t.Errorf("to rping:\n%s", out)
	}
	rping.end() //nolint:errcheck // rping's server reports the client's going as an error
}

func linkLocal(t *testing.T, names []string) (*net.Interface, netip.Addr) {
	t.Helper()
	for _, name := range names {
		ifi, err := net.InterfaceByName(name)
		testutil.Must(t, err)
		addrs, err := ifi.Addrs()
		testutil.Must(t, err)
		for _, a := range addrs {
			p, err := netip.ParsePrefix(a.String())
			if err == nil && p.Addr().Is6() && p.Addr().IsLinkLocalUnicast() {
				return ifi, p.Addr().WithZone("")
			}
		}
	}
	testutil.Skip(t, "a link-local address on the device's interface", "run: make lab")
	return nil, netip.Addr{}
}
