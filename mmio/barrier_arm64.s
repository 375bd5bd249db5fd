#include "textflag.h"

// The operand is the CRm field: 1 OSHLD, 2 OSHST, 14 ST.

// func toDevice()
TEXT ·toDevice(SB), NOSPLIT, $0-0
	DMB $2
	RET

// func fromDevice()
TEXT ·fromDevice(SB), NOSPLIT, $0-0
	DMB $1
	RET

// func orderWrites()
TEXT ·orderWrites(SB), NOSPLIT, $0-0
	DMB $2
	RET

// func flushWC()
TEXT ·flushWC(SB), NOSPLIT, $0-0
	DSB $14
	RET
