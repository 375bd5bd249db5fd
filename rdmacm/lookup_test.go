package rdmacm

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestLookup(t *testing.T) {
	for _, tt := range []struct {
		address string
		any     bool
		want    string
	}{
		{"10.9.0.1:7174", false, "10.9.0.1:7174"},
		{"[2001:db8::1]:7174", false, "[2001:db8::1]:7174"},
		{"[fe80::1%eth0]:7174", false, "[fe80::1%eth0]:7174"},
		{"[fe80::1%2]:0", false, "[fe80::1%2]:0"},
		{"[::ffff:10.9.0.1]:7174", false, "10.9.0.1:7174"},
		{"10.9.0.1:http", false, "10.9.0.1:80"},
		{":7174", true, "[::]:7174"},
		{"0.0.0.0:7174", true, "0.0.0.0:7174"},
	} {
		got, err := lookup(context.Background(), tt.address, tt.any)
		if err != nil {
			t.Errorf("%s: %v", tt.address, err)
			continue
		}
		want := []netip.AddrPort{netip.MustParseAddrPort(tt.want)}
		if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.address, diff)
		}
	}
	for _, address := range []string{"", "10.9.0.1", ":7174", "10.9.0.1:no-such-service", "10.9.0.1:65536", "fe80::1%eth0"} {
		if got, err := lookup(context.Background(), address, false); err == nil {
			t.Errorf("%q: got %v, want an error", address, got)
		}
	}
}

func TestLookupName(t *testing.T) {
	got, err := lookup(context.Background(), "localhost:7174", false)
	if err != nil {
		t.Skipf("needs a resolver that knows localhost: %v", err)
	}
	for _, a := range got {
		if !a.Addr().IsLoopback() || a.Port() != 7174 {
			t.Errorf("got %v, want a loopback address with port 7174", a)
		}
	}
}

func TestLookupEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if got, err := lookup(ctx, "name.invalid:7174", false); err == nil {
		t.Errorf("got %v, want an error", got)
	}
}

// TestShares: one address of a name does not take the time of the others.
func TestShares(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for left, least := range map[int]time.Duration{1: 59 * time.Second, 2: 29 * time.Second, 6: 9 * time.Second, 100: time.Second} {
		got, _ := tryOne(ctx, noAddr, nil, left, func(ctx context.Context, _ netip.AddrPort, _ *Options) (time.Duration, error) {
			deadline, _ := ctx.Deadline()
			return time.Until(deadline), nil
		})
		if got < least || got > max(time.Minute/time.Duration(left), leastShare) {
			t.Errorf("%d addresses left: the first gets %v, want nearly its share", left, got)
		}
	}
	_, err := tryOne(context.Background(), noAddr, nil, 2, func(ctx context.Context, _ netip.AddrPort, _ *Options) (int, error) {
		if _, ok := ctx.Deadline(); ok {
			t.Error("a wait without end got one")
		}
		return 0, nil
	})
	if err != nil {
		t.Error(err)
	}
}
