package doctor

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/pureverbs/rdma/internal/discover"
	"github.com/pureverbs/rdma/uverbs"
)

// TestRW35Verdict: of the twins of an address v2 is used, of addresses those of this network
// namespace.
func TestRW35Verdict(t *testing.T) {
	here := []discover.Interface{{Name: "eth0", Addrs: []netip.Prefix{
		netip.MustParsePrefix("10.9.0.1/24"), netip.MustParsePrefix("fe80::1/64"), netip.MustParsePrefix("2001:db8::1/64"),
	}}}
	for _, tt := range []struct {
		gid        string
		typ        uverbs.GIDType
		interfaces []discover.Interface
		used       bool
		says       string
	}{
		{"fe80::1", uverbs.GIDTypeRoCEv1, here, false, "v1"},
		{"fe80::1", uverbs.GIDTypeRoCEv2, here, false, "with a zone"},
		{"::ffff:10.9.0.1", uverbs.GIDTypeRoCEv1, here, false, "v1"},
		{"::ffff:10.9.0.1", uverbs.GIDTypeRoCEv2, here, true, "used for 10.9.0.1"},
		{"2001:db8::1", uverbs.GIDTypeRoCEv2, here, true, "used for 2001:db8::1"},
		{"::ffff:10.9.0.5", uverbs.GIDTypeRoCEv2, here, false, "namespace"},
		{"::ffff:10.9.0.5", uverbs.GIDTypeRoCEv2, nil, true, "used for 10.9.0.5"},
	} {
		e := &examination{interfaces: tt.interfaces}
		v := e.judgeGID(&uverbs.GIDEntry{GID: netip.MustParseAddr(tt.gid).As16(), Type: tt.typ})
		if v.used != tt.used || !strings.Contains(v.why, tt.says) {
			t.Errorf("%s %v: got %v, %q; want %v and %q", tt.gid, tt.typ, v.used, v.why, tt.used, tt.says)
		}
	}
}

// TestWay: which interface leads to an address, also while it is down and no route is there.
func TestWay(t *testing.T) {
	interfaces := []discover.Interface{
		{Name: "eth0", Up: true, Addrs: []netip.Prefix{netip.MustParsePrefix("10.9.0.1/24"), netip.MustParsePrefix("fe80::1/64")}},
		{Name: "eth1", Up: true, Addrs: []netip.Prefix{netip.MustParsePrefix("10.5.0.1/24"), netip.MustParsePrefix("fe80::2/64")}},
	}
	for _, tt := range []struct{ addr, src, want string }{
		{"10.5.0.1", "", "eth1"},         // its own
		{"10.5.0.9", "10.5.0.1", "eth1"}, // by the route
		{"192.0.2.1", "10.9.0.1", "eth0"},
		{"10.5.0.9", "", "eth1"}, // no route, but the network fits
		{"192.0.2.1", "", ""},
		{"fe80::9%eth1", "fe80::2", "eth1"},
	} {
		e := &examination{interfaces: interfaces, Options: Options{Addr: netip.MustParseAddr(tt.addr), System: &discover.System{Network: route(tt.src)}}}
		e.findWay()
		if e.way.netdev != tt.want {
			t.Errorf("%s from %q: got %q, want %q", tt.addr, tt.src, e.way.netdev, tt.want)
		}
	}
}

// route is a network whose routing table always chooses that source, "" for no route.
type route string

func (r route) Interfaces() ([]discover.Interface, error) { return nil, nil }

func (r route) Source(netip.Addr) (netip.Addr, error) { return netip.ParseAddr(string(r)) }
