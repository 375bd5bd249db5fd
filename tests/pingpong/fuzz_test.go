package main

import (
	"bytes"
	"strings"
	"testing"
)

// FuzzAddress: what a peer sends is refused, or says word for word what was understood.
func FuzzAddress(f *testing.F) {
	good := address{qpn: 0x11, psn: 0xabcdef, gid: [16]byte{0xfe, 0x80, 15: 1}}
	f.Add(good.encode(), uint8(1))
	f.Add(address{}.encode(), uint8(0))
	f.Add([]byte("0000:00+011:abcdef:FE800000000000000000000000000001\x00"), uint8(1))
	f.Add(append(good.encode(), good.encode()[:20]...), uint8(2))
	f.Add([]byte{}, uint8(0))
	f.Fuzz(func(t *testing.T, b []byte, pairs uint8) {
		if a, err := parseAddress(b); err == nil {
			want := strings.ToLower(string(b[5 : addressLen-1]))
			if got := string(a.encode()[5 : addressLen-1]); got != want {
				t.Errorf("%q was read as %q", b, got)
			}
		}
		const slots = 4
		peers, err := receive(bytes.NewReader(b), int(pairs), slots)
		if err == nil && (len(peers) != int(pairs) || len(b) < slots*addressLen) {
			t.Errorf("%d addresses of %d came out of %d bytes", len(peers), pairs, len(b))
		}
	})
}
