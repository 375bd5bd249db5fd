package mlx5

import (
	"fmt"
	"strings"
	"testing"
)

// words are bytes written as big-endian words in hexadecimal; bars are for the eye. An "x"
// stands for a word of which nothing is said.
func words(t testing.TB, s string) (b []byte, known []bool) {
	t.Helper()
	for _, f := range strings.Fields(strings.ReplaceAll(s, "|", " ")) {
		var v uint32
		if f != "x" {
			if _, err := fmt.Sscanf(f, "%x", &v); err != nil {
				t.Fatalf("%q: %v", f, err)
			}
		}
		b = be.AppendUint32(b, v)
		for range 4 {
			known = append(known, f != "x")
		}
	}
	return b, known
}

// dump is the other way round.
func dump(b []byte) string {
	var s strings.Builder
	for i := 0; i+4 <= len(b); i += 4 {
		switch {
		case i == 0:
		case i%64 == 0:
			s.WriteString("\n")
		case i%16 == 0:
			s.WriteString(" | ")
		default:
			s.WriteString(" ")
		}
		fmt.Fprintf(&s, "%08x", be.Uint32(b[i:]))
	}
	return s.String()
}

// wantWords compares memory with words.
func wantWords(t testing.TB, what string, got []byte, want string) {
	t.Helper()
	b, known := words(t, want)
	for i := range b {
		if i >= len(got) || known[i] && got[i] != b[i] {
			t.Errorf("%s: got\n%s\nwant\n%s", what, dump(got[:min(len(got), len(b))]), dump(b))
			return
		}
	}
}
