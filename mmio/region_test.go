package mmio

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"
)

func TestRegionWindows(t *testing.T) {
	mem := aligned64(2)
	r := NewRegion(mem, nil)
	tests := []struct {
		name    string
		get     func(off int) (unsafe.Pointer, error)
		off     int
		wantErr string
	}{
		{"first word", word32(r), 0, ""},
		{"last word", word32(r), 124, ""},
		{"one past", word32(r), 128, "outside the mapping of 128 bytes"},
		{"across the end", word32(r), 126, "outside"},
		{"negative", word32(r), -4, "outside"},
		{"largest int", word32(r), math.MaxInt, "outside"},
		{"smallest int", word32(r), math.MinInt, "outside"},
		{"odd", word32(r), 2, "not 4-byte aligned"},
		{"first long", word64(r), 0, ""},
		{"last long", word64(r), 120, ""},
		{"long across the end", word64(r), 124, "outside"},
		{"long at half", word64(r), 4, "not 8-byte aligned"},
		{"first block", block64(r), 0, ""},
		{"last block", block64(r), 64, ""},
		{"block across the end", block64(r), 128, "outside"},
		{"block at half", block64(r), 32, "not 64-byte aligned"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, err := tt.get(tt.off)
			if tt.wantErr == "" {
				if err != nil || p != unsafe.Pointer(&mem[tt.off]) {
					t.Errorf("offset %d: got %p, %v, want the address of the byte", tt.off, p, err)
				}
				return
			}
			if p != nil || err == nil || !strings.Contains(err.Error(), tt.wantErr) {
				t.Errorf("offset %d: got %p, %v, want an error with %q", tt.off, p, err, tt.wantErr)
			}
		})
	}
}

func word32(r *Region) func(int) (unsafe.Pointer, error) {
	return func(off int) (unsafe.Pointer, error) { p, err := r.Uint32(off); return unsafe.Pointer(p), err }
}

func word64(r *Region) func(int) (unsafe.Pointer, error) {
	return func(off int) (unsafe.Pointer, error) { p, err := r.Uint64(off); return unsafe.Pointer(p), err }
}

func block64(r *Region) func(int) (unsafe.Pointer, error) {
	return func(off int) (unsafe.Pointer, error) { p, err := r.Block64(off); return unsafe.Pointer(p), err }
}

// TestRegionJudgesTheAddress has a mapping that itself starts at an odd place: the
// alignment that counts is that of the address, not that of the offset.
func TestRegionJudgesTheAddress(t *testing.T) {
	r := NewRegion(aligned64(1)[4:], nil)
	if _, err := r.Uint64(0); err == nil {
		t.Error("64-bit word at an address that is 4 mod 8: got no error")
	}
	if _, err := r.Uint64(4); err != nil {
		t.Errorf("64-bit word at an aligned address: got %v", err)
	}
}

func TestRegionStores(t *testing.T) {
	mem := aligned64(1)
	r := NewRegion(mem, nil)
	p, err := r.Uint64(8)
	if err != nil {
		t.Fatal(err)
	}
	Store64(p, 0x0102030405060708)
	if got := binary.NativeEndian.Uint64(mem[8:]); got != 0x0102030405060708 {
		t.Errorf("bytes 8 to 15: got %#x", got)
	}
	if got := r.Len(); got != 64 {
		t.Errorf("Len: got %d, want 64", got)
	}
}

func TestRegionClose(t *testing.T) {
	mem := aligned64(1)
	var calls int
	r := NewRegion(mem, func(b []byte) error {
		calls++
		if &b[0] != &mem[0] || len(b) != len(mem) {
			t.Errorf("unmap: got %p and %d bytes, want the mapping itself", b, len(b))
		}
		return nil
	})
	for i := range 3 {
		if err := r.Close(); err != nil {
			t.Errorf("Close %d: got %v", i, err)
		}
	}
	if calls != 1 {
		t.Errorf("unmap: got %d calls, want 1", calls)
	}
	if r.Bytes() != nil || r.Len() != 0 {
		t.Errorf("after Close: got %d bytes, want none", r.Len())
	}
	if _, err := r.Uint32(0); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("Uint32 after Close: got %v, want fs.ErrClosed", err)
	}
}

func TestRegionCloseReportsUnmap(t *testing.T) {
	cause := errors.New("cause")
	r := NewRegion(aligned64(1), func([]byte) error { return cause })
	if err := r.Close(); !errors.Is(err, cause) {
		t.Errorf("first Close: got %v, want the error of unmap", err)
	}
	if err := r.Close(); err != nil {
		t.Errorf("second Close: got %v, want nil", err)
	}
}

func TestRegionCloseFromManyGoroutines(t *testing.T) {
	var calls atomic.Int32
	r := NewRegion(aligned64(1), func([]byte) error { calls.Add(1); return nil })
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			_, _ = r.Uint32(0)
			_ = r.Close()
		})
	}
	wg.Wait()
	if got := calls.Load(); got != 1 {
		t.Errorf("unmap: got %d calls, want 1", got)
	}
}

func TestRegionEmpty(t *testing.T) {
	r := NewRegion(nil, nil)
	if _, err := r.Uint32(0); err == nil || errors.Is(err, fs.ErrClosed) {
		t.Errorf("Uint32 in an empty region: got %v, want an error that does not speak of Close", err)
	}
	if err := r.Close(); err != nil {
		t.Errorf("Close: got %v", err)
	}
}

// FuzzRegion compares the windows with the definition: inside and aligned.
func FuzzRegion(f *testing.F) {
	f.Add(uint8(64), uint8(0), 0)
	f.Add(uint8(64), uint8(4), 60)
	f.Add(uint8(3), uint8(0), 0)
	f.Add(uint8(255), uint8(1), math.MaxInt)
	f.Add(uint8(255), uint8(1), math.MinInt)
	f.Fuzz(func(t *testing.T, length, start uint8, off int) {
		mem := aligned64(8)[start : int(start)+int(length)]
		r := NewRegion(mem, nil)
		for size, get := range map[int]func(int) (unsafe.Pointer, error){4: word32(r), 8: word64(r), 64: block64(r)} {
			inside := off >= 0 && off <= len(mem) && len(mem)-off >= size
			want := inside && (int(start)+off)%size == 0
			p, err := get(off)
			if (err == nil) != want || (p != nil) != want {
				t.Fatalf("%d bytes at %d of %d bytes that start at %d: got %p, %v", size, off, len(mem), start, p, err)
			}
			if want && p != unsafe.Pointer(&mem[off]) {
				t.Fatalf("%d bytes at %d: got %p, want %p", size, off, p, &mem[off])
			}
		}
	})
}
