package uverbs

import (
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestSpinner: who spins, wait by wait. A spin takes 10 µs.
func TestSpinner(t *testing.T) {
	const spin = 10 * time.Microsecond
	for _, tt := range []struct{ name, waits, want string }{
		// What comes: f, within a spin; s, soon after; l, long after. What the wait does:
		// S, it spins; -, it sleeps at once.
		{"answers are soon there", "ffff", "SSSS"},
		{"rare completions: not again", "llllllll", "S-------"},
		{"until one is soon there", "lllsffff", "S---SSSS"},
		{"always a little too late: one in seven", "ssssssssssssssssssss", "SS--S------S------S-"},
		{"one a little late: it may happen", "fffsfffsfff", "SSSSSSSSSSS"},
		{"a long sleep delays the next spin by one", "fflsff", "SSS-SS"},
	} {
		s := spinner{most: 1}
		var did strings.Builder
		for _, c := range tt.waits {
			spins := s.polls() > 0
			did.WriteByte(map[bool]byte{true: 'S', false: '-'}[spins])
			sleep := map[rune]time.Duration{'f': spin / 2, 's': 3 * spin, 'l': time.Millisecond}[c]
			if spins && c == 'f' {
				s.found()
				continue
			}
			if spins {
				s.gaveUp(spin)
			}
			s.slept(sleep)
		}
		if did.String() != tt.want {
			t.Errorf("%s: completions %s, waits %s, want %s", tt.name, tt.waits, &did, tt.want)
		}
	}
}

func TestSpinnerLimit(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	for asked, want := range map[int]int{0: defaultSpins, -1: 0, 7: 7, 1 << 40: maxSpins} {
		if runtime.NumCPU() == 1 {
			want = 0
		}
		var s spinner
		if s.limit(asked); s.most != want {
			t.Errorf("asked for %d polls: got %d, want %d", asked, s.most, want)
		}
	}
	runtime.GOMAXPROCS(1)
	var s spinner
	if s.limit(7); s.most != 0 {
		t.Errorf("with one processor: got %d polls, want none", s.most)
	}
}
