//go:build !race

#include "textflag.h"

// The operand of the barriers is the CRm field: 2 OSHST, 14 ST.

// func doorbell(record *uint32, v uint32, register *uint64, bell uint64)
TEXT ·doorbell(SB), NOSPLIT, $0-32
	MOVD record+0(FP), R0
	MOVW v+8(FP), R1
	MOVD register+16(FP), R2
	MOVD bell+24(FP), R3
	DMB  $2
	MOVW R1, (R0)
	DMB  $2
	MOVD R3, (R2)
	DSB  $14
	RET

// func doorbellCopy(record *uint32, v uint32, dst, src *[64]byte, n int)
TEXT ·doorbellCopy(SB), NOSPLIT, $0-40
	MOVD record+0(FP), R0
	MOVW v+8(FP), R1
	MOVD dst+16(FP), R2
	MOVD src+24(FP), R3
	MOVD n+32(FP), R4
	DMB  $2
	MOVW R1, (R0)
	DMB  $2
block:
	VLD1.P 64(R3), [V0.D2, V1.D2, V2.D2, V3.D2]
	VST1.P [V0.D2, V1.D2, V2.D2, V3.D2], 64(R2)
	SUBS   $1, R4
	BNE    block
	DSB    $14
	RET
