package main

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// goldenHello is the wire form, which other versions and other programs rely on.
const goldenHello = "52504e47" + "01" + "01" + "0018" + "00000038" + "0004" + "0000" + "00000000" + "00000000"

func TestHelloGolden(t *testing.T) {
	tests := []struct {
		hello hello
		want  string
	}{
		{hello{kind: kindRequest, size: 56, window: 4}, goldenHello},
		{
			hello{kind: kindAccept, size: 1 << 20, window: 2, idle: 60000},
			"52504e47" + "01" + "02" + "0018" + "00100000" + "0002" + "0000" + "00000000" + "0000ea60",
		},
		{
			hello{kind: kindReject, size: 4096, reason: reasonTooLarge, flags: 0x80000001},
			"52504e47" + "01" + "03" + "0018" + "00001000" + "0000" + "0003" + "80000001" + "00000000",
		},
	}
	for _, tt := range tests {
		b := tt.hello.marshal()
		if diff := cmp.Diff(tt.want, hex.EncodeToString(b)); diff != "" {
			t.Errorf("marshal(%+v) (-want +got):\n%s", tt.hello, diff)
		}
		if len(b) > maxPrivate {
			t.Errorf("hello has %d bytes, a request holds %d", len(b), maxPrivate)
		}
		want := tt.hello
		want.version = helloVersion
		got, err := parseHello(b)
		if err != nil || got != want {
			t.Errorf("parseHello(marshal) = %+v, %v, want %+v", got, err, want)
		}
	}
}

// TestRW29HelloPadded checks that the hello finds its own end: private data arrive padded
// with zeros to 56, 148 or 196 bytes, and a peer that sent none seems to send zeros.
func TestRW29HelloPadded(t *testing.T) {
	h := hello{kind: kindRequest, size: 9000, window: 3}
	want := h
	want.version = helloVersion
	for _, n := range []int{helloLen, 40, 56, 148, 196} {
		b := append(h.marshal(), make([]byte, n-helloLen)...)
		got, err := parseHello(b)
		if err != nil || got != want {
			t.Errorf("padded to %d: %+v, %v, want %+v", n, got, err, want)
		}
		if isRping(b) {
			t.Errorf("padded to %d: taken for rping", n)
		}
	}
	for _, n := range []int{0, 1, 56, 196} {
		if !isRping(make([]byte, n)) {
			t.Errorf("%d zeros are not taken for rping", n)
		}
	}
}

func TestParseHelloBad(t *testing.T) {
	good := (&hello{kind: kindRequest, size: 56, window: 4}).marshal()
	change := func(at int, v byte) []byte {
		b := bytes.Clone(good)
		b[at] = v
		return b
	}
	tests := []struct {
		name    string
		b       []byte
		foreign bool
	}{
		{"empty", nil, true},
		{"half a magic", good[:3], true},
		{"other magic", change(0, 'X'), true},
		{"cut short", good[:helloLen-1], false},
		{"says it is shorter than it can be", change(7, helloLen-1), false},
		{"says it is longer than it is", change(7, helloLen+1), false},
		{"kind 0", change(5, 0), false},
		{"kind 4", change(5, 4), false},
	}
	for _, tt := range tests {
		_, err := parseHello(tt.b)
		if err == nil {
			t.Errorf("%s: no error", tt.name)
		}
		if got := errors.Is(err, errNotHello); got != tt.foreign {
			t.Errorf("%s: foreign = %v (%v), want %v", tt.name, got, err, tt.foreign)
		}
	}
}

// TestParseHelloLater checks that a hello of a later version tells its version, and that
// what a longer one of this version adds is skipped.
func TestParseHelloLater(t *testing.T) {
	b := (&hello{kind: kindRequest, size: 56, window: 4}).marshal()
	b[4], b[5], b[7] = 2, 77, 200
	if h, err := parseHello(b); err != nil || h != (hello{version: 2, kind: 77}) {
		t.Errorf("version 2: %+v, %v", h, err)
	}
	b[4], b[5], b[7] = 1, 1, helloLen+4
	b = append(b, 1, 2, 3, 4)
	if h, err := parseHello(b); err != nil || h.size != 56 || h.window != 4 {
		t.Errorf("longer: %+v, %v", h, err)
	}
}

func FuzzHello(f *testing.F) {
	golden, err := hex.DecodeString(goldenHello)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(golden)
	f.Add(append(bytes.Clone(golden), make([]byte, 32)...))
	f.Add([]byte("RPNG"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseHello(b)
		if err != nil || h.version != helloVersion {
			return
		}
		if isRping(b) {
			t.Errorf("%x is both a hello and none", b)
		}
		again, err := parseHello(h.marshal())
		if err != nil || again != h {
			t.Errorf("%+v is %+v, %v after a round trip", h, again, err)
		}
	})
}
