package main

import (
	"net/netip"
	"os"
	"testing"

	"github.com/pureverbs/rdma/internal/testutil"
	"github.com/pureverbs/rdma/uverbs"
)

// TestHello runs the program as it stands in README.md. A failure ends the process.
func TestHello(t *testing.T) {
	args := os.Args
	t.Cleanup(func() { os.Args = args })
	os.Args = []string{"hello", netip.AddrPortFrom(address(t, testutil.Device(t)), 7000).String()}
	main()
}

// address is one that leads to the device.
func address(t *testing.T, dev *uverbs.Device) netip.Addr {
	t.Helper()
	ctx, err := dev.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer ctx.Close()
	table, err := ctx.GIDTable()
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range table {
		if a := entry.GID.Addr(); !a.IsLinkLocalUnicast() {
			return a
		}
	}
	t.Fatalf("%s has no address: GID table %v", dev.Name(), table)
	return netip.Addr{}
}
