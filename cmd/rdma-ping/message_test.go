package main

import (
	"bytes"
	"encoding/hex"
	"testing"
)

func TestMessageGolden(t *testing.T) {
	b := make([]byte, headerLen+11)
	fillMessage(b, 2)
	const want = "50494e47" + "0000000b" + "0000000000000002" + "2af894fe72f36e3c" + "3f74df"
	if got := hex.EncodeToString(b); got != want {
		t.Errorf("fillMessage = %s, want %s", got, want)
	}
	if seq, err := checkMessage(b, 11); seq != 2 || err != nil {
		t.Errorf("checkMessage = %d, %v, want 2", seq, err)
	}
}

// TestPatternChanges checks that neither the next message nor data shifted by some bytes
// look the same.
func TestPatternChanges(t *testing.T) {
	a, b := make([]byte, 64), make([]byte, 64)
	for seq := uint64(1); seq < 300; seq++ {
		fillPattern(a, seq)
		fillPattern(b, seq+1)
		if bytes.Equal(a, b) {
			t.Fatalf("messages %d and %d are equal", seq, seq+1)
		}
		for shift := 1; shift < 32; shift++ {
			if bytes.Equal(a[shift:], a[:64-shift]) {
				t.Fatalf("message %d does not change by a shift of %d", seq, shift)
			}
		}
	}
	for n := range 17 { // every length, also those that are no multiple of a word
		fillPattern(make([]byte, n), 1)
	}
}

func TestCheckMessageBad(t *testing.T) {
	good := make([]byte, headerLen+8)
	fillMessage(good, 7)
	other := bytes.Clone(good)
	other[0] = 0
	lies := bytes.Clone(good)
	lies[7] = 9
	for name, tt := range map[string]struct {
		b    []byte
		size int
	}{
		"empty":        {nil, 8},
		"half header":  {good[:headerLen-1], 8},
		"cut":          {good[:headerLen+7], 8},
		"too large":    {good, 7},
		"other magic":  {other, 8},
		"false length": {lies, 8},
	} {
		if _, err := checkMessage(tt.b, tt.size); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func FuzzMessage(f *testing.F) {
	b := make([]byte, headerLen+8)
	fillMessage(b, 7)
	f.Add(b, 8)
	f.Fuzz(func(t *testing.T, b []byte, size int) {
		if _, err := checkMessage(b, size); err == nil && len(b)-headerLen > size {
			t.Errorf("%d bytes pass for at most %d", len(b)-headerLen, size)
		}
	})
}

// TestRpingText compares with what C rping sends for -S 40; the letters begin again after 58 messages.
func TestRpingText(t *testing.T) {
	for ping, want := range map[uint64]string{
		0:   "rdma-ping-0: ABCDEFGHIJKLMNOPQRSTUVWXYZ\x00",
		1:   "rdma-ping-1: BCDEFGHIJKLMNOPQRSTUVWXYZ[\x00",
		57:  "rdma-ping-57: zABCDEFGHIJKLMNOPQRSTUVWX\x00",
		58:  "rdma-ping-58: ABCDEFGHIJKLMNOPQRSTUVWXY\x00",
		116: "rdma-ping-116: ABCDEFGHIJKLMNOPQRSTUVWX\x00",
	} {
		b := make([]byte, 40)
		fillRpingText(b, ping)
		if string(b) != want {
			t.Errorf("message %d = %q, want %q", ping, b, want)
		}
	}
	for _, n := range []int{1, 5, 13, 14} {
		b := make([]byte, n)
		fillRpingText(b, 3)
		if got := textLen(b); got != n {
			t.Errorf("text of %d bytes ends after %d", n, got)
		}
	}
	if got := textLen([]byte("no end")); got != 6 {
		t.Errorf("text without zero ends after %d, want 6", got)
	}
}

func TestRpingInfo(t *testing.T) {
	want := rpingInfo{addr: 0x1122334455667788, rkey: 0xaabbccdd, size: 64}
	var b [rpingInfoLen]byte
	want.marshal(&b)
	if got := hex.EncodeToString(b[:]); got != "1122334455667788aabbccdd00000040" {
		t.Errorf("marshal = %s", got)
	}
	if got, err := parseRpingInfo(b[:], 64); err != nil || got != want {
		t.Errorf("parse = %+v, %v, want %+v", got, err, want)
	}
	for name, bad := range map[string]rpingInfo{
		"nothing":   {addr: 4096},
		"too large": {addr: 4096, size: 65},
		"huge":      {addr: 4096, size: 1<<32 - 1},
		"wraps":     {addr: 1<<64 - 10, size: 64},
	} {
		bad.marshal(&b)
		if got, err := parseRpingInfo(b[:], 64); err == nil {
			t.Errorf("%s: %+v, want an error", name, got)
		}
	}
	for _, n := range []int{0, 15} {
		if _, err := parseRpingInfo(b[:n], 64); err == nil {
			t.Errorf("%d bytes: no error", n)
		}
	}
}

func FuzzRpingInfo(f *testing.F) {
	f.Add(make([]byte, rpingInfoLen), 64)
	f.Fuzz(func(t *testing.T, b []byte, limit int) {
		if i, err := parseRpingInfo(b, limit); err == nil && (i.size == 0 || int64(i.size) > int64(limit)) {
			t.Errorf("%d bytes pass for at most %d", i.size, limit)
		}
	})
}
