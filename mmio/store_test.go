package mmio

import (
	"runtime"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
)

// guard64 surrounds the target of a store, so that a store that is too wide or
// goes astray shows.
type guard64 struct{ before, target, after uint64 }

const canary = 0xa5a5a5a5a5a5a5a5

func TestStore32WritesOneWord(t *testing.T) {
	words := [3]uint32{0xa5a5a5a5, 0, 0xa5a5a5a5}
	for _, v := range []uint32{1, 0x01020304, 0x80000000, 1<<32 - 1, 0} {
		Store32(&words[1], v)
		if want := [3]uint32{0xa5a5a5a5, v, 0xa5a5a5a5}; words != want {
			t.Errorf("Store32(%#x): got %#x, want %#x", v, words, want)
		}
	}
}

func TestStore64WritesOneWord(t *testing.T) {
	g := guard64{before: canary, after: canary}
	for _, v := range []uint64{1, 0x0102030405060708, 1 << 63, 1<<64 - 1, 0} {
		Store64(&g.target, v)
		if want := (guard64{canary, v, canary}); g != want {
			t.Errorf("Store64(%#x): got %#x, want %#x", v, g, want)
		}
	}
}

func TestCopy64CopiesTheBlockAndNoMore(t *testing.T) {
	var src, dst [3][64]byte
	for i := range src[1] {
		src[1][i] = byte(i + 1)
	}
	want := dst
	want[1] = src[1]
	Copy64(&dst[1], &src[1])
	if diff := cmp.Diff(want, dst); diff != "" {
		t.Errorf("Copy64: (-want +got)\n%s", diff)
	}
}

func TestReleaseAndAcquire(t *testing.T) {
	for name, store := range releases {
		words := [3]uint32{7, 0, 9}
		for _, v := range []uint32{1, 1<<32 - 1, 0} {
			store(&words[1], v)
			if got := LoadAcquire32(&words[1]); got != v {
				t.Errorf("%s(%#x) then LoadAcquire32: got %#x", name, v, got)
			}
		}
		if words[0] != 7 || words[2] != 9 {
			t.Errorf("%s: neighbours changed: got %v", name, words)
		}
	}
}

var releases = map[string]func(*uint32, uint32){"StoreRelease32": StoreRelease32, "Publish32": Publish32}

// TestMessagePassing has a writer fill slots and publish an index and a reader
// check every slot below the index it sees. On a weakly ordered CPU, and under
// -race on any, it fails when release or acquire does not order.
func TestMessagePassing(t *testing.T) {
	t.Run("StoreRelease32", func(t *testing.T) {
		passMessages(t, func(slot *uint64, n uint64, prod *uint32, i uint32) { *slot = n; StoreRelease32(prod, i) }, StoreRelease32)
	})
	t.Run("Publish32", func(t *testing.T) {
		passMessages(t, func(slot *uint64, n uint64, prod *uint32, i uint32) { *slot = n; Publish32(prod, i) }, Publish32)
	})
}

func passMessages(t *testing.T, produce func(*uint64, uint64, *uint32, uint32), store func(*uint32, uint32)) {
	const mask, total = 63, 100_000
	var slots [mask + 1]uint64
	var prod, cons uint32
	done := make(chan string, 1)
	go func() { done <- consume(slots[:], &prod, &cons, mask, total, store) }()
	for n := range uint64(total) {
		i := LoadAcquire32(&prod)
		for Free(i, LoadAcquire32(&cons), mask) == 0 {
			runtime.Gosched()
		}
		produce(&slots[i], n, &prod, Next(i, mask))
	}
	if fault := <-done; fault != "" {
		t.Error(fault)
	}
}

func consume(slots []uint64, prod, cons *uint32, mask uint32, total uint64, store func(*uint32, uint32)) (fault string) {
	for n := uint64(0); n < total; {
		i := LoadAcquire32(cons)
		if Used(LoadAcquire32(prod), i, mask) == 0 {
			runtime.Gosched()
			continue
		}
		if slots[i] != n {
			fault = "a slot was read before it was written"
		}
		store(cons, Next(i, mask))
		n++
	}
	return fault
}

// TestDoorbell plays the device: what was written before the doorbell must be
// there once the doorbell is seen. Under -race it also shows that the stores
// of this package are visible to the detector.
func TestDoorbell(t *testing.T) {
	var queue [8][64]byte
	var record, register uint32
	seen := make(chan byte)
	go func() {
		for want := uint32(1); want <= uint32(len(queue)); want++ {
			for LoadAcquire32(&register) != want {
				runtime.Gosched()
			}
			FromDevice()
			seen <- queue[LoadAcquire32(&record)-1][63]
		}
	}()
	for n := range queue {
		queue[n][63] = byte(n + 100)
		OrderWrites()
		Store32(&record, uint32(n+1))
		ToDevice()
		Store32(&register, uint32(n+1))
		FlushWC()
		if got, want := <-seen, byte(n+100); got != want {
			t.Errorf("doorbell %d: device read %d, want %d", n, got, want)
		}
	}
}

func TestStoresDoNotAllocate(t *testing.T) {
	got := testing.AllocsPerRun(100, func() {
		var word32 uint32
		var word64 uint64
		var from, to [64]byte
		Store32(&word32, 1)
		Store64(&word64, 1)
		StoreRelease32(&word32, LoadAcquire32(&word32))
		Copy64(&to, &from)
		ToDevice()
		FlushWC()
	})
	if got != 0 {
		t.Errorf("targets on the stack: got %v allocations, want 0", got)
	}
}

// aligned64 returns n blocks that start at a multiple of 64.
func aligned64(n int) []byte {
	mem := make([]byte, 64*n+63)
	skip := -uintptr(unsafe.Pointer(&mem[0])) & 63
	return mem[skip : int(skip)+64*n : int(skip)+64*n]
}
