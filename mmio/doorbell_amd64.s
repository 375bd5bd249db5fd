//go:build !race

#include "textflag.h"

// func doorbell(record *uint32, v uint32, register *uint64, bell uint64)
// The first fence keeps a store to a write-combining page behind the record, which the
// order of ordinary stores does not.
TEXT ·doorbell(SB), NOSPLIT, $0-32
	MOVQ record+0(FP), AX
	MOVL v+8(FP), CX
	MOVQ register+16(FP), DI
	MOVQ bell+24(FP), SI
	MOVL CX, (AX)
	SFENCE
	MOVQ SI, (DI)
	SFENCE
	RET

// func doorbellCopy(record *uint32, v uint32, dst, src *[64]byte, n int)
// The loads are as wide as the stores that filled the block before: wider ones would have to
// wait until those have left the store buffer.
TEXT ·doorbellCopy(SB), NOSPLIT, $0-40
	MOVQ record+0(FP), AX
	MOVL v+8(FP), CX
	MOVQ dst+16(FP), DI
	MOVQ src+24(FP), SI
	MOVQ n+32(FP), DX
	MOVL CX, (AX)
	SFENCE
block:
	MOVQ (SI), AX
	MOVQ 8(SI), CX
	MOVQ 16(SI), R8
	MOVQ 24(SI), R9
	MOVQ 32(SI), R10
	MOVQ 40(SI), R11
	MOVQ 48(SI), R12
	MOVQ 56(SI), R13
	MOVQ AX, (DI)
	MOVQ CX, 8(DI)
	MOVQ R8, 16(DI)
	MOVQ R9, 24(DI)
	MOVQ R10, 32(DI)
	MOVQ R11, 40(DI)
	MOVQ R12, 48(DI)
	MOVQ R13, 56(DI)
	ADDQ $64, SI
	ADDQ $64, DI
	DECQ DX
	JNZ  block
	SFENCE
	RET
