package siw

import (
	"encoding/binary"
	"testing"
)

// TestWords: the words of both byte orders are the fields as they stand in memory.
func TestWords(t *testing.T) {
	for _, big := range []bool{false, true} {
		var order binary.ByteOrder = binary.LittleEndian
		if big {
			order = binary.BigEndian
		}
		var wr [4]byte
		order.PutUint16(wr[:], 0xa1b2)
		wr[2], wr[3] = 0xc3, 0xd4
		word := order.Uint32(wr[:])
		if got := packHead(big, 0xa1b2, 0xc3, 0xd4); got != word {
			t.Errorf("big endian %v: packed %#x, want %#x", big, got, word)
		}
		if got := headFlags(big, word); got != 0xa1b2 {
			t.Errorf("big endian %v: flags %#x", big, got)
		}
		order.PutUint16(wr[:], 0)
		if got, want := freeHead(big, word), order.Uint32(wr[:]); got != want {
			t.Errorf("big endian %v: freed %#x, want %#x", big, got, want)
		}

		done := [4]byte{0xa1, 0xb2}
		order.PutUint16(done[2:], 0xc3d4)
		word = order.Uint32(done[:])
		if flags, op, status := splitDone(big, word); flags != 0xa1 || op != 0xb2 || status != 0xc3d4 {
			t.Errorf("big endian %v: got %#x %#x %#x", big, flags, op, status)
		}
		done[0] = 0
		if got, want := freeDone(big, word), order.Uint32(done[:]); got != want {
			t.Errorf("big endian %v: freed %#x, want %#x", big, got, want)
		}
	}
	if want := ne.Uint16([]byte{0, 1}) == 1; bigEndian != want {
		t.Errorf("bigEndian is %v on this machine", bigEndian)
	}
}
