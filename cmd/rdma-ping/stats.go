package main

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// stats sums up round trips. Mean and deviation are exact; percentiles are good to three
// digits, whatever the number of round trips, in bounded memory.
//
// One goroutine notes and reads; others only ask for the progress.
type stats struct {
	mu            sync.Mutex
	lost, corrupt uint64 // corrupt ones are among the lost
	n             uint64
	min, max      time.Duration
	mean, m2      float64 // Welford's sums, in nanoseconds
	ewma          float64 // in nanoseconds
	hist          *hdrhistogram.Histogram
	started       time.Time
	took          time.Duration
}

// longest is the largest round trip that the histogram tells from longer ones: the limit
// of -W.
const longest = time.Hour

func newStats() *stats { return &stats{hist: hdrhistogram.New(1, int64(longest), 3)} }

func (s *stats) begin() { s.started = time.Now() }
func (s *stats) end()   { s.took = time.Since(s.started) }

// received notes an answer.
func (s *stats) received(rtt time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n++
	if s.n == 1 || rtt < s.min {
		s.min = rtt
	}
	s.max = max(s.max, rtt)
	delta := float64(rtt) - s.mean
	s.mean += delta / float64(s.n)
	s.m2 += delta * (float64(rtt) - s.mean)
	if s.n == 1 {
		s.ewma = float64(rtt)
	}
	s.ewma += (float64(rtt) - s.ewma) / 8 // as ping(8) weighs it
	s.hist.RecordValue(int64(min(max(rtt, 0), longest)))
}

// missed notes a request that got no answer, or one with wrong contents.
func (s *stats) missed(corrupt bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost++
	if corrupt {
		s.corrupt++
	}
}

// progress is the line that ping(8) has for SIGQUIT. Any goroutine may ask for it.
func (s *stats) progress() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := fmt.Sprintf("%d/%d packets, %.0f%% loss", s.n, s.sent(), s.lossPercent())
	if s.n == 0 {
		return text
	}
	return text + fmt.Sprintf(", min/avg/ewma/max = %.1f/%.1f/%.1f/%.1f us", micros(s.min), s.mean/1e3, s.ewma/1e3, micros(s.max))
}

// count is the number of answers.
func (s *stats) count() uint64 { return s.n }

func (s *stats) sent() uint64 { return s.n + s.lost }

// lossPercent is 0 if nothing was sent.
func (s *stats) lossPercent() float64 {
	if s.sent() == 0 {
		return 0
	}
	return 100 * float64(s.lost) / float64(s.sent())
}

func (s *stats) stddev() time.Duration {
	if s.n == 0 {
		return 0
	}
	return time.Duration(math.Sqrt(s.m2 / float64(s.n)))
}

// percentile is never outside of what was measured, as the histogram's own, which is the
// upper end of a bucket, may be.
func (s *stats) percentile(p float64) time.Duration {
	return min(max(time.Duration(s.hist.ValueAtQuantile(p)), s.min), s.max)
}

// status is the exit status of a run that ended with err.
func (s *stats) status(err error) int {
	switch {
	case s.lost > 0, s.n > 0 && err != nil:
		return statusLost
	case err != nil:
		return statusError
	}
	return statusOK
}
