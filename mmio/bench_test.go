package mmio

import (
	"encoding/binary"
	"sync/atomic"
	"testing"
)

// The benchmarks put each operation beside what sync/atomic or Go would do, on
// ordinary memory: on a doorbell page the difference is larger still.

// BenchmarkPost fills a request of 256 bytes and then stores one word, as a
// driver does: a locked instruction has to wait for the stores before it.
func BenchmarkPost(b *testing.B) {
	const size, count = 256, 1024
	queue := aligned64(size * count / 64)
	var register uint64
	var index uint32
	next := func(n int) []byte {
		request := queue[n%count*size:][:size]
		for i := 0; i < size; i += 8 {
			binary.NativeEndian.PutUint64(request[i:], uint64(i))
		}
		return request
	}
	b.Run("Store64", func(b *testing.B) {
		for n := 0; b.Loop(); n++ {
			Store64(&register, uint64(next(n)[0]))
		}
	})
	b.Run("StoreRelease32", func(b *testing.B) {
		for n := 0; b.Loop(); n++ {
			StoreRelease32(&index, uint32(next(n)[0]))
		}
	})
	b.Run("none", func(b *testing.B) {
		for n := 0; b.Loop(); n++ {
			next(n)
		}
	})
}

func BenchmarkStore64(b *testing.B) {
	var word uint64
	b.Run("mmio", func(b *testing.B) {
		for b.Loop() {
			Store64(&word, 1)
		}
	})
	b.Run("atomic", func(b *testing.B) {
		for b.Loop() {
			atomic.StoreUint64(&word, 1)
		}
	})
}

func BenchmarkLoadAcquire32(b *testing.B) {
	var word uint32
	for b.Loop() {
		_ = LoadAcquire32(&word)
	}
}

func BenchmarkCopy64(b *testing.B) {
	mem := aligned64(2)
	src, dst := (*[64]byte)(mem), (*[64]byte)(mem[64:])
	b.Run("mmio", func(b *testing.B) {
		b.SetBytes(64)
		for b.Loop() {
			Copy64(dst, src)
		}
	})
	b.Run("go", func(b *testing.B) {
		b.SetBytes(64)
		for b.Loop() {
			*dst = *src
		}
	})
}

func BenchmarkBarrier(b *testing.B) {
	b.Run("ToDevice", func(b *testing.B) {
		for b.Loop() {
			ToDevice()
		}
	})
	b.Run("FromDevice", func(b *testing.B) {
		for b.Loop() {
			FromDevice()
		}
	})
	b.Run("OrderWrites", func(b *testing.B) {
		for b.Loop() {
			OrderWrites()
		}
	})
	b.Run("FlushWC", func(b *testing.B) {
		for b.Loop() {
			FlushWC()
		}
	})
}
