package mmio

import "testing"

func TestIsMask(t *testing.T) {
	for mask, want := range map[uint32]bool{
		0: false, 1: true, 2: false, 3: true, 6: false, 7: true, 1<<15 - 1: true,
		1 << 31: false, 1<<31 - 1: true, 1<<32 - 1: true, 1<<32 - 2: false,
	} {
		if got := IsMask(mask); got != want {
			t.Errorf("IsMask(%#x): got %v, want %v", mask, got, want)
		}
	}
}

func TestRingArithmetic(t *testing.T) {
	tests := []struct {
		name                   string
		prod, cons, mask       uint32
		wantUsed, wantFree     uint32
		wantNextProd, nextCons uint32
	}{
		{"empty", 0, 0, 7, 0, 7, 1, 1},
		{"empty elsewhere", 5, 5, 7, 0, 7, 6, 6},
		{"one", 1, 0, 7, 1, 6, 2, 1},
		{"full", 7, 0, 7, 7, 0, 0, 1},
		{"full and wrapped", 2, 3, 7, 7, 0, 3, 4},
		{"wrapped", 1, 6, 7, 3, 4, 2, 7},
		{"smallest ring, empty", 1, 1, 1, 0, 1, 0, 0},
		{"smallest ring, full", 0, 1, 1, 1, 0, 1, 0},
		{"free-running", 1003, 1000, 7, 3, 4, 4, 1},
		{"free-running over 2^32", 2, 1<<32 - 3, 7, 5, 2, 3, 6},
		{"largest ring, full", 1<<32 - 1, 0, 1<<32 - 1, 1<<32 - 1, 0, 0, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := Used(tt.prod, tt.cons, tt.mask); got != tt.wantUsed {
				t.Errorf("Used: got %d, want %d", got, tt.wantUsed)
			}
			if got := Free(tt.prod, tt.cons, tt.mask); got != tt.wantFree {
				t.Errorf("Free: got %d, want %d", got, tt.wantFree)
			}
			if got := Next(tt.prod, tt.mask); got != tt.wantNextProd {
				t.Errorf("Next(prod): got %d, want %d", got, tt.wantNextProd)
			}
			if got := Next(tt.cons, tt.mask); got != tt.nextCons {
				t.Errorf("Next(cons): got %d, want %d", got, tt.nextCons)
			}
		})
	}
}

// FuzzRing checks the arithmetic for indices as a broken kernel or device might
// write them: nothing leaves the ring, and producing and consuming an entry
// change the counts by one.
func FuzzRing(f *testing.F) {
	f.Add(uint32(0), uint32(0), uint8(3))
	f.Add(uint32(7), uint32(0), uint8(3))
	f.Add(uint32(2), uint32(1<<32-3), uint8(15))
	f.Add(uint32(1<<32-1), uint32(1<<31), uint8(32))
	f.Fuzz(func(t *testing.T, prod, cons uint32, bits uint8) {
		mask := uint32(uint64(1)<<(bits%32+1) - 1)
		if !IsMask(mask) {
			t.Fatalf("IsMask(%#x): got false", mask)
		}
		used, free := Used(prod, cons, mask), Free(prod, cons, mask)
		if used > mask || free > mask || used+free != mask {
			t.Fatalf("prod %d cons %d mask %#x: used %d and free %d leave the ring", prod, cons, mask, used, free)
		}
		next := Next(prod, mask)
		if next > mask || next != (prod&mask+1)&mask {
			t.Fatalf("Next(%d, %#x): got %d", prod, mask, next)
		}
		if free > 0 && Used(next, cons, mask) != used+1 {
			t.Fatalf("prod %d cons %d mask %#x: producing one gives %d used, want %d", prod, cons, mask, Used(next, cons, mask), used+1)
		}
		if used > 0 && Used(prod, Next(cons, mask), mask) != used-1 {
			t.Fatalf("prod %d cons %d mask %#x: consuming one does not take one", prod, cons, mask)
		}
	})
}
