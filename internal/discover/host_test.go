package discover

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
)

// TestHost runs on whatever this machine is: a list or an error of the package,
// and no descriptor of a device (RW-09) since none is opened.
func TestHost(t *testing.T) {
	s := Host()
	devs, err := s.Devices()
	var e *Error
	if err != nil && !errors.As(err, &e) {
		t.Errorf("Devices: got error %#v, want an *Error", err)
	}
	t.Logf("%d devices, %v", len(devs), err)
	for _, d := range devs {
		t.Logf("%+v", d)
	}
	cd, err := s.CM()
	if err != nil && !errors.As(err, &e) {
		t.Errorf("CM: got error %#v, want an *Error", err)
	}
	t.Logf("%+v, %v", cd, err)
	m, err := s.Mode()
	if err != nil && !errors.As(err, &e) {
		t.Errorf("Mode: got error %#v, want an *Error", err)
	}
	t.Logf("%+v, %v", m, err)
}

// TestHostNetwork: the loopback interface is everywhere, and reaches itself from itself.
func TestHostNetwork(t *testing.T) {
	n := Host().Network
	list, err := n.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	local := netip.MustParseAddr("127.0.0.1")
	if !slices.ContainsFunc(list, func(i Interface) bool {
		return i.Up && i.MTU > 0 && slices.ContainsFunc(i.Addrs, func(p netip.Prefix) bool { return p.Addr() == local })
	}) {
		t.Errorf("no interface with %v in %+v", local, list)
	}
	if src, err := n.Source(local); err != nil || src != local {
		t.Errorf("source to %v is %v, %v", local, src, err)
	}
}

func ExampleSystem_Devices() {
	devs, err := Host().Devices()
	if errors.Is(err, ErrNoModule) {
		fmt.Println("this kernel has no RDMA:", err)
		return
	}
	for _, d := range devs {
		if d.Reason != nil {
			fmt.Println(d.Name, "cannot be used:", d.Reason)
			continue
		}
		fmt.Println(d.Name, DriverName(d.Driver), d.Node, d.NetDevs)
	}
}
