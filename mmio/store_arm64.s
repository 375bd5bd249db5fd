//go:build !race

#include "textflag.h"

// func Store32(p *uint32, v uint32)
TEXT ·Store32(SB), NOSPLIT, $0-12
	MOVD p+0(FP), R0
	MOVW v+8(FP), R1
	MOVW R1, (R0)
	RET

// func Store64(p *uint64, v uint64)
TEXT ·Store64(SB), NOSPLIT, $0-16
	MOVD p+0(FP), R0
	MOVD v+8(FP), R1
	MOVD R1, (R0)
	RET

// func Copy64(dst, src *[64]byte)
// One store instruction for the 64 bytes gives the interconnect the best chance
// to send them as one transaction.
TEXT ·Copy64(SB), NOSPLIT, $0-16
	MOVD dst+0(FP), R0
	MOVD src+8(FP), R1
	VLD1 (R1), [V0.D2, V1.D2, V2.D2, V3.D2]
	VST1 [V0.D2, V1.D2, V2.D2, V3.D2], (R0)
	RET
