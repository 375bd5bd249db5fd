package uverbs

import (
	"runtime"
	"sync/atomic"
	"time"
)

// spinner decides how often a wait polls before it arms the queue and sleeps. To sleep and be
// woken takes microseconds, and on a fast network the answer may be there before: to spin for
// it is faster then, and no dearer. Where completions are rare it is in vain. So a wait spins
// if a spin has helped before, or if those that slept were woken so soon that one might have:
// within a few times of what a spin takes.
type spinner struct {
	most   int           // polls of a spin, 0 for none
	took   atomic.Int64  // how long the last spin took that found nothing
	failed atomic.Uint32 // spins in a row that found nothing
	skip   atomic.Uint32 // short sleeps that are to pass before the next spin
}

const (
	defaultSpins = 4096    // 30 µs or so on mlx5
	maxSpins     = 1 << 16 // so that contexts are heard of soon
	mostFailed   = 3       // of waits that sleep shortly one in seven spins at the least
	shortSleep   = 4       // as long as so many spins
)

// limit takes what the program wants. With one processor nothing can come while it spins. It
// is asked once a queue, because the runtime takes the scheduler's lock for the answer.
func (s *spinner) limit(most int) {
	switch {
	case most < 0 || min(runtime.GOMAXPROCS(0), runtime.NumCPU()) == 1:
		s.most = 0
	case most == 0:
		s.most = defaultSpins
	default:
		s.most = min(most, maxSpins)
	}
}

// polls is how often the next wait is to poll.
func (s *spinner) polls() int {
	if s.skip.Load() > 0 {
		return 0
	}
	return s.most
}

// found hears that a spin helped.
func (s *spinner) found() { s.failed.Store(0) }

// gaveUp hears that a spin did not, and how long it took.
func (s *spinner) gaveUp(took time.Duration) {
	n := min(s.failed.Load()+1, mostFailed)
	s.failed.Store(n)
	s.skip.Store(1<<n - 1)
	s.took.Store(int64(took))
}

// slept hears how long a wait slept.
func (s *spinner) slept(d time.Duration) {
	if n := s.skip.Load(); n > 0 && int64(d) <= shortSleep*s.took.Load() {
		s.skip.Store(n - 1)
	}
}
