#include "textflag.h"

// func fence()
// FENCE without operands is FENCE iorw, iorw.
TEXT ·fence(SB), NOSPLIT, $0-0
	FENCE
	RET
