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

// COPY_BLOCK copies 64 bytes from SI to DI.
#define COPY_BLOCK \
	MOVQ (SI), R8; \
	MOVQ 8(SI), R9; \
	MOVQ 16(SI), R10; \
	MOVQ 24(SI), R11; \
	MOVQ 32(SI), R12; \
	MOVQ 40(SI), R13; \
	MOVQ 48(SI), AX; \
	MOVQ 56(SI), CX; \
	MOVQ R8, (DI); \
	MOVQ R9, 8(DI); \
	MOVQ R10, 16(DI); \
	MOVQ R11, 24(DI); \
	MOVQ R12, 32(DI); \
	MOVQ R13, 40(DI); \
	MOVQ AX, 48(DI); \
	MOVQ CX, 56(DI)

// func doorbellCopy(record *uint32, v uint32, dst, src *[64]byte, n int)
// The loads are as wide as the stores that filled the block before: wider ones would have to
// wait until those have left the store buffer. One block, the usual case, takes no jump.
TEXT ·doorbellCopy(SB), NOSPLIT, $0-40
	MOVQ record+0(FP), AX
	MOVL v+8(FP), CX
	MOVQ dst+16(FP), DI
	MOVQ src+24(FP), SI
	MOVQ n+32(FP), DX
	MOVL CX, (AX)
	SFENCE
	COPY_BLOCK
	DECQ DX
	JNZ  more
	SFENCE
	RET
more:
	ADDQ $64, SI
	ADDQ $64, DI
	COPY_BLOCK
	DECQ DX
	JNZ  more
	SFENCE
	RET
