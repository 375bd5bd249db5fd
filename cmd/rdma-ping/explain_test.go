package main

import (
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"
)

// TestRefusedByTCP: siw may say in an errno alone that nobody listens.
func TestRefusedByTCP(t *testing.T) {
	d := &dialError{addr: netip.MustParseAddrPort("10.5.0.1:7174"), err: fmt.Errorf("connect: %w", syscall.ECONNREFUSED)}
	if got := explain(d); !strings.HasPrefix(got, "nobody listens on 10.5.0.1:7174 (connection refused): start ") {
		t.Errorf("got %q", got)
	}
}
