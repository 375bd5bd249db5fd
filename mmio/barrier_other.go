//go:build !amd64 && !arm64 && !riscv64 && !ppc64 && !ppc64le && !s390x && !loong64

package mmio

import "sync/atomic"

// fence is the best that plain Go offers: a sequentially consistent
// read-modify-write. It orders CPU against CPU. No device is driven on these
// systems, the functions are there so that programs build.
func fence() {
	var word uint32
	atomic.AddUint32(&word, 1)
}

func toDevice()    { fence() }
func fromDevice()  { fence() }
func orderWrites() { fence() }
func flushWC()     { fence() }
