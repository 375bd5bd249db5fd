package abi

import (
	"fmt"
	"testing"
)

func TestBigEndian(t *testing.T) {
	b16, b32, b64 := ToBE16(0x0102), ToBE32(0x01020304), ToBE64(0x0102030405060708)
	tests := []struct {
		name      string
		bytes     []byte
		got, want uint64
		text      string
	}{
		{"BE16", bytesOf(&b16), uint64(b16.Get()), 0x0102, b16.String()},
		{"BE32", bytesOf(&b32), uint64(b32.Get()), 0x01020304, b32.String()},
		{"BE64", bytesOf(&b64), b64.Get(), 0x0102030405060708, b64.String()},
	}
	for _, tt := range tests {
		for i, b := range tt.bytes {
			if int(b) != i+1 {
				t.Errorf("%s in memory: got % x, want 01 02 ...", tt.name, tt.bytes)
				break
			}
		}
		if tt.got != tt.want {
			t.Errorf("%s.Get(): got %#x, want %#x", tt.name, tt.got, tt.want)
		}
		if want := fmt.Sprintf("%#x", tt.want); tt.text != want {
			t.Errorf("%s.String(): got %s, want %s", tt.name, tt.text, want)
		}
	}
}

func TestBigEndianSet(t *testing.T) {
	var (
		a BE16
		b BE32
		c BE64
	)
	a.Set(0xfffe)
	b.Set(0xfffefdfc)
	c.Set(1)
	if a.Get() != 0xfffe || b.Get() != 0xfffefdfc || c.Get() != 1 {
		t.Errorf("Set, then Get: got %v %v %v, want 0xfffe 0xfffefdfc 0x1", a, b, c)
	}
	if m := bytesOf(&c); m[7] != 1 {
		t.Errorf("BE64 of 1 in memory: got % x, want the one in the last byte", m)
	}
	if ToBE16(0) != 0 || ToBE32(0) != 0 || ToBE64(0) != 0 {
		t.Error("zero is not zero")
	}
}
