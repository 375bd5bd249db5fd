package main

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRW15Addresses checks all forms of addresses; the zone of a link-local one is neither
// lost nor to be left out.
func TestRW15Addresses(t *testing.T) {
	tests := []struct{ text, want string }{
		{"10.9.0.1", "10.9.0.1:7174"},
		{"10.9.0.1:99", "10.9.0.1:99"},
		{"fd00::1", "[fd00::1]:7174"},
		{"[fd00::1]", "[fd00::1]:7174"},
		{"[fd00::1]:99", "[fd00::1]:99"},
		{"fe80::1%eth0", "[fe80::1%eth0]:7174"},
		{"[fe80::1%2]:99", "[fe80::1%2]:99"},
		{"::ffff:10.9.0.1", "10.9.0.1:7174"},
		{"localhost.invalid:", ""},
		{"", ""},
		{":7174", ""},
		{"10.9.0.1:0", ""},
		{"10.9.0.1:99999", ""},
		{"10.9.0.1:rdma", ""},
		{"[fd00::1", ""},
		{"fd00:::1", ""},
		{"[fd00::1]x", ""},
		{"fe80::1", ""},
		{"[fe80::1]:99", ""},
	}
	for _, tt := range tests {
		got, err := resolveAddr(t.Context(), tt.text, defaultPort)
		if tt.want == "" {
			if !errors.As(err, new(*usageError)) {
				t.Errorf("resolveAddr(%q) = %v, %v, want a usage error", tt.text, got, err)
			}
			continue
		}
		if err != nil || got.String() != tt.want {
			t.Errorf("resolveAddr(%q) = %v, %v, want %s", tt.text, got, err, tt.want)
		}
	}
}

func TestListenAddrs(t *testing.T) {
	for text, want := range map[string][]string{
		"":              {"[::]:7174", "0.0.0.0:7174"},
		"0.0.0.0":       {"0.0.0.0:7174"},
		"::":            {"[::]:7174"},
		"10.9.0.1:99":   {"10.9.0.1:99"},
		"fe80::1%eth0":  {"[fe80::1%eth0]:7174"},
		"[fd00::1]:100": {"[fd00::1]:100"},
	} {
		addrs, err := listenAddrs(text, defaultPort)
		if diff := cmp.Diff(want, texts(addrs)); diff != "" || err != nil {
			t.Errorf("listenAddrs(%q): %v (-want +got):\n%s", text, err, diff)
		}
	}
	for _, text := range []string{"somewhere", "fe80::1", "10.9.0.1:x"} {
		if addrs, err := listenAddrs(text, defaultPort); !errors.As(err, new(*usageError)) {
			t.Errorf("listenAddrs(%q) = %v, %v, want a usage error", text, addrs, err)
		}
	}
}

func texts(addrs []netip.AddrPort) (out []string) {
	for _, a := range addrs {
		out = append(out, a.String())
	}
	return out
}
