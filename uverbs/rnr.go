package uverbs

import "time"

// rnrTimers are the delays of IBTA volume 1, table 46, in steps of 10 µs. Code 0 is the
// longest, not the shortest.
var rnrTimers = [32]uint32{
	65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096,
	6144, 8192, 12288, 16384, 24576, 32768, 49152,
}

// DefaultMinRNRTimer is the code for 0.64 ms: how long a peer waits that found no receive
// posted. The connection manager alone would leave it at 0, which is 655.36 ms.
const DefaultMinRNRTimer = 12

// RNRTimer is the delay that a code of QPAttr.MinRNRTimer stands for; codes above 31 are
// cut to their low five bits.
func RNRTimer(code uint8) time.Duration {
	return time.Duration(rnrTimers[code&31]) * 10 * time.Microsecond
}

// RNRTimerCode is the code of the shortest delay that is at least d; delays beyond the
// longest get the longest.
func RNRTimerCode(d time.Duration) uint8 {
	for code := uint8(1); code < 32; code++ {
		if RNRTimer(code) >= d {
			return code
		}
	}
	return 0
}
