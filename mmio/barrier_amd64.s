#include "textflag.h"

// func toDevice()
TEXT ·toDevice(SB), NOSPLIT, $0-0
	RET

// func fromDevice()
TEXT ·fromDevice(SB), NOSPLIT, $0-0
	LFENCE
	RET

// func orderWrites()
TEXT ·orderWrites(SB), NOSPLIT, $0-0
	RET

// func flushWC()
TEXT ·flushWC(SB), NOSPLIT, $0-0
	SFENCE
	RET
