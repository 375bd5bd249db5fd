package rdmacm

import (
	"errors"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pureverbs/rdma/abi"
	"github.com/pureverbs/rdma/internal/uapi"
)

// loopback is the one interface that every system has: its name, and its number 1.
func loopback(t *testing.T) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("needs interface numbers as Linux gives them")
	}
	ifi, err := net.InterfaceByIndex(1)
	if err != nil {
		t.Skipf("needs the loopback interface: %v", err)
	}
	return ifi.Name
}

// native is a number of two or four bytes as this machine writes it.
func native(n int, v uint32) string {
	little := []byte{byte(v), byte(v >> 8), byte(v >> 16), byte(v >> 24)}[:n]
	if abi.ToBE16(1) == 1 {
		for i, j := 0, n-1; i < j; i, j = i+1, j-1 {
			little[i], little[j] = little[j], little[i]
		}
	}
	return string(little)
}

func TestRW15SockaddrGolden(t *testing.T) {
	lo := loopback(t)
	const linkLocal = "\xfe\x80\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01"
	for _, tt := range []struct {
		addr  string
		bytes string
	}{
		{"10.9.0.1:7174", native(2, 2) + "\x1c\x06" + "\x0a\x09\x00\x01" + "\x00\x00\x00\x00\x00\x00\x00\x00"},
		{"0.0.0.0:0", native(2, 2) + strings.Repeat("\x00", 14)},
		{"[::ffff:10.9.0.1]:7174", native(2, 2) + "\x1c\x06" + "\x0a\x09\x00\x01" + "\x00\x00\x00\x00\x00\x00\x00\x00"},
		{"[::]:7174", native(2, 10) + "\x1c\x06" + strings.Repeat("\x00", 24)},
		{"[2001:db8::2]:258", native(2, 10) + "\x01\x02\x00\x00\x00\x00" +
			"\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02" + "\x00\x00\x00\x00"},
		{"[fe80::1%" + lo + "]:7174", native(2, 10) + "\x1c\x06\x00\x00\x00\x00" + linkLocal + native(4, 1)},
		{"[fe80::1%2]:7174", native(2, 10) + "\x1c\x06\x00\x00\x00\x00" + linkLocal + native(4, 2)},
		{"[fe80::1%70000]:7174", native(2, 10) + "\x1c\x06\x00\x00\x00\x00" + linkLocal + native(4, 70000)},
	} {
		s := abi.KernelSockaddrStorage{Union: [16]uint64{1, 2, 3, 4, 5, 6, 7, 8, 9}}
		n, err := putSockaddr(&s, netip.MustParseAddrPort(tt.addr))
		if err != nil {
			t.Errorf("%s: %v", tt.addr, err)
			continue
		}
		want := make([]byte, 128)
		copy(want, tt.bytes)
		if int(n) != len(tt.bytes) {
			t.Errorf("%s: got size %d, want %d", tt.addr, n, len(tt.bytes))
		}
		if diff := cmp.Diff(want, uapi.Bytes(&s)); diff != "" {
			t.Errorf("%s: bytes differ (-want +got):\n%s", tt.addr, diff)
		}
	}
}

func TestRW15ZoneMissing(t *testing.T) {
	var s abi.KernelSockaddrStorage
	for addr, words := range map[string]string{
		"[fe80::1]:7174":             "needs a zone",
		"[fe80::1%no-such-if0]:7174": `zone "no-such-if0" is no interface`,
	} {
		_, err := putSockaddr(&s, netip.MustParseAddrPort(addr))
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: got error %v, want one that says %q", addr, err, words)
		}
	}
	if _, err := putSockaddr(&s, netip.AddrPort{}); !errors.Is(err, ErrInvalid) {
		t.Errorf("no address: got error %v, want ErrInvalid", err)
	}
}

func TestRW15ZoneComesBack(t *testing.T) {
	lo := loopback(t)
	for _, tt := range []struct{ in, out string }{
		{"10.9.0.1:7174", "10.9.0.1:7174"},
		{"[2001:db8::2]:1", "[2001:db8::2]:1"},
		{"[fe80::1%1]:7174", "[fe80::1%" + lo + "]:7174"},
		{"[fe80::1%" + lo + "]:7174", "[fe80::1%" + lo + "]:7174"},
		{"[fe80::1%99999999]:7174", "[fe80::1%99999999]:7174"},
	} {
		var s abi.KernelSockaddrStorage
		if _, err := putSockaddr(&s, netip.MustParseAddrPort(tt.in)); err != nil {
			t.Fatal(err)
		}
		if got := getSockaddr(&s).withZone().String(); got != tt.out {
			t.Errorf("got %s back from %s, want %s", got, tt.in, tt.out)
		}
	}
	var s abi.KernelSockaddrStorage
	*s.SsFamily() = 27 // AF_IB
	if got := getSockaddr(&s).withZone(); got.IsValid() {
		t.Errorf("got %v from a family that is not known, want none", got)
	}
}

// The bytes of struct rdma_ucm_bind and rdma_ucm_resolve_addr as they reach the kernel.
func TestRW15RequestGolden(t *testing.T) {
	s := newScript(t)
	ch := s.channel(nil)
	mustID(t, ch) // so that the kernel's number of the next is not 0
	id := mustID(t, ch)
	src, dst := netip.MustParseAddrPort("[fe80::1%1]:7174"), netip.MustParseAddrPort("[fe80::2%3]:7175")
	if err := id.Bind(src); err != nil {
		t.Fatal(err)
	}
	if err := id.ResolveAddr(src, dst, 1500*1000*1000); err != nil {
		t.Fatal(err)
	}
	sockaddr := func(port, last, scope byte) string {
		return native(2, 10) + "\x1c" + string(port) + "\x00\x00\x00\x00" +
			"\xfe\x80" + strings.Repeat("\x00", 13) + string(last) + native(4, uint32(scope)) + strings.Repeat("\x00", 100)
	}
	bind := native(4, 1) + native(2, 28) + native(2, 0) + sockaddr(6, 1, 1)
	if diff := cmp.Diff([][]byte{[]byte(bind)}, s.sent(abi.RDMA_USER_CM_CMD_BIND)); diff != "" {
		t.Errorf("bind (-want +got):\n%s", diff)
	}
	resolve := native(4, 1) + native(4, 1500) + native(2, 28) + native(2, 28) + native(4, 0) + sockaddr(6, 1, 1) + sockaddr(7, 2, 3)
	if diff := cmp.Diff([][]byte{[]byte(resolve)}, s.sent(abi.RDMA_USER_CM_CMD_RESOLVE_ADDR)); diff != "" {
		t.Errorf("resolve address (-want +got):\n%s", diff)
	}
}

func TestResolveWithoutSource(t *testing.T) {
	s := newScript(t)
	id := mustID(t, s.channel(nil))
	if err := id.ResolveAddr(netip.AddrPort{}, netip.MustParseAddrPort("10.9.0.1:1"), 1); err != nil {
		t.Fatal(err)
	}
	in := as[abi.RdmaUcmResolveAddr](s.sent(abi.RDMA_USER_CM_CMD_RESOLVE_ADDR)[0])
	if in.SrcSize != 0 || in.DstSize != 16 || in.TimeoutMs != 1 {
		t.Errorf("got source size %d, destination size %d, timeout %d ms; want 0, 16, 1", in.SrcSize, in.DstSize, in.TimeoutMs)
	}
}
