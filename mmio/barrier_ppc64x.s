//go:build ppc64 || ppc64le

#include "textflag.h"

// func fence()
TEXT ·fence(SB), NOSPLIT, $0-0
	SYNC
	RET
