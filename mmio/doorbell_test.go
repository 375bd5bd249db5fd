package mmio

import (
	"runtime"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
)

func TestStoreRecordWritesOneWord(t *testing.T) {
	words := [3]uint32{0xa5a5a5a5, 0, 0xa5a5a5a5}
	for _, v := range []uint32{1, 0x01020304, 1<<32 - 1, 0} {
		StoreRecord(&words[1], v)
		if want := [3]uint32{0xa5a5a5a5, v, 0xa5a5a5a5}; words != want {
			t.Errorf("StoreRecord(%#x): got %#x, want %#x", v, words, want)
		}
	}
}

func TestDoorbellWritesRecordAndRegister(t *testing.T) {
	words := [3]uint32{0xa5a5a5a5, 0, 0xa5a5a5a5}
	g := guard64{before: canary, after: canary}
	for _, v := range []uint32{1, 0x01020304, 1<<32 - 1, 0} {
		bell := uint64(v)<<32 | 0x0a0b0c0d
		Doorbell(&words[1], v, &g.target, bell)
		if want := [3]uint32{0xa5a5a5a5, v, 0xa5a5a5a5}; words != want {
			t.Errorf("record %#x: got %#x, want %#x", v, words, want)
		}
		if want := (guard64{canary, bell, canary}); g != want {
			t.Errorf("register %#x: got %#x, want %#x", bell, g, want)
		}
	}
}

// TestDoorbellCopyCopiesTheBlocks: each number of them, every byte in its place, and no more.
func TestDoorbellCopyCopiesTheBlocks(t *testing.T) {
	const most = 4
	src := aligned64(most)
	for i := range src {
		src[i] = byte(i*5 + 1)
	}
	for n := 1; n <= most; n++ {
		dst := aligned64(most + 2)
		want := make([]byte, len(dst))
		copy(want[64:], src[:64*n])
		words := [3]uint32{1, 2, 3}
		DoorbellCopy(&words[1], 0x11223344, (*[64]byte)(dst[64:]), (*[64]byte)(src), n)
		if diff := cmp.Diff(want, dst); diff != "" {
			t.Errorf("%d blocks: (-want +got)\n%s", n, diff)
		}
		if want := [3]uint32{1, 0x11223344, 3}; words != want {
			t.Errorf("%d blocks: record: got %#x, want %#x", n, words, want)
		}
	}
}

// TestDoorbellOrder plays the device, like TestDoorbell: when it sees the register, the
// record and the request are there, however they are brought.
func TestDoorbellOrder(t *testing.T) {
	var queue [8][64]byte
	var record uint32
	register := aligned64(1)
	bell := (*uint64)(unsafe.Pointer(&register[0]))
	word := (*uint32)(unsafe.Pointer(bell))
	type sight struct{ record, request uint32 }
	seen := make(chan sight)
	go func() {
		for want := uint32(1); want <= uint32(len(queue)); want++ {
			for LoadAcquire32(word) != want {
				runtime.Gosched()
			}
			FromDevice()
			r := LoadAcquire32(&record)
			OrderReads()
			seen <- sight{r, uint32(queue[r-1][63])}
		}
	}()
	for n := range queue {
		v := uint32(n + 1)
		queue[n][63] = byte(n + 100)
		*(*uint32)(unsafe.Pointer(&queue[n])) = v
		if n%2 == 0 {
			DoorbellCopy(&record, v, (*[64]byte)(register), &queue[n], 1)
		} else {
			both := uint64(v) // both halves alike, for either byte order
			Doorbell(&record, v, bell, both<<32|both)
		}
		if got, want := <-seen, (sight{v, uint32(n + 100)}); got != want {
			t.Errorf("doorbell %d: the device read %v, want %v", n, got, want)
		}
	}
}

func TestDoorbellsDoNotAllocate(t *testing.T) {
	got := testing.AllocsPerRun(100, func() {
		var record uint32
		var register uint64
		var from, to [64]byte
		StoreRecord(&record, 1)
		Doorbell(&record, 1, &register, 2)
		DoorbellCopy(&record, 1, &to, &from, 1)
	})
	if got != 0 {
		t.Errorf("targets on the stack: got %v allocations, want 0", got)
	}
}

// BenchmarkDoorbell puts the sequences beside their parts, after a request of 32 bytes.
func BenchmarkDoorbell(b *testing.B) {
	request, register := aligned64(1), aligned64(4)
	words := (*[4]uint64)(unsafe.Pointer(&request[0]))
	bell := (*uint64)(unsafe.Pointer(&register[0]))
	var record uint32
	fill := func(n int) { words[0], words[1], words[2], words[3] = uint64(n), uint64(n), uint64(n), uint64(n) }
	b.Run("parts", func(b *testing.B) {
		for n := 0; b.Loop(); n++ {
			fill(n)
			OrderWrites()
			Store32(&record, uint32(n))
			FlushWC()
			Copy64((*[64]byte)(register), (*[64]byte)(request))
			FlushWC()
		}
	})
	b.Run("copy", func(b *testing.B) {
		for n := 0; b.Loop(); n++ {
			fill(n)
			DoorbellCopy(&record, uint32(n), (*[64]byte)(register), (*[64]byte)(request), 1)
		}
	})
	b.Run("word", func(b *testing.B) {
		for n := 0; b.Loop(); n++ {
			fill(n)
			Doorbell(&record, uint32(n), bell, words[0])
		}
	})
	b.Run("record", func(b *testing.B) {
		for n := 0; b.Loop(); n++ {
			fill(n)
			StoreRecord(&record, uint32(n))
		}
	})
	b.Run("release", func(b *testing.B) {
		for n := 0; b.Loop(); n++ {
			fill(n)
			StoreRelease32(&record, uint32(n))
		}
	})
}
