package siw

// The flags that say who owns a slot are 16 or 8 bits wide, and atomic accesses 32. So a
// slot is handed over with the whole aligned word that begins with the flags: its other
// fields belong to the slot's owner too. The word is put together for both byte orders.

// packHead is the word of a work request: its flags, number of pieces and opcode.
func packHead(big bool, flags uint16, pieces, op uint8) uint32 {
	if big {
		return uint32(flags)<<16 | uint32(pieces)<<8 | uint32(op)
	}
	return uint32(flags) | uint32(pieces)<<16 | uint32(op)<<24
}

// headFlags are the flags in the word of a work request.
func headFlags(big bool, word uint32) uint16 {
	if big {
		return uint16(word >> 16)
	}
	return uint16(word)
}

// freeHead is the word of a work request without its flags.
func freeHead(big bool, word uint32) uint32 {
	if big {
		return word &^ (0xffff << 16)
	}
	return word &^ 0xffff
}

// splitDone takes the word of a completion apart.
func splitDone(big bool, word uint32) (flags, op uint8, status uint16) {
	if big {
		return uint8(word >> 24), uint8(word >> 16), uint16(word)
	}
	return uint8(word), uint8(word >> 8), uint16(word >> 16)
}

// freeDone is the word of a completion without its flags.
func freeDone(big bool, word uint32) uint32 {
	if big {
		return word &^ (0xff << 24)
	}
	return word &^ 0xff
}
